//! Decisions about jobs whose outcome nobody knows, and what they are decided by.

use fencepost_core::error_text::ErrorText;
use fencepost_core::fingerprint::Moment;
use fencepost_core::id::{EffectName, Epoch, JobId, KindName, Owner, QueueName, Tenant};
use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;

use super::{JobView, Scope};

/// Decides about an `unknown` job. The first decision stands.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// Whose jobs the caller may touch.
    pub scope: Scope,
    /// The job.
    pub job: JobId,
    /// Which of its open effects; may be left out when there is only one.
    pub effect: Option<EffectName>,
    /// What is decided.
    pub decision: Decision,
    /// Why, for the history.
    pub reason: ErrorText,
    /// What it is based on, for the history.
    pub evidence: Option<ErrorText>,
    /// The deadline of a job that is queued again; `None` is its kind's default from now.
    pub deadline: Option<Moment>,
    /// Who decides, for the history.
    pub actor: String,
}

/// What is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The effect happened: it is settled, and the job goes on after it.
    Happened {
        /// What the call gave back, JSON text. `None` takes the evidence of a
        /// fenced settle, or else `null`.
        outcome: Option<String>,
        /// The effect is the whole of the job: it completes, with the outcome as its
        /// result. With the evidence of a fenced settle it goes on instead, since only
        /// its handler knows what result that makes.
        is_whole_job: bool,
    },
    /// The effect did not happen: the job goes on and may make it.
    DidNotHappen,
    /// The job is done, with this result; JSON text.
    Complete {
        /// JSON text.
        result: String,
    },
    /// The job is given up.
    Abandon,
}

impl Decision {
    /// The word in requests and in the history.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Happened { .. } => "happened",
            Self::DidNotHappen => "did-not-happen",
            Self::Complete { .. } => "complete",
            Self::Abandon => "abandon",
        }
    }
}

impl Decision {
    /// The bytes that it adds to a transaction.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Happened { outcome, .. } => outcome.as_ref().map_or(0, String::len),
            Self::Complete { result } => result.len(),
            Self::DidNotHappen | Self::Abandon => 0,
        }
    }
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Resolved {
    /// It stands; the job is where it leads. Still `unknown` while another of
    /// its effects is open.
    Decided(Box<JobView>),
    /// The job is not unknown: it was decided before, or never had to be.
    Conflict(State),
    /// Several effects are open: the decision must name one of these.
    WhichEffect(Vec<EffectName>),
    /// No effect of that name is open; or, for [`Decision::Happened`] without a
    /// name, none at all.
    NoOpenEffect,
    /// The given deadline has passed already.
    DeadlineUnusable,
    /// No such job in this scope.
    NotFound,
}

/// An unknown job and one of its open effects; none for a job that its kind
/// holds when its worker is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEffect {
    /// The job.
    pub job: JobId,
    /// What was run.
    pub kind: KindName,
    /// Its lane.
    pub queue: QueueName,
    /// Whose it is.
    pub tenant: Tenant,
    /// Whose it is.
    pub owner: Owner,
    /// When it became unknown.
    pub since: Timestamp,
    /// What is open.
    pub open: Option<OpenCall>,
}

/// A call whose outcome nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// Its name; the receiver knows it as `<job>/<name>`.
    pub name: EffectName,
    /// The epoch that the receiver was told.
    pub epoch: Epoch,
    /// When it was marked.
    pub opened_at: Timestamp,
    /// Which worker marked it.
    pub worker: String,
    /// What a settle brought that came too late to count; JSON text.
    pub evidence: Option<String>,
}

/// A page of unknown jobs, oldest job first, each with all its open effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPage {
    /// The effects; those of one job stand together.
    pub effects: Vec<UnknownEffect>,
    /// Where the next page starts: after this job.
    pub next: Option<JobId>,
}
