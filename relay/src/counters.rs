//! What the relay has done since it started.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts since the process started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Confirmed and routed.
    pub published: Counter,
    /// Faults of a route: returned, nacked, timed out, closed.
    pub route_faults: Counter,
    /// Handed back by the broker because no queue is bound.
    pub unroutable: Counter,
    /// Entries that failed alone.
    pub failed: Counter,
    /// Entries held back after failing alone too often.
    pub parked: Counter,
    /// Entries dispatched again.
    pub redispatched: Counter,
    /// Jobs taken back or ended by the reaper.
    pub reaped: Counter,
}
