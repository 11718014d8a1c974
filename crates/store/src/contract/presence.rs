//! Who is there: leaders, workers, queues.

use std::time::Duration;

use fencepost_core::id::{QueueName, WorkerId};
use fencepost_core::time::Timestamp;

/// Takes or renews leadership. Leading is an optimisation: two leaders at once
/// do work twice and break nothing.
#[derive(Debug, Clone)]
pub struct Lead {
    /// What is led, such as `relay`.
    pub name: String,
    /// Who leads: one life of one process.
    pub holder: WorkerId,
    /// How long without renewal.
    pub hold: Duration,
}

/// What became of a bid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Leadership {
    /// The caller leads; the term rises with each change of leader.
    Leader {
        /// The number of this leadership.
        term: i64,
    },
    /// Someone else does, at least until then.
    Standby {
        /// When to bid again at the latest.
        until: Timestamp,
    },
}

/// Gives leadership up, so that a standby need not wait.
#[derive(Debug, Clone)]
pub struct Resign {
    /// What is led.
    pub name: String,
    /// Who led it.
    pub holder: WorkerId,
}

/// Says that a worker is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// One life of one process.
    pub worker: WorkerId,
    /// Its build.
    pub version: String,
    /// The queues it serves.
    pub queues: Vec<QueueName>,
    /// Jobs it runs at once; zero says goodbye.
    pub slots: u32,
}

/// A worker as last heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRecord {
    /// What it said last.
    pub said: Heartbeat,
    /// When it said so first.
    pub started_at: Timestamp,
    /// When it said so last.
    pub seen_at: Timestamp,
}

/// What stands in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    /// The queue.
    pub queue: QueueName,
    /// Jobs in it that have an outbox entry.
    pub queued: u64,
    /// Entries held back after failing alone.
    pub parked: u64,
    /// Jobs of it that run.
    pub running: u64,
    /// When the oldest job that is due was accepted.
    pub oldest_queued_at: Option<Timestamp>,
    /// When claims on it were paused.
    pub paused_at: Option<Timestamp>,
}
