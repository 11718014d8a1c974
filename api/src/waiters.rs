//! `?wait=`: many who wait, one who reads.
//!
//! ```text
//!   changes ──► follow: read the feed after the last place ──► wake who waits for these jobs
//! ```
//!
//! Who waits registers first and reads its job then, so what is committed in
//! between wakes it. One reader of the feed per process serves all of them;
//! while nobody waits it reads nothing. When its place in the feed is unknown
//! or far behind, everyone is woken and reads for itself. A wake-up is a hint:
//! whoever is woken reads its job again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencepost_core::id::JobId;
use fencepost_store::{Store, StoreError};
use tokio::sync::Notify;

/// Requests that wait at once: half of the connections, so that waiting alone
/// cannot keep everyone else out.
pub(crate) const WAITERS_MAX: usize = 2_048;

/// Events read at once.
const PAGE: u32 = 1_000;

/// Pages read in one go before everyone is woken instead: what is this far
/// behind costs more to read than to ask.
const PAGES_MAX: usize = 20;

/// Who waits for which job.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By job, and by a number of each waiter's own.
    by_job: BTreeMap<(JobId, u64), Arc<Notify>>,
    next: u64,
}

/// One who waits; dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    place: (JobId, u64),
    woken: Arc<Notify>,
}

impl Waiter {
    /// Resolves when the job may have come to rest since the last call, or since registration.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.waiting().by_job.remove(&self.place);
    }
}

impl Waiters {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // The map is consistent between any two statements under its lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers one who waits; none when too many do.
    pub(crate) fn register(self: &Arc<Self>, job: JobId) -> Option<Waiter> {
        let mut waiting = self.waiting();
        if waiting.by_job.len() >= WAITERS_MAX {
            return None;
        }
        let place = (job, waiting.next);
        waiting.next += 1;
        let woken = Arc::new(Notify::new());
        waiting.by_job.insert(place, Arc::clone(&woken));
        Some(Waiter {
            waiters: Arc::clone(self),
            place,
            woken,
        })
    }

    fn nobody_waits(&self) -> bool {
        self.waiting().by_job.is_empty()
    }

    fn wake(&self, job: JobId) {
        let waiting = self.waiting();
        for woken in waiting.by_job.range((job, 0)..=(job, u64::MAX)) {
            woken.1.notify_one();
        }
    }

    fn wake_all(&self) {
        for woken in self.waiting().by_job.values() {
            woken.notify_one();
        }
    }

    /// Follows the feed for as long as it is polled.
    ///
    /// # Cancel safety
    /// Dropping it wakes nobody any more.
    pub(crate) async fn follow(&self, store: &Store) {
        let mut changes = store.changes();
        let mut place = None;
        // A closed channel: the store is gone, and nothing will change.
        while changes.changed().await.is_ok() {
            if self.nobody_waits() {
                place = None;
                continue;
            }
            place = match self.catch_up(store, place).await {
                Ok(place) => Some(place),
                Err(error) => {
                    // The next change, at the latest the slow poll, tries again;
                    // from an unknown place everyone is woken.
                    tracing::warn!(%error, "the feed for those who wait could not be read");
                    None
                }
            };
        }
    }

    /// Wakes whoever the events after a place concern; answers the new place.
    async fn catch_up(&self, store: &Store, place: Option<i64>) -> Result<i64, StoreError> {
        if let Some(mut place) = place {
            for _ in 0..PAGES_MAX {
                let events = store.feed(place, PAGE).await?;
                for event in &events {
                    place = event.event.id;
                    if let Some(job) = event.job.filter(|_| event.event.kind.ends_a_wait()) {
                        self.wake(job);
                    }
                }
                if events.len() < PAGE as usize {
                    return Ok(place);
                }
            }
        }
        // The end first, then the wake-up: what comes after is in the feed.
        let end = store.feed_end().await?;
        self.wake_all();
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn job(digit: u32) -> JobId {
        format!("018f0d5e-7a31-7c3a-9a39-{digit:012}")
            .parse()
            .unwrap()
    }

    #[test]
    fn a_wake_up_between_registration_and_waiting_is_not_lost() {
        let waiters = Arc::<Waiters>::default();
        let waiter = waiters.register(job(1)).unwrap();
        waiters.wake(job(2));
        assert!(waiter.woken().now_or_never().is_none());
        waiters.wake(job(1));
        assert!(waiter.woken().now_or_never().is_some());
        assert!(waiter.woken().now_or_never().is_none());
    }

    #[test]
    fn everyone_who_waits_for_a_job_is_woken() {
        let waiters = Arc::<Waiters>::default();
        let [one, other] = [1, 1].map(|digit| waiters.register(job(digit)).unwrap());
        waiters.wake(job(1));
        assert!(one.woken().now_or_never().is_some());
        assert!(other.woken().now_or_never().is_some());
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let waiters = Arc::<Waiters>::default();
        let mut taken: Vec<Waiter> = (0..WAITERS_MAX)
            .map(|_| waiters.register(job(1)).unwrap())
            .collect();
        assert!(waiters.register(job(1)).is_none());
        taken.pop();
        assert!(waiters.register(job(1)).is_some());
        taken.clear();
        assert!(waiters.nobody_waits());
    }
}
