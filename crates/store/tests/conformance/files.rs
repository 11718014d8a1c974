//! Opening: many at once, newer files, foreign files, closing.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::time::Clock;
use fencepost_store::*;
use sqlx::{ConnectOptions as _, Connection as _};

use super::world::*;

async fn outside(path: &std::path::Path, statement: &'static str) {
    let mut file = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap();
    sqlx::raw_sql(statement).execute(&mut file).await.unwrap();
    file.close().await.unwrap();
}

async fn clock() -> Arc<dyn Clock> {
    World::new().await.clock
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_stores_open_one_new_file_at_once() {
    let clock = clock().await;
    for _ in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume/fencepost.db");
        let opening = (0..6).map(|_| tokio::spawn(Store::open(options(&path, Arc::clone(&clock)))));
        for opened in futures_util::future::join_all(opening).await {
            let store = opened.unwrap().unwrap();
            store.ping().await.unwrap();
            store.close().await;
        }
    }
}

#[tokio::test]
async fn a_newer_file_is_refused_and_left_untouched() {
    let world = World::new().await;
    world.queued("k").await;
    world.store.close().await;
    outside(
        &world.path,
        "PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)",
    )
    .await;
    let before = std::fs::read(&world.path).unwrap();
    let clock: Arc<dyn Clock> = world.clock.clone();
    let refused = Store::open(options(&world.path, clock)).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { found: 99, .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("run a newer fencepost"));
    assert_eq!(std::fs::read(&world.path).unwrap(), before);
}

#[tokio::test]
async fn another_programs_file_is_refused_and_left_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    outside(&path, "CREATE TABLE notes (text TEXT)").await;
    let before = std::fs::read(&path).unwrap();
    let refused = Store::open(options(&path, clock().await))
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Foreign { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_an_error_not_a_new_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("text.db");
    std::fs::write(
        &path,
        "this is not a database, but it is long enough to look at".repeat(20),
    )
    .unwrap();
    let refused = Store::open(options(&path, clock().await))
        .await
        .unwrap_err();
    assert_eq!(refused.class(), ErrorClass::Corrupt, "{refused}");
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart() {
    let world = World::new().await;
    let job = world.queued("k").await;
    world.store.close().await;
    let closed = world.store.submit(submission("late")).await;
    assert!(matches!(closed, Err(StoreError::Closed)));
    let clock: Arc<dyn Clock> = world.clock.clone();
    let store = Store::open(options(&world.path, clock)).await.unwrap();
    assert!(store.job(&tenant_scope(), job).await.unwrap().is_some());
    store.close().await;
}

#[tokio::test]
async fn a_commit_in_one_store_wakes_those_who_wait_in_another() {
    let world = World::new().await;
    let clock: Arc<dyn Clock> = world.clock.clone();
    // A poll this slow would not be in time.
    let slow = OpenOptions {
        wake_poll: Duration::from_mins(10),
        ..options(&world.path, clock)
    };
    let other = Store::open(slow).await.unwrap();
    let mut changes = other.changes();
    changes.mark_unchanged();
    world.queued("k").await;
    tokio::time::timeout(Duration::from_secs(5), changes.changed())
        .await
        .unwrap()
        .unwrap();
    other.close().await;
}

/// As the first version wrote it, with a blob that has no name of its own.
#[tokio::test]
async fn a_file_of_an_older_version_is_brought_up_to_date_by_whoever_comes_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fencepost.db");
    outside(
        &path,
        concat!(
            include_str!("../../../../migrations/sqlite/0001_init.sql"),
            "PRAGMA application_id = 1181639525; PRAGMA user_version = 1;
             INSERT INTO blob (tenant, hash, size, last_put_at) VALUES ('acme', zeroblob(32), 5, 0);"
        ),
    )
    .await;
    let clock = clock().await;
    let opening = (0..6).map(|_| tokio::spawn(Store::open(options(&path, Arc::clone(&clock)))));
    for opened in futures_util::future::join_all(opening).await {
        let store = opened.unwrap().unwrap();
        let tenant = tenant_scope().tenant;
        let blob = store.blob(&tenant, &BlobHash([0; 32])).await.unwrap();
        assert_eq!(blob.unwrap().object, None);
        store.close().await;
    }
}
