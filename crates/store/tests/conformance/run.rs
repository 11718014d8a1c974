//! Claims, renewals, reports, and every way they are fenced.

use std::time::Duration;

use fencepost_core::id::{Epoch, JobId};
use fencepost_core::lease::{ClaimRefusal, Fenced};
use fencepost_core::lifecycle::{Failure, State};
use fencepost_core::time::Clock as _;
use fencepost_store::*;

use super::world::*;

async fn refused(world: &World, job: JobId) -> ClaimRefusal {
    match world.store.claim(claim_of(job)).await.unwrap() {
        ClaimOutcome::Refused(refusal) => refusal,
        ClaimOutcome::Claimed(claimed) => panic!("claimed: {claimed:?}"),
    }
}

#[tokio::test]
async fn a_claim_raises_epoch_and_attempt_and_takes_the_entry() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claimed = world.claimed(job).await;
    assert_eq!((claimed.claim.epoch(), claimed.attempt), (Epoch(1), 1));
    assert_eq!(claimed.payload, r#"{"key":"k"}"#);
    assert_eq!(claimed.deadline_in, Duration::from_hours(1));
    let view = world.job(job).await;
    assert_eq!((view.state, view.attempts), (State::Leased, 1));
    assert_eq!(world.events(job).await, ["accepted", "claimed"]);
    assert!(world.store.due(&[view.queue], 10).await.unwrap().is_empty());
    world.verify().await;
}

#[tokio::test]
async fn a_claim_is_refused_for_what_stands_in_its_way() {
    let world = World::new().await;
    let nobody: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
    assert_eq!(refused(&world, nobody).await, ClaimRefusal::NoSuchJob);

    let job = world.queued("leased").await;
    let claimed = world.claimed(job).await;
    let until = world.clock.now().after(LEASE);
    assert_eq!(refused(&world, job).await, ClaimRefusal::Leased { until });
    // Run out, not yet reaped: still refused, the lease row is the recovery signal.
    world.clock.turn(LEASE);
    assert_eq!(refused(&world, job).await, ClaimRefusal::Leased { until });
    let _ = world
        .store
        .reap(reap(job, claimed.claim.epoch()))
        .await
        .unwrap();
    assert_eq!(refused(&world, job).await, ClaimRefusal::NotDue);
    world.clock.turn(Duration::from_hours(1));
    assert_eq!(refused(&world, job).await, ClaimRefusal::DeadlinePassed);

    let done = world.queued("done").await;
    let claim = world.claimed(done).await.claim;
    let _ = world.store.complete(complete(claim)).await.unwrap();
    assert_eq!(
        refused(&world, done).await,
        ClaimRefusal::Ended(State::Completed)
    );

    let paused = world.submitted(submission("paused")).await;
    let pause = PauseQueue {
        queue: paused.queue.clone(),
        actor: "op".into(),
    };
    world.store.pause_queue(pause).await.unwrap();
    assert_eq!(refused(&world, paused.id).await, ClaimRefusal::QueuePaused);
    let resume = ResumeQueue {
        queue: paused.queue,
        actor: "op".into(),
    };
    world.store.resume_queue(resume).await.unwrap();
    world.claimed(paused.id).await;
    world.verify().await;
}

#[tokio::test]
async fn a_completed_job_has_its_result_digit_for_digit() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let result = r#"{"n":123456789012345678901234567890,"e":1e309,"z":-0}"#;
    let report = world
        .store
        .complete(Complete {
            claim,
            result: result.into(),
        })
        .await
        .unwrap();
    assert_eq!(
        report,
        Report::Recorded {
            state: State::Completed
        }
    );
    let view = world.job(job).await;
    assert_eq!(view.result.as_deref(), Some(result));
    assert_eq!(view.finished_at, Some(world.clock.now()));
    world.verify().await;
}

#[tokio::test]
async fn a_repeatable_failure_is_retried_until_attempts_are_spent() {
    let world = World::new().await;
    let job = world.queued("k").await;
    for attempt in 1..=3 {
        let claim = world.claimed(job).await.claim;
        let report = world
            .store
            .fail(fail(claim, Failure::Repeatable))
            .await
            .unwrap();
        let state = if attempt < 3 {
            State::Queued
        } else {
            State::Dead
        };
        assert_eq!(report, Report::Recorded { state });
        world.verify().await;
        world.clock.turn(Duration::from_mins(5));
    }
    let view = world.job(job).await;
    assert_eq!(view.attempts, 3);
    assert_eq!(
        view.error.map(|e| e.code.to_string()).as_deref(),
        Some("handler_failed")
    );
    assert_eq!(
        world.events(job).await,
        [
            "accepted", "claimed", "failed", "claimed", "failed", "claimed", "dead"
        ]
    );
}

#[tokio::test]
async fn a_retry_waits_for_its_backoff_or_as_long_as_it_was_asked_to() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let asked = Fail {
        retry_after: Some(Duration::from_secs(77)),
        ..fail(claim, Failure::Repeatable)
    };
    let _ = world.store.fail(asked).await.unwrap();
    assert_eq!(
        world.job(job).await.run_at,
        world.clock.now().after(Duration::from_secs(77))
    );
    assert_eq!(refused(&world, job).await, ClaimRefusal::NotDue);
    world.clock.turn(Duration::from_secs(77));
    let claim = world.claimed(job).await.claim;
    let _ = world
        .store
        .fail(fail(claim, Failure::Repeatable))
        .await
        .unwrap();
    let wait = world.job(job).await.run_at.since(world.clock.now());
    assert!(wait <= Duration::from_secs(2), "{wait:?}");
}

#[tokio::test]
async fn a_failure_whose_retry_would_miss_the_deadline_is_final() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let late = Fail {
        retry_after: Some(Duration::from_hours(1)),
        ..fail(claim, Failure::Repeatable)
    };
    let report = world.store.fail(late).await.unwrap();
    assert_eq!(report, Report::Recorded { state: State::Dead });
    let error = world.job(job).await.error.unwrap();
    assert_eq!(error.code.as_str(), "deadline_exceeded");
    assert!(error.message.contains("it broke"), "{}", error.message);
    world.verify().await;
}

#[tokio::test]
async fn a_released_or_snoozed_job_gets_its_attempt_back() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let release = Release {
        claim,
        reason: "shutdown",
    };
    assert_eq!(
        world.store.release(release).await.unwrap(),
        Report::Recorded {
            state: State::Queued
        }
    );
    assert_eq!(world.job(job).await.attempts, 0);
    let claim = world.claimed(job).await.claim;
    assert_eq!(claim.epoch(), Epoch(2), "the epoch goes on");
    let snooze = Snooze {
        claim,
        delay: Duration::from_secs(5),
    };
    assert_eq!(
        world.store.snooze(snooze).await.unwrap(),
        Report::Recorded {
            state: State::Queued
        }
    );
    let view = world.job(job).await;
    assert_eq!(
        (view.attempts, view.run_at),
        (0, world.clock.now().after(Duration::from_secs(5)))
    );
    assert_eq!(
        world.events(job).await,
        ["accepted", "claimed", "released", "claimed", "snoozed"]
    );
    world.verify().await;
}

#[tokio::test]
async fn a_renewal_counts_from_now_and_tells_of_a_cancellation() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    world.clock.turn(Duration::from_secs(20));
    let renewed = world
        .store
        .renew(Renew {
            claim,
            lease: LEASE,
        })
        .await
        .unwrap();
    let deadline_in = Duration::from_secs(3_580);
    assert_eq!(
        renewed,
        Renewed::Live {
            lease_for: LEASE,
            deadline_in,
            cancel_requested: false
        }
    );
    world.clock.turn(Duration::from_secs(29));
    let _ = world
        .store
        .cancel(super::control::cancel(job))
        .await
        .unwrap();
    let renewed = world
        .store
        .renew(Renew {
            claim,
            lease: LEASE,
        })
        .await
        .unwrap();
    assert!(matches!(
        renewed,
        Renewed::Live {
            cancel_requested: true,
            ..
        }
    ));
}

/// Every write after a claim, under one claim.
async fn all_fenced(world: &World, claim: Claim) -> Vec<Fenced> {
    let store = &world.store;
    let report = |report: Report| match report {
        Report::Fenced(fenced) => fenced,
        Report::Recorded { state } => panic!("recorded: {state:?}"),
    };
    let marked = |marked: Marked| match marked {
        Marked::Fenced(fenced) => fenced,
        other => panic!("{other:?}"),
    };
    let name = || "call".parse().unwrap();
    let renewed = match store
        .renew(Renew {
            claim,
            lease: LEASE,
        })
        .await
        .unwrap()
    {
        Renewed::Fenced(fenced) => fenced,
        other => panic!("{other:?}"),
    };
    let opened = match store
        .open_effect(OpenEffect {
            claim,
            name: name(),
        })
        .await
        .unwrap()
    {
        Opened::Fenced(fenced) => fenced,
        other => panic!("{other:?}"),
    };
    let outcome = || "1".to_owned();
    vec![
        renewed,
        opened,
        report(store.complete(complete(claim)).await.unwrap()),
        report(store.fail(fail(claim, Failure::Repeatable)).await.unwrap()),
        report(store.fail(fail(claim, Failure::Permanent)).await.unwrap()),
        report(
            store
                .release(Release {
                    claim,
                    reason: "test",
                })
                .await
                .unwrap(),
        ),
        report(
            store
                .snooze(Snooze {
                    claim,
                    delay: LEASE,
                })
                .await
                .unwrap(),
        ),
        marked(
            store
                .settle_effect(SettleEffect {
                    claim,
                    name: name(),
                    outcome: outcome(),
                })
                .await
                .unwrap(),
        ),
        marked(
            store
                .decline_effect(DeclineEffect {
                    claim,
                    name: name(),
                })
                .await
                .unwrap(),
        ),
        marked(
            store
                .save_step(SaveStep {
                    claim,
                    name: name(),
                    outcome: outcome(),
                })
                .await
                .unwrap(),
        ),
    ]
}

#[tokio::test]
async fn a_lease_that_ran_out_is_good_for_nothing_even_when_nobody_else_came() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    world.clock.turn(LEASE);
    let before = world.job(job).await;
    assert!(
        all_fenced(&world, claim)
            .await
            .iter()
            .all(|f| *f == Fenced::LeaseExpired)
    );
    assert_eq!(world.job(job).await, before);
    world.verify().await;
}

#[tokio::test]
async fn a_passed_deadline_fences_a_live_lease() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let long = ClaimJob {
        lease: Duration::from_hours(2),
        ..claim_of(job)
    };
    let ClaimOutcome::Claimed(claimed) = world.store.claim(long).await.unwrap() else {
        panic!()
    };
    world.clock.turn(Duration::from_hours(1));
    let before = world.job(job).await;
    assert!(
        all_fenced(&world, claimed.claim)
            .await
            .iter()
            .all(|f| *f == Fenced::DeadlinePassed)
    );
    assert_eq!(world.job(job).await, before);
}

#[tokio::test]
async fn a_stale_claim_cannot_touch_a_newer_run() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let old = world.claimed(job).await.claim;
    world.clock.turn(LEASE);
    let _ = world.store.reap(reap(job, old.epoch())).await.unwrap();
    world.clock.turn(Duration::from_secs(2));
    let new = world.claimed(job).await.claim;
    let before = world.job(job).await;
    assert!(
        all_fenced(&world, old)
            .await
            .iter()
            .all(|f| *f == Fenced::NewerEpoch)
    );
    assert_eq!(world.job(job).await, before);
    let report = world.store.complete(complete(new)).await.unwrap();
    assert_eq!(
        report,
        Report::Recorded {
            state: State::Completed
        }
    );
    assert!(
        all_fenced(&world, old)
            .await
            .iter()
            .all(|f| *f == Fenced::NewerEpoch)
    );
    let again = all_fenced(&world, new).await;
    assert!(
        again
            .iter()
            .all(|f| *f == Fenced::NotLeased(State::Completed)),
        "finished once: {again:?}"
    );
    assert!(world.events(job).await.contains(&"fenced".to_owned()));
    world.verify().await;
}
