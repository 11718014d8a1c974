//! The host's clock and randomness, behind the domain's traits.
//!
//! The only place that reads either; everything else is handed these values.

use std::time::{SystemTime, UNIX_EPOCH};

use fencepost_core::id::IdSource;
use fencepost_core::time::{Clock, Timestamp, millis};
use rand::TryRng as _;
use uuid::Uuid;

/// The host's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the injected clock")]
    fn now(&self) -> Timestamp {
        // A clock before 1970 reads as 1970: a wrong date that shows, not a panic.
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(millis(since_epoch))
    }
}

/// Ids and random numbers of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    #[expect(clippy::disallowed_methods, reason = "this is the injected id source")]
    fn uuid(&self) -> Uuid {
        // Shares one context in the process: ids made within one millisecond,
        // or after the clock stepped back, still rise.
        Uuid::now_v7()
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    /// # Panics
    /// When the operating system has no randomness to give: a guessable secret
    /// would be worse than none.
    #[expect(
        clippy::expect_used,
        reason = "no secret is better than a guessable one"
    )]
    fn secret(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        rand::rngs::SysRng
            .try_fill_bytes(&mut bytes)
            .expect("the operating system gives random bytes");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_clock_reads_a_time_after_this_was_written() {
        let written = Timestamp::parse("2025-01-01T00:00:00Z").unwrap();
        assert!(SystemClock.now() > written);
    }

    #[test]
    fn ids_rise_within_a_millisecond_and_carry_the_time() {
        let before = u64::try_from(SystemClock.now().as_millis()).unwrap();
        let ids: Vec<Uuid> = (0..10_000).map(|_| SystemIds.uuid()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        let (seconds, nanos) = ids[0].get_timestamp().unwrap().to_unix();
        assert!(seconds * 1_000 + u64::from(nanos) / 1_000_000 >= before);
    }

    #[test]
    fn ids_of_several_threads_never_meet() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| (0..5_000).map(|_| SystemIds.uuid()).collect::<Vec<_>>())
            })
            .collect();
        let ids: BTreeSet<Uuid> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(ids.len(), 20_000);
    }

    #[test]
    fn random_numbers_and_secrets_differ() {
        let numbers: BTreeSet<u64> = (0..100).map(|_| SystemIds.random()).collect();
        assert_eq!(numbers.len(), 100);
        let secrets: BTreeSet<[u8; 32]> = (0..100).map(|_| SystemIds.secret()).collect();
        assert_eq!(secrets.len(), 100);
    }
}
