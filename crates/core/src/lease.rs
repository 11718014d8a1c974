//! Why a claim is refused and why a write after a claim is fenced.
//!
//! Neither is an error: both are normal answers of a system in which messages
//! repeat and workers freeze. The proof of a claim itself, the `Claim` value,
//! is made by the store alone and lives there.

use serde::{Deserialize, Serialize};

use crate::lifecycle::State;
use crate::time::Timestamp;

/// Why a job could not be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimRefusal {
    /// There is no such job.
    NoSuchJob,
    /// Its `run_at` lies ahead; its entry will be dispatched then.
    NotDue,
    /// Its deadline has passed; the reaper ends it.
    DeadlinePassed,
    /// Every attempt is used; the reaper or the last failure ends it.
    AttemptsSpent,
    /// Another claim holds it, its lease live or not yet reaped.
    Leased {
        /// When that lease ends.
        until: Timestamp,
    },
    /// It has ended, or waits as unknown for a verdict.
    Ended(State),
    /// Its queue is paused.
    QueuePaused,
}

/// Why a write after a claim changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fenced {
    /// Someone newer holds the job, or held it.
    NewerEpoch,
    /// The claim was ended: the job is no longer leased.
    NotLeased(State),
    /// The lease ran out, even if nobody else has claimed since.
    LeaseExpired,
    /// The deadline passed.
    DeadlinePassed,
    /// The job is gone: pruned after it had ended.
    NoSuchJob,
}

impl Fenced {
    /// A stable word for histories and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewerEpoch => "newer_epoch",
            Self::NotLeased(_) => "not_leased",
            Self::LeaseExpired => "lease_expired",
            Self::DeadlinePassed => "deadline",
            Self::NoSuchJob => "no_such_job",
        }
    }
}
