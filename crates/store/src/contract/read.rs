//! Readings: single short statements, each with its scope in the query.

use fencepost_core::event::EventRecord;
use fencepost_core::id::{Epoch, ErrorCode, JobId, KindName, QueueName};
use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;
use fencepost_core::verify::Snapshot;

/// A job as its owner sees it. Payloads are not among the fields.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// What is run.
    pub kind: KindName,
    /// Its lane.
    pub queue: QueueName,
    /// 0 to 9; higher goes first.
    pub priority: u8,
    /// Where it stands.
    pub state: State,
    /// Attempts counted.
    pub attempts: u32,
    /// Attempts allowed.
    pub max_attempts: u32,
    /// Claims given out.
    pub epoch: Epoch,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it may run, or might have.
    pub run_at: Timestamp,
    /// When it is given up.
    pub deadline_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When cancellation was asked of a running job.
    pub cancel_requested_at: Option<Timestamp>,
    /// Why it failed last, or ended.
    pub error: Option<ErrorView>,
    /// JSON text; completed jobs only, and not in lists.
    pub result: Option<String>,
    /// Its outbox entry failed alone and is held back.
    pub parked: bool,
}

/// Why a job failed last, or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorView {
    /// A stable reason.
    pub code: ErrorCode,
    /// What a person reads.
    pub message: String,
}

/// Which jobs to list; every given part must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only jobs in one of these states; empty is any.
    pub states: Vec<State>,
    /// Only this kind.
    pub kind: Option<KindName>,
    /// Only this queue.
    pub queue: Option<QueueName>,
}

/// Jobs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Where the next page starts: after this id.
    pub next: Option<JobId>,
}

/// A job's history, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// The events.
    pub events: Vec<EventRecord>,
    /// Where the next page starts: after this event id.
    pub next: Option<i64>,
}

/// An event of the whole store, for those who follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEvent {
    /// The job; none for operator actions on something else.
    pub job: Option<JobId>,
    /// The event.
    pub event: EventRecord,
}

/// A job whose lease or deadline was seen to have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// The job.
    pub job: JobId,
    /// Its epoch then.
    pub epoch: Epoch,
    /// When its lease or deadline ended, whichever came first.
    pub since: Timestamp,
}

/// A page of expired jobs, longest expired first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredPage {
    /// The jobs.
    pub jobs: Vec<Expired>,
    /// Where the next page starts; none when this was the last.
    pub next: Option<(Timestamp, JobId)>,
}

/// A job with all that `verify` looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Its row.
    pub snapshot: Snapshot,
    /// Its whole history.
    pub history: Vec<EventRecord>,
}

/// A page of jobs to verify, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The jobs.
    pub jobs: Vec<Audit>,
    /// Where the next page starts: after this id.
    pub next: Option<JobId>,
}
