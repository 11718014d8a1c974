//! The lifecycle of a job, written once.
//!
//! ```text
//!            submit                 claim                complete
//!              │      ┌────────────────────────────┐        ┌──► completed
//!              ▼      │                            ▼        │
//!           queued ◄──┴── fail, release, snooze ── leased ──┼──► dead ──────┐
//!            ▲ │                                    │       └──► cancelled ─┤
//!            │ └── cancel, deadline ──► cancelled,  │ any exit with an      │
//!            │                          dead        ▼ open effect           │
//!            ├──────────── verdict ◄──────────── unknown                    │
//!            └──────────────────────────── retry ───────────────────────────┘
//! ```
//!
//! Owns which event moves a job where, what that does to its epoch and
//! attempts, and why an event is refused. [`next`] is total: every state,
//! event and combination of facts has an answer. The stores load a row, ask
//! this function, and write what it says under the row's fence; they hold no
//! rule of their own.

use serde::{Deserialize, Serialize};

use crate::lease::{ClaimRefusal, Fenced};
use crate::time::Timestamp;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits to be claimed: fresh, scheduled or between attempts. Exactly one outbox entry stands for it.
    Queued,
    /// A claim holds it until its lease or deadline ends.
    Leased,
    /// Ended with a result.
    Completed,
    /// Ended without one: a permanent failure, or attempts or deadline spent.
    Dead,
    /// Ended because someone asked for it.
    Cancelled,
    /// Left with a call to the outside world whose outcome nobody knows. Waits for a verdict.
    Unknown,
}

impl State {
    /// Every state, for exhaustive tests and documentation.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Leased,
        Self::Completed,
        Self::Dead,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// The word used in the database, in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the word of [`State::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether the job has ended. `Unknown` has not: it waits.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Dead | Self::Cancelled)
    }

    /// Whether nothing more happens without a person or a probe: ended, or unknown.
    pub fn is_at_rest(self) -> bool {
        self.is_terminal() || self == Self::Unknown
    }
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A worker asks for the right to run it.
    Claim,
    /// Its holder reports a result.
    Complete,
    /// Its holder reports a failure.
    Fail(Failure),
    /// Its holder gives it back unrun or half run: a shutdown.
    Release,
    /// Its holder puts it off.
    Snooze,
    /// The reaper found its lease or deadline passed.
    Reap,
    /// Its owner wants it ended.
    Cancel(Cancel),
    /// Someone wants it run anew after it ended.
    Retry,
    /// A decision about its unknown outcome.
    Verdict(Verdict),
}

/// Whether a failure may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// Nothing was done, or it is safe to repeat.
    Repeatable,
    /// It would fail again.
    Permanent,
}

/// How hard a cancellation is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cancel {
    /// A running job is asked to stop.
    Ask,
    /// A running job is disowned at once.
    Force,
}

/// A decision about an `unknown` job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The effect happened, and there is more of the job to run.
    Happened,
    /// The effect happened, and it was the whole of the job.
    HappenedAndWasAll,
    /// The effect did not happen.
    DidNotHappen,
    /// The job is done, with a given result.
    Complete,
    /// The job is given up.
    Abandon,
}

/// What is true of a job at the instant of an event.
///
/// All are read under the write lock, with the one clock that rules.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts; every combination has an answer"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The event's claim carries the job's present epoch.
    pub epoch_is_current: bool,
    /// When the present lease ends; meaningful in `Leased` only.
    pub lease_until: Timestamp,
    /// The lease has run out.
    pub lease_expired: bool,
    /// The deadline has passed.
    pub deadline_passed: bool,
    /// `run_at` has come.
    pub due: bool,
    /// No attempt is left after those already counted.
    pub attempts_spent: bool,
    /// The next attempt, after its backoff, would start before the deadline.
    pub retry_fits: bool,
    /// No snooze is left.
    pub snoozes_spent: bool,
    /// A call to the outside world has no known outcome.
    pub effect_open: bool,
    /// A call to the outside world is known to have happened.
    pub effect_settled: bool,
    /// Someone asked for cancellation while it ran.
    pub cancel_asked: bool,
    /// Its kind holds a job whose worker was lost, even without an open effect.
    pub hold_on_crash: bool,
}

/// What an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The job moves.
    Move(Move),
    /// The job stays leased and its holder is asked to stop.
    AskToCancel,
    /// Nothing changes.
    Refuse(Refusal),
}

/// A change of a job's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The state it moves to.
    pub to: State,
    /// What becomes of the epoch.
    pub epoch: EpochChange,
    /// What becomes of the attempt count.
    pub attempts: AttemptsChange,
    /// When it may run next; meaningful when it moves to `Queued`.
    pub next_run: NextRun,
    /// The reason to record when it moves to an end, to `Unknown`, or is reaped.
    pub why: Option<Why>,
}

/// What becomes of a job's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochChange {
    /// It stays.
    Keep,
    /// It rises by one: every earlier claim is fenced from now on.
    Raise,
}

/// What becomes of a job's attempt count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptsChange {
    /// It stays.
    Keep,
    /// One more: counted at claim, so that a crash is counted too.
    Count,
    /// One less: the user was not served by this run.
    GiveBack,
    /// A fresh budget.
    Reset,
    /// At least one attempt is left.
    EnsureOneLeft,
}

/// When a job that moves to `Queued` may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// At once.
    Now,
    /// After the kind's backoff.
    AfterBackoff,
    /// When the event's sender says.
    AsAsked,
}

/// Why a job ended, became unknown or was taken back, where its holder gave no reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The holder's own error code stands.
    AsReported,
    /// The deadline passed.
    DeadlineExceeded,
    /// The worker was lost on the last attempt, or on one that is tried again.
    WorkerLost,
    /// Cancelled, nothing known to have been done.
    Cancelled,
    /// Cancelled after a call to the outside world had happened.
    CancelledAfterEffect,
    /// A call to the outside world has no known outcome.
    EffectOpen,
    /// The worker was lost and the kind asks for a person then.
    HeldOnCrash,
    /// Put off too often.
    SnoozesSpent,
    /// Given up by a verdict.
    Abandoned,
}

impl Why {
    /// The stable error code. Empty for [`Why::AsReported`].
    pub fn code(self) -> &'static str {
        match self {
            Self::AsReported => "",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::WorkerLost => "worker_lost",
            Self::Cancelled => "cancelled",
            Self::CancelledAfterEffect => "cancelled_after_effect",
            Self::EffectOpen => "effect_open",
            Self::HeldOnCrash => "held_on_crash",
            Self::SnoozesSpent => "snoozes_spent",
            Self::Abandoned => "abandoned",
        }
    }

    /// What the job's owner reads.
    pub fn message(self) -> &'static str {
        match self {
            Self::AsReported => "",
            Self::DeadlineExceeded => "the deadline passed before the job was done",
            Self::WorkerLost => "the worker that ran the job was lost",
            Self::Cancelled => "the job was cancelled",
            Self::CancelledAfterEffect => "the job was cancelled after these effects had happened",
            Self::EffectOpen => {
                "a call to the outside world has no known outcome; a verdict is needed"
            }
            Self::HeldOnCrash => "the worker was lost and this kind is held for a verdict then",
            Self::SnoozesSpent => "the job put itself off too often",
            Self::Abandoned => "the job was given up by a verdict",
        }
    }
}

/// Why an event changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The claim was refused.
    Claim(ClaimRefusal),
    /// The write came under a claim that is no longer good.
    Fenced(Fenced),
    /// The state does not know this event.
    State(State),
    /// The reaper may not take it: its lease and deadline are good.
    NotExpired,
    /// It may not run anew while a call has no known outcome.
    EffectOpen,
}

/// Says what an event does to a job. Total and pure.
pub fn next(state: State, event: Event, facts: &Facts) -> Step {
    match event {
        Event::Claim => claim(state, facts),
        Event::Complete | Event::Fail(_) | Event::Release | Event::Snooze => {
            match fence(state, facts) {
                Some(fenced) => Step::Refuse(Refusal::Fenced(fenced)),
                None => report(event, facts),
            }
        }
        Event::Reap => reap(state, facts),
        Event::Cancel(how) => cancel(state, how, facts),
        Event::Retry => retry(state, facts),
        Event::Verdict(verdict) => decide(state, verdict),
    }
}

/// Whether a write under a claim is fenced, and why. Renewals and effect marks ask this alone.
pub fn fence(state: State, facts: &Facts) -> Option<Fenced> {
    if !facts.epoch_is_current {
        Some(Fenced::NewerEpoch)
    } else if state != State::Leased {
        Some(Fenced::NotLeased(state))
    } else if facts.deadline_passed {
        Some(Fenced::DeadlinePassed)
    } else if facts.lease_expired {
        Some(Fenced::LeaseExpired)
    } else {
        None
    }
}

fn claim(state: State, facts: &Facts) -> Step {
    let refusal = match state {
        State::Leased => ClaimRefusal::Leased {
            until: facts.lease_until,
        },
        State::Completed | State::Dead | State::Cancelled | State::Unknown => {
            ClaimRefusal::Ended(state)
        }
        State::Queued if facts.deadline_passed => ClaimRefusal::DeadlinePassed,
        State::Queued if facts.attempts_spent => ClaimRefusal::AttemptsSpent,
        State::Queued if !facts.due => ClaimRefusal::NotDue,
        State::Queued => {
            return Step::Move(Move {
                to: State::Leased,
                epoch: EpochChange::Raise,
                attempts: AttemptsChange::Count,
                next_run: NextRun::Now,
                why: None,
            });
        }
    };
    Step::Refuse(Refusal::Claim(refusal))
}

/// A good claim reports how its run ended.
fn report(event: Event, facts: &Facts) -> Step {
    if facts.effect_open {
        return ended(State::Unknown, Why::EffectOpen);
    }
    match event {
        Event::Complete => Step::Move(Move {
            to: State::Completed,
            epoch: EpochChange::Keep,
            attempts: AttemptsChange::Keep,
            next_run: NextRun::Now,
            why: None,
        }),
        Event::Fail(Failure::Permanent) => ended(State::Dead, Why::AsReported),
        Event::Fail(Failure::Repeatable) if facts.attempts_spent => {
            ended(State::Dead, Why::AsReported)
        }
        _ if facts.cancel_asked => cancelled(facts),
        Event::Fail(Failure::Repeatable) if !facts.retry_fits => {
            ended(State::Dead, Why::DeadlineExceeded)
        }
        Event::Fail(Failure::Repeatable) => queued(NextRun::AfterBackoff, AttemptsChange::Keep),
        Event::Snooze if facts.snoozes_spent => ended(State::Dead, Why::SnoozesSpent),
        Event::Snooze => queued(NextRun::AsAsked, AttemptsChange::GiveBack),
        Event::Release => queued(NextRun::Now, AttemptsChange::GiveBack),
        Event::Claim | Event::Reap | Event::Cancel(_) | Event::Retry | Event::Verdict(_) => {
            unreachable!("`next` sends only reports of a claim's holder here")
        }
    }
}

/// The reaper's verdict; the first match decides.
fn reap(state: State, facts: &Facts) -> Step {
    match state {
        State::Queued if facts.deadline_passed => ended(State::Dead, Why::DeadlineExceeded),
        State::Leased if facts.lease_expired || facts.deadline_passed => {
            if facts.effect_open {
                ended(State::Unknown, Why::EffectOpen)
            } else if facts.lease_expired && facts.hold_on_crash {
                ended(State::Unknown, Why::HeldOnCrash)
            } else if facts.cancel_asked {
                cancelled(facts)
            } else if facts.deadline_passed {
                ended(State::Dead, Why::DeadlineExceeded)
            } else if facts.attempts_spent {
                ended(State::Dead, Why::WorkerLost)
            } else {
                Step::Move(Move {
                    to: State::Queued,
                    epoch: EpochChange::Keep,
                    attempts: AttemptsChange::Keep,
                    next_run: NextRun::AfterBackoff,
                    why: Some(Why::WorkerLost),
                })
            }
        }
        State::Queued | State::Leased => Step::Refuse(Refusal::NotExpired),
        State::Completed | State::Dead | State::Cancelled | State::Unknown => {
            Step::Refuse(Refusal::State(state))
        }
    }
}

fn cancel(state: State, how: Cancel, facts: &Facts) -> Step {
    match (state, how) {
        (State::Queued, _) => cancelled(facts),
        (State::Leased, Cancel::Ask) => Step::AskToCancel,
        (State::Leased, Cancel::Force) => {
            let (to, why) = if facts.effect_open {
                (State::Unknown, Why::EffectOpen)
            } else {
                (State::Cancelled, cancel_reason(facts))
            };
            Step::Move(Move {
                to,
                epoch: EpochChange::Raise,
                attempts: AttemptsChange::Keep,
                next_run: NextRun::Now,
                why: Some(why),
            })
        }
        (State::Completed | State::Dead | State::Cancelled | State::Unknown, _) => {
            Step::Refuse(Refusal::State(state))
        }
    }
}

fn retry(state: State, facts: &Facts) -> Step {
    match state {
        State::Dead | State::Cancelled if facts.effect_open => Step::Refuse(Refusal::EffectOpen),
        State::Dead | State::Cancelled => queued(NextRun::Now, AttemptsChange::Reset),
        State::Queued | State::Leased | State::Completed | State::Unknown => {
            Step::Refuse(Refusal::State(state))
        }
    }
}

fn decide(state: State, verdict: Verdict) -> Step {
    if state != State::Unknown {
        return Step::Refuse(Refusal::State(state));
    }
    match verdict {
        Verdict::Happened | Verdict::DidNotHappen => {
            queued(NextRun::Now, AttemptsChange::EnsureOneLeft)
        }
        Verdict::HappenedAndWasAll | Verdict::Complete => Step::Move(Move {
            to: State::Completed,
            epoch: EpochChange::Keep,
            attempts: AttemptsChange::Keep,
            next_run: NextRun::Now,
            why: None,
        }),
        Verdict::Abandon => ended(State::Dead, Why::Abandoned),
    }
}

fn cancel_reason(facts: &Facts) -> Why {
    if facts.effect_settled {
        Why::CancelledAfterEffect
    } else {
        Why::Cancelled
    }
}

fn cancelled(facts: &Facts) -> Step {
    ended(State::Cancelled, cancel_reason(facts))
}

fn ended(to: State, why: Why) -> Step {
    Step::Move(Move {
        to,
        epoch: EpochChange::Keep,
        attempts: AttemptsChange::Keep,
        next_run: NextRun::Now,
        why: Some(why),
    })
}

fn queued(next_run: NextRun, attempts: AttemptsChange) -> Step {
    Step::Move(Move {
        to: State::Queued,
        epoch: EpochChange::Keep,
        attempts,
        next_run,
        why: None,
    })
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
