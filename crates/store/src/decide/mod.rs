//! What a verb does to a job, decided without a database.
//!
//! Owns the way from (row, request, now) to (answer, writes), for every verb
//! that concerns one job. Asks [`fencepost_core::lifecycle`] for every
//! transition and holds no rule of its own about them. Both databases run
//! these decisions: an engine loads rows under its lock, calls [`decide`], and
//! writes what is asked, under the fence each write names.

mod effect;
mod row;
mod run;
mod transition;
mod verdict;

pub(crate) use effect::{EffectChange, EffectWrite};
pub(crate) use row::{EffectRow, Row};
pub(crate) use transition::{Fence, JobUpdate};

use fencepost_core::event::EventType;
use fencepost_core::id::{Epoch, JobId};
use fencepost_core::lifecycle::{Event, Refusal, Step};
use fencepost_core::outbox::put_back_delay;
use fencepost_core::time::Timestamp;

use crate::command::{Answer, Command};
use crate::contract::{Cancel, Cancelled, PutBack, PutBackOutcome, Reap, Reaped, Retried, Retry};
use transition::Asked;

/// Everything that a transaction's decisions ask to be written.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) updates: Vec<JobUpdate>,
    pub(crate) entries_gone: Vec<JobId>,
    pub(crate) entries_new: Vec<EntryWrite>,
    pub(crate) entries_put_back: Vec<PutBackWrite>,
    pub(crate) events: Vec<EventWrite>,
    pub(crate) effects: Vec<EffectWrite>,
}

/// A new outbox entry.
#[derive(Debug)]
pub(crate) struct EntryWrite {
    pub(crate) job: JobId,
    pub(crate) queue: String,
    pub(crate) priority: u8,
    pub(crate) available_at: Timestamp,
}

/// An entry to be put back.
#[derive(Debug)]
pub(crate) struct PutBackWrite {
    pub(crate) job: JobId,
    pub(crate) available_at: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) actor: String,
    pub(crate) reason: &'static str,
}

/// A new event.
#[derive(Debug)]
pub(crate) struct EventWrite {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    pub(crate) kind: EventType,
    pub(crate) actor: String,
    pub(crate) code: Option<String>,
    pub(crate) detail: Option<String>,
}

impl Writes {
    /// Whether the commit is news to someone who waits: a job queued or at rest.
    pub(crate) fn rings(&self) -> bool {
        !self.entries_new.is_empty()
            || self
                .updates
                .iter()
                .any(|update| update.after.state.is_at_rest())
    }
}

/// What a decision may know besides the row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// The instant, read after the write lock was taken.
    pub(crate) now: Timestamp,
    /// For jitter.
    pub(crate) random: u64,
}

/// Decides a verb that concerns one job. `None` for verbs that do not.
pub(crate) fn decide(
    command: &Command,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Option<Answer> {
    let answer = match command {
        Command::ClaimJob(request) => Answer::ClaimJob(run::claim(request, row, at, writes)),
        Command::Renew(request) => Answer::Renew(run::renew(request, row, at, writes)),
        Command::Complete(request) => Answer::Complete(run::complete(request, row, at, writes)),
        Command::Fail(request) => Answer::Fail(run::fail(request, row, at, writes)),
        Command::Release(request) => Answer::Release(run::release(request, row, at, writes)),
        Command::Snooze(request) => Answer::Snooze(run::snooze(*request, row, at, writes)),
        Command::OpenEffect(request) => Answer::OpenEffect(effect::open(request, row, at, writes)),
        Command::SettleEffect(request) => {
            Answer::SettleEffect(effect::settle(request, row, at, writes))
        }
        Command::DeclineEffect(request) => {
            Answer::DeclineEffect(effect::decline(request, row, at, writes))
        }
        Command::SaveStep(request) => Answer::SaveStep(effect::save_step(request, row, at, writes)),
        Command::Cancel(request) => Answer::Cancel(cancel(request, row, at, writes)),
        Command::Retry(request) => Answer::Retry(retry(request, row, at, writes)),
        Command::Resolve(request) => Answer::Resolve(verdict::resolve(request, row, at, writes)),
        Command::Reap(request) => Answer::Reap(reap(request, row, at, writes)),
        Command::PutBack(request) => Answer::PutBack(put_back(request, row, at, writes)),
        Command::Submit(_)
        | Command::Take(_)
        | Command::SettleDispatches(_)
        | Command::Redispatch(_)
        | Command::RecordBlob(_)
        | Command::TouchBlob(_)
        | Command::CollectBlobs(_)
        | Command::Prune(_)
        | Command::Unpark(_)
        | Command::PauseQueue(_)
        | Command::ResumeQueue(_)
        | Command::CreateKey(_)
        | Command::RevokeKey(_)
        | Command::Lead(_)
        | Command::Resign(_)
        | Command::Heartbeat(_) => return None,
    };
    Some(answer)
}

fn cancel(request: &Cancel, row: Option<&Row>, at: Moment, writes: &mut Writes) -> Cancelled {
    let Some(row) = row.filter(|row| row.is_in(&request.scope)) else {
        return Cancelled::NotFound;
    };
    let asked = Asked::by(&request.actor);
    match row.step(Event::Cancel(request.how), row.epoch, at) {
        Step::Move(moved) => {
            let after = transition::apply(row, Fence::Unchanged, moved, &asked, at, writes);
            Cancelled::Done(Box::new(after.view()))
        }
        Step::AskToCancel => {
            let mut after = row.clone();
            if row.cancel_requested_at.is_none() {
                after.cancel_requested_at = Some(at.now);
                writes
                    .events
                    .push(row.event(EventType::CancelRequested, &request.actor));
                writes
                    .updates
                    .push(JobUpdate::new(row, after.clone(), Fence::Unchanged));
            }
            Cancelled::Asked(Box::new(after.view()))
        }
        Step::Refuse(_) => Cancelled::Conflict(row.state),
    }
}

fn retry(request: &Retry, row: Option<&Row>, at: Moment, writes: &mut Writes) -> Retried {
    let Some(row) = row.filter(|row| row.is_in(&request.scope)) else {
        return Retried::NotFound;
    };
    match row.step(Event::Retry, row.epoch, at) {
        Step::Move(moved) => {
            let deadline = request
                .deadline
                .map_or(at.now.after(row.timeout), |moment| moment.resolve(at.now));
            if deadline <= at.now {
                return Retried::DeadlineUnusable;
            }
            let asked = Asked {
                deadline: Some(deadline),
                ..Asked::by(&request.actor)
            };
            let after = transition::apply(row, Fence::Unchanged, moved, &asked, at, writes);
            Retried::Queued(Box::new(after.view()))
        }
        Step::Refuse(Refusal::EffectOpen) => Retried::EffectOpen,
        Step::Refuse(_) | Step::AskToCancel => Retried::Conflict(row.state),
    }
}

fn reap(request: &Reap, row: Option<&Row>, at: Moment, writes: &mut Writes) -> Reaped {
    let Some(row) = row.filter(|row| row.epoch == request.epoch) else {
        return Reaped::Skipped;
    };
    let Step::Move(moved) = row.step(Event::Reap, row.epoch, at) else {
        return Reaped::Skipped;
    };
    let asked = Asked {
        delay: row.backoff.delay(row.attempts, at.random),
        ..Asked::by(&request.actor)
    };
    let after = transition::apply(row, Fence::Expired, moved, &asked, at, writes);
    Reaped::Moved {
        from: row.state,
        to: after.state,
    }
}

fn put_back(
    request: &PutBack,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> PutBackOutcome {
    let Some(put_backs) = row.and_then(|row| row.put_backs) else {
        return PutBackOutcome::NotQueued;
    };
    let available_at = at.now.after(put_back_delay(put_backs));
    writes.entries_put_back.push(PutBackWrite {
        job: request.job,
        available_at,
        epoch: row.map_or(Epoch::ZERO, |row| row.epoch),
        actor: request.actor.clone(),
        reason: request.reason,
    });
    PutBackOutcome::Until(available_at)
}
