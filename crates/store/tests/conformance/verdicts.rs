//! Decisions about jobs whose outcome nobody knows.

use std::time::Duration;

use fencepost_core::fingerprint::Moment;
use fencepost_core::id::{EffectName, JobId, Owner};
use fencepost_core::kind::OnCrash;
use fencepost_core::lifecycle::{self, Failure, State};
use fencepost_store::*;

use super::world::*;

fn name(text: &str) -> EffectName {
    EffectName::new(text).unwrap()
}

async fn open(world: &World, claim: Claim, text: &str) {
    let name = name(text);
    let opened = world.store.open_effect(OpenEffect { claim, name }).await;
    assert_eq!(opened.unwrap(), Opened::Call);
}

/// A job that is unknown with these effects open.
async fn unknown(world: &World, effects: &[&str]) -> (JobId, Claim) {
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    for effect in effects {
        open(world, claim, effect).await;
    }
    let report = world.store.fail(fail(claim, Failure::Repeatable)).await;
    assert_eq!(
        report.unwrap(),
        Report::Recorded {
            state: State::Unknown
        }
    );
    (job, claim)
}

/// Fails a job that has an effect open.
async fn given_up(world: &World, claim: Claim) {
    let report = world.store.fail(fail(claim, Failure::Permanent)).await;
    let state = State::Unknown;
    assert_eq!(report.unwrap(), Report::Recorded { state });
}

fn happened(outcome: Option<&str>) -> Decision {
    Decision::Happened {
        outcome: outcome.map(str::to_owned),
        is_whole_job: false,
    }
}

fn resolve(job: JobId, decision: Decision) -> Resolve {
    Resolve {
        scope: tenant_scope(),
        job,
        effect: None,
        decision,
        reason: "the bank says so".into(),
        evidence: Some("statement 7".into()),
        deadline: None,
        actor: "carol".to_owned(),
    }
}

async fn decided(world: &World, request: Resolve) -> JobView {
    match world.store.resolve(request).await.unwrap() {
        Resolved::Decided(job) => *job,
        other => panic!("not decided: {other:?}"),
    }
}

#[tokio::test]
async fn an_effect_that_happened_is_settled_and_the_job_goes_on_after_it() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["mail"]).await;
    world.clock.turn(Duration::from_hours(9));
    let view = decided(&world, resolve(job, happened(Some("\"sent\"")))).await;
    assert_eq!((view.state, view.error), (State::Queued, None));
    // A fresh deadline, and an attempt.
    assert_eq!(
        view.deadline_at,
        world.store.now().after(Duration::from_hours(1))
    );
    world.verify().await;
    let claimed = world.claimed(job).await;
    let claim = claimed.claim;
    let reopened = world.store.open_effect(OpenEffect {
        claim,
        name: name("mail"),
    });
    assert_eq!(
        reopened.await.unwrap(),
        Opened::Saved("\"sent\"".to_owned())
    );
    let events = world.events(job).await;
    let tail: Vec<&str> = events.iter().map(String::as_str).collect();
    assert!(
        tail.ends_with(&["unknown", "verdict", "effect_settled", "retried", "claimed"]),
        "{tail:?}"
    );
    world.verify().await;
}

#[tokio::test]
async fn an_effect_that_did_not_happen_may_be_made_by_the_next_claim() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["mail"]).await;
    let view = decided(&world, resolve(job, Decision::DidNotHappen)).await;
    assert_eq!(view.state, State::Queued);
    let claim = world.claimed(job).await.claim;
    open(&world, claim, "mail").await;
    world.verify().await;
}

#[tokio::test]
async fn a_job_without_attempts_left_gets_one() {
    let world = World::new().await;
    let once = Submit {
        max_attempts: 1,
        ..submission("once")
    };
    let job = world.submitted(once).await.id;
    let claim = world.claimed(job).await.claim;
    open(&world, claim, "mail").await;
    given_up(&world, claim).await;
    let view = decided(&world, resolve(job, Decision::DidNotHappen)).await;
    assert_eq!((view.state, view.attempts), (State::Queued, 0));
    assert_eq!(world.claimed(job).await.attempt, 1);
    world.verify().await;
}

#[tokio::test]
async fn a_job_that_is_one_effect_completes_with_its_outcome() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["http"]).await;
    let decision = Decision::Happened {
        outcome: Some("{\"n\":1.0}".to_owned()),
        is_whole_job: true,
    };
    let view = decided(&world, resolve(job, decision)).await;
    assert_eq!(
        (view.state, view.result.as_deref()),
        (State::Completed, Some("{\"n\":1.0}"))
    );
    assert_eq!(world.job(job).await, view);
    world.verify().await;
}

#[tokio::test]
async fn a_job_can_be_completed_or_given_up() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["mail", "fax"]).await;
    let decision = Decision::Complete {
        result: "7".to_owned(),
    };
    let view = decided(&world, resolve(job, decision)).await;
    assert_eq!(
        (view.state, view.result.as_deref()),
        (State::Completed, Some("7"))
    );
    world.verify().await;

    let world = World::new().await;
    let (job, _) = unknown(&world, &["mail"]).await;
    let view = decided(&world, resolve(job, Decision::Abandon)).await;
    assert_eq!(view.state, State::Dead);
    assert_eq!(view.error.unwrap().code.as_str(), "abandoned");
    // Nobody knows any better now than before.
    let retry = Retry {
        scope: tenant_scope(),
        job,
        deadline: None,
        actor: "carol".to_owned(),
    };
    assert_eq!(world.store.retry(retry).await.unwrap(), Retried::EffectOpen);
    world.verify().await;
}

#[tokio::test]
async fn the_first_decision_stands() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["mail"]).await;
    let (first, second) = tokio::join!(
        world.store.resolve(resolve(job, Decision::DidNotHappen)),
        world.store.resolve(resolve(job, Decision::Abandon)),
    );
    assert!(matches!(first.unwrap(), Resolved::Decided(_)));
    assert_eq!(second.unwrap(), Resolved::Conflict(State::Queued));
    let events = world.events(job).await;
    assert_eq!(events.iter().filter(|event| *event == "verdict").count(), 1);
    world.verify().await;
}

#[tokio::test]
async fn with_several_effects_open_each_is_decided() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["fax", "mail"]).await;
    let which = world.store.resolve(resolve(job, happened(None))).await;
    assert_eq!(
        which.unwrap(),
        Resolved::WhichEffect(vec![name("fax"), name("mail")])
    );
    let of = |effect: &str, decision| Resolve {
        effect: Some(name(effect)),
        ..resolve(job, decision)
    };
    let view = decided(&world, of("fax", happened(None))).await;
    assert_eq!(view.state, State::Unknown);
    let again = world.store.resolve(of("fax", happened(None))).await;
    assert_eq!(again.unwrap(), Resolved::NoOpenEffect);
    let view = decided(&world, of("mail", Decision::DidNotHappen)).await;
    assert_eq!(view.state, State::Queued);
    world.verify().await;
}

#[tokio::test]
async fn what_came_too_late_is_shown_and_is_the_outcome_unless_another_is_given() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    open(&world, claim, "mail").await;
    world.clock.turn(LEASE);
    let settle = SettleEffect {
        claim,
        name: name("mail"),
        outcome: "\"late\"".to_owned(),
    };
    assert!(matches!(
        world.store.settle_effect(settle).await.unwrap(),
        Marked::Fenced(_)
    ));
    let reaped = world.store.reap(reap(job, claim.epoch())).await.unwrap();
    assert!(matches!(
        reaped,
        Reaped::Moved {
            to: State::Unknown,
            ..
        }
    ));
    let page = world
        .store
        .unknown(&tenant_scope(), &JobFilter::default(), None, 10)
        .await
        .unwrap();
    let [effect] = &page.effects[..] else {
        panic!("{page:?}")
    };
    let call = effect.open.as_ref().unwrap();
    assert_eq!(
        (call.name.as_str(), call.epoch, call.worker.as_str()),
        ("mail", claim.epoch(), "worker-1")
    );
    assert_eq!(call.evidence.as_deref(), Some("\"late\""));
    drop(decided(&world, resolve(job, happened(None))).await);
    let claim = world.claimed(job).await.claim;
    let reopened = world.store.open_effect(OpenEffect {
        claim,
        name: name("mail"),
    });
    assert_eq!(
        reopened.await.unwrap(),
        Opened::Saved("\"late\"".to_owned())
    );
    world.verify().await;
}

/// Its effect has an earlier epoch than the job by now.
#[tokio::test]
async fn a_disowned_jobs_effect_is_decided_too() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    open(&world, claim, "mail").await;
    let cancel = Cancel {
        scope: tenant_scope(),
        job,
        how: lifecycle::Cancel::Force,
        actor: "ann".to_owned(),
    };
    drop(world.store.cancel(cancel).await.unwrap());
    let view = decided(&world, resolve(job, happened(None))).await;
    assert_eq!(view.state, State::Queued);
    world.verify().await;
}

#[tokio::test]
async fn a_held_job_has_nothing_that_happened() {
    let world = World::new().await;
    let held = Submit {
        on_crash: OnCrash::Hold,
        ..submission("held")
    };
    let job = world.submitted(held).await.id;
    let claim = world.claimed(job).await.claim;
    world.clock.turn(LEASE);
    let reaped = world.store.reap(reap(job, claim.epoch())).await.unwrap();
    assert!(matches!(
        reaped,
        Reaped::Moved {
            to: State::Unknown,
            ..
        }
    ));
    let page = world
        .store
        .unknown(&tenant_scope(), &JobFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.effects.len(), 1);
    assert_eq!(page.effects[0].open, None);
    let refused = world.store.resolve(resolve(job, happened(None))).await;
    assert_eq!(refused.unwrap(), Resolved::NoOpenEffect);
    let view = decided(&world, resolve(job, Decision::DidNotHappen)).await;
    assert_eq!(view.state, State::Queued);
    world.verify().await;
}

#[tokio::test]
async fn a_decision_is_refused_where_it_does_not_apply_and_changes_nothing() {
    let world = World::new().await;
    let (job, _) = unknown(&world, &["mail"]).await;
    let before = world.job(job).await;
    let stranger = Resolve {
        scope: Scope {
            owner: Some(Owner::new("bob").unwrap()),
            ..tenant_scope()
        },
        ..resolve(job, Decision::Abandon)
    };
    assert_eq!(
        world.store.resolve(stranger).await.unwrap(),
        Resolved::NotFound
    );
    let late = Resolve {
        deadline: Some(Moment::At(world.store.now())),
        ..resolve(job, Decision::DidNotHappen)
    };
    assert_eq!(
        world.store.resolve(late).await.unwrap(),
        Resolved::DeadlineUnusable
    );
    assert_eq!(world.job(job).await, before);
    let queued = world.queued("other").await;
    assert_eq!(
        world
            .store
            .resolve(resolve(queued, Decision::Abandon))
            .await
            .unwrap(),
        Resolved::Conflict(State::Queued)
    );
    world.verify().await;
}

#[tokio::test]
async fn unknown_jobs_are_paged_with_all_their_effects() {
    let world = World::new().await;
    for n in 0..5 {
        let job = world.queued(&format!("k{n}")).await;
        let claim = world.claimed(job).await.claim;
        open(&world, claim, "a").await;
        open(&world, claim, "b").await;
        given_up(&world, claim).await;
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world
            .store
            .unknown(&tenant_scope(), &JobFilter::default(), after, 2)
            .await
            .unwrap();
        assert!(page.effects.len() <= 4);
        seen.extend(page.effects.into_iter().map(|effect| effect.job));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 10);
    seen.dedup();
    assert_eq!(seen.len(), 5);
}

/// Only its handler knows what result that makes.
#[tokio::test]
async fn a_whole_job_with_evidence_goes_on_to_its_handler() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let claim = world.claimed(job).await.claim;
    open(&world, claim, "http").await;
    world.clock.turn(LEASE);
    let settle = SettleEffect {
        claim,
        name: name("http"),
        outcome: "{\"text\":\"7\"}".to_owned(),
    };
    assert!(matches!(
        world.store.settle_effect(settle).await.unwrap(),
        Marked::Fenced(_)
    ));
    let reaped = world.store.reap(reap(job, claim.epoch())).await.unwrap();
    assert!(matches!(reaped, Reaped::Moved { .. }));
    let decision = Decision::Happened {
        outcome: None,
        is_whole_job: true,
    };
    let view = decided(&world, resolve(job, decision)).await;
    assert_eq!(view.state, State::Queued);
    world.verify().await;
}
