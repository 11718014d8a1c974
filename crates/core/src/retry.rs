//! How long until the next attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Exponential backoff with full jitter.
///
/// The delay before attempt n + 1 is uniform between zero and
/// `min(max, initial × 2^(n-1))`; full jitter spreads a herd best (Brooker,
/// "Exponential Backoff And Jitter", 2015), so it is kept at the cap too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The ceiling of the first delay.
    pub initial: Duration,
    /// The ceiling of every later one.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_mins(5),
        }
    }
}

impl Backoff {
    /// The delay after the given number of attempts (1 = the first has failed).
    #[must_use]
    pub fn delay(&self, attempts: u32, random: u64) -> Duration {
        let ceiling = self.ceiling(attempts);
        let millis = u64::try_from(ceiling.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(
            random
                .checked_rem(millis.saturating_add(1))
                .unwrap_or(random),
        )
    }

    /// The longest that [`Backoff::delay`] can be after this many attempts.
    #[must_use]
    pub fn ceiling(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.initial.saturating_mul(1 << doublings).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_stay_jittered_there() {
        let backoff = Backoff {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(5),
        };
        let ceilings: Vec<u64> = (1..=6).map(|n| backoff.ceiling(n).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 5, 5, 5]);
        assert_eq!(backoff.delay(100, 0), Duration::ZERO);
        assert_eq!(backoff.delay(100, 5_000), Duration::from_secs(5));
        assert_eq!(backoff.delay(100, 5_001), Duration::ZERO);
    }

    #[test]
    fn an_endless_number_of_attempts_does_not_overflow() {
        let backoff = Backoff {
            initial: Duration::MAX,
            max: Duration::MAX,
        };
        assert!(backoff.delay(u32::MAX, u64::MAX) <= Duration::MAX);
    }
}
