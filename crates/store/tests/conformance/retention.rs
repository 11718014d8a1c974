//! What goes, when, and what never does.

use std::time::Duration;

use fencepost_core::id::EffectName;
use fencepost_core::lifecycle::{Failure, State};
use fencepost_store::*;

use super::world::*;

const DAY: Duration = Duration::from_hours(24);
const WEEK: Duration = Duration::from_hours(7 * 24);
const MONTH: Duration = Duration::from_hours(30 * 24);

async fn prune(world: &World, limit: u32) -> Pruned {
    let prune = Prune {
        finished_for: WEEK,
        keep_keys: MONTH,
        limit,
    };
    world.store.prune(prune).await.unwrap()
}

async fn completed(world: &World, key: &str) -> fencepost_core::id::JobId {
    let job = world.queued(key).await;
    let claim = world.claimed(job).await.claim;
    let report = world.store.complete(complete(claim)).await.unwrap();
    assert!(matches!(report, Report::Recorded { .. }));
    job
}

#[tokio::test]
async fn an_ended_job_goes_after_its_time_with_all_that_is_its_own() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let name = EffectName::new("mail").unwrap();
    let open = OpenEffect {
        claim,
        name: name.clone(),
    };
    assert_eq!(world.store.open_effect(open).await.unwrap(), Opened::Call);
    let settle = SettleEffect {
        claim,
        name,
        outcome: "1".to_owned(),
    };
    assert_eq!(
        world.store.settle_effect(settle).await.unwrap(),
        Marked::Recorded
    );
    let report = world.store.complete(complete(claim)).await.unwrap();
    assert!(matches!(report, Report::Recorded { .. }));
    world.clock.turn(Duration::from_secs(7 * 24 * 3_600 - 1));
    assert_eq!(prune(&world, 10).await, Pruned::default());
    world.clock.turn(Duration::from_secs(1));
    assert_eq!(prune(&world, 10).await, Pruned { jobs: 1, keys: 0 });
    let scope = tenant_scope();
    assert_eq!(world.store.job(&scope, job).await.unwrap(), None);
    assert_eq!(world.store.history(&scope, job, 0, 9).await.unwrap(), None);
    assert_eq!(world.store.count_jobs().await.unwrap(), 0);
    assert_eq!(world.store.feed(0, 10).await.unwrap(), []);
    world.verify().await;
}

#[tokio::test]
async fn what_waits_runs_or_is_unknown_never_goes() {
    let world = World::new().await;
    let queued = world.queued("queued").await;
    let leased = world.queued("leased").await;
    world.claimed(leased).await;
    let unknown = world.queued("unknown").await;
    let claim = world.claimed(unknown).await.claim;
    let name = EffectName::new("mail").unwrap();
    let open = OpenEffect { claim, name };
    assert_eq!(world.store.open_effect(open).await.unwrap(), Opened::Call);
    let report = world.store.fail(fail(claim, Failure::Permanent)).await;
    assert!(matches!(report.unwrap(), Report::Recorded { .. }));
    world.clock.turn(MONTH);
    assert_eq!(prune(&world, 10).await, Pruned::default());
    for (job, state) in [
        (queued, State::Queued),
        (leased, State::Leased),
        (unknown, State::Unknown),
    ] {
        assert_eq!(world.job(job).await.state, state);
    }
}

#[tokio::test]
async fn a_job_that_is_retried_before_its_time_stays() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let report = world.store.fail(fail(claim, Failure::Permanent)).await;
    assert!(matches!(report.unwrap(), Report::Recorded { .. }));
    world.clock.turn(WEEK);
    let retry = Retry {
        scope: tenant_scope(),
        job,
        deadline: None,
        actor: "ann".to_owned(),
    };
    assert!(matches!(
        world.store.retry(retry).await.unwrap(),
        Retried::Queued(_)
    ));
    assert_eq!(prune(&world, 10).await, Pruned::default());
    assert_eq!(world.job(job).await.state, State::Queued);
}

#[tokio::test]
async fn many_go_in_bounded_batches_oldest_first() {
    let world = World::new().await;
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(completed(&world, &format!("k{n}")).await);
        world.clock.turn(Duration::from_secs(1));
    }
    world.clock.turn(WEEK);
    assert_eq!(prune(&world, 2).await.jobs, 2);
    let (scope, all) = (tenant_scope(), JobFilter::default());
    let left = world.store.jobs(&scope, &all, None, 9).await.unwrap().jobs;
    let left: Vec<_> = left.iter().map(|job| job.id).collect();
    assert_eq!(left, [jobs[4], jobs[3], jobs[2]]);
    assert_eq!(prune(&world, 10).await.jobs, 3);
    world.verify().await;
}

#[tokio::test]
async fn a_repeat_is_told_that_its_job_is_gone_until_the_keys_time_is_over() {
    let world = World::new().await;
    let job = completed(&world, "k").await;
    world.clock.turn(WEEK);
    assert_eq!(prune(&world, 10).await.jobs, 1);
    world.clock.turn(Duration::from_secs(30 * 24 * 3_600 - 1));
    assert_eq!(prune(&world, 10).await, Pruned::default());
    let again = world.store.submit(submission("k")).await.unwrap();
    assert_eq!(again, Submitted::Gone(job));
    // Another owner's key of the same text is another key.
    let other = Submit {
        owner: fencepost_core::id::Owner::new("bob").unwrap(),
        ..submission("k")
    };
    world.submitted(other).await;
    world.clock.turn(Duration::from_secs(1));
    assert_eq!(prune(&world, 10).await, Pruned { jobs: 0, keys: 1 });
    let anew = world.submitted(submission("k")).await;
    assert_ne!(anew.id, job);
    world.verify().await;
}

#[tokio::test]
async fn parked_entries_are_listed_and_released() {
    let world = World::new().await;
    let job = world.queued("bad").await;
    let lane = world.job(job).await.queue;
    let take = Take {
        queue: lane.clone(),
        window: 10,
        limit: 10,
        hold: DAY,
    };
    let entry = world.store.take(take.clone()).await.unwrap().dispatches[0].entry;
    let park = SettleDispatches {
        results: vec![(entry, DispatchResult::Parked("refused: too large".into()))],
        actor: "relay-1".to_owned(),
    };
    assert_eq!(world.store.settle_dispatches(park).await.unwrap(), 1);
    assert!(world.job(job).await.parked);
    let listed = world.store.parked(Some(&lane), 0, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (
            listed[0].job,
            listed[0].failures,
            listed[0].error.as_deref()
        ),
        (job, 1, Some("refused: too large"))
    );
    let stages = world.store.stages().await.unwrap();
    assert_eq!((stages[0].stage.as_str(), stages[0].entries), ("parked", 1));
    let unpark = |jobs| Unpark {
        jobs,
        queue: None,
        limit: 10,
        actor: "carol".to_owned(),
    };
    let other = world.queued("other").await;
    let none = world.store.unpark(unpark(Some(vec![other]))).await.unwrap();
    assert_eq!(none, []);
    let released = world.store.unpark(unpark(Some(vec![job]))).await.unwrap();
    assert_eq!(released, [job]);
    assert!(!world.job(job).await.parked);
    let again = world.store.take(take).await.unwrap().dispatches;
    let again = again
        .iter()
        .find(|dispatch| dispatch.job.id == job)
        .unwrap();
    // A late settlement of the dispatch before it meets nothing.
    assert!(again.entry.dispatch_no > entry.dispatch_no + 1);
    assert_eq!(again.failures, 0);
    assert!(world.events(job).await.contains(&"unparked".to_owned()));
    world.verify().await;
}
