//! Calls to the outside world, and where a run may break off around them.

use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::lifecycle::{Cancel, State};
use fencepost_core::limits::OUTCOME_BYTES_MAX;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::{CallError, Context, EffectCall, EffectError, Outcome};
use tokio::sync::Semaphore;

use crate::setup::{LONG, PATIENCE, SHORT, World, scope, submission};

/// The outside world: every call that reached it.
#[derive(Debug, Clone, Default)]
struct Outside(Arc<Mutex<Vec<EffectCall>>>);

impl Outside {
    fn called(&self, call: EffectCall) -> usize {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
        calls.len()
    }

    fn calls(&self) -> Vec<EffectCall> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn forever<T>() -> T {
    std::future::pending().await
}

#[tokio::test]
async fn an_effect_is_marked_open_before_its_call_and_settled_after_it() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let store = world.store.clone();
    let worker = world.worker(LONG, move |context| {
        let store = store.clone();
        async move {
            let seen: Vec<String> = context
                .effect("send", |call| async move {
                    let history = store.history(&scope(), call.job, 0, 10).await;
                    let page = history.ok().flatten().ok_or_else(|| {
                        CallError::Declined("the history could not be read".to_owned())
                    })?;
                    let words = page.events.iter().map(|event| event.kind.as_str());
                    Ok(words.map(str::to_owned).chain([call.key]).collect())
                })
                .await?;
            Ok(Outcome::completed(&seen)?)
        }
    });
    let done = world.reaches(job, State::Completed).await;
    assert_eq!(
        done.result.unwrap(),
        format!(r#"["accepted","claimed","effect_opened","{job}/send"]"#)
    );
    assert_eq!(
        world.events(job).await,
        [
            "accepted",
            "claimed",
            "effect_opened",
            "effect_settled",
            "completed"
        ]
    );
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_crash_inside_a_call_makes_the_job_unknown_and_nobody_calls_again() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let outside = Outside::default();
    let does = |outside: Outside| {
        move |context: Context| {
            let outside = outside.clone();
            async move {
                let call = |call| async move {
                    outside.called(call);
                    forever::<Result<(), CallError>>().await
                };
                context.effect("send", call).await?;
                Ok(Outcome::completed(&())?)
            }
        }
    };
    let worker = world.worker(SHORT, does(outside.clone()));
    eventually(PATIENCE, "a call", async || {
        let count = outside.calls().len();
        require(count == 1, count)
    })
    .await;
    worker.crash().await;
    assert_eq!(world.reap(job).await, State::Unknown);
    let other = world.worker(SHORT, does(outside.clone()));
    // Another job, called after it, shows that the worker has looked.
    let next = world.queued("next").await;
    eventually(PATIENCE, "the next call", async || {
        let count = outside.calls().len();
        require(count == 2, count)
    })
    .await;
    assert_eq!(outside.calls()[1].job, next);
    let job = world.job(job).await;
    assert_eq!(
        (job.state, job.error.unwrap().code.as_str()),
        (State::Unknown, "effect_open")
    );
    other.stop().await;
    assert_eq!(world.job(next).await.state, State::Unknown);
    world.verify().await;
}

#[tokio::test]
async fn a_settled_effect_is_not_called_again_after_a_crash() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let outside = Outside::default();
    let does = |outside: Outside| {
        move |context: Context| {
            let outside = outside.clone();
            async move {
                let call = |call| async move { Ok(outside.called(call)) };
                let receipt: usize = context.effect("send", call).await?;
                if context.attempt() == 1 {
                    forever::<()>().await;
                }
                Ok(Outcome::completed(&receipt)?)
            }
        }
    };
    let worker = world.worker(SHORT, does(outside.clone()));
    eventually(PATIENCE, "it is settled", async || {
        let events = world.events(job).await;
        let settled = events.contains(&"effect_settled".to_owned());
        require(settled, events.join(", "))
    })
    .await;
    worker.crash().await;
    assert_eq!(world.reap(job).await, State::Queued);
    let other = world.worker(SHORT, does(outside.clone()));
    let done = world.reaches(job, State::Completed).await;
    assert_eq!((done.attempts, done.result.as_deref()), (2, Some("1")));
    assert_eq!(outside.calls().len(), 1);
    other.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_declined_effect_is_called_again_under_a_later_epoch_with_the_same_key() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let outside = Outside::default();
    let worker = world.worker(LONG, {
        let outside = outside.clone();
        move |context| {
            let outside = outside.clone();
            async move {
                let called = |call| async move {
                    match outside.called(call) {
                        1 => Err(CallError::Declined("connection refused".to_owned())),
                        count => Ok(count),
                    }
                };
                let first = context.effect("send", called.clone()).await;
                if let Err(EffectError::Declined { .. }) = first {
                    // The receiver takes an equal epoch for a repeat: not under this claim.
                    let again = context.effect::<usize, _, _>("send", called).await;
                    assert!(matches!(again, Err(EffectError::Declined { .. })));
                }
                Ok(Outcome::completed(&first?)?)
            }
        }
    });
    let done = world.reaches(job, State::Completed).await;
    assert_eq!((done.attempts, done.result.as_deref()), (2, Some("2")));
    let calls = outside.calls();
    let told: Vec<_> = calls
        .iter()
        .map(|call| (call.epoch.0, call.key.as_str()))
        .collect();
    let key = format!("{job}/send");
    assert_eq!(told, [(1, key.as_str()), (2, key.as_str())]);
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_call_without_a_known_outcome_makes_the_job_unknown_whatever_is_reported() {
    let world = World::new().await;
    let worker = world.worker(LONG, |context| async move {
        let too_large = "x".repeat(OUTCOME_BYTES_MAX);
        let sent = context
            .effect("send", |_| async {
                match context.payload() {
                    "0" => Err(CallError::Unknown("no answer".to_owned())),
                    "1" => panic!("inside the call"),
                    _ => Ok(too_large),
                }
            })
            .await;
        // A handler that hides it gains nothing.
        Ok(match sent {
            Err(EffectError::OutcomeUnknown { .. }) => Outcome::completed(&"all is well")?,
            other => Outcome::dead("odd", format!("{:?}", other.err())),
        })
    });
    for payload in ["0", "1", "2"] {
        let job = world.submit(submission(payload, payload)).await;
        let unknown = world.reaches(job, State::Unknown).await;
        assert_eq!((unknown.attempts, unknown.result), (1, None), "{payload}");
    }
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_disowned_run_makes_no_call() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let (outside, gate) = (Outside::default(), Arc::new(Semaphore::new(0)));
    let refused = Arc::new(Mutex::new(String::new()));
    let worker = world.worker(LONG, {
        let (outside, gate) = (outside.clone(), Arc::clone(&gate));
        let refused = Arc::clone(&refused);
        move |context| {
            let (outside, gate) = (outside.clone(), Arc::clone(&gate));
            let refused = Arc::clone(&refused);
            async move {
                gate.acquire().await?.forget();
                let call = |call| async move { Ok(outside.called(call)) };
                let sent = context.effect("send", call).await;
                if let Err(error) = &sent {
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
                }
                Ok(Outcome::completed(&sent?)?)
            }
        }
    });
    world.reaches(job, State::Leased).await;
    world.cancel(job, Cancel::Force).await;
    gate.add_permits(1);
    eventually(PATIENCE, "a refusal", async || {
        let refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        require(!refused.is_empty(), "none yet")
    })
    .await;
    assert_eq!(
        *refused.lock().unwrap(),
        "the claim is no longer good (newer_epoch)"
    );
    assert_eq!(outside.calls(), []);
    worker.stop().await;
    assert_eq!(world.job(job).await.state, State::Cancelled);
    world.verify().await;
}

#[tokio::test]
async fn a_saved_step_is_not_repeated_and_a_failed_one_is() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let worker = world.worker(LONG, |context| async move {
        let attempt = context.attempt();
        let first: u32 = context
            .step("first", || async { Ok::<_, std::io::Error>(attempt) })
            .await?;
        let second: u32 = context
            .step("second", || async {
                if attempt == 1 {
                    return Err("not yet");
                }
                Ok(attempt)
            })
            .await?;
        Ok(Outcome::completed(&(first, second))?)
    });
    let done = world.reaches(job, State::Completed).await;
    assert_eq!(done.result.as_deref(), Some("[1,2]"));
    assert_eq!(
        world.events(job).await,
        [
            "accepted",
            "claimed",
            "step_saved",
            "failed",
            "claimed",
            "step_saved",
            "completed"
        ]
    );
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_cancelled_job_that_has_called_says_so() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let outside = Outside::default();
    let worker = world.worker(SHORT, {
        let outside = outside.clone();
        move |context| {
            let outside = outside.clone();
            async move {
                let call = |call| async move { Ok(outside.called(call)) };
                context.effect("send", call).await?;
                context.cancelled().await;
                Err("stopped as asked".into())
            }
        }
    });
    eventually(PATIENCE, "it is settled", async || {
        let events = world.events(job).await;
        let settled = events.contains(&"effect_settled".to_owned());
        require(settled, events.join(", "))
    })
    .await;
    world.cancel(job, Cancel::Ask).await;
    let cancelled = world.reaches(job, State::Cancelled).await;
    let error = cancelled.error.unwrap();
    assert_eq!(error.code.as_str(), "cancelled_after_effect");
    assert!(error.message.contains("send"), "{}", error.message);
    worker.stop().await;
    world.verify().await;
}
