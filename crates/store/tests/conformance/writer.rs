//! Group commit under foreign locks, full disks and hung-up callers.

use std::time::Duration;

use fencepost_core::time::Clock as _;
use fencepost_store::*;
use sqlx::{ConnectOptions as _, Connection as _};

use super::world::*;

/// Holds the write lock of a file from outside.
struct Locker(sqlx::sqlite::SqliteConnection);

impl Locker {
    async fn take(path: &std::path::Path) -> Self {
        let mut file = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(Duration::from_secs(5))
            .connect()
            .await
            .unwrap();
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut file)
            .await
            .unwrap();
        Self(file)
    }

    async fn release(mut self) {
        sqlx::query("ROLLBACK").execute(&mut self.0).await.unwrap();
        self.0.close().await.unwrap();
    }
}

#[tokio::test]
async fn every_write_waits_for_a_foreign_lock_and_then_succeeds() {
    let world = World::new().await;
    let mut jobs = Vec::new();
    for n in 0..6 {
        jobs.push(world.queued(&format!("k{n}")).await);
    }
    let held = world.claimed(jobs[0]).await.claim;
    let done = world.claimed(jobs[1]).await.claim;
    let failed = world.claimed(jobs[2]).await.claim;
    let lock = Locker::take(&world.path).await;
    let store = &world.store;
    let all = async {
        tokio::join!(
            store.submit(submission("new")),
            store.claim(claim_of(jobs[3])),
            store.renew(Renew {
                claim: held,
                lease: LEASE
            }),
            store.complete(complete(done)),
            store.fail(fail(failed, fencepost_core::lifecycle::Failure::Repeatable)),
            store.cancel(super::control::cancel(jobs[4])),
            store.reap(reap(jobs[5], fencepost_core::id::Epoch(0))),
            store.take(Take {
                queue: "default".parse().unwrap(),
                window: 10,
                limit: 10,
                hold: LEASE,
            }),
        )
    };
    let release = async {
        // The lock is held while all of them wait: none may answer before its end.
        tokio::time::sleep(Duration::from_secs(1)).await; // deliberate: the length of the foreign lock
        lock.release().await;
    };
    let (answers, ()) = tokio::join!(all, release);
    assert!(matches!(answers.0.unwrap(), Submitted::Created(_)));
    assert!(matches!(answers.1.unwrap(), ClaimOutcome::Claimed(_)));
    assert!(matches!(answers.2.unwrap(), Renewed::Live { .. }));
    assert!(matches!(answers.3.unwrap(), Report::Recorded { .. }));
    assert!(matches!(answers.4.unwrap(), Report::Recorded { .. }));
    assert!(matches!(answers.5.unwrap(), Cancelled::Done(_)));
    assert_eq!(answers.6.unwrap(), Reaped::Skipped);
    drop(answers.7.unwrap());
    world.verify().await;
}

#[tokio::test]
async fn a_write_that_waited_too_long_says_so_and_wrote_nothing() {
    let world = World::new().await;
    let lock = Locker::take(&world.path).await;
    let hasty = world.store.with_budget(Duration::from_millis(300));
    let busy = hasty.submit(submission("k")).await.unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    assert_eq!(busy.class(), ErrorClass::Transient);
    lock.release().await;
    world.queued("after").await;
    assert_eq!(
        world.store.count_jobs().await.unwrap(),
        1,
        "the withdrawn one was not written"
    );
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_the_job_whole_or_absent() {
    let world = World::new().await;
    for n in 0..40 {
        let key = format!("k{n}");
        let call = world.store.submit(submission(&key));
        let _ = tokio::time::timeout(Duration::from_micros(n * 20), call).await;
    }
    world.verify().await;
    let before = world.store.count_jobs().await.unwrap();
    let mut created = 0;
    for n in 0..40 {
        match world
            .store
            .submit(submission(&format!("k{n}")))
            .await
            .unwrap()
        {
            Submitted::Created(_) => created += 1,
            Submitted::Replayed(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // Some may have been committed since they were counted: nobody waited for them.
    assert!(before + created <= 40, "{before} and {created}");
    assert_eq!(world.store.count_jobs().await.unwrap(), 40);
    world.verify().await;
}

#[tokio::test]
async fn a_culprit_in_a_batch_fails_alone() {
    let world = World::new().await;
    let key = KeyRecord {
        id: "twice".into(),
        secret_hash: [1; 32],
        tenant: "acme".parse().unwrap(),
        owner: "ann".parse().unwrap(),
        roles: vec![Role::Read],
        created_at: world.clock.now(),
        expires_at: None,
        revoked_at: None,
    };
    let create = || {
        world.store.create_key(CreateKey {
            key: key.clone(),
            only_as_first: false,
            actor: "op".into(),
        })
    };
    let _ = create().await.unwrap();
    // Held back by a lock, so that all of these share one transaction.
    let lock = Locker::take(&world.path).await;
    let batch = async {
        let submits = (0..20).map(|n| world.store.submit(submission(&format!("k{n}"))));
        tokio::join!(futures_util::future::join_all(submits), create())
    };
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await; // deliberate: lets the batch gather
        lock.release().await;
    };
    let ((submitted, culprit), ()) = tokio::join!(batch, release);
    for answer in submitted {
        assert!(matches!(answer.unwrap(), Submitted::Created(_)));
    }
    assert_eq!(culprit.unwrap_err().class(), ErrorClass::Conflict);
    assert_eq!(world.store.count_jobs().await.unwrap(), 20);
    world.verify().await;
}

#[tokio::test]
async fn now_is_read_after_the_lock_is_held() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let lock = Locker::take(&world.path).await;
    let report = world.store.complete(complete(claim));
    let release = async {
        // The lease runs out while the report waits for the lock.
        tokio::time::sleep(Duration::from_millis(300)).await; // deliberate: the report must be waiting by now
        world.clock.turn(LEASE);
        lock.release().await;
    };
    let (report, ()) = tokio::join!(report, release);
    assert_eq!(
        report.unwrap(),
        Report::Fenced(fencepost_core::lease::Fenced::LeaseExpired)
    );
}
