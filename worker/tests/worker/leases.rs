//! Leases that are kept, lost, outlived, and a database that is held by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fencepost_core::fingerprint::Moment;
use fencepost_core::lifecycle::{Cancel, State};
use fencepost_store::Submit;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::{Context, Outcome};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::setup::{Does, KIND, LONG, Log, PATIENCE, SHORT, World, kind, submission};

/// Set when a handler's future is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Counts, on a thread of its own, how often a claim's end moves away.
fn count_renewals(context: &Context, until: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let (context, until) = (context.clone(), Arc::clone(until));
    std::thread::spawn(move || {
        let mut renewals = 0;
        let mut left = context.time_left();
        while !until.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5)); // deliberate: it watches a clock
            let now = context.time_left();
            renewals += u32::from(now > left);
            left = now;
        }
        renewals
    })
}

/// Handlers that hold every thread of their runtime: by computing, by sleeping, by a file lock.
#[tokio::test]
async fn handlers_that_block_every_thread_keep_their_leases() {
    const BLOCKS_FOR: Duration = Duration::from_millis(3_500);
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let lock = tempfile::NamedTempFile::new().unwrap();
    let path = lock.path().to_owned();
    let held = lock.reopen().unwrap();
    held.lock().unwrap();
    let (waits, waiting) = std::sync::mpsc::sync_channel(1);
    let holder = std::thread::spawn(move || {
        waiting.recv_timeout(PATIENCE).unwrap();
        std::thread::sleep(BLOCKS_FOR); // deliberate: how long the handler waits for the lock
        drop(held);
    });
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let does = Does(move |context: Context| {
        let (path, waits) = (path.clone(), waits.clone());
        async move {
            let ended = Arc::new(AtomicBool::new(false));
            let counting = count_renewals(&context, &ended);
            let started = std::time::Instant::now();
            match context.payload() {
                "0" => while started.elapsed() < BLOCKS_FOR {},
                "1" => {
                    waits.send(())?;
                    std::fs::File::open(path)?.lock()?;
                }
                _ => std::thread::sleep(BLOCKS_FOR), // deliberate: a handler that blocks
            }
            ended.store(true, Ordering::SeqCst);
            let renewals = counting.join().map_err(|_| "the count broke off")?;
            Ok(Outcome::completed(&renewals)?)
        }
    });
    let slots = threads.max(3) + 1;
    let builder = world
        .builder(SHORT)
        .slots(u32::try_from(slots).unwrap())
        .handler(kind(KIND), does);
    let mut jobs = Vec::new();
    for n in 0..slots {
        let n = n.to_string();
        jobs.push(world.submit(submission(&n, &n)).await);
    }
    let worker = world.start(builder);
    for job in jobs {
        let done = world.reaches(job, State::Completed).await;
        assert_eq!((done.attempts, done.epoch.0), (1, 1), "{done:?}");
        let renewals: u32 = done.result.as_deref().unwrap().parse().unwrap();
        assert!(renewals >= 8, "{renewals} renewals of {done:?}");
    }
    assert_eq!(log.lines("lost lease"), Vec::<String>::new());
    holder.join().unwrap();
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_disowned_handler_is_stopped_at_the_next_renewal_with_one_line() {
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let job = world.queued("k").await;
    let stopped = Arc::new(AtomicBool::new(false));
    let worker = world.worker(SHORT, {
        let stopped = Arc::clone(&stopped);
        move |context| {
            let dropped = Dropped(Arc::clone(&stopped));
            async move {
                context.cancelled().await;
                std::future::pending::<()>().await;
                drop(dropped);
                Ok(Outcome::completed(&"never")?)
            }
        }
    });
    world.reaches(job, State::Leased).await;
    world.cancel(job, Cancel::Force).await;
    eventually(PATIENCE, "the handler is stopped", async || {
        require(stopped.load(Ordering::SeqCst), "it runs")
    })
    .await;
    log.says("lost lease").await;
    worker.stop().await;
    let lines = log.lines("lost lease");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [&job.to_string(), "epoch=1", "reason=\"newer_epoch\""] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    assert_eq!(world.job(job).await.state, State::Cancelled);
    world.verify().await;
}

#[tokio::test]
async fn the_report_of_a_disowned_run_is_fenced_with_one_line() {
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let job = world.queued("k").await;
    let gate = Arc::new(Semaphore::new(0));
    let worker = world.worker(LONG, {
        let gate = Arc::clone(&gate);
        move |_| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok(Outcome::completed(&"late")?)
            }
        }
    });
    world.reaches(job, State::Leased).await;
    world.cancel(job, Cancel::Force).await;
    gate.add_permits(1);
    log.says("lost lease").await;
    worker.stop().await;
    assert_eq!(log.lines("lost lease").len(), 1);
    let job = world.job(job).await;
    assert_eq!((job.state, job.result), (State::Cancelled, None));
    assert_eq!(world.events(job.id).await.last().unwrap(), "fenced");
    world.verify().await;
}

#[tokio::test]
async fn a_handler_is_stopped_at_its_deadline_not_at_a_renewal() {
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let short = Submit {
        deadline: Moment::After(Duration::from_millis(1_200)),
        ..submission("k", "{}")
    };
    let job = world.submit(short).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let worker = world.worker(LONG, {
        let stopped = Arc::clone(&stopped);
        move |context| {
            let dropped = Dropped(Arc::clone(&stopped));
            async move {
                assert!(context.time_left() <= Duration::from_millis(1_200));
                std::future::pending::<()>().await;
                drop(dropped);
                Ok(Outcome::completed(&"never")?)
            }
        }
    });
    eventually(PATIENCE, "the handler is stopped", async || {
        require(stopped.load(Ordering::SeqCst), "it runs")
    })
    .await;
    assert_eq!(world.job(job).await.attempts, 1);
    assert_eq!(world.reap(job).await, State::Dead);
    assert_eq!(log.lines("lost lease").len(), 1);
    let error = world.job(job).await.error.unwrap();
    assert_eq!(error.code.as_str(), "deadline_exceeded");
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_cancellation_is_told_within_a_renewal_and_ends_the_job() {
    let world = World::new().await;
    let worker = world.worker(SHORT, |context| async move {
        context.cancelled().await;
        if context.payload() == "1" {
            return Ok(Outcome::completed(&"done all the same")?);
        }
        Err("stopped as asked".into())
    });
    for (payload, expected) in [("0", State::Cancelled), ("1", State::Completed)] {
        let job = world.submit(submission(payload, payload)).await;
        world.reaches(job, State::Leased).await;
        world.cancel(job, Cancel::Ask).await;
        let ended = world.reaches(job, expected).await;
        assert_eq!(ended.attempts, 1);
    }
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_database_held_for_less_than_a_lease_costs_nothing() {
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let job = world.queued("k").await;
    let gate = Arc::new(Semaphore::new(0));
    let renewals = Arc::new(AtomicU32::new(0));
    let worker = world.worker(Duration::from_secs(3), {
        let (gate, renewals) = (Arc::clone(&gate), Arc::clone(&renewals));
        move |context| {
            let (gate, renewals) = (Arc::clone(&gate), Arc::clone(&renewals));
            async move {
                let ended = Arc::new(AtomicBool::new(false));
                let counting = count_renewals(&context, &ended);
                gate.acquire().await?.forget();
                ended.store(true, Ordering::SeqCst);
                renewals.store(counting.join().unwrap_or(0), Ordering::SeqCst);
                Ok(Outcome::completed(&())?)
            }
        }
    });
    world.reaches(job, State::Leased).await;
    // Over the first renewal, which is sent after a second and waits for its turn.
    let held = world.hold_database();
    let from = Instant::now();
    tokio::time::sleep_until(from + Duration::from_millis(1_800)).await; // deliberate: how long the database is held
    drop(held);
    // Past the end of the first lease.
    tokio::time::sleep_until(from + Duration::from_secs(4)).await; // deliberate: the run outlives its first lease
    gate.add_permits(1);
    assert_eq!(world.reaches(job, State::Completed).await.attempts, 1);
    assert!(renewals.load(Ordering::SeqCst) >= 1);
    assert_eq!(log.lines("lost lease"), Vec::<String>::new());
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_handler_is_stopped_at_its_leases_end_while_the_database_is_held() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let stopped = Arc::new(AtomicBool::new(false));
    let worker = world.worker(SHORT, {
        let stopped = Arc::clone(&stopped);
        move |_| {
            let dropped = Dropped(Arc::clone(&stopped));
            async move {
                std::future::pending::<()>().await;
                drop(dropped);
                Ok(Outcome::completed(&"never")?)
            }
        }
    });
    world.reaches(job, State::Leased).await;
    let held = world.hold_database();
    eventually(PATIENCE, "the handler is stopped", async || {
        require(stopped.load(Ordering::SeqCst), "it runs")
    })
    .await;
    drop(held);
    assert_eq!(world.reap(job).await, State::Queued);
    assert_eq!(world.job(job).await.attempts, 1);
    worker.crash().await;
    world.verify().await;
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_waited_for_and_no_attempt_is_spent() {
    let (log, _guard) = Log::capture();
    let world = World::new().await;
    let mut jobs = Vec::new();
    for n in 0..6 {
        jobs.push(world.queued(&n.to_string()).await);
    }
    let held = world.hold_database();
    // Gives up soon, so that the worker hears of it within the test.
    let impatient = world.store.with_budget(Duration::from_millis(200));
    let does = Does(|_| async { Ok(Outcome::completed(&())?) });
    let builder = world.builder_on(impatient, LONG).handler(kind(KIND), does);
    let worker = world.start(builder);
    log.says("the database does not answer; holding").await;
    for job in &jobs {
        assert_eq!(world.job(*job).await.epoch.0, 0);
    }
    drop(held);
    for job in &jobs {
        let done = world.reaches(*job, State::Completed).await;
        assert_eq!((done.attempts, done.epoch.0), (1, 1));
    }
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn attempts_are_counted_for_runs_that_never_reported() {
    let world = World::new().await;
    let job = world.queued("k").await;
    for attempt in 1..=3 {
        let worker = world.worker(SHORT, |_| async {
            std::future::pending::<()>().await;
            Ok(Outcome::completed(&"never")?)
        });
        assert_eq!(world.reaches(job, State::Leased).await.attempts, attempt);
        worker.crash().await;
        let expected = if attempt == 3 {
            State::Dead
        } else {
            State::Queued
        };
        assert_eq!(world.reap(job).await, expected);
    }
    let dead = world.job(job).await;
    assert_eq!(dead.error.unwrap().code.as_str(), "worker_lost");
    world.verify().await;
}
