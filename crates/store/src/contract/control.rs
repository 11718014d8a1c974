//! What owners, operators and the reaper do to a job from outside its run.

use fencepost_core::fingerprint::Moment;
use fencepost_core::id::{Epoch, JobId, Owner, QueueName, Tenant};
use fencepost_core::lifecycle::{self, State};

use super::JobView;

/// Whose jobs a caller may see. Part of every query, so that another tenant's
/// job and one that does not exist are the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The caller's tenant.
    pub tenant: Tenant,
    /// The caller's owner name; `None` sees the whole tenant (operators).
    pub owner: Option<Owner>,
}

/// Ends a job, or asks its holder to stop.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// Whose jobs the caller may touch.
    pub scope: Scope,
    /// The job.
    pub job: JobId,
    /// Ask the holder, or disown it.
    pub how: lifecycle::Cancel,
    /// Who asks, for the history.
    pub actor: String,
}

/// What became of a cancellation.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Cancelled {
    /// The job has ended (or is unknown, when disowned with an open effect).
    Done(Box<JobView>),
    /// It runs; its holder is told at its next renewal. Asking twice is asking once.
    Asked(Box<JobView>),
    /// It is in a state that cannot be cancelled.
    Conflict(State),
    /// No such job in this scope.
    NotFound,
}

/// Queues an ended job anew, with a fresh attempt budget.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Whose jobs the caller may touch.
    pub scope: Scope,
    /// The job.
    pub job: JobId,
    /// The new deadline; `None` is its kind's default from now.
    pub deadline: Option<Moment>,
    /// Who asks, for the history.
    pub actor: String,
}

/// What became of a retry.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Retried {
    /// It is queued.
    Queued(Box<JobView>),
    /// It is in a state that cannot be retried.
    Conflict(State),
    /// One of its calls has no known outcome; that needs a verdict first.
    EffectOpen,
    /// The given deadline has passed already.
    DeadlineUnusable,
    /// No such job in this scope.
    NotFound,
}

/// Takes a job back whose lease or deadline has passed, if that is still so
/// in the statement that moves it.
#[derive(Debug, Clone)]
pub struct Reap {
    /// The job.
    pub job: JobId,
    /// The epoch that was seen expired.
    pub epoch: Epoch,
    /// Which reaper, for the history.
    pub actor: String,
}

/// What became of a reaper's candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Reaped {
    /// It was moved.
    Moved {
        /// Where it was.
        from: State,
        /// Where it is.
        to: State,
    },
    /// It had moved on, or was renewed; nothing changed.
    Skipped,
}

/// Stops claims on a queue; what runs goes on.
#[derive(Debug, Clone)]
pub struct PauseQueue {
    /// The queue.
    pub queue: QueueName,
    /// Who asks, for the history.
    pub actor: String,
}

/// Allows claims on a queue again.
#[derive(Debug, Clone)]
pub struct ResumeQueue {
    /// The queue.
    pub queue: QueueName,
    /// Who asks, for the history.
    pub actor: String,
}
