//! Leases under handlers that block, panic, answer badly, or are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fencepost_core::fingerprint::{Fingerprint, Moment};
use fencepost_core::id::JobId;
use fencepost_core::kind::{Kind, Kinds, OnCrash, Runner};
use fencepost_core::lifecycle::{self, State};
use fencepost_core::retry::Backoff;
use fencepost_service::shutdown::{Shutdown, Trigger};
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::blobs::Blobs;
use fencepost_store::{Cancel, Cancelled, JobView, OpenOptions, Scope, Store, Submit, Submitted};
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::source::Poll;
use fencepost_worker::{CallError, Context, Handler, HandlerResult, Outcome, Worker};
use serde::Deserialize;
use tokio::task::JoinSet;

const LIMIT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_millis(600);

#[derive(Debug, Deserialize)]
enum Act {
    Spin { millis: u64 },
    Block { millis: u64 },
    Wait,
    WaitForCancel,
    Panic,
    BadResult,
    FailAfterEffect,
    DeclineOnce,
}

#[derive(Debug, Default)]
struct Actor {
    calls: Arc<AtomicU32>,
}

#[async_trait]
impl Handler for Actor {
    async fn run(&self, context: &Context) -> HandlerResult {
        let calls = Arc::clone(&self.calls);
        match context.payload_as()? {
            Act::Spin { millis } => {
                let end = Instant::now() + Duration::from_millis(millis);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
            Act::Block { millis } => {
                std::thread::sleep(Duration::from_millis(millis)); // deliberate: a handler that blocks
            }
            Act::Wait => std::future::pending().await,
            Act::WaitForCancel => {
                context.cancelled().await;
                return Ok(Outcome::retry("stopped", "cancelled"));
            }
            Act::Panic => panic!("{}", format!("nul \0 and {}", "x".repeat(5 << 20))),
            Act::BadResult => return Ok(Outcome::Completed("\"\\ud800\"".to_owned())),
            Act::FailAfterEffect => {
                let called: u32 = context
                    .effect("call", |_| async move {
                        Ok(calls.fetch_add(1, Ordering::SeqCst) + 1)
                    })
                    .await?;
                if context.attempt() == 1 {
                    return Err("after the effect".into());
                }
                return Ok(Outcome::completed(&called)?);
            }
            Act::DeclineOnce => {
                let first = context.attempt() == 1;
                let called: u32 = context
                    .effect("call", |_| async move {
                        let count = calls.fetch_add(1, Ordering::SeqCst) + 1;
                        if first {
                            Err(CallError::Declined("refused".to_owned()))
                        } else {
                            Ok(count)
                        }
                    })
                    .await?;
                return Ok(Outcome::completed(&called)?);
            }
        }
        Ok(Outcome::completed(&context.attempt())?)
    }
}

struct World {
    store: Store,
    calls: Arc<AtomicU32>,
    trigger: Trigger,
    worker: JoinSet<()>,
    _directory: tempfile::TempDir,
}

fn scope() -> Scope {
    Scope {
        tenant: "t".parse().expect("a name"),
        owner: None,
    }
}

impl World {
    async fn new(grace: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(OpenOptions {
            path: directory.path().join("fencepost.db"),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            allow_network_filesystem: true,
            wake_poll: Duration::from_millis(100),
        })
        .await
        .expect("the store opens");
        let mut kind = Kind::new(
            name("act"),
            "acts".parse().expect("a name"),
            Runner::Registered,
        );
        kind.lease = LEASE;
        let blobs = Blobs::local(&directory.path().join("blobs")).expect("a directory");
        let actor = Actor::default();
        let calls = Arc::clone(&actor.calls);
        let worker = Worker::builder(
            store.clone(),
            blobs,
            Kinds::new([kind]),
            Arc::new(SystemIds),
        )
        .slots(16)
        .grace(grace)
        .handler(name("act"), actor)
        .build()
        .expect("the worker builds");
        let source = Box::new(Poll::new(store.clone(), worker.queues().to_vec()));
        let (trigger, shutdown) = Shutdown::manual();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            worker
                .run(source, async move { shutdown.requested().await })
                .await;
        });
        Self {
            store,
            calls,
            trigger,
            worker: tasks,
            _directory: directory,
        }
    }

    async fn submit(&self, key: &str, payload: &str) -> JobId {
        let request = Submit {
            tenant: "t".parse().expect("a name"),
            owner: "o".parse().expect("a name"),
            key: key.parse().expect("a key"),
            fingerprint: Fingerprint([0; 32]),
            kind: name("act"),
            queue: "acts".parse().expect("a name"),
            priority: 0,
            payload: payload.to_owned(),
            max_attempts: 3,
            run: None,
            deadline: Moment::After(Duration::from_secs(3_600)),
            timeout: Duration::from_secs(3_600),
            backoff: Backoff {
                initial: Duration::from_millis(10),
                max: Duration::from_millis(20),
            },
            on_crash: OnCrash::Retry,
            trace: None,
            blobs: Vec::new(),
        };
        match self.store.submit(request).await.expect("the store answers") {
            Submitted::Created(job) => job.id,
            Submitted::Replayed(_)
            | Submitted::KeyConflict
            | Submitted::Gone(_)
            | Submitted::BlobMissing(_)
            | Submitted::DeadlineUnusable => panic!("{key} was not created"),
        }
    }

    async fn job(&self, job: JobId) -> JobView {
        self.store
            .job(&scope(), job)
            .await
            .expect("the store answers")
            .expect("the job is there")
    }

    async fn until(&self, job: JobId, state: State) -> JobView {
        eventually(LIMIT, state.as_str(), async || {
            let view = self.job(job).await;
            if view.state == state {
                Ok(view)
            } else {
                Err(format!("{view:?}"))
            }
        })
        .await
    }
}

fn name(text: &str) -> fencepost_core::id::KindName {
    text.parse().expect("a name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_keep_their_leases() {
    let world = World::new(LIMIT).await;
    let mut jobs = Vec::new();
    for n in 0..4 {
        // Five leases long, on as many threads as handlers have and more.
        jobs.push(
            world
                .submit(&format!("spin{n}"), r#"{"Spin":{"millis":1500}}"#)
                .await,
        );
        jobs.push(
            world
                .submit(&format!("block{n}"), r#"{"Block":{"millis":1500}}"#)
                .await,
        );
    }
    for job in jobs {
        let view = world.until(job, State::Completed).await;
        assert_eq!(
            (view.attempts, view.epoch.0),
            (1, 1),
            "claimed once, never lost"
        );
    }
}

#[tokio::test]
async fn a_panic_is_a_failure_with_a_bounded_text_and_a_bad_result_is_final() {
    let world = World::new(LIMIT).await;
    let panics = world.submit("panic", r#""Panic""#).await;
    let bad = world.submit("bad", r#""BadResult""#).await;
    let view = world.until(panics, State::Dead).await;
    let error = view.error.expect("a dead job has a reason");
    assert_eq!(
        (error.code.as_str(), view.attempts),
        ("handler_panicked", 3)
    );
    assert!(error.message.starts_with("nul \u{fffd} and xxx") && error.message.len() <= 2_048);
    let view = world.until(bad, State::Dead).await;
    assert_eq!(
        (view.error.expect("a reason").code.as_str(), view.attempts),
        ("invalid_result", 1)
    );
}

#[tokio::test]
async fn a_settled_effect_is_not_called_again_and_a_declined_one_is() {
    let world = World::new(LIMIT).await;
    let job = world.submit("settled", r#""FailAfterEffect""#).await;
    let view = world.until(job, State::Completed).await;
    assert_eq!((view.result.as_deref(), view.attempts), (Some("1"), 2));
    assert_eq!(world.calls.load(Ordering::SeqCst), 1);
    let job = world.submit("declined", r#""DeclineOnce""#).await;
    let view = world.until(job, State::Completed).await;
    assert_eq!((view.result.as_deref(), view.attempts), (Some("3"), 2));
}

#[tokio::test]
async fn a_cancelled_handler_is_told_and_a_disowned_one_is_stopped() {
    let world = World::new(LIMIT).await;
    let cancel = |job, how| Cancel {
        scope: scope(),
        job,
        how,
        actor: "o".to_owned(),
    };
    let asked = world.submit("asked", r#""WaitForCancel""#).await;
    world.until(asked, State::Leased).await;
    let answer = world
        .store
        .cancel(cancel(asked, lifecycle::Cancel::Ask))
        .await
        .expect("the store answers");
    assert!(matches!(answer, Cancelled::Asked(_)));
    world.until(asked, State::Cancelled).await;
    let forced = world.submit("forced", r#""Wait""#).await;
    world.until(forced, State::Leased).await;
    let answer = world
        .store
        .cancel(cancel(forced, lifecycle::Cancel::Force))
        .await
        .expect("the store answers");
    assert!(matches!(answer, Cancelled::Done(_)));
    // Its slot is free again once its next renewal is refused: all sixteen can be taken.
    for n in 0..16 {
        let job = world
            .submit(&format!("n{n}"), r#"{"Block":{"millis":1}}"#)
            .await;
        world.until(job, State::Completed).await;
    }
    assert_eq!(world.job(forced).await.state, State::Cancelled);
}

#[tokio::test]
async fn a_worker_that_ends_releases_what_does_not_end_in_its_grace() {
    let mut world = World::new(Duration::from_millis(300)).await;
    let job = world.submit("wait", r#""Wait""#).await;
    world.until(job, State::Leased).await;
    let started = Instant::now();
    world.trigger.pull();
    while let Some(ended) = world.worker.join_next().await {
        ended.expect("the worker does not panic");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    let view = world.job(job).await;
    assert_eq!((view.state, view.attempts), (State::Queued, 0));
    eventually(LIMIT, "no worker is counted", async || {
        let since = fencepost_core::time::Timestamp::from_millis(0);
        let workers = world.store.workers(since).await.expect("the store answers");
        require(workers.is_empty(), workers.len())
    })
    .await;
}
