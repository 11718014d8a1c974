//! A run: claim, renew, and the four ways its holder reports on it.
//!
//! Every write after a claim takes a [`Claim`] and is conditioned on id, epoch,
//! state, unexpired lease and unexpired deadline.

use std::time::Duration;

use fencepost_core::error_text::ErrorText;
use fencepost_core::id::{Epoch, ErrorCode, JobId, KindName, Owner, Tenant, WorkerId};
use fencepost_core::lease::{ClaimRefusal, Fenced};
use fencepost_core::lifecycle::{Failure, State};
use fencepost_core::time::Timestamp;

use super::EffectRecord;

/// The right to run a job: proof that the store gave it out.
///
/// Only the store makes one, and no code outside it can change its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    job: JobId,
    epoch: Epoch,
}

impl Claim {
    pub(crate) fn issue(job: JobId, epoch: Epoch) -> Self {
        Self { job, epoch }
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The number of this claim; it leaves the system with every effect.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// Asks for the right to run a job: due, before its deadline, attempts left,
/// queue not paused. The epoch and the attempt count rise, the lease is set,
/// and the outbox entry goes, in one statement set.
#[derive(Debug, Clone)]
pub struct ClaimJob {
    /// The job.
    pub job: JobId,
    /// Who will run it: one life of one process.
    pub worker: WorkerId,
    /// How long the claim holds without renewal.
    pub lease: Duration,
    /// Whether the epoch leaves this process outside an effect (to a program, or
    /// in a request): then the claim is flushed before the answer, so that no
    /// power cut lets the same epoch be given out again.
    pub epoch_leaves: bool,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum ClaimOutcome {
    /// The job is the caller's until its lease or deadline ends.
    Claimed(Box<ClaimedJob>),
    /// It is not.
    Refused(ClaimRefusal),
}

/// A job in its holder's hands.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedJob {
    /// The proof that every further write takes.
    pub claim: Claim,
    /// What is to be run.
    pub kind: KindName,
    /// Whose job it is.
    pub tenant: Tenant,
    /// Whose job it is.
    pub owner: Owner,
    /// JSON text as sent.
    pub payload: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The attempt budget.
    pub max_attempts: u32,
    /// The lease counted from the instant of the claim. The holder counts it
    /// on its own monotonic clock from before the request was sent.
    pub lease_for: Duration,
    /// The time left to the deadline at the instant of the claim.
    pub deadline_in: Duration,
    /// The deadline, for handlers that pass it on.
    pub deadline_at: Timestamp,
    /// W3C trace context of the submission.
    pub trace: Option<String>,
    /// Effects and steps recorded under earlier claims.
    pub effects: Vec<EffectRecord>,
}

/// Lengthens a lease, counted from now.
#[derive(Debug, Clone, Copy)]
pub struct Renew {
    /// The claim.
    pub claim: Claim,
    /// The new lease.
    pub lease: Duration,
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Renewed {
    /// The lease runs anew.
    Live {
        /// Counted from the instant of the renewal.
        lease_for: Duration,
        /// The time left to the deadline.
        deadline_in: Duration,
        /// Someone asked for the job to be cancelled: the handler should stop.
        cancel_requested: bool,
    },
    /// The claim is no longer good: stop.
    Fenced(Fenced),
}

/// Ends a job with its result.
#[derive(Debug, Clone)]
pub struct Complete {
    /// The claim.
    pub claim: Claim,
    /// JSON text, kept as given.
    pub result: String,
}

/// Reports a failed attempt.
#[derive(Debug, Clone)]
pub struct Fail {
    /// The claim.
    pub claim: Claim,
    /// Whether another attempt makes sense.
    pub failure: Failure,
    /// A stable reason.
    pub code: ErrorCode,
    /// What a person reads.
    pub message: ErrorText,
    /// Not before this long from now, instead of the kind's backoff.
    pub retry_after: Option<Duration>,
}

/// Gives a job back unfinished; the attempt is not counted, the entry is due at once.
#[derive(Debug, Clone)]
pub struct Release {
    /// The claim.
    pub claim: Claim,
    /// Why, for the history.
    pub reason: &'static str,
}

/// Puts a job off; the attempt is not counted.
#[derive(Debug, Clone, Copy)]
pub struct Snooze {
    /// The claim.
    pub claim: Claim,
    /// How long from now.
    pub delay: Duration,
}

/// What became of a holder's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Report {
    /// It is durable, and the job is where the lifecycle says: `Unknown`, for
    /// one, when an effect is open.
    Recorded {
        /// Where the job stands now.
        state: State,
    },
    /// The claim is no longer good; nothing changed.
    Fenced(Fenced),
}
