//! The write-ahead log is moved into the file by one process, and stays short.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_core::time::Clock;
use fencepost_store::*;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::task::JoinSet;

use super::world::*;

/// What the log may not stay above.
const LIMIT: u64 = 64 * 1024 * 1024;

const PATIENCE: Duration = Duration::from_secs(45);

fn log_bytes(path: &Path) -> u64 {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    std::fs::metadata(name).map_or(0, |file| file.len())
}

/// Submits jobs with long payloads, many at a time; about so many bytes of log.
async fn write(store: &Store, round: &str, bytes: usize) {
    const PAYLOAD: usize = 60_000;
    let mut writing = JoinSet::new();
    for n in 0..bytes / PAYLOAD {
        let request = Submit {
            payload: format!("\"{}\"", "x".repeat(PAYLOAD)),
            ..submission(&format!("{round}-{n}"))
        };
        let store = store.clone();
        if writing.len() >= 64 {
            written(writing.join_next().await.unwrap());
        }
        writing.spawn(async move { store.submit(request).await });
    }
    while let Some(done) = writing.join_next().await {
        written(done);
    }
}

fn written(done: Result<Result<Submitted, StoreError>, tokio::task::JoinError>) {
    let submitted = done.unwrap().unwrap();
    assert!(matches!(submitted, Submitted::Created(_)));
}

async fn is_short(path: &Path) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while log_bytes(path) > LIMIT {
        assert!(
            tokio::time::Instant::now() < end,
            "the log has {} bytes",
            log_bytes(path)
        );
        tokio::time::sleep(Duration::from_millis(20)).await; // deliberate: asked again, with a limit
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_short_while_readers_overlap_all_the_time() {
    let world = World::new().await;
    let reading = Arc::new(AtomicBool::new(true));
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let (store, reading) = (world.store.clone(), Arc::clone(&reading));
        readers.spawn(async move {
            let (scope, all) = (tenant_scope(), JobFilter::default());
            while reading.load(Ordering::SeqCst) {
                store.jobs(&scope, &all, None, 100).await.unwrap();
            }
        });
    }
    for round in 0..3 {
        write(&world.store, &round.to_string(), 40 << 20).await;
        is_short(&world.path).await;
    }
    reading.store(false, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
    world.store.close().await;
    assert_eq!(log_bytes(&world.path), 0);
}

/// An operator's tool, say, that looked and did not end its reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_shortens_again_once_an_outside_reader_has_left() {
    let world = World::new().await;
    world.queued("first").await;
    let mut outside = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&world.path)
        .read_only(true)
        .connect()
        .await
        .unwrap();
    let mut reading = outside.begin().await.unwrap();
    let row = sqlx::query("SELECT count(*) FROM job").fetch_one(&mut *reading);
    assert_eq!(row.await.unwrap().get::<i64, _>(0), 1);
    // Every commit goes on meanwhile.
    write(&world.store, "long", 80 << 20).await;
    assert!(log_bytes(&world.path) > LIMIT);
    let row = sqlx::query("SELECT count(*) FROM job").fetch_one(&mut *reading);
    assert_eq!(row.await.unwrap().get::<i64, _>(0), 1);
    let held = world.store.log_size().unwrap();
    assert_eq!(held.bytes, log_bytes(&world.path));
    // The store's clock stands: the age falls when the time of the checkpoint moves on.
    assert!(held.since_checkpoint > Duration::from_secs(1), "{held:?}");
    reading.rollback().await.unwrap();
    is_short(&world.path).await;
    let end = tokio::time::Instant::now() + PATIENCE;
    while world.store.log_size().unwrap().since_checkpoint >= held.since_checkpoint {
        assert!(tokio::time::Instant::now() < end, "the time stands");
        tokio::time::sleep(Duration::from_millis(20)).await; // deliberate: asked again, with a limit
    }
    world.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_takes_over_when_the_one_that_moves_the_log_has_ended() {
    let world = World::new().await;
    let clock: Arc<dyn Clock> = world.clock.clone();
    let other = Store::open(options(&world.path, clock)).await.unwrap();
    write(&other, "before", 10 << 20).await;
    world.store.close().await;
    write(&other, "after", 100 << 20).await;
    is_short(&world.path).await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_audit_holds_no_old_state() {
    let world = World::new().await;
    for n in 0..200 {
        world.queued(&format!("k{n}")).await;
    }
    for n in 0..100 {
        let audit = world.store.audit(None, 200);
        let _ = tokio::time::timeout(Duration::from_micros(n * 50), audit).await;
    }
    world.queued("after").await;
    // Every connection of the pool, dropped audits and all, lets go of the log.
    let mut outside = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&world.path)
        .connect()
        .await
        .unwrap();
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut outside)
            .await
            .unwrap();
        if row.get::<i64, _>(0) == 0 {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "a reading holds the log");
        tokio::time::sleep(Duration::from_millis(20)).await; // deliberate: asked again, with a limit
    }
    outside.close().await.unwrap();
    for _ in 0..20 {
        let counted = (0..4).map(|_| world.store.count_jobs());
        for jobs in futures_util::future::join_all(counted).await {
            assert_eq!(jobs.unwrap(), 201, "no reading sees an old state");
        }
    }
}
