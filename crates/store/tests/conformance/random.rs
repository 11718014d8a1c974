//! Random sequences of verbs, one by one and many in a batch, compared with a
//! model that knows the lifecycle function and nothing of SQL.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::id::{Epoch, JobId};
use fencepost_core::lease::Fenced;
use fencepost_core::lifecycle::{self, Event, Facts, Failure, State, Step};
use fencepost_core::time::{Clock as _, Timestamp};
use fencepost_store::*;

use super::world::*;

/// A job as the model has it.
#[derive(Debug, Clone)]
struct Model {
    state: State,
    epoch: i64,
    attempts: u32,
    run_at: Timestamp,
    deadline_at: Timestamp,
    lease: Option<Timestamp>,
    cancel_asked: bool,
    effect_open: bool,
    /// Claims given out so far, the stale ones too.
    claims: Vec<Claim>,
}

impl Model {
    fn facts(&self, epoch: Epoch, now: Timestamp, delay: Duration) -> Facts {
        Facts {
            epoch_is_current: epoch == Epoch(self.epoch),
            lease_until: self.lease.unwrap_or(now),
            lease_expired: self.lease.is_some_and(|end| end <= now),
            deadline_passed: self.deadline_at <= now,
            due: self.run_at <= now,
            attempts_spent: self.attempts >= 3,
            retry_fits: now.after(delay) < self.deadline_at,
            snoozes_spent: false,
            effect_open: self.effect_open,
            effect_settled: false,
            cancel_asked: self.cancel_asked,
            hold_on_crash: false,
        }
    }

    /// Applies an event as the lifecycle says; whether it moved.
    fn apply(&mut self, event: Event, epoch: Epoch, now: Timestamp, delay: Duration) -> bool {
        match lifecycle::next(self.state, event, &self.facts(epoch, now, delay)) {
            Step::Move(moved) => {
                self.state = moved.to;
                self.epoch += i64::from(moved.epoch == lifecycle::EpochChange::Raise);
                match moved.attempts {
                    lifecycle::AttemptsChange::Keep | lifecycle::AttemptsChange::EnsureOneLeft => {}
                    lifecycle::AttemptsChange::Count => self.attempts += 1,
                    lifecycle::AttemptsChange::GiveBack => self.attempts -= 1,
                    lifecycle::AttemptsChange::Reset => self.attempts = 0,
                }
                self.lease = (moved.to == State::Leased).then(|| now.after(LEASE));
                self.cancel_asked = false;
                if moved.to == State::Queued {
                    self.run_at = match moved.next_run {
                        lifecycle::NextRun::Now => now,
                        lifecycle::NextRun::AfterBackoff | lifecycle::NextRun::AsAsked => {
                            now.after(delay)
                        }
                    };
                }
                if event == Event::Retry {
                    self.deadline_at = now.after(Duration::from_hours(1));
                }
                true
            }
            Step::AskToCancel => {
                self.cancel_asked = true;
                false
            }
            Step::Refuse(_) => false,
        }
    }
}

/// What `CountingIds` and the default backoff make of any failure.
fn backoff(attempts: u32) -> Duration {
    fencepost_core::retry::Backoff::default().delay(attempts, 999)
}

/// xorshift64* (Vigna, 2016): a fixed seed gives a fixed run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % end
    }
}

/// Does one random thing to a job, in the store and in the model, and compares the answers.
async fn act(
    store: &Store,
    now: Timestamp,
    job: JobId,
    model: &mut Model,
    what: usize,
    which: usize,
) {
    let claim = model.claims.get(which % model.claims.len().max(1)).copied();
    let zero = Duration::ZERO;
    match (what, claim) {
        (0..=3, _) => {
            let moved = model.apply(Event::Claim, Epoch(model.epoch), now, zero);
            match store.claim(claim_of(job)).await.unwrap() {
                ClaimOutcome::Claimed(claimed) => {
                    assert!(moved, "{model:?}");
                    assert_eq!(claimed.attempt, model.attempts);
                    model.claims.push(claimed.claim);
                }
                ClaimOutcome::Refused(refusal) => assert!(!moved, "{model:?} {refusal:?}"),
            }
        }
        (4, Some(claim)) => {
            let good =
                lifecycle::fence(model.state, &model.facts(claim.epoch(), now, zero)).is_none();
            let renewed = store
                .renew(Renew {
                    claim,
                    lease: LEASE,
                })
                .await
                .unwrap();
            assert_eq!(matches!(renewed, Renewed::Live { .. }), good, "{model:?}");
            if good {
                model.lease = Some(now.after(LEASE));
            }
        }
        (5, Some(claim)) => {
            let moved = model.apply(Event::Complete, claim.epoch(), now, zero);
            agree(store.complete(complete(claim)).await.unwrap(), moved, model);
        }
        (6 | 7, Some(claim)) => {
            let failure = if what == 6 {
                Failure::Repeatable
            } else {
                Failure::Permanent
            };
            let delay = backoff(model.attempts);
            let moved = model.apply(Event::Fail(failure), claim.epoch(), now, delay);
            agree(
                store.fail(fail(claim, failure)).await.unwrap(),
                moved,
                model,
            );
        }
        (8, Some(claim)) => {
            let moved = model.apply(Event::Release, claim.epoch(), now, zero);
            agree(
                store
                    .release(Release {
                        claim,
                        reason: "random",
                    })
                    .await
                    .unwrap(),
                moved,
                model,
            );
        }
        (9, Some(claim)) => {
            let delay = Duration::from_secs(2);
            let moved = model.apply(Event::Snooze, claim.epoch(), now, delay);
            agree(
                store.snooze(Snooze { claim, delay }).await.unwrap(),
                moved,
                model,
            );
        }
        (10, Some(claim)) => {
            let moved = model.apply(Event::Reap, claim.epoch(), now, backoff(model.attempts))
                && claim.epoch() <= Epoch(model.epoch);
            let reaped = store.reap(reap(job, Epoch(model.epoch))).await.unwrap();
            assert_eq!(reaped != Reaped::Skipped, moved, "{model:?}");
        }
        (11 | 12, _) => {
            let how = if what == 11 {
                lifecycle::Cancel::Ask
            } else {
                lifecycle::Cancel::Force
            };
            let moved = model.apply(Event::Cancel(how), Epoch(model.epoch), now, zero);
            let answer = store
                .cancel(Cancel {
                    how,
                    ..super::control::cancel(job)
                })
                .await
                .unwrap();
            assert_eq!(matches!(answer, Cancelled::Done(_)), moved, "{model:?}");
        }
        (13, _) => {
            let moved = model.apply(Event::Retry, Epoch(model.epoch), now, zero);
            let retry = Retry {
                scope: tenant_scope(),
                job,
                deadline: None,
                actor: "ann".into(),
            };
            let answer = store.retry(retry).await.unwrap();
            assert_eq!(
                matches!(answer, Retried::Queued(_)),
                moved,
                "{model:?} {answer:?}"
            );
        }
        (14, Some(claim)) => {
            let good =
                lifecycle::fence(model.state, &model.facts(claim.epoch(), now, zero)).is_none();
            let open = OpenEffect {
                claim,
                name: format!("call-{}", claim.epoch()).parse().unwrap(),
            };
            match store.open_effect(open).await.unwrap() {
                Opened::Call => {
                    assert!(good, "{model:?}");
                    model.effect_open = true;
                }
                Opened::Fenced(Fenced::NoSuchJob) => panic!("the job is there"),
                Opened::Fenced(_) => assert!(!good, "{model:?}"),
                Opened::StillOpen => assert!(good && model.effect_open),
                other => panic!("{other:?}"),
            }
        }
        _ => {}
    }
}

fn agree(report: Report, moved: bool, model: &Model) {
    match report {
        Report::Recorded { state } => {
            assert!(moved, "{model:?}");
            assert_eq!(state, model.state);
        }
        Report::Fenced(fenced) => assert!(!moved, "{model:?} {fenced:?}"),
    }
}

async fn compare(world: &World, models: &BTreeMap<JobId, Model>) {
    for (job, model) in models {
        let view = world.job(*job).await;
        assert_eq!(
            (
                view.state,
                view.epoch.0,
                view.attempts,
                view.run_at,
                view.deadline_at
            ),
            (
                model.state,
                model.epoch,
                model.attempts,
                model.run_at,
                model.deadline_at
            ),
        );
    }
    world.verify().await;
}

async fn start(world: &World, jobs: usize) -> BTreeMap<JobId, Model> {
    let mut models = BTreeMap::new();
    for n in 0..jobs {
        let view = world.submitted(submission(&format!("k{n}"))).await;
        models.insert(
            view.id,
            Model {
                state: State::Queued,
                epoch: 0,
                attempts: 0,
                run_at: view.run_at,
                deadline_at: view.deadline_at,
                lease: None,
                cancel_asked: false,
                effect_open: false,
                claims: Vec::new(),
            },
        );
    }
    models
}

#[tokio::test]
async fn random_sequences_agree_with_the_lifecycle_one_verb_at_a_time() {
    for seed in [1, 2, 3] {
        let world = World::new().await;
        let mut random = Random(seed);
        let mut models = start(&world, 5).await;
        for _ in 0..400 {
            let seconds = [0, 0, 0, 1, 3, 31, 600][random.below(7)];
            world.clock.turn(Duration::from_secs(seconds));
            let index = random.below(models.len());
            let (job, model) = models.iter_mut().nth(index).unwrap();
            let (what, which) = (random.below(15), random.below(8));
            act(&world.store, world.clock.now(), *job, model, what, which).await;
        }
        compare(&world, &models).await;
    }
}

#[tokio::test]
async fn random_sequences_agree_with_the_lifecycle_many_jobs_in_a_batch() {
    let world = World::new().await;
    let mut random = Random(7);
    let mut models = start(&world, 40).await;
    for _ in 0..60 {
        world
            .clock
            .turn(Duration::from_secs([0, 1, 3, 31][random.below(4)]));
        let now = world.clock.now();
        let acts = models.iter_mut().map(|(job, model)| {
            let (what, which) = (random.below(15), random.below(8));
            act(&world.store, now, *job, model, what, which)
        });
        futures_util::future::join_all(acts).await;
    }
    compare(&world, &models).await;
}

/// Several requests for one job at once: the answers equal some serial order.
#[tokio::test]
async fn several_requests_for_one_job_in_a_batch_are_answered_in_some_order() {
    let world = World::new().await;
    for round in 0..50 {
        let job = world.queued(&format!("k{round}")).await;
        let claims =
            futures_util::future::join_all((0..8).map(|_| world.store.claim(claim_of(job)))).await;
        let won: Vec<Claim> = claims
            .into_iter()
            .filter_map(|outcome| match outcome.unwrap() {
                ClaimOutcome::Claimed(claimed) => Some(claimed.claim),
                ClaimOutcome::Refused(_) => None,
            })
            .collect();
        assert_eq!(won.len(), 1, "one claim wins");
        let claim = won[0];
        let (done, failed, released, asked) = tokio::join!(
            world.store.complete(complete(claim)),
            world.store.fail(fail(claim, Failure::Permanent)),
            world.store.release(Release {
                claim,
                reason: "race"
            }),
            world.store.cancel(super::control::cancel(job)),
        );
        let recorded = [done.unwrap(), failed.unwrap(), released.unwrap()]
            .iter()
            .filter(|report| matches!(report, Report::Recorded { .. }))
            .count();
        assert_eq!(recorded, 1, "one report is recorded");
        drop(asked.unwrap());
    }
    world.verify().await;
}
