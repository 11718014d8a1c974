//! Cancel, retry, reap.

use std::time::Duration;

use fencepost_core::fingerprint::Moment;
use fencepost_core::id::{Epoch, JobId, Owner, Tenant};
use fencepost_core::kind::OnCrash;
use fencepost_core::lease::Fenced;
use fencepost_core::lifecycle::{self, Failure, State};
use fencepost_core::time::{Clock as _, Timestamp};
use fencepost_store::*;

use super::world::*;

pub(crate) fn cancel(job: JobId) -> Cancel {
    Cancel {
        scope: tenant_scope(),
        job,
        how: lifecycle::Cancel::Ask,
        actor: "ann".into(),
    }
}

fn force(job: JobId) -> Cancel {
    Cancel {
        how: lifecycle::Cancel::Force,
        ..cancel(job)
    }
}

fn retry(job: JobId) -> Retry {
    Retry {
        scope: tenant_scope(),
        job,
        deadline: None,
        actor: "ann".into(),
    }
}

async fn cancelled(world: &World, request: Cancel) -> State {
    match world.store.cancel(request).await.unwrap() {
        Cancelled::Done(view) => view.state,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_queued_job_is_cancelled_at_once_and_its_entry_goes() {
    let world = World::new().await;
    let job = world.queued("k").await;
    assert_eq!(cancelled(&world, cancel(job)).await, State::Cancelled);
    assert_eq!(
        world.store.cancel(cancel(job)).await.unwrap(),
        Cancelled::Conflict(State::Cancelled)
    );
    assert_eq!(world.events(job).await, ["accepted", "cancelled"]);
    world.verify().await;
}

#[tokio::test]
async fn a_running_job_is_asked_once_however_often() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    for _ in 0..2 {
        assert!(matches!(
            world.store.cancel(cancel(job)).await.unwrap(),
            Cancelled::Asked(_)
        ));
    }
    assert_eq!(
        world.events(job).await,
        ["accepted", "claimed", "cancel_requested"]
    );
    let report = world
        .store
        .fail(fail(claim, Failure::Repeatable))
        .await
        .unwrap();
    assert_eq!(
        report,
        Report::Recorded {
            state: State::Cancelled
        }
    );
    world.verify().await;
}

#[tokio::test]
async fn a_result_beats_a_cancellation_that_was_only_asked() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let _ = world.store.cancel(cancel(job)).await.unwrap();
    let report = world.store.complete(complete(claim)).await.unwrap();
    assert_eq!(
        report,
        Report::Recorded {
            state: State::Completed
        }
    );
    assert_eq!(
        world.store.cancel(cancel(job)).await.unwrap(),
        Cancelled::Conflict(State::Completed)
    );
}

#[tokio::test]
async fn force_disowns_the_worker() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    assert_eq!(cancelled(&world, force(job)).await, State::Cancelled);
    assert_eq!(world.job(job).await.epoch, Epoch(2));
    let report = world.store.complete(complete(claim)).await.unwrap();
    assert_eq!(report, Report::Fenced(Fenced::NewerEpoch));
    world.verify().await;
}

#[tokio::test]
async fn force_with_an_open_effect_is_unknown_and_a_retry_is_refused() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let open = OpenEffect {
        claim,
        name: "mail".parse().unwrap(),
    };
    assert_eq!(world.store.open_effect(open).await.unwrap(), Opened::Call);
    assert_eq!(cancelled(&world, force(job)).await, State::Unknown);
    assert_eq!(
        world.store.retry(retry(job)).await.unwrap(),
        Retried::Conflict(State::Unknown)
    );
    assert_eq!(
        world.store.cancel(cancel(job)).await.unwrap(),
        Cancelled::Conflict(State::Unknown)
    );
    world.verify().await;
}

#[tokio::test]
async fn a_cancelled_job_names_the_effects_that_happened() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let name = || "mail".parse().unwrap();
    let _ = world
        .store
        .open_effect(OpenEffect {
            claim,
            name: name(),
        })
        .await
        .unwrap();
    let settle = SettleEffect {
        claim,
        name: name(),
        outcome: "1".into(),
    };
    assert_eq!(
        world.store.settle_effect(settle).await.unwrap(),
        Marked::Recorded
    );
    let _ = world.store.cancel(cancel(job)).await.unwrap();
    let _ = world
        .store
        .release(Release {
            claim,
            reason: "cancelled",
        })
        .await
        .unwrap();
    let error = world.job(job).await.error.unwrap();
    assert_eq!(error.code.as_str(), "cancelled_after_effect");
    assert!(error.message.ends_with(": mail"), "{}", error.message);
}

#[tokio::test]
async fn a_retry_gives_a_fresh_budget_and_deadline_and_keeps_the_epoch() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let _ = world
        .store
        .fail(fail(claim, Failure::Permanent))
        .await
        .unwrap();
    world.clock.turn(Duration::from_hours(2));
    let Retried::Queued(view) = world.store.retry(retry(job)).await.unwrap() else {
        panic!()
    };
    assert_eq!((view.attempts, view.epoch, view.error), (0, Epoch(1), None));
    assert_eq!(
        view.deadline_at,
        world.clock.now().after(Duration::from_hours(1))
    );
    assert_eq!(world.claimed(job).await.claim.epoch(), Epoch(2));
    assert_eq!(
        world.store.retry(retry(job)).await.unwrap(),
        Retried::Conflict(State::Leased)
    );
    world.verify().await;
}

#[tokio::test]
async fn a_retry_with_a_deadline_in_the_past_changes_nothing() {
    let world = World::new().await;
    let job = world.queued("k").await;
    cancelled(&world, cancel(job)).await;
    let late = Retry {
        deadline: Some(Moment::At(Timestamp::from_millis(1))),
        ..retry(job)
    };
    assert_eq!(
        world.store.retry(late).await.unwrap(),
        Retried::DeadlineUnusable
    );
    assert_eq!(world.job(job).await.state, State::Cancelled);
}

#[tokio::test]
async fn what_is_another_owners_does_not_exist() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let nobody: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
    for scope in [
        Scope {
            tenant: Tenant::new("other").unwrap(),
            owner: None,
        },
        Scope {
            tenant: Tenant::new("acme").unwrap(),
            owner: Some(Owner::new("bob").unwrap()),
        },
    ] {
        for id in [job, nobody] {
            let at = |request: Cancel| Cancel {
                scope: scope.clone(),
                ..request
            };
            assert_eq!(
                world.store.cancel(at(cancel(id))).await.unwrap(),
                Cancelled::NotFound
            );
            assert_eq!(
                world.store.cancel(at(force(id))).await.unwrap(),
                Cancelled::NotFound
            );
            let again = Retry {
                scope: scope.clone(),
                ..retry(id)
            };
            assert_eq!(world.store.retry(again).await.unwrap(), Retried::NotFound);
            assert_eq!(world.store.job(&scope, id).await.unwrap(), None);
            assert_eq!(world.store.history(&scope, id, 0, 10).await.unwrap(), None);
        }
        let page = world
            .store
            .jobs(&scope, &JobFilter::default(), None, 10)
            .await
            .unwrap();
        assert!(page.jobs.is_empty());
    }
    let own = Scope {
        owner: Some(Owner::new("ann").unwrap()),
        ..tenant_scope()
    };
    assert!(world.store.job(&own, job).await.unwrap().is_some());
}

#[tokio::test]
async fn the_reaper_takes_back_only_what_is_expired_now() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let candidate = || reap(job, claim.epoch());
    assert_eq!(
        world.store.reap(candidate()).await.unwrap(),
        Reaped::Skipped
    );
    world.clock.turn(LEASE);
    let page = world.store.expired(None, 10).await.unwrap();
    assert_eq!(
        page.jobs
            .iter()
            .map(|e| (e.job, e.epoch))
            .collect::<Vec<_>>(),
        [(job, claim.epoch())]
    );
    let moved = Reaped::Moved {
        from: State::Leased,
        to: State::Queued,
    };
    assert_eq!(world.store.reap(candidate()).await.unwrap(), moved);
    assert_eq!(
        world.store.reap(candidate()).await.unwrap(),
        Reaped::Skipped
    );
    assert_eq!(world.events(job).await, ["accepted", "claimed", "reaped"]);
    world.verify().await;
}

/// Between the reaper's look and its write the job moves on, in six ways.
#[tokio::test]
async fn a_reaper_that_looked_too_early_changes_nothing() {
    for case in [
        "renewed",
        "claimed",
        "completed",
        "failed",
        "cancelled",
        "reaped",
    ] {
        let world = World::new().await;
        let job = world.queued("k").await;
        let claim = world.claimed(job).await.claim;
        if case == "renewed" {
            world
                .clock
                .turn(LEASE.checked_sub(Duration::from_millis(1)).unwrap());
            let _ = world
                .store
                .renew(Renew {
                    claim,
                    lease: LEASE,
                })
                .await
                .unwrap();
            world.clock.turn(Duration::from_secs(1));
        } else {
            world.clock.turn(LEASE);
            let _ = world.store.reap(reap(job, claim.epoch())).await.unwrap();
            world.clock.turn(Duration::from_secs(2));
        }
        match case {
            "claimed" => drop(world.claimed(job).await),
            "completed" => {
                let claim = world.claimed(job).await.claim;
                let _ = world.store.complete(complete(claim)).await.unwrap();
            }
            "failed" => {
                let claim = world.claimed(job).await.claim;
                let _ = world
                    .store
                    .fail(fail(claim, Failure::Repeatable))
                    .await
                    .unwrap();
            }
            "cancelled" => {
                let _ = world.store.cancel(cancel(job)).await.unwrap();
            }
            _ => {}
        }
        let before = (world.job(job).await, world.events(job).await);
        assert_eq!(
            world.store.reap(reap(job, claim.epoch())).await.unwrap(),
            Reaped::Skipped,
            "{case}"
        );
        assert_eq!(
            (world.job(job).await, world.events(job).await),
            before,
            "{case}"
        );
        world.verify().await;
    }
}

#[tokio::test]
async fn a_lost_worker_counts_and_the_third_loss_is_the_end() {
    let world = World::new().await;
    let job = world.queued("k").await;
    for attempt in 1..=3 {
        let claim = world.claimed(job).await.claim;
        world.clock.turn(LEASE);
        let Reaped::Moved { to, .. } = world.store.reap(reap(job, claim.epoch())).await.unwrap()
        else {
            panic!()
        };
        assert_eq!(
            to,
            if attempt < 3 {
                State::Queued
            } else {
                State::Dead
            }
        );
        world.clock.turn(Duration::from_secs(10));
    }
    let view = world.job(job).await;
    assert_eq!(view.error.unwrap().code.as_str(), "worker_lost");
    assert_eq!(view.attempts, 3);
    world.verify().await;
}

#[tokio::test]
async fn a_kind_that_holds_on_crash_waits_for_a_person() {
    let world = World::new().await;
    let job = world
        .submitted(Submit {
            on_crash: OnCrash::Hold,
            ..submission("k")
        })
        .await
        .id;
    let claim = world.claimed(job).await.claim;
    world.clock.turn(LEASE);
    let moved = world.store.reap(reap(job, claim.epoch())).await.unwrap();
    assert_eq!(
        moved,
        Reaped::Moved {
            from: State::Leased,
            to: State::Unknown
        }
    );
    assert_eq!(
        world.job(job).await.error.unwrap().code.as_str(),
        "held_on_crash"
    );
}

#[tokio::test]
async fn a_queued_job_past_its_deadline_is_ended() {
    let world = World::new().await;
    let job = world.queued("k").await;
    world.clock.turn(Duration::from_hours(1));
    assert_eq!(world.store.expired(None, 10).await.unwrap().jobs.len(), 1);
    let moved = world.store.reap(reap(job, Epoch(0))).await.unwrap();
    assert_eq!(
        moved,
        Reaped::Moved {
            from: State::Queued,
            to: State::Dead
        }
    );
    assert_eq!(
        world.job(job).await.error.unwrap().code.as_str(),
        "deadline_exceeded"
    );
    world.verify().await;
}

#[tokio::test]
async fn expired_jobs_are_paged_past_those_that_stay() {
    let world = World::new().await;
    for n in 0..7 {
        let job = world.queued(&format!("k{n}")).await;
        world.claimed(job).await;
        world.clock.turn(Duration::from_millis(10));
    }
    world.clock.turn(LEASE);
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = world.store.expired(after, 3).await.unwrap();
        seen.extend(page.jobs.iter().map(|expired| expired.job));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 7);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7);
}
