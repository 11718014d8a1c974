//! How a worker ends: what is finished, what is given back, what is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;
use fencepost_store::WorkerRecord;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::{CallError, Context, Outcome};

use crate::setup::{Does, KIND, LONG, Log, PATIENCE, World, kind, submission};

async fn heard_of(world: &World, id: &str) -> Option<WorkerRecord> {
    let heard = world
        .store
        .workers(Timestamp::from_millis(0))
        .await
        .unwrap();
    heard
        .into_iter()
        .find(|record| record.said.worker.as_str() == id)
}

#[tokio::test]
async fn an_idle_worker_says_hello_and_goodbye_and_ends_at_once() {
    let world = World::new().await;
    let worker = world.worker(LONG, |_| async { Ok(Outcome::completed(&())?) });
    let id = worker.id.clone();
    let said = eventually(PATIENCE, "a heartbeat", async || {
        let record = heard_of(&world, &id).await;
        record.map(|record| record.said).ok_or("none yet")
    })
    .await;
    let queues: Vec<&str> = said
        .queues
        .iter()
        .map(fencepost_core::id::QueueName::as_str)
        .collect();
    assert_eq!((said.slots, queues), (4, vec!["default"]));
    let took = worker.stop().await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    // The relay no longer counts its slots.
    assert_eq!(heard_of(&world, &id).await, None);
}

#[tokio::test]
async fn two_lives_of_one_name_are_two_workers() {
    let world = World::new().await;
    let does = || Does(|_| async { Ok(Outcome::completed(&())?) });
    let start = || world.start(world.builder(LONG).name("box").handler(kind(KIND), does()));
    let (first, second) = (start(), start());
    assert_ne!(first.id, second.id);
    for life in [&first.id, &second.id] {
        assert!(life.starts_with("box-"), "{life}");
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn what_is_short_is_finished_and_what_is_long_is_given_back() {
    let world = World::new().await;
    let does = |context: Context| async move {
        match context.payload() {
            "0" => tokio::time::sleep(Duration::from_millis(400)).await, // deliberate: a short job
            _ => std::future::pending().await,
        }
        Ok(Outcome::completed(&())?)
    };
    let builder = world
        .builder(LONG)
        .slots(2)
        .grace(Duration::from_secs(1))
        .handler(kind(KIND), Does(does));
    let worker = world.start(builder);
    let short = world.submit(submission("short", "0")).await;
    let long = world.submit(submission("long", "1")).await;
    let waiting = world.submit(submission("waiting", "1")).await;
    for job in [short, long] {
        world.reaches(job, State::Leased).await;
    }
    let took = worker.stop().await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(world.job(short).await.state, State::Completed);
    assert_eq!(
        world.events(long).await,
        ["accepted", "claimed", "released"]
    );
    let long = world.job(long).await;
    assert_eq!((long.state, long.attempts), (State::Queued, 0));
    let waiting = world.job(waiting).await;
    assert_eq!((waiting.state, waiting.epoch.0), (State::Queued, 0));
    // What was given back is due at once: its lease, of ten minutes, is over.
    let next = world.worker(LONG, |_| async { Ok(Outcome::completed(&())?) });
    for job in [long.id, waiting.id] {
        assert_eq!(world.reaches(job, State::Completed).await.attempts, 1);
    }
    next.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_call_that_is_out_when_the_grace_ends_makes_its_job_unknown() {
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let calls = Arc::new(AtomicU32::new(0));
    let worker = world.worker(LONG, {
        let calls = Arc::clone(&calls);
        move |context| {
            let calls = Arc::clone(&calls);
            async move {
                let call = |_| async move {
                    calls.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<Result<(), CallError>>().await
                };
                context.effect("send", call).await?;
                Ok(Outcome::completed(&())?)
            }
        }
    });
    let job = world.queued("k").await;
    eventually(PATIENCE, "a call", async || {
        require(calls.load(Ordering::SeqCst) == 1, "none yet")
    })
    .await;
    worker.stop().await;
    let job = world.job(job).await;
    assert_eq!(
        (job.state, job.error.unwrap().code.as_str()),
        (State::Unknown, "effect_open")
    );
    assert_eq!(log.lines("a verdict is needed").len(), 1);
    world.verify().await;
}

#[tokio::test]
async fn a_handler_that_blocks_does_not_keep_the_worker_and_is_fenced() {
    let world = World::new().await;
    let (began, mut begun) = tokio::sync::mpsc::channel(1);
    let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let (told, mut tells) = tokio::sync::mpsc::channel(1);
    let worker = world.worker(LONG, move |context| {
        let (began, ended, told) = (began.clone(), Arc::clone(&ended), told.clone());
        async move {
            began.send(()).await?;
            // Blocks its thread until the test has seen the worker end.
            let blocked = ended.lock().map_err(|_| "poisoned")?.recv_timeout(PATIENCE);
            told.try_send((blocked.is_ok(), context))?;
            Ok(Outcome::completed(&"late")?)
        }
    });
    let job = world.queued("k").await;
    begun.recv().await.unwrap();
    let took = worker.stop().await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(world.job(job).await.state, State::Queued);
    end.send(()).unwrap();
    let (was_told, context) = tokio::time::timeout(PATIENCE, tells.recv())
        .await
        .unwrap()
        .unwrap();
    assert!(was_told, "it blocked until the test let it go");
    // Its claim is over: no call goes out under it.
    let late = context.effect("send", |_| async { Ok(1_u32) }).await;
    assert_eq!(
        late.unwrap_err().to_string(),
        "the claim is no longer good (not_leased)"
    );
    let job = world.job(job).await;
    assert_eq!((job.state, job.attempts), (State::Queued, 0));
    world.verify().await;
}

#[tokio::test]
async fn a_held_database_does_not_keep_the_worker() {
    let world = World::new().await;
    let worker = world.worker(LONG, |_| async {
        std::future::pending::<()>().await;
        Ok(Outcome::completed(&())?)
    });
    let job = world.queued("k").await;
    world.reaches(job, State::Leased).await;
    let held = world.hold_database();
    let took = worker.stop().await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    drop(held);
    world.verify().await;
}

/// As it should: it listens, and ends with an error of its own.
#[tokio::test]
async fn a_handler_that_breaks_off_because_the_worker_ends_costs_no_attempt() {
    for _ in 0..10 {
        let world = World::new().await;
        let job = world.queued("k").await;
        let worker = world.worker(LONG, |context| async move {
            context.cancelled().await;
            Err("told to stop".into())
        });
        world.reaches(job, State::Leased).await;
        worker.stop().await;
        let job = world.job(job).await;
        assert_eq!(
            (job.state, job.attempts, job.error),
            (State::Queued, 0, None)
        );
        world.verify().await;
    }
}
