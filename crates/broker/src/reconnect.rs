//! How long to wait before trying again.
//!
//! The one home of the `backoff` crate, which nobody maintains any more: no
//! other module names it, so that replacing it touches this file only.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

/// Each wait is on average twice the one before.
const MULTIPLIER: f64 = 2.0;

/// Spread by half of the wait in both directions, so that the processes of a
/// site do not return to a restarted broker in one instant.
const SPREAD: f64 = 0.5;

/// Growing, spread waits that never come to an end.
#[derive(Debug)]
pub struct Backoff {
    waits: ExponentialBackoff,
    max: Duration,
}

impl Backoff {
    /// Waits of about `initial` at first, growing to `max` and never longer.
    #[must_use]
    pub fn new(initial: Duration, max: Duration) -> Self {
        let waits = ExponentialBackoffBuilder::new()
            .with_initial_interval(initial)
            .with_max_interval(max)
            .with_multiplier(MULTIPLIER)
            .with_randomization_factor(SPREAD)
            // Its default gives up after fifteen minutes.
            .with_max_elapsed_time(None)
            .build();
        Self { waits, max }
    }

    /// The next wait.
    pub fn next_delay(&mut self) -> Duration {
        self.waits.next_backoff().unwrap_or(self.max).min(self.max)
    }

    /// Starts from the first wait again: what was tried has worked.
    pub fn reset(&mut self) {
        self.waits.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_never_end() {
        let (initial, max) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(initial, max);
        let first = backoff.next_delay();
        assert!(first >= initial / 2 && first <= initial * 2, "{first:?}");
        let later: Vec<Duration> = (0..10_000).map(|_| backoff.next_delay()).collect();
        assert!(later.iter().all(|wait| *wait <= max && !wait.is_zero()));
        assert!(later.last().is_some_and(|wait| *wait >= max / 2));
        let last: std::collections::BTreeSet<_> = later.iter().rev().take(100).collect();
        assert!(last.len() > 10, "waits at the limit are not spread");
        backoff.reset();
        assert!(backoff.next_delay() <= initial * 2);
    }
}
