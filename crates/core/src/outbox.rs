//! The standing obligation to dispatch a queued job.
//!
//! A queued job has exactly one entry and no other job has one. `seq` is never
//! reused; `dispatch_no` rises whenever the entry is taken, redispatched or
//! put back, and a settlement is conditioned on both, so that a late confirm
//! can never mark the entry of a later life of the job.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which dispatch of which entry a settlement speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DispatchRef {
    /// The entry.
    pub seq: i64,
    /// Its dispatch; settlements of earlier ones change nothing.
    pub dispatch_no: i64,
}

/// The narrowest window of published and unclaimed entries of a queue: keeps
/// a lone worker fed through one relay period at thousands of jobs a second.
pub const WINDOW_MIN: u32 = 256;

/// The widest: bounds the broker's memory and what a purge can cost.
pub const WINDOW_MAX: u32 = 8_192;

/// Entries kept published per live slot: one running, the rest on their way.
pub const WINDOW_PER_SLOT: u32 = 4;

/// The first redispatch of an entry that was published and not claimed, by default.
pub const REDISPATCH_INITIAL: Duration = Duration::from_mins(1);

/// The longest pause between redispatches, by default.
pub const REDISPATCH_MAX: Duration = Duration::from_mins(10);

/// How soon an entry is redispatched when the broker's queue is empty, by default.
pub const REDISPATCH_WHEN_EMPTY: Duration = Duration::from_secs(10);

/// The first put-back of an entry whose queue is paused or whose kind is not here.
pub const PUT_BACK_INITIAL: Duration = Duration::from_secs(1);

/// The longest put-back.
pub const PUT_BACK_MAX: Duration = Duration::from_mins(5);

/// How many entries of a queue may be published and unclaimed.
#[must_use]
pub fn window(live_slots: u32) -> u32 {
    live_slots
        .saturating_mul(WINDOW_PER_SLOT)
        .clamp(WINDOW_MIN, WINDOW_MAX)
}

/// The timers of redispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redispatch {
    /// Before the first.
    pub initial: Duration,
    /// Between later ones at most.
    pub max: Duration,
    /// When the broker's queue is empty, whatever the count.
    pub when_empty: Duration,
}

impl Default for Redispatch {
    fn default() -> Self {
        Self {
            initial: REDISPATCH_INITIAL,
            max: REDISPATCH_MAX,
            when_empty: REDISPATCH_WHEN_EMPTY,
        }
    }
}

impl Redispatch {
    /// How long after its publication an unclaimed entry is dispatched again,
    /// given how often it already was.
    #[must_use]
    pub fn after(&self, redispatches: u32, broker_queue: BrokerQueue) -> Duration {
        let doubled = self
            .initial
            .saturating_mul(1 << redispatches.min(31))
            .min(self.max);
        match broker_queue {
            BrokerQueue::Empty => doubled.min(self.when_empty),
            BrokerQueue::HoldsMessages => doubled,
        }
    }
}

/// What the relay knows of a queue at the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerQueue {
    /// No message is ready in it: what was published is gone or in hand.
    Empty,
    /// Messages wait in it, or it could not be asked.
    HoldsMessages,
}

/// How long an entry that a worker put back is held, given how often it was before.
#[must_use]
pub fn put_back_delay(put_backs: u32) -> Duration {
    PUT_BACK_INITIAL
        .saturating_mul(1 << put_backs.min(31))
        .min(PUT_BACK_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_four_times_the_live_slots_within_its_bounds() {
        assert_eq!(window(0), 256);
        assert_eq!(window(64), 256);
        assert_eq!(window(100), 400);
        assert_eq!(window(u32::MAX), 8_192);
    }

    #[test]
    fn redispatch_doubles_to_ten_minutes_and_is_quick_when_the_queue_is_empty() {
        let timers = Redispatch::default();
        let after: Vec<u64> = (0..6)
            .map(|n| timers.after(n, BrokerQueue::HoldsMessages).as_secs())
            .collect();
        assert_eq!(after, [60, 120, 240, 480, 600, 600]);
        assert_eq!(timers.after(9, BrokerQueue::Empty).as_secs(), 10);
    }

    #[test]
    fn put_backs_double_to_five_minutes() {
        assert_eq!(put_back_delay(0).as_secs(), 1);
        assert_eq!(put_back_delay(3).as_secs(), 8);
        assert_eq!(put_back_delay(u32::MAX).as_secs(), 300);
    }
}
