//! The relay over a real store and a broker that answers as a test says.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_broker::{
    BrokerError, BrokerState, Publication, Publish, PublishOutcome, QueueDepth,
};
use fencepost_core::dispatch::decode;
use fencepost_core::fingerprint::{Fingerprint, Moment};
use fencepost_core::id::{JobId, QueueName};
use fencepost_core::kind::OnCrash;
use fencepost_core::outbox::{self, Redispatch};
use fencepost_core::retry::Backoff;
use fencepost_core::time::{Clock, Timestamp, millis};
use fencepost_core::verify;
use fencepost_relay::{Reaper, ReaperConfig, Relay, RelayConfig, RelayState};
use fencepost_service::shutdown::{Shutdown, Trigger};
use fencepost_service::system::SystemIds;
use fencepost_store::{
    ClaimJob, ClaimOutcome, JobView, OpenOptions, Scope, Store, Submit, Submitted,
};
use fencepost_testkit::wait::{eventually, require};
use tokio::sync::watch;
use tokio::task::JoinSet;

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl ManualClock {
    fn turn(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }
}

type Answer = dyn Fn(JobId) -> PublishOutcome + Send + Sync;

/// A broker that answers each message by the job it names, and remembers what it confirmed.
struct Simulated {
    answer: Box<Answer>,
    confirmed: Mutex<Vec<JobId>>,
    state: watch::Sender<BrokerState>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

impl Simulated {
    fn new(answer: impl Fn(JobId) -> PublishOutcome + Send + Sync + 'static) -> Arc<Self> {
        let state = watch::Sender::new(BrokerState::Ready);
        Arc::new(Self {
            answer: Box::new(answer),
            confirmed: Mutex::default(),
            state,
        })
    }

    fn confirmed(&self) -> usize {
        self.confirmed
            .lock()
            .expect("no test panics under it")
            .len()
    }

    async fn confirms(&self, count: usize) {
        eventually(LIMIT, &format!("{count} confirmed"), async || {
            let seen = self.confirmed();
            require(seen == count, seen)
        })
        .await;
    }
}

#[async_trait]
impl Publish for Simulated {
    async fn publish(&self, batch: Vec<Publication>) -> Vec<(u64, PublishOutcome)> {
        let outcomes = batch.into_iter().map(|publication| {
            let jobs = decode(&publication.body).expect("the relay writes envelopes");
            let job = jobs.first().expect("an envelope names a job").id;
            let outcome = (self.answer)(job);
            if outcome == PublishOutcome::Confirmed {
                self.confirmed
                    .lock()
                    .expect("no test panics under it")
                    .push(job);
            }
            (publication.token, outcome)
        });
        outcomes.collect()
    }

    async fn depth(&self, _queue: &QueueName) -> Result<Option<QueueDepth>, BrokerError> {
        Ok(Some(QueueDepth {
            ready: 0,
            consumers: 0,
        }))
    }

    fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.subscribe()
    }
}

struct World {
    store: Store,
    clock: Arc<ManualClock>,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = Arc::new(ManualClock(AtomicI64::new(1_800_000_000_000)));
        let options = OpenOptions {
            path: directory.path().join("fencepost.db"),
            clock: Arc::<ManualClock>::clone(&clock),
            ids: Arc::new(SystemIds),
            allow_network_filesystem: true,
            wake_poll: Duration::from_millis(100),
        };
        let store = Store::open(options).await.expect("the store opens");
        Self {
            store,
            clock,
            _directory: directory,
        }
    }

    async fn submit(&self, prefix: &str, count: usize) -> Vec<JobId> {
        let requests = (0..count).map(|n| self.store.submit(submission(&format!("{prefix}{n}"))));
        let made = futures_util::future::join_all(requests).await;
        made.into_iter()
            .filter_map(|answer| match answer.expect("the store answers") {
                Submitted::Created(job) => Some(job.id),
                Submitted::Replayed(_)
                | Submitted::KeyConflict
                | Submitted::Gone(_)
                | Submitted::BlobMissing(_)
                | Submitted::DeadlineUnusable => None,
            })
            .collect()
    }

    async fn claim(&self, jobs: &[JobId]) {
        let claims = jobs.iter().map(|job| {
            let worker = "w".parse().expect("a name");
            self.store.claim(ClaimJob {
                job: *job,
                worker,
                lease: LIMIT,
                epoch_leaves: false,
            })
        });
        for claimed in futures_util::future::join_all(claims).await {
            let claimed = claimed.expect("the store answers");
            assert!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
        }
    }

    async fn job(&self, job: JobId) -> JobView {
        let scope = Scope {
            tenant: "t".parse().expect("a name"),
            owner: None,
        };
        let found = self
            .store
            .job(&scope, job)
            .await
            .expect("the store answers");
        found.expect("the job is there")
    }

    async fn parked(&self) -> u64 {
        let queues = self.store.queues().await.expect("the store answers");
        queues.iter().map(|queue| queue.parked).sum()
    }

    fn relay(&self, name: &str, broker: &Arc<Simulated>, lease: Duration) -> Running {
        let config = RelayConfig {
            id: name.parse().expect("a name"),
            queues: vec!["default".parse().expect("a name")],
            poll: Duration::from_millis(20),
            confirm_timeout: Duration::from_secs(1),
            leader_lease: lease,
            worker_timeout: Duration::from_secs(15),
            redispatch: Redispatch::default(),
        };
        let publish: Arc<dyn Publish> = Arc::<Simulated>::clone(broker);
        let relay = Relay::new(self.store.clone(), publish, config);
        let state = relay.state();
        let (trigger, shutdown) = Shutdown::manual();
        let mut task = JoinSet::new();
        task.spawn(async move {
            relay.run(async move { shutdown.requested().await }).await;
        });
        Running {
            state,
            trigger,
            task,
        }
    }

    async fn verify(&self) {
        let page = self
            .store
            .audit(None, 10_000)
            .await
            .expect("the store answers");
        for audit in page.jobs {
            let broken = verify::check(&audit.snapshot, &audit.history);
            assert!(broken.is_empty(), "{broken:#?}");
        }
    }
}

fn submission(key: &str) -> Submit {
    let day = Duration::from_secs(86_400);
    Submit {
        tenant: "t".parse().expect("a name"),
        owner: "o".parse().expect("a name"),
        key: key.parse().expect("a key"),
        fingerprint: Fingerprint([0; 32]),
        kind: "echo".parse().expect("a name"),
        queue: "default".parse().expect("a name"),
        priority: 0,
        payload: "{}".to_owned(),
        max_attempts: 3,
        run: None,
        deadline: Moment::After(day),
        timeout: day,
        backoff: Backoff::default(),
        on_crash: OnCrash::Retry,
        trace: None,
        blobs: Vec::new(),
    }
}

struct Running {
    state: watch::Receiver<RelayState>,
    trigger: Trigger,
    task: JoinSet<()>,
}

impl Running {
    async fn is(&mut self, expected: impl Fn(&RelayState) -> bool) {
        let told = self.state.wait_for(|state| expected(state));
        let told = tokio::time::timeout(LIMIT, told)
            .await
            .expect("it says so in time");
        drop(told.expect("the relay runs"));
    }

    async fn end(mut self) {
        self.trigger.pull();
        while let Some(ended) = self.task.join_next().await {
            ended.expect("the relay does not panic");
        }
    }
}

#[tokio::test]
async fn bad_entries_are_parked_and_hold_up_nobody() {
    let world = World::new().await;
    let bad: BTreeSet<JobId> = world.submit("bad", 60).await.into_iter().collect();
    let refused = bad.clone();
    let broker = Simulated::new(move |job| {
        if refused.contains(&job) {
            PublishOutcome::Refused {
                reason: "message too large".to_owned(),
            }
        } else {
            PublishOutcome::Confirmed
        }
    });
    let relay = world.relay("relay-1", &broker, Duration::from_secs(10));
    let good = world.submit("good", 10).await;
    broker.confirms(good.len()).await;
    // Their next tries come further and further apart, and end.
    eventually(LIMIT, "the bad ones are parked", async || {
        world.clock.turn(Duration::from_secs(5));
        let parked = world.parked().await;
        require(parked == 60, parked)
    })
    .await;
    for job in &bad {
        let view = world.job(*job).await;
        assert_eq!((view.state.as_str(), view.parked), ("queued", true));
    }
    world.verify().await;
    relay.end().await;
}

#[tokio::test]
async fn a_fault_of_the_route_parks_nothing_and_is_over_when_it_is_over() {
    let world = World::new().await;
    let faulty = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&faulty);
    let broker = Simulated::new(move |_| {
        if switch.load(Ordering::SeqCst) {
            PublishOutcome::Returned {
                reason: "NO_ROUTE".to_owned(),
            }
        } else {
            PublishOutcome::Confirmed
        }
    });
    let mut relay = world.relay("relay-1", &broker, Duration::from_secs(10));
    let jobs = world.submit("k", 20).await;
    relay
        .is(|state| matches!(state, RelayState::NotReady(why) if why.contains("unroutable")))
        .await;
    assert_eq!((world.parked().await, broker.confirmed()), (0, 0));
    faulty.store(false, Ordering::SeqCst);
    broker.state.send_replace(BrokerState::Connecting);
    broker.state.send_replace(BrokerState::Ready);
    broker.confirms(jobs.len()).await;
    relay.is(|state| *state == RelayState::Ready).await;
    world.verify().await;
    relay.end().await;
}

#[tokio::test]
async fn no_more_than_the_window_is_published_and_unclaimed() {
    let world = World::new().await;
    let broker = Simulated::new(|_| PublishOutcome::Confirmed);
    let jobs = world.submit("k", 400).await;
    let relay = world.relay("relay-1", &broker, Duration::from_secs(10));
    let window = usize::try_from(outbox::WINDOW_MIN).expect("a small number");
    broker.confirms(window).await;
    // A claimed job makes room for one more.
    world.claim(jobs.get(..10).expect("there are more")).await;
    broker.confirms(window + 10).await;
    world.verify().await;
    relay.end().await;
}

#[tokio::test]
async fn one_relay_leads_and_a_standby_takes_over_when_it_dies() {
    let world = World::new().await;
    let lease = Duration::from_secs(2);
    let confirming = || Simulated::new(|_| PublishOutcome::Confirmed);
    let (one, two) = (confirming(), confirming());
    let first = world.relay("relay-1", &one, lease);
    world.submit("a", 5).await;
    one.confirms(5).await;
    let second = world.relay("relay-2", &two, lease);
    world.submit("b", 5).await;
    one.confirms(10).await;
    assert_eq!(two.confirmed(), 0);
    // Killed: it resigns nothing, and its lease ends by the clock.
    drop(first);
    world.submit("c", 5).await;
    eventually(LIMIT, "the standby takes over", async || {
        world.clock.turn(Duration::from_millis(500));
        let seen = two.confirmed();
        require(seen == 5, seen)
    })
    .await;
    world.verify().await;
    second.end().await;
}

#[tokio::test]
async fn a_published_entry_that_nobody_claims_is_published_again() {
    let world = World::new().await;
    let broker = Simulated::new(|_| PublishOutcome::Confirmed);
    let relay = world.relay("relay-1", &broker, Duration::from_secs(600));
    let jobs = world.submit("k", 3).await;
    broker.confirms(3).await;
    // Claimed: nobody's business any more.
    world.claim(jobs.get(..1).expect("there are more")).await;
    eventually(LIMIT, "the other two are published again", async || {
        // The simulated queue is empty: ten seconds are enough.
        world.clock.turn(Duration::from_secs(11));
        let seen = broker.confirmed();
        require(seen >= 5, seen)
    })
    .await;
    let again = broker
        .confirmed
        .lock()
        .expect("no test panics under it")
        .clone();
    let claimed = jobs.first().expect("there are three");
    assert_eq!(again.iter().filter(|job| *job == claimed).count(), 1);
    world.verify().await;
    relay.end().await;
}

#[tokio::test]
async fn one_look_of_the_reaper_takes_back_everything_that_expired() {
    let world = World::new().await;
    let jobs = world.submit("k", 450).await;
    world.claim(&jobs).await;
    let id = "reaper-1".parse().expect("a name");
    let config = ReaperConfig::new(id, Duration::from_secs(1), Duration::from_secs(10));
    let reaper = Reaper::new(world.store.clone(), config, Arc::default());
    reaper.look().await.expect("the store answers");
    let first = *jobs.first().expect("there are many");
    assert_eq!(
        world.job(first).await.state.as_str(),
        "leased",
        "nothing has expired yet"
    );
    world.clock.turn(LIMIT);
    reaper.look().await.expect("the store answers");
    for job in &jobs {
        assert_eq!(world.job(*job).await.state.as_str(), "queued");
    }
    world.verify().await;
}
