//! Takes back jobs whose lease or deadline has passed.
//!
//! A loop of its own, never a job. It only proposes: the store re-checks id,
//! epoch, state and expiry in the statement that moves the row. It pages past
//! rows it may not touch, and when it finds itself late (its loop or the lock
//! stalled, so renewals may have stalled too) it waits one renewal period, so
//! that they go before it.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::id::{JobId, WorkerId};
use fencepost_core::kind::LEASE;
use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;
use fencepost_store::{Expired, Reap, Reaped, Store, StoreError};
use tokio::time::Instant;

use crate::counters::Counters;
use crate::leadership::Office;

/// Jobs proposed at once; they share a transaction.
const PAGE: u32 = 200;

/// The loop is late when a pause took this much longer than it should.
const LATE: Duration = Duration::from_secs(2);

/// A renewal period of the default lease.
const RENEWAL_PERIOD_MAX: Duration = Duration::from_secs(LEASE.as_secs() / 3);

/// How a reaper works.
#[derive(Debug, Clone)]
pub struct ReaperConfig {
    /// Who it is, for leadership and the history.
    pub id: WorkerId,
    /// The pause between two looks.
    pub interval: Duration,
    /// How long it leads without renewal.
    pub leader_lease: Duration,
    /// How long it waits when it was late: one renewal period of the longest usual lease.
    pub late_wait: Duration,
}

impl ReaperConfig {
    /// The defaults, for an id and an interval.
    pub fn new(id: WorkerId, interval: Duration, leader_lease: Duration) -> Self {
        Self {
            id,
            interval,
            leader_lease,
            late_wait: RENEWAL_PERIOD_MAX,
        }
    }
}

/// The reaper.
#[derive(Debug)]
pub struct Reaper {
    store: Store,
    config: ReaperConfig,
    counters: Arc<Counters>,
}

/// Whether a pause that should have taken `asked` shows that this process stalled.
fn is_late(asked: Duration, took: Duration) -> bool {
    took > asked + LATE
}

impl Reaper {
    /// A reaper on a store.
    pub fn new(store: Store, config: ReaperConfig, counters: Arc<Counters>) -> Self {
        Self {
            store,
            config,
            counters,
        }
    }

    /// Runs until `shutdown` resolves.
    ///
    /// # Cancel safety
    /// Safe: every step is a whole transaction.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let lease = self.config.leader_lease;
        let mut office = Office::new(self.store.clone(), "reaper", self.config.id.clone(), lease);
        let mut looked = Instant::now();
        loop {
            let pause = self.config.interval;
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep(pause) => {}
            }
            if is_late(pause, looked.elapsed()) {
                tracing::warn!(took = ?looked.elapsed(), "the reaper was late; renewals go first");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(self.config.late_wait) => {}
                }
            }
            looked = Instant::now();
            if office.leads().await
                && let Err(error) = self.look().await
            {
                tracing::warn!(%error, "expired jobs could not be taken back; trying again");
            }
        }
        office.resign().await;
    }

    /// One look at everything that has expired.
    ///
    /// # Errors
    /// [`StoreError`]; what was reaped before it stays reaped.
    pub async fn look(&self) -> Result<(), StoreError> {
        let mut after: Option<(Timestamp, JobId)> = None;
        loop {
            let page = self.store.expired(after, PAGE).await?;
            self.reap(&page.jobs).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn reap(&self, jobs: &[Expired]) -> Result<(), StoreError> {
        let actor = self.config.id.to_string();
        let proposals = jobs.iter().map(|expired| {
            self.store.reap(Reap {
                job: expired.job,
                epoch: expired.epoch,
                actor: actor.clone(),
            })
        });
        for (expired, reaped) in jobs
            .iter()
            .zip(futures_util::future::join_all(proposals).await)
        {
            match reaped? {
                Reaped::Moved { from, to } => {
                    self.counters.reaped.add(1);
                    let level_is_high = to == State::Unknown;
                    if level_is_high {
                        tracing::warn!(job = %expired.job, epoch = %expired.epoch, "a lost run left an effect without a known outcome; a verdict is needed");
                    } else {
                        tracing::info!(job = %expired.job, epoch = %expired.epoch, from = from.as_str(), to = to.as_str(), "reaped");
                    }
                }
                // Renewed, finished or reaped by another meanwhile.
                Reaped::Skipped => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stalled_is_late() {
        let pause = Duration::from_secs(1);
        assert!(!is_late(pause, pause));
        assert!(!is_late(pause, Duration::from_secs(3)));
        assert!(is_late(pause, Duration::from_millis(3_001)));
    }
}
