//! The relay's verbs: take entries to publish, settle them, repeat them, put them back.

use std::time::Duration;

use fencepost_core::dispatch::JobRef;
use fencepost_core::error_text::ErrorText;
use fencepost_core::id::{JobId, QueueName};
use fencepost_core::outbox::DispatchRef;
use fencepost_core::time::Timestamp;

/// Takes due entries of a queue for publication, highest priority first, up
/// to the window of published and unclaimed entries.
#[derive(Debug, Clone)]
pub struct Take {
    /// The queue.
    pub queue: QueueName,
    /// How many entries of it may be published or taken, and unclaimed.
    pub window: u32,
    /// At most this many now.
    pub limit: u32,
    /// After this time without a settlement an entry is due again: longer than
    /// a confirm may take, short enough to outlive a killed relay.
    pub hold: Duration,
}

/// Entries that are the caller's to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// In the order to publish them.
    pub dispatches: Vec<Dispatch>,
    /// Entries of the queue that are published or taken and unclaimed, these included.
    pub in_window: u32,
}

/// An entry to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// Which dispatch of which entry this is.
    pub entry: DispatchRef,
    /// What the message says.
    pub job: JobRef,
    /// How often publishing this entry has failed alone.
    pub failures: u32,
}

/// Records how publications ended. Each is conditioned on (seq, `dispatch_no`);
/// one that no longer matches changes nothing.
#[derive(Debug, Clone)]
pub struct SettleDispatches {
    /// The dispatches and their ends.
    pub results: Vec<(DispatchRef, DispatchResult)>,
    /// Which relay, for the history.
    pub actor: String,
}

/// How a publication ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatchResult {
    /// Acknowledged by the broker and routed to a queue.
    Published,
    /// The route is at fault: the entry is due again at once, nothing is counted against it.
    RouteFault(ErrorText),
    /// The entry failed alone: it is due again after the delay.
    Failed {
        /// What the broker said.
        error: ErrorText,
        /// How long to leave it.
        delay: Duration,
    },
    /// The entry failed alone too often: held back until someone releases it.
    Parked(ErrorText),
}

/// Makes published entries due again. Each is conditioned on (seq, `dispatch_no`) and on being unclaimed.
#[derive(Debug, Clone)]
pub struct Redispatch {
    /// The entries.
    pub entries: Vec<DispatchRef>,
}

/// An entry that is published and unclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unclaimed {
    /// Which dispatch of which entry.
    pub entry: DispatchRef,
    /// When the broker confirmed it.
    pub published_at: Timestamp,
    /// How often it was dispatched again.
    pub redispatches: u32,
}

/// A page of unclaimed entries, oldest publication first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnclaimedPage {
    /// The instant of the reading, by the clock that rules.
    pub now: Timestamp,
    /// The entries.
    pub entries: Vec<Unclaimed>,
}

/// Puts a dispatch back that this worker cannot run: its queue is paused, or
/// its kind is not here. No claim, no attempt; the delay doubles.
#[derive(Debug, Clone)]
pub struct PutBack {
    /// The job.
    pub job: JobId,
    /// Why, for the history.
    pub reason: &'static str,
    /// Which worker, for the history.
    pub actor: String,
}

/// What became of a put-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum PutBackOutcome {
    /// It is due again then.
    Until(Timestamp),
    /// The job is not queued: there is nothing to put back.
    NotQueued,
}
