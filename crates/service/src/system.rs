//! The real clock and the real source of ids: the only place that reads them.

use std::time::{SystemTime, UNIX_EPOCH};

use fencepost_core::id::IdSource;
use fencepost_core::time::{Clock, Timestamp, millis};
use rand::Rng as _;
use uuid::Uuid;

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the clock that is injected elsewhere"
        )]
        let now = SystemTime::now();
        // A clock set before 1970 is clamped; deadlines then lie far ahead, which is safe.
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(millis(since))
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    fn uuid(&self) -> Uuid {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the source that is injected elsewhere"
        )]
        Uuid::now_v7()
    }

    fn random(&self) -> u64 {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the source that is injected elsewhere"
        )]
        rand::rng().next_u64()
    }

    fn secret(&self) -> [u8; 32] {
        let mut secret = [0; 32];
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the source that is injected elsewhere"
        )]
        rand::rng().fill_bytes(&mut secret);
        secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_by_the_time_they_were_made() {
        let ids: Vec<Uuid> = (0..1_000).map(|_| SystemIds.uuid()).collect();
        assert!(ids.is_sorted());
        assert_ne!(SystemIds.secret(), SystemIds.secret());
    }
}
