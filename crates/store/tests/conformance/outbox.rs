//! The relay's verbs, leaders, workers, keys.

use std::time::Duration;

use fencepost_core::fingerprint::Moment;
use fencepost_core::id::{Owner, QueueName, Tenant, WorkerId};
use fencepost_core::lifecycle::State;
use fencepost_core::outbox::DispatchRef;
use fencepost_core::time::Clock as _;
use fencepost_store::*;

use super::world::*;

const HOLD: Duration = Duration::from_secs(30);

fn lane() -> QueueName {
    QueueName::new("default").unwrap()
}

async fn take(world: &World, window: u32, limit: u32) -> Taken {
    world
        .store
        .take(Take {
            queue: lane(),
            window,
            limit,
            hold: HOLD,
        })
        .await
        .unwrap()
}

async fn settle(world: &World, entry: DispatchRef, result: DispatchResult) -> u64 {
    let request = SettleDispatches {
        results: vec![(entry, result)],
        actor: "relay-1".into(),
    };
    world.store.settle_dispatches(request).await.unwrap()
}

async fn published(world: &World) -> DispatchRef {
    let taken = take(world, 100, 1).await;
    let entry = taken.dispatches[0].entry;
    assert_eq!(settle(world, entry, DispatchResult::Published).await, 1);
    entry
}

#[tokio::test]
async fn entries_are_taken_by_priority_up_to_the_window() {
    let world = World::new().await;
    for (n, priority) in [0, 5, 9, 5].into_iter().enumerate() {
        world
            .submitted(Submit {
                priority,
                ..submission(&format!("k{n}"))
            })
            .await;
    }
    let later = Moment::After(Duration::from_secs(5));
    world
        .submitted(Submit {
            run: Some(later),
            priority: 9,
            ..submission("later")
        })
        .await;
    let first = take(&world, 3, 2).await;
    assert_eq!((first.dispatches.len(), first.in_window), (2, 2));
    let rest = take(&world, 3, 10).await;
    assert_eq!(
        (rest.dispatches.len(), rest.in_window),
        (1, 3),
        "the window is full"
    );
    assert!(take(&world, 3, 10).await.dispatches.is_empty());
    let seqs: Vec<i64> = first
        .dispatches
        .iter()
        .chain(&rest.dispatches)
        .map(|d| d.entry.seq)
        .collect();
    assert_eq!(seqs, [3, 2, 4]);
    world.clock.turn(Duration::from_secs(5));
    let due: Vec<i64> = take(&world, 10, 1)
        .await
        .dispatches
        .iter()
        .map(|d| d.entry.seq)
        .collect();
    assert_eq!(
        due,
        [5],
        "a scheduled entry that is due takes its place by priority"
    );
    world.verify().await;
}

#[tokio::test]
async fn only_a_confirmed_and_routed_dispatch_is_published() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let entry = take(&world, 10, 10).await.dispatches[0].entry;
    assert_eq!(
        settle(&world, entry, DispatchResult::RouteFault("returned".into())).await,
        1
    );
    let entry = take(&world, 10, 10).await.dispatches[0].entry;
    assert_eq!(entry.dispatch_no, 2);
    assert_eq!(settle(&world, entry, DispatchResult::Published).await, 1);
    assert_eq!(
        settle(&world, entry, DispatchResult::Published).await,
        0,
        "settled once"
    );
    assert!(take(&world, 10, 10).await.dispatches.is_empty());
    assert_eq!(world.events(job).await, ["accepted", "published"]);
    world.verify().await;
}

#[tokio::test]
async fn a_late_confirm_cannot_mark_a_later_dispatch_or_a_later_life() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let late = take(&world, 10, 10).await.dispatches[0].entry;
    world.clock.turn(HOLD);
    let again = take(&world, 10, 10).await.dispatches[0].entry;
    assert_eq!(
        (again.seq, again.dispatch_no),
        (late.seq, late.dispatch_no + 1)
    );
    assert_eq!(settle(&world, late, DispatchResult::Published).await, 0);
    assert_eq!(settle(&world, again, DispatchResult::Published).await, 1);
    let claim = world.claimed(job).await.claim;
    let _ = world
        .store
        .release(Release { claim, reason: "x" })
        .await
        .unwrap();
    assert_eq!(settle(&world, again, DispatchResult::Published).await, 0);
    let third = take(&world, 10, 10).await.dispatches[0].entry;
    assert!(
        third.seq > again.seq,
        "a sequence number is never used again"
    );
    world.verify().await;
}

#[tokio::test]
async fn a_published_job_can_still_be_claimed_without_a_broker() {
    let world = World::new().await;
    let job = world.queued("k").await;
    published(&world).await;
    let due = world.store.due(&[lane()], 10).await.unwrap();
    assert_eq!(due.len(), 1);
    world.claimed(job).await;
    world.verify().await;
}

#[tokio::test]
async fn an_entry_that_fails_alone_waits_and_is_parked_at_last() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let entry = take(&world, 10, 10).await.dispatches[0].entry;
    let failed = DispatchResult::Failed {
        error: "too large".into(),
        delay: Duration::from_secs(9),
    };
    assert_eq!(settle(&world, entry, failed).await, 1);
    assert!(take(&world, 10, 10).await.dispatches.is_empty());
    world.clock.turn(Duration::from_secs(9));
    let again = take(&world, 10, 10).await.dispatches[0].clone();
    assert_eq!(again.failures, 1);
    assert_eq!(
        settle(
            &world,
            again.entry,
            DispatchResult::Parked("too large".into())
        )
        .await,
        1
    );
    world.clock.turn(Duration::from_mins(15));
    assert!(take(&world, 10, 10).await.dispatches.is_empty());
    assert!(world.store.due(&[lane()], 10).await.unwrap().is_empty());
    let view = world.job(job).await;
    assert_eq!((view.state, view.parked), (State::Queued, true));
    assert_eq!(world.store.queues().await.unwrap()[0].parked, 1);
    assert_eq!(world.events(job).await, ["accepted", "parked"]);
    world.verify().await;
}

#[tokio::test]
async fn an_unclaimed_entry_is_redispatched_and_a_claimed_one_is_not() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let entry = published(&world).await;
    let minute = Duration::from_mins(1);
    assert!(
        world
            .store
            .unclaimed(&lane(), minute, None, 10)
            .await
            .unwrap()
            .entries
            .is_empty()
    );
    world.clock.turn(minute);
    let page = world
        .store
        .unclaimed(&lane(), minute, None, 10)
        .await
        .unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(
        (page.entries[0].entry, page.entries[0].redispatches),
        (entry, 0)
    );
    let next = world
        .store
        .unclaimed(&lane(), minute, Some(page.entries[0]), 10)
        .await
        .unwrap();
    assert!(next.entries.is_empty());
    let again = |entry| Redispatch {
        entries: vec![entry],
    };
    assert_eq!(world.store.redispatch(again(entry)).await.unwrap(), 1);
    assert_eq!(world.store.redispatch(again(entry)).await.unwrap(), 0);
    let entry = published(&world).await;
    assert_eq!(entry.dispatch_no, 3);
    world.claimed(job).await;
    assert_eq!(world.store.redispatch(again(entry)).await.unwrap(), 0);
    // Two publications of one entry are one line that counts.
    let page = world
        .store
        .history(&tenant_scope(), job, 0, 10)
        .await
        .unwrap()
        .unwrap();
    let counts: Vec<(&str, u32)> = page
        .events
        .iter()
        .map(|e| (e.kind.as_str(), e.count))
        .collect();
    assert_eq!(counts, [("accepted", 1), ("published", 2), ("claimed", 1)]);
    world.verify().await;
}

#[tokio::test]
async fn a_put_back_delays_without_claim_or_attempt_and_doubles() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let entry = published(&world).await;
    let back = || PutBack {
        job,
        reason: "queue_paused",
        actor: "worker-1".into(),
    };
    for seconds in [1, 2, 4] {
        let until = world.clock.now().after(Duration::from_secs(seconds));
        assert_eq!(
            world.store.put_back(back()).await.unwrap(),
            PutBackOutcome::Until(until)
        );
    }
    assert_eq!(settle(&world, entry, DispatchResult::Published).await, 0);
    assert!(world.store.due(&[lane()], 10).await.unwrap().is_empty());
    assert_eq!(world.job(job).await.attempts, 0);
    assert_eq!(
        world.events(job).await,
        ["accepted", "published", "put_back"]
    );
    world.clock.turn(Duration::from_secs(4));
    world.claimed(job).await;
    assert_eq!(
        world.store.put_back(back()).await.unwrap(),
        PutBackOutcome::NotQueued
    );
    world.verify().await;
}

#[tokio::test]
async fn one_leads_the_others_stand_by_and_take_over() {
    let world = World::new().await;
    let bid = |holder: &str| Lead {
        name: "relay".into(),
        holder: WorkerId::new(holder).unwrap(),
        hold: Duration::from_secs(10),
    };
    assert_eq!(
        world.store.lead(bid("a")).await.unwrap(),
        Leadership::Leader { term: 1 }
    );
    let until = world.clock.now().after(Duration::from_secs(10));
    assert_eq!(
        world.store.lead(bid("b")).await.unwrap(),
        Leadership::Standby { until }
    );
    assert_eq!(
        world.store.lead(bid("a")).await.unwrap(),
        Leadership::Leader { term: 1 }
    );
    world.clock.turn(Duration::from_secs(10));
    assert_eq!(
        world.store.lead(bid("b")).await.unwrap(),
        Leadership::Leader { term: 2 }
    );
    let resign = Resign {
        name: "relay".into(),
        holder: WorkerId::new("b").unwrap(),
    };
    world.store.resign(resign).await.unwrap();
    assert_eq!(
        world.store.lead(bid("a")).await.unwrap(),
        Leadership::Leader { term: 3 }
    );
}

#[tokio::test]
async fn workers_are_seen_while_they_say_so() {
    let world = World::new().await;
    let beat = |slots| Heartbeat {
        worker: WorkerId::new("w").unwrap(),
        version: "0.1.0".into(),
        queues: vec![lane()],
        slots,
    };
    world.store.heartbeat(beat(8)).await.unwrap();
    let since = world.clock.now();
    let seen = world.store.workers(since).await.unwrap();
    assert_eq!((seen.len(), &seen[0].said), (1, &beat(8)));
    world.clock.turn(Duration::from_secs(15));
    assert!(
        world
            .store
            .workers(world.clock.now())
            .await
            .unwrap()
            .is_empty()
    );
    world.store.heartbeat(beat(0)).await.unwrap();
    assert!(
        world.store.workers(since).await.unwrap().is_empty(),
        "zero slots is goodbye"
    );
}

#[tokio::test]
async fn keys_are_created_found_and_revoked() {
    let world = World::new().await;
    let key = |id: &str| KeyRecord {
        id: id.into(),
        secret_hash: [3; 32],
        tenant: Tenant::new("acme").unwrap(),
        owner: Owner::new("ann").unwrap(),
        roles: vec![Role::Submit, Role::Read],
        created_at: world.clock.now(),
        expires_at: Some(world.clock.now().after(Duration::from_mins(1))),
        revoked_at: None,
    };
    let create = |id: &str, only_as_first| CreateKey {
        key: key(id),
        only_as_first,
        actor: "op".into(),
    };
    assert_eq!(
        world.store.create_key(create("one", true)).await.unwrap(),
        KeyCreated::Created
    );
    assert_eq!(
        world.store.create_key(create("two", true)).await.unwrap(),
        KeyCreated::NotFirst
    );
    assert_eq!(
        world.store.create_key(create("two", false)).await.unwrap(),
        KeyCreated::Created
    );
    let found = world.store.key("one").await.unwrap().unwrap();
    assert!(found == key("one"));
    assert!(found.is_good_at(world.clock.now()));
    assert!(!found.is_good_at(world.clock.now().after(Duration::from_mins(1))));
    let revoke = |id: &str| RevokeKey {
        id: id.into(),
        actor: "op".into(),
    };
    assert_eq!(
        world.store.revoke_key(revoke("one")).await.unwrap(),
        KeyRevoked::Revoked
    );
    assert_eq!(
        world.store.revoke_key(revoke("one")).await.unwrap(),
        KeyRevoked::Revoked
    );
    assert_eq!(
        world.store.revoke_key(revoke("nobody")).await.unwrap(),
        KeyRevoked::NotFound
    );
    assert!(
        !world
            .store
            .key("one")
            .await
            .unwrap()
            .unwrap()
            .is_good_at(world.clock.now())
    );
    assert_eq!(world.store.keys().await.unwrap().len(), 2);
    // The same id twice: the culprit alone fails.
    let twice = world.store.create_key(create("two", false)).await;
    assert_eq!(twice.unwrap_err().class(), ErrorClass::Conflict);
}
