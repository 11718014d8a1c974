//! Waiting with a limit.
//!
//! Tests never sleep for luck: they wait for a fact, give up after a limit,
//! and then say what they last saw instead.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Between two looks: short beside any limit, long enough not to busy the
/// process that is being watched.
const POLL: Duration = Duration::from_millis(25);

/// Asks `check` until it answers `Ok`, and returns that.
///
/// A look that is under way when the limit passes is finished, so that a slow
/// answer still counts when it is the right one.
///
/// # Panics
/// When `limit` passes first; the text holds `what` and the last `Err` seen.
///
/// # Cancel safety
/// As that of `check`.
pub async fn eventually<T, E, F>(limit: Duration, what: &str, mut check: F) -> T
where
    E: Display,
    F: AsyncFnMut() -> Result<T, E>,
{
    let deadline = Instant::now() + limit;
    loop {
        match check().await {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= deadline => {
                panic!("{what}: not within {limit:?}; last seen: {seen:#}")
            }
            Err(_) => sleep(POLL).await,
        }
    }
}

/// `Ok` when the fact holds, else what was seen instead: for [`eventually`].
///
/// # Errors
/// `seen`, when `fact` is false.
pub fn require<E>(fact: bool, seen: E) -> Result<(), E> {
    if fact { Ok(()) } else { Err(seen) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_success_is_returned() {
        let mut looks = 0;
        let found = eventually(Duration::from_secs(1), "three looks", async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err("early") }
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "a fact: not within 1s; last seen: still false")]
    async fn a_missed_limit_says_what_was_seen() {
        eventually(Duration::from_secs(1), "a fact", async || {
            require(false, "still false")
        })
        .await;
    }
}
