//! The Store contract: one request type and one outcome type per verb.
//!
//! No SQL and no type of a database library appears here. What a verb
//! promises holds on every database and is checked by one conformance suite.
//!
//! Promises shared by all mutating verbs:
//!
//! 1. Either everything a verb says is durable, or nothing of it happened.
//! 2. `now` is read once per transaction, after the write lock is held.
//! 3. A refusal (fenced, not due, conflict, not found) is an outcome, never an error, and changes nothing.
//! 4. A caller that is dropped while it waits does not stop the verb.

mod control;
mod effect;
mod housekeeping;
mod key;
mod outbox;
mod presence;
mod read;
mod run;
mod submit;
mod verdict;

pub use control::{
    Cancel, Cancelled, PauseQueue, Reap, Reaped, ResumeQueue, Retried, Retry, Scope,
};
pub use effect::{DeclineEffect, EffectRecord, Marked, OpenEffect, Opened, SaveStep, SettleEffect};
pub use housekeeping::{
    BlobPlace, CollectBlobs, ParkedEntry, Prune, Pruned, StageCount, TouchBlob, Unpark,
};
pub use key::{CreateKey, KeyCreated, KeyRecord, KeyRevoked, RevokeKey, Role};
pub use outbox::{
    Dispatch, DispatchResult, PutBack, PutBackOutcome, Redispatch, SettleDispatches, Take, Taken,
    Unclaimed, UnclaimedPage,
};
pub use presence::{Heartbeat, Lead, Leadership, QueueDepth, Resign, WorkerRecord};
pub use read::{
    Audit, AuditPage, ErrorView, Expired, ExpiredPage, FeedEvent, HistoryPage, JobFilter, JobPage,
    JobView,
};
pub use run::{
    Claim, ClaimJob, ClaimOutcome, ClaimedJob, Complete, Fail, Release, Renew, Renewed, Report,
    Snooze,
};
pub(crate) use submit::hex;
pub use submit::{BlobHash, BlobKnown, RecordBlob, Submit, Submitted};
pub use verdict::{Decision, OpenCall, Resolve, Resolved, UnknownEffect, UnknownPage};
