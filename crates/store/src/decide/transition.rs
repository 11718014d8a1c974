//! From a move of the lifecycle to the row after it.
//!
//! Owns what becomes of every column when a job moves, the outbox entry that
//! is born or goes with it, and the one event that records it.

use std::time::Duration;

use fencepost_core::effect::{EffectKind, EffectState};
use fencepost_core::error_text::ErrorText;
use fencepost_core::event::EventType;
use fencepost_core::id::{Epoch, ErrorCode};
use fencepost_core::lifecycle::{AttemptsChange, EpochChange, Move, NextRun, State, Why};
use fencepost_core::time::Timestamp;

use super::{EntryWrite, EventWrite, Moment, Row, Writes};
use crate::contract::ErrorView;

/// What must still be true, in SQL, of the row that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Its epoch and state are as loaded.
    Unchanged,
    /// Besides, its lease and its deadline lie ahead.
    Live,
    /// Besides, its lease or its deadline has passed.
    Expired,
}

/// A row to be written, and the fence it is written under.
#[derive(Debug)]
pub(crate) struct JobUpdate {
    pub(crate) was_epoch: Epoch,
    pub(crate) was_state: State,
    pub(crate) fence: Fence,
    pub(crate) after: Row,
}

impl JobUpdate {
    pub(crate) fn new(before: &Row, after: Row, fence: Fence) -> Self {
        Self {
            was_epoch: before.epoch,
            was_state: before.state,
            fence,
            after,
        }
    }
}

/// What the verb's sender asked for, beyond the event itself.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Who, for the history.
    pub(crate) actor: String,
    /// The reported failure.
    pub(crate) error: Option<(ErrorCode, String)>,
    /// The reported result.
    pub(crate) result: Option<String>,
    /// Until the next run, where the lifecycle leaves it to the sender, or in
    /// place of the kind's backoff.
    pub(crate) delay: Duration,
    /// A new deadline.
    pub(crate) deadline: Option<Timestamp>,
    /// The lease to give, and to whom.
    pub(crate) lease: Option<(Timestamp, String)>,
    /// A word for the history.
    pub(crate) detail: Option<String>,
}

impl Asked {
    pub(crate) fn by(actor: &str) -> Self {
        Self {
            actor: actor.to_owned(),
            ..Self::default()
        }
    }
}

/// Applies a move: pushes the row, its entry and its event, and answers the row after it.
pub(crate) fn apply(
    before: &Row,
    fence: Fence,
    moved: Move,
    asked: &Asked,
    at: Moment,
    writes: &mut Writes,
) -> Row {
    let mut after = before.clone();
    after.state = moved.to;
    if moved.epoch == EpochChange::Raise {
        after.epoch = before.epoch.raised();
    }
    match moved.attempts {
        AttemptsChange::Keep => {}
        AttemptsChange::Count => after.attempts += 1,
        AttemptsChange::GiveBack => after.attempts = before.attempts.saturating_sub(1),
        AttemptsChange::Reset => after.attempts = 0,
        AttemptsChange::EnsureOneLeft => {
            after.attempts = before.attempts.min(before.max_attempts.saturating_sub(1));
        }
    }
    after.lease_expires_at = asked.lease.as_ref().map(|(until, _)| *until);
    after.leased_by = asked.lease.as_ref().map(|(_, worker)| worker.clone());
    after.finished_at = moved.to.is_terminal().then_some(at.now);
    after.result.clone_from(&asked.result);
    if let Some(deadline) = asked.deadline {
        after.deadline_at = deadline;
        after.snoozes = 0;
    }
    if moved.to != State::Leased && moved.to != State::Cancelled {
        after.cancel_requested_at = None;
    }
    set_error(&mut after, moved, asked);
    if moved.to == State::Queued {
        after.run_at = match moved.next_run {
            NextRun::Now => at.now,
            NextRun::AsAsked => {
                after.snoozes += 1;
                at.now.after(asked.delay)
            }
            NextRun::AfterBackoff => at.now.after(asked.delay),
        };
    }
    entry(before, &mut after, writes);
    writes.events.push(event(before, &after, moved, asked));
    writes
        .updates
        .push(JobUpdate::new(before, after.clone(), fence));
    after
}

fn set_error(after: &mut Row, moved: Move, asked: &Asked) {
    if let Some((code, message)) = &asked.error {
        after.error = Some(ErrorView {
            code: code.clone(),
            message: message.clone(),
        });
    }
    match moved.why {
        Some(Why::AsReported) => {}
        Some(why) => {
            let mut message = why.message().to_owned();
            if why == Why::CancelledAfterEffect {
                message = format!("{message}: {}", settled_effects(after));
            }
            if let (Why::DeadlineExceeded | Why::EffectOpen, Some((_, last))) = (why, &asked.error)
            {
                let told = format!("{message}; the last attempt failed with: {last}");
                message = ErrorText::new(&told).to_string();
            }
            after.set_error(why.code(), message);
        }
        // What an earlier attempt failed with is kept while the job goes on,
        // and is no longer true once it is done or begins anew.
        None if moved.to == State::Completed
            || matches!(
                moved.attempts,
                AttemptsChange::Reset | AttemptsChange::EnsureOneLeft
            ) =>
        {
            after.error = None;
        }
        None => {}
    }
}

fn settled_effects(row: &Row) -> String {
    let settled = row
        .effects
        .iter()
        .filter(|effect| effect.kind == EffectKind::Effect && effect.state == EffectState::Settled);
    let names: Vec<&str> = settled.map(|effect| effect.name.as_str()).collect();
    names.join(", ")
}

/// A queued job has exactly one entry, and no other job has one.
fn entry(before: &Row, after: &mut Row, writes: &mut Writes) {
    if before.state == State::Queued {
        writes.entries_gone.push(before.id);
        after.parked = false;
        after.put_backs = None;
    }
    if after.state == State::Queued {
        after.put_backs = Some(0);
        writes.entries_new.push(EntryWrite {
            job: after.id,
            queue: after.queue.to_string(),
            priority: after.priority,
            available_at: after.run_at,
        });
    }
}

fn event(before: &Row, after: &Row, moved: Move, asked: &Asked) -> EventWrite {
    let kind = match moved.to {
        State::Leased => EventType::Claimed,
        State::Completed => EventType::Completed,
        State::Dead => EventType::Dead,
        State::Cancelled => EventType::Cancelled,
        State::Unknown => EventType::Unknown,
        State::Queued if before.state != State::Leased => EventType::Retried,
        State::Queued if moved.why == Some(Why::WorkerLost) => EventType::Reaped,
        State::Queued => match (moved.attempts, moved.next_run) {
            (AttemptsChange::GiveBack, NextRun::AsAsked) => EventType::Snoozed,
            (AttemptsChange::GiveBack, _) => EventType::Released,
            _ => EventType::Failed,
        },
    };
    let gives_reason = matches!(
        kind,
        EventType::Failed
            | EventType::Dead
            | EventType::Cancelled
            | EventType::Unknown
            | EventType::Reaped
    );
    let error = after.error.as_ref().filter(|_| gives_reason);
    let told = error.map(|error| error.code.to_string());
    EventWrite {
        code: told,
        detail: asked.detail.clone(),
        ..after.event(kind, &asked.actor)
    }
}
