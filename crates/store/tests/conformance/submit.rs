//! Acceptance.

use std::time::Duration;

use fencepost_core::fingerprint::Moment;
use fencepost_core::id::{OperationKey, Owner, Tenant};
use fencepost_core::lifecycle::State;
use fencepost_core::time::Clock as _;
use fencepost_store::*;

use super::world::*;

#[tokio::test]
async fn an_accepted_job_is_queued_with_one_entry_and_one_event() {
    let world = World::new().await;
    let job = world.submitted(submission("k")).await;
    assert_eq!(world.job(job.id).await, job, "the answer is what is stored");
    assert_eq!(job.state, State::Queued);
    assert_eq!(world.events(job.id).await, ["accepted"]);
    let due = world
        .store
        .due(std::slice::from_ref(&job.queue), 10)
        .await
        .unwrap();
    assert_eq!(due.iter().map(|due| due.id).collect::<Vec<_>>(), [job.id]);
    world.verify().await;
}

#[tokio::test]
async fn the_same_key_and_content_is_a_replay_in_every_state() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let replay = || async {
        match world.store.submit(submission("k")).await.unwrap() {
            Submitted::Replayed(view) => (view.id, view.state),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(replay().await, (job, State::Queued));
    let claimed = world.claimed(job).await;
    assert_eq!(replay().await, (job, State::Leased));
    let _ = world.store.complete(complete(claimed.claim)).await.unwrap();
    assert_eq!(replay().await, (job, State::Completed));
    // The deadline of the replay has long passed; it is the replay it is.
    world.clock.turn(Duration::from_hours(2));
    assert_eq!(replay().await, (job, State::Completed));
    assert_eq!(world.store.count_jobs().await.unwrap(), 1);
    world.verify().await;
}

#[tokio::test]
async fn the_same_key_with_other_content_is_a_conflict() {
    let world = World::new().await;
    world.queued("k").await;
    let mut other = submission("k");
    other.fingerprint.0[0] ^= 1;
    assert_eq!(
        world.store.submit(other).await.unwrap(),
        Submitted::KeyConflict
    );
}

#[tokio::test]
async fn keys_of_other_tenants_and_owners_never_meet() {
    let world = World::new().await;
    let mut ids = std::collections::BTreeSet::new();
    for (tenant, owner, key) in [
        ("a", "o", "b:c"),
        ("a:b", "o", "c"),
        ("a", "o:b", "c"),
        ("a/b", "o", "c"),
        ("a|b", "o", "c"),
        ("a%3A", "o", "c"),
        ("a b", "o", "c"),
        ("a", "o", "K"),
        ("a", "o", "k"),
        ("a", "o", "K0"),
        ("a", "o", "K00"),
    ] {
        let request = Submit {
            tenant: Tenant::new(tenant).unwrap(),
            owner: Owner::new(owner).unwrap(),
            key: OperationKey::new(key).unwrap(),
            ..submission("x")
        };
        assert!(
            ids.insert(world.submitted(request).await.id),
            "{tenant} {owner} {key}"
        );
    }
    assert_eq!(ids.len(), 11);
}

#[tokio::test]
async fn of_many_at_once_exactly_one_is_told_that_it_made_the_job() {
    let world = World::new().await;
    for round in 0..20 {
        let key = format!("k{round}");
        let requests = (0..50).map(|_| world.store.submit(submission(&key)));
        let answers = futures_util::future::join_all(requests).await;
        let mut created = 0;
        let mut ids = std::collections::BTreeSet::new();
        for answer in answers {
            match answer.unwrap() {
                Submitted::Created(view) => {
                    created += 1;
                    ids.insert(view.id);
                }
                Submitted::Replayed(view) => {
                    ids.insert(view.id);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((created, ids.len()), (1, 1));
    }
    assert_eq!(world.store.count_jobs().await.unwrap(), 20);
    world.verify().await;
}

#[tokio::test]
async fn two_stores_on_one_file_agree_on_who_was_first() {
    let world = World::new().await;
    let clock: std::sync::Arc<dyn fencepost_core::time::Clock> = world.clock.clone();
    let mut second = options(&world.path, clock);
    second.ids = std::sync::Arc::new(OtherIds);
    let second = Store::open(second).await.unwrap();
    for round in 0..20 {
        let key = format!("k{round}");
        let (one, two) = tokio::join!(
            world.store.submit(submission(&key)),
            second.submit(submission(&key))
        );
        let (one, two) = (one.unwrap(), two.unwrap());
        let id = |answer: &Submitted| match answer {
            Submitted::Created(view) | Submitted::Replayed(view) => view.id,
            other => panic!("{other:?}"),
        };
        assert_eq!(id(&one), id(&two));
        let created = [&one, &two]
            .iter()
            .filter(|a| matches!(a, Submitted::Created(_)))
            .count();
        assert_eq!(created, 1, "{one:?} {two:?}");
    }
    second.close().await;
}

#[derive(Debug)]
struct OtherIds;

impl fencepost_core::id::IdSource for OtherIds {
    fn uuid(&self) -> uuid::Uuid {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        uuid::Uuid::from_u128(0x0191_0000_0000_7000_8000_0000_0000_0000 + u128::from(number))
    }

    fn random(&self) -> u64 {
        0
    }

    fn secret(&self) -> [u8; 32] {
        [0; 32]
    }
}

#[tokio::test]
async fn a_deadline_that_cannot_be_met_is_refused() {
    let world = World::new().await;
    let past = Moment::At(fencepost_core::time::Timestamp::from_millis(1));
    let late = Submit {
        deadline: past,
        ..submission("k")
    };
    assert_eq!(
        world.store.submit(late).await.unwrap(),
        Submitted::DeadlineUnusable
    );
    let before_run = Submit {
        run: Some(Moment::After(Duration::from_hours(2))),
        ..submission("k")
    };
    assert_eq!(
        world.store.submit(before_run).await.unwrap(),
        Submitted::DeadlineUnusable
    );
    assert_eq!(world.store.count_jobs().await.unwrap(), 0);
}

#[tokio::test]
async fn a_payload_may_refer_to_blobs_of_its_own_tenant_only() {
    let world = World::new().await;
    let hash = BlobHash([9; 32]);
    let referring = || Submit {
        blobs: vec![hash, hash],
        ..submission("k")
    };
    assert_eq!(
        world.store.submit(referring()).await.unwrap(),
        Submitted::BlobMissing(hash)
    );
    let foreign = RecordBlob {
        tenant: Tenant::new("other").unwrap(),
        hash,
        size: 3,
        object: "an-object".to_owned(),
    };
    assert_eq!(
        world.store.record_blob(foreign).await.unwrap(),
        BlobKnown::New
    );
    assert_eq!(
        world.store.submit(referring()).await.unwrap(),
        Submitted::BlobMissing(hash)
    );
    let own = RecordBlob {
        tenant: Tenant::new("acme").unwrap(),
        hash,
        size: 3,
        object: "an-object".to_owned(),
    };
    assert_eq!(
        world.store.record_blob(own.clone()).await.unwrap(),
        BlobKnown::New
    );
    assert_eq!(
        world.store.record_blob(own).await.unwrap(),
        BlobKnown::Before
    );
    world.submitted(referring()).await;
}

#[tokio::test]
async fn a_scheduled_job_is_due_at_its_time() {
    let world = World::new().await;
    let later = Moment::After(Duration::from_mins(1));
    let job = world
        .submitted(Submit {
            run: Some(later),
            ..submission("k")
        })
        .await;
    let queues = [job.queue.clone()];
    assert!(world.store.due(&queues, 10).await.unwrap().is_empty());
    assert_eq!(
        world.store.next_due_at(&queues).await.unwrap(),
        Some(job.run_at)
    );
    assert_eq!(job.run_at, world.clock.now().after(Duration::from_mins(1)));
    world.clock.turn(Duration::from_mins(1));
    assert_eq!(world.store.due(&queues, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_is_announced_to_those_who_wait() {
    let world = World::new().await;
    let mut changes = world.store.changes();
    changes.mark_unchanged();
    world.queued("k").await;
    tokio::time::timeout(Duration::from_secs(5), changes.changed())
        .await
        .unwrap()
        .unwrap();
}
