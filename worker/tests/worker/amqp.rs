//! The worker behind RabbitMQ: what is acknowledged, and when.
//!
//! The tests are the relay: they publish what it would, and what it would not.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencepost_broker::{ConnectionOptions, ConsumerOptions, Topology};
use fencepost_core::dispatch::{JobRef, encode};
use fencepost_core::id::JobId;
use fencepost_core::lifecycle::State;
use fencepost_store::{ClaimJob, ClaimOutcome};
use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::source::Amqp;
use fencepost_worker::{Context, Outcome};
use tokio::sync::Semaphore;

use crate::setup::{Does, KIND, LONG, Log, PATIENCE, Running, World, kind, queue};

const QUEUE: &str = "fencepost.jobs.default";

/// What its connections are called at the broker.
const CLIENT: &str = "worker-under-test";

pub(crate) fn source(broker: &SharedBroker, prefetch: u16) -> Amqp {
    let mut connection = ConnectionOptions::new(broker.amqp_url().parse().unwrap(), CLIENT);
    connection.reconnect_max = Duration::from_secs(1);
    let prefetch = NonZeroU16::new(prefetch).unwrap();
    Amqp::start(ConsumerOptions::new(
        connection,
        Topology::new([queue()]),
        prefetch,
    ))
}

/// Publishes one message that names these jobs.
pub(crate) async fn publish(broker: &SharedBroker, jobs: &[JobId]) {
    let jobs = jobs.iter().map(|id| JobRef {
        id: *id,
        kind: kind(KIND),
        trace: None,
    });
    publish_text(broker, &String::from_utf8(encode(jobs.collect())).unwrap()).await;
}

async fn publish_text(broker: &SharedBroker, body: &str) {
    // The consumer declares the queue when it starts.
    eventually(PATIENCE, "the message is routed", async || {
        let routed = broker.admin().publish("fencepost.jobs", "default", body);
        let seen = routed.await;
        require(matches!(seen, Ok(true)), format!("{seen:?}"))
    })
    .await;
}

/// Waits until the queue holds so many messages: waiting, and in hand.
async fn holds(broker: &SharedBroker, name: &str, ready: u64, unacked: u64) {
    eventually(PATIENCE, &format!("{ready} and {unacked} in {name}"), async || {
        let seen = broker.admin().queue(name).await;
        let fits = matches!(&seen, Ok(Some(queue)) if (queue.ready, queue.unacked) == (ready, unacked));
        require(fits, format!("{seen:?}"))
    })
    .await;
}

/// A handler that waits at a gate, and counts its runs.
struct Gated {
    gate: Arc<Semaphore>,
    runs: Arc<AtomicU32>,
}

impl Gated {
    fn new() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            runs: Arc::default(),
        }
    }

    fn start(&self, world: &World, broker: &SharedBroker) -> Running {
        let (gate, runs) = (Arc::clone(&self.gate), Arc::clone(&self.runs));
        let does = Does(move |context: Context| {
            runs.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok(Outcome::completed(&context.attempt())?)
            }
        });
        let builder = world.builder(LONG).slots(2).handler(kind(KIND), does);
        Running::start(builder, Box::new(source(broker, 10)))
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_message_is_acknowledged_after_its_job_is_recorded_and_not_before() {
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let gated = Gated::new();
    let worker = gated.start(&world, &broker);
    let job = world.queued("k").await;
    publish(&broker, &[job]).await;
    world.reaches(job, State::Leased).await;
    holds(&broker, QUEUE, 0, 1).await;
    gated.gate.add_permits(1);
    world.reaches(job, State::Completed).await;
    holds(&broker, QUEUE, 0, 0).await;
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_duplicate_of_a_running_job_is_acknowledged_and_not_run() {
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let gated = Gated::new();
    let worker = gated.start(&world, &broker);
    let job = world.queued("k").await;
    publish(&broker, &[job]).await;
    world.reaches(job, State::Leased).await;
    for _ in 0..20 {
        publish(&broker, &[job]).await;
    }
    // Twice in one message as well.
    publish(&broker, &[job, job]).await;
    holds(&broker, QUEUE, 0, 1).await;
    gated.gate.add_permits(1);
    world.reaches(job, State::Completed).await;
    // And once more when it has ended.
    publish(&broker, &[job]).await;
    holds(&broker, QUEUE, 0, 0).await;
    assert_eq!(gated.runs(), 1);
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_job_outlives_its_connection_and_settles_the_redelivered_message() {
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let gated = Gated::new();
    let worker = gated.start(&world, &broker);
    let job = world.queued("k").await;
    publish(&broker, &[job]).await;
    world.reaches(job, State::Leased).await;
    eventually(PATIENCE, "its connection is closed", async || {
        let closed = broker.admin().close_connections(CLIENT).await.unwrap();
        require(closed == 1, closed)
    })
    .await;
    // Back in hand, under a tag of the new channel.
    eventually(PATIENCE, "a new connection has it", async || {
        let seen = broker.admin().channels().await.unwrap();
        let fits = seen
            .iter()
            .any(|channel| channel.consumers == 1 && channel.unacked == 1);
        require(fits, format!("{seen:?}"))
    })
    .await;
    gated.gate.add_permits(1);
    let done = world.reaches(job, State::Completed).await;
    assert_eq!((done.attempts, done.epoch.0, gated.runs()), (1, 1, 1));
    holds(&broker, QUEUE, 0, 0).await;
    // A consumer that works: the next job runs.
    let next = world.queued("next").await;
    gated.gate.add_permits(1);
    publish(&broker, &[next]).await;
    world.reaches(next, State::Completed).await;
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_message_of_several_jobs_is_acknowledged_when_each_is_settled() {
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let gated = Gated::new();
    let worker = gated.start(&world, &broker);
    let (first, second) = (world.queued("first").await, world.queued("second").await);
    let nobody: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
    publish(&broker, &[first, nobody, second]).await;
    gated.gate.add_permits(1);
    eventually(PATIENCE, "one of the two has ended", async || {
        let ended = [world.job(first).await, world.job(second).await];
        let count = ended
            .iter()
            .filter(|job| job.state == State::Completed)
            .count();
        require(count == 1, count)
    })
    .await;
    holds(&broker, QUEUE, 0, 1).await;
    gated.gate.add_permits(1);
    holds(&broker, QUEUE, 0, 0).await;
    for job in [first, second] {
        assert_eq!(world.job(job).await.state, State::Completed);
    }
    // Not rejected, since two of its jobs exist; one that names no job at all is.
    publish(&broker, &[nobody]).await;
    holds(&broker, "fencepost.dead", 1, 0).await;
    holds(&broker, QUEUE, 0, 0).await;
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn what_cannot_be_read_goes_to_the_dead_letter_queue_at_its_first_delivery() {
    let (log, _guard) = Log::capture();
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let gated = Gated::new();
    let worker = gated.start(&world, &broker);
    for body in ["{", "", r#"{"v":2,"work":1}"#, r#"{"v":1,"jobs":[]}"#] {
        publish_text(&broker, body).await;
    }
    holds(&broker, "fencepost.dead", 4, 0).await;
    holds(&broker, QUEUE, 0, 0).await;
    assert_eq!(log.lines("unreadable message").len(), 4);
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_another_worker_holds_is_left_to_it() {
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let job = world.queued("k").await;
    let claim = ClaimJob {
        job,
        worker: "another".parse().unwrap(),
        lease: LONG,
        epoch_leaves: false,
    };
    let claimed = world.store.claim(claim).await.unwrap();
    assert!(matches!(claimed, ClaimOutcome::Claimed(_)));
    let gated = Gated::new();
    let worker = gated.start(&world, &broker);
    publish(&broker, &[job]).await;
    let own = world.queued("own").await;
    publish(&broker, &[own]).await;
    world.reaches(own, State::Leased).await;
    gated.gate.add_permits(1);
    holds(&broker, QUEUE, 0, 0).await;
    let job = world.job(job).await;
    assert_eq!(
        (job.state, job.epoch.0, gated.runs()),
        (State::Leased, 1, 1)
    );
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn what_was_not_claimed_goes_back_at_once_when_the_worker_ends() {
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let gated = Gated::new();
    let (gate, runs) = (Arc::clone(&gated.gate), Arc::clone(&gated.runs));
    let does = Does(move |_: Context| {
        runs.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await?.forget();
            Ok(Outcome::completed(&())?)
        }
    });
    // One runs, two are in hand, and as many more as the prefetch allows are on their way.
    let builder = world
        .builder(LONG)
        .slots(1)
        .grace(PATIENCE)
        .handler(kind(KIND), does);
    let worker = Running::start(builder, Box::new(source(&broker, 6)));
    let mut jobs = Vec::new();
    for n in 0..8 {
        let job = world.queued(&n.to_string()).await;
        publish(&broker, &[job]).await;
        jobs.push(job);
    }
    holds(&broker, QUEUE, 2, 6).await;
    let ended = worker.stop();
    let given_back = async {
        // While the one that runs still has its grace.
        holds(&broker, QUEUE, 7, 1).await;
        gated.gate.add_permits(1);
    };
    let (took, ()) = tokio::join!(ended, given_back);
    assert!(took < PATIENCE, "{took:?}");
    holds(&broker, QUEUE, 7, 0).await;
    holds(&broker, "fencepost.dead", 0, 0).await;
    assert_eq!(gated.runs(), 1);
    let attempts: Vec<u32> = {
        let mut attempts = Vec::new();
        for job in jobs {
            attempts.push(world.job(job).await.attempts);
        }
        attempts
    };
    assert_eq!(attempts.iter().sum::<u32>(), 1, "{attempts:?}");
    world.verify().await;
}

#[tokio::test]
async fn a_database_out_of_reach_stops_the_consumer_and_throws_nothing_away() {
    let (log, _guard) = Log::capture();
    let (broker, world) = (SharedBroker::new().await, World::new().await);
    let does = Does(|_| async { Ok(Outcome::completed(&())?) });
    let impatient = world.store.with_budget(Duration::from_millis(200));
    let builder = world
        .builder_on(impatient, LONG)
        .slots(2)
        .handler(kind(KIND), does);
    let worker = Running::start(builder, Box::new(source(&broker, 4)));
    let mut jobs = Vec::new();
    for n in 0..10 {
        jobs.push(world.queued(&n.to_string()).await);
    }
    let held = world.hold_database();
    for job in &jobs {
        publish(&broker, &[*job]).await;
    }
    log.says("the database does not answer; holding").await;
    // Not the queue's figure: it counts a cancelled consumer while anything is in its hand.
    eventually(PATIENCE, "nobody consumes", async || {
        let seen = broker.admin().channels().await.unwrap();
        let fits = seen.iter().all(|channel| channel.consumers == 0);
        require(fits, format!("{seen:?}"))
    })
    .await;
    drop(held);
    for job in &jobs {
        let done = world.reaches(*job, State::Completed).await;
        assert_eq!((done.attempts, done.epoch.0), (1, 1));
    }
    holds(&broker, QUEUE, 0, 0).await;
    holds(&broker, "fencepost.dead", 0, 0).await;
    worker.stop().await;
    world.verify().await;
}
