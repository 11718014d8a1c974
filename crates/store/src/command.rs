//! Every mutating verb as a value, so that verbs of all kinds can wait in one
//! queue and be committed together.
//!
//! Owns what the writer must know of a verb before it runs it: which job or
//! key it touches, how large it is, whether its commit must be flushed.

use fencepost_core::id::{JobId, OperationKey, Owner, Tenant};

use crate::contract::{
    BlobKnown, BlobPlace, Cancel, Cancelled, ClaimJob, ClaimOutcome, CollectBlobs, Complete,
    CreateKey, DeclineEffect, Fail, Heartbeat, KeyCreated, KeyRevoked, Lead, Leadership, Marked,
    OpenEffect, Opened, PauseQueue, Prune, Pruned, PutBack, PutBackOutcome, Reap, Reaped,
    RecordBlob, Redispatch, Release, Renew, Renewed, Report, Resign, Resolve, Resolved,
    ResumeQueue, Retried, Retry, RevokeKey, SaveStep, SettleDispatches, SettleEffect, Snooze,
    Submit, Submitted, Take, Taken, TouchBlob, Unpark,
};

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flush {
    /// A power cut takes the host's workers with it, and the verb is repeated
    /// harmlessly: the next flushed commit takes it along.
    NotOnItsOwn,
    /// Something outside relies on it: an answer, or an act to follow.
    Before,
}

/// What two requests of one transaction must not share: at most one mutating
/// request per job and per operation key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Subject {
    Job(JobId),
    Key(Tenant, Owner, OperationKey),
}

macro_rules! commands {
    ($($variant:ident => $answer:ty, $flush:ident;)*) => {
        /// A mutating verb with its request.
        #[derive(Debug, Clone)]
        pub(crate) enum Command { $($variant($variant),)* }

        /// A mutating verb's outcome.
        #[derive(Debug)]
        pub(crate) enum Answer { $($variant($answer),)* }

        impl Command {
            pub(crate) fn flush(&self) -> Flush {
                match self {
                    Self::ClaimJob(claim) if claim.epoch_leaves => Flush::Before,
                    $(Self::$variant(_) => Flush::$flush,)*
                }
            }
        }

        $(impl From<$variant> for Command {
            fn from(request: $variant) -> Self { Self::$variant(request) }
        })*

        $(impl Verb for $variant {
            type Outcome = $answer;

            fn outcome(answer: Answer) -> Option<Self::Outcome> {
                match answer { Answer::$variant(outcome) => Some(outcome), _ => None }
            }
        })*
    };
}

/// Ties a request type to its outcome type.
pub(crate) trait Verb: Into<Command> {
    type Outcome;

    /// The outcome, if the answer is this verb's.
    fn outcome(answer: Answer) -> Option<Self::Outcome>;
}

commands! {
    Submit => Submitted, Before;
    ClaimJob => ClaimOutcome, NotOnItsOwn;
    Renew => Renewed, NotOnItsOwn;
    Complete => Report, Before;
    Fail => Report, Before;
    Release => Report, Before;
    Snooze => Report, Before;
    OpenEffect => Opened, Before;
    SettleEffect => Marked, Before;
    DeclineEffect => Marked, Before;
    SaveStep => Marked, Before;
    Cancel => Cancelled, Before;
    Retry => Retried, Before;
    Resolve => Resolved, Before;
    Reap => Reaped, Before;
    PutBack => PutBackOutcome, NotOnItsOwn;
    Take => Taken, NotOnItsOwn;
    SettleDispatches => u64, NotOnItsOwn;
    Redispatch => u64, NotOnItsOwn;
    RecordBlob => BlobKnown, Before;
    TouchBlob => bool, Before;
    CollectBlobs => Vec<BlobPlace>, Before;
    Prune => Pruned, NotOnItsOwn;
    Unpark => Vec<JobId>, Before;
    PauseQueue => (), Before;
    ResumeQueue => (), Before;
    CreateKey => KeyCreated, Before;
    RevokeKey => KeyRevoked, Before;
    Lead => Leadership, NotOnItsOwn;
    Resign => (), NotOnItsOwn;
    Heartbeat => (), NotOnItsOwn;
}

impl Command {
    /// What this command alone may touch in its transaction.
    pub(crate) fn subject(&self) -> Option<Subject> {
        let job = match self {
            Self::Submit(request) => {
                return Some(Subject::Key(
                    request.tenant.clone(),
                    request.owner.clone(),
                    request.key.clone(),
                ));
            }
            Self::ClaimJob(request) => request.job,
            Self::Renew(request) => request.claim.job(),
            Self::Complete(request) => request.claim.job(),
            Self::Fail(request) => request.claim.job(),
            Self::Release(request) => request.claim.job(),
            Self::Snooze(request) => request.claim.job(),
            Self::OpenEffect(request) => request.claim.job(),
            Self::SettleEffect(request) => request.claim.job(),
            Self::DeclineEffect(request) => request.claim.job(),
            Self::SaveStep(request) => request.claim.job(),
            Self::Cancel(request) => request.job,
            Self::Retry(request) => request.job,
            Self::Resolve(request) => request.job,
            Self::Reap(request) => request.job,
            Self::PutBack(request) => request.job,
            Self::Take(_)
            | Self::SettleDispatches(_)
            | Self::Redispatch(_)
            | Self::RecordBlob(_)
            | Self::TouchBlob(_)
            | Self::CollectBlobs(_)
            | Self::Prune(_)
            | Self::Unpark(_)
            | Self::PauseQueue(_)
            | Self::ResumeQueue(_)
            | Self::CreateKey(_)
            | Self::RevokeKey(_)
            | Self::Lead(_)
            | Self::Resign(_)
            | Self::Heartbeat(_) => return None,
        };
        Some(Subject::Job(job))
    }

    /// About how many bytes it adds to a transaction.
    pub(crate) fn weight(&self) -> usize {
        /// A row and its index entries.
        const ROW: usize = 512;
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "only verbs that carry a client's bytes weigh more than a row"
        )]
        let carried = match self {
            Self::Submit(request) => request.payload.len(),
            Self::Complete(request) => request.result.len(),
            Self::SettleEffect(request) => request.outcome.len(),
            Self::SaveStep(request) => request.outcome.len(),
            Self::Resolve(request) => request.decision.weight(),
            Self::SettleDispatches(request) => request.results.len() * ROW,
            Self::Take(request) => request.limit as usize * ROW,
            Self::Prune(request) => request.limit as usize * ROW,
            _ => 0,
        };
        carried + ROW
    }

    /// Whether it goes first, in a small transaction of its own.
    pub(crate) fn is_renewal(&self) -> bool {
        matches!(self, Self::Renew(_))
    }
}
