//! Marks around calls to the outside world.

use fencepost_core::effect::EffectState;
use fencepost_core::id::EffectName;
use fencepost_core::lease::Fenced;
use fencepost_core::lifecycle::{Failure, State};
use fencepost_core::limits::EFFECTS_PER_JOB_MAX;
use fencepost_store::*;

use super::world::*;

fn name(text: &str) -> EffectName {
    EffectName::new(text).unwrap()
}

async fn open(world: &World, claim: Claim, text: &str) -> Opened {
    world
        .store
        .open_effect(OpenEffect {
            claim,
            name: name(text),
        })
        .await
        .unwrap()
}

async fn settle(world: &World, claim: Claim, text: &str) -> Marked {
    let outcome = format!("\"{text}\"");
    world
        .store
        .settle_effect(SettleEffect {
            claim,
            name: name(text),
            outcome,
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn every_report_with_an_open_effect_makes_the_job_unknown() {
    for case in [
        "complete",
        "repeatable",
        "permanent",
        "release",
        "snooze",
        "reap",
    ] {
        let world = World::new().await;
        let job = world.queued("k").await;
        let claim = world.claimed(job).await.claim;
        assert_eq!(open(&world, claim, "mail").await, Opened::Call);
        match case {
            "complete" => drop(world.store.complete(complete(claim)).await.unwrap()),
            "repeatable" => drop(
                world
                    .store
                    .fail(fail(claim, Failure::Repeatable))
                    .await
                    .unwrap(),
            ),
            "permanent" => drop(
                world
                    .store
                    .fail(fail(claim, Failure::Permanent))
                    .await
                    .unwrap(),
            ),
            "release" => drop(
                world
                    .store
                    .release(Release { claim, reason: "x" })
                    .await
                    .unwrap(),
            ),
            "snooze" => drop(
                world
                    .store
                    .snooze(Snooze {
                        claim,
                        delay: LEASE,
                    })
                    .await
                    .unwrap(),
            ),
            _ => {
                world.clock.turn(LEASE);
                let _ = world.store.reap(reap(job, claim.epoch())).await.unwrap();
            }
        }
        let view = world.job(job).await;
        assert_eq!((view.state, view.result), (State::Unknown, None), "{case}");
        assert_eq!(view.error.unwrap().code.as_str(), "effect_open", "{case}");
        world.verify().await;
    }
}

#[tokio::test]
async fn a_settled_effect_is_answered_and_not_called_by_a_later_claim() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    assert_eq!(open(&world, claim, "mail").await, Opened::Call);
    assert_eq!(open(&world, claim, "mail").await, Opened::StillOpen);
    assert_eq!(settle(&world, claim, "mail").await, Marked::Recorded);
    assert_eq!(settle(&world, claim, "mail").await, Marked::NotApplicable);
    let _ = world
        .store
        .release(Release { claim, reason: "x" })
        .await
        .unwrap();
    let claimed = world.claimed(job).await;
    assert_eq!(claimed.effects.len(), 1);
    assert_eq!(claimed.effects[0].state, EffectState::Settled);
    assert_eq!(claimed.effects[0].outcome.as_deref(), Some("\"mail\""));
    assert_eq!(
        open(&world, claimed.claim, "mail").await,
        Opened::Saved("\"mail\"".into())
    );
    assert_eq!(
        world.events(job).await,
        [
            "accepted",
            "claimed",
            "effect_opened",
            "effect_settled",
            "released",
            "claimed"
        ]
    );
    world.verify().await;
}

#[tokio::test]
async fn a_declined_effect_is_opened_again_under_a_later_epoch_only() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let _ = open(&world, claim, "mail").await;
    let decline = |claim| DeclineEffect {
        claim,
        name: name("mail"),
    };
    assert_eq!(
        world.store.decline_effect(decline(claim)).await.unwrap(),
        Marked::Recorded
    );
    assert_eq!(open(&world, claim, "mail").await, Opened::Declined);
    let report = world
        .store
        .release(Release { claim, reason: "x" })
        .await
        .unwrap();
    assert_eq!(
        report,
        Report::Recorded {
            state: State::Queued
        },
        "nothing was done: safe to repeat"
    );
    let claim = world.claimed(job).await.claim;
    assert_eq!(open(&world, claim, "mail").await, Opened::Call);
    assert_eq!(settle(&world, claim, "mail").await, Marked::Recorded);
    world.verify().await;
}

#[tokio::test]
async fn a_fenced_settle_leaves_the_effect_open() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let _ = open(&world, claim, "mail").await;
    world.clock.turn(LEASE);
    assert_eq!(
        settle(&world, claim, "mail").await,
        Marked::Fenced(Fenced::LeaseExpired)
    );
    let _ = world.store.reap(reap(job, claim.epoch())).await.unwrap();
    assert_eq!(
        settle(&world, claim, "mail").await,
        Marked::Fenced(Fenced::NotLeased(State::Unknown))
    );
    assert_eq!(world.job(job).await.state, State::Unknown);
    world.verify().await;
}

#[tokio::test]
async fn a_step_is_saved_once_and_needs_no_open_mark() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    let save = |claim| SaveStep {
        claim,
        name: name("parse"),
        outcome: "[1]".into(),
    };
    assert_eq!(
        world.store.save_step(save(claim)).await.unwrap(),
        Marked::Recorded
    );
    assert_eq!(
        world.store.save_step(save(claim)).await.unwrap(),
        Marked::NotApplicable
    );
    let report = world
        .store
        .fail(fail(claim, Failure::Repeatable))
        .await
        .unwrap();
    assert_eq!(
        report,
        Report::Recorded {
            state: State::Queued
        }
    );
    world.clock.turn(std::time::Duration::from_secs(2));
    let claimed = world.claimed(job).await;
    assert_eq!(claimed.effects[0].outcome.as_deref(), Some("[1]"));
}

#[tokio::test]
async fn a_job_has_a_bounded_number_of_effects() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    for n in 0..EFFECTS_PER_JOB_MAX {
        let text = format!("call-{n}");
        assert_eq!(open(&world, claim, &text).await, Opened::Call);
        assert_eq!(settle(&world, claim, &text).await, Marked::Recorded);
    }
    assert_eq!(open(&world, claim, "one-more").await, Opened::TooMany);
    assert_eq!(
        open(&world, claim, "call-0").await,
        Opened::Saved("\"call-0\"".into())
    );
}
