//! Removes what has served its time: ended jobs, keys, blobs nobody refers to.
//!
//! A loop of its own beside the reaper, in small transactions, so that nobody
//! waits behind it. The store re-checks in the statement that removes. May crash
//! anywhere: a blob that was forgotten and whose content was not deleted yet is
//! found by the sweep.

use std::time::Duration;

use fencepost_core::id::WorkerId;
use fencepost_store::blobs::{BlobError, Blobs};
use fencepost_store::{CollectBlobs, Prune, Store};
use tokio::time::Instant;

use crate::leadership::Office;

/// Jobs and keys of one transaction: some milliseconds of the writer's time.
const JOBS: u32 = 200;

/// Blobs of one transaction; each is a deletion in the storage afterwards.
const BLOBS: u32 = 100;

/// Between two batches: whoever else writes goes first.
const BREATH: Duration = Duration::from_millis(50);

/// How often the storage is searched for uploads that broke off.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// How long what is kept is kept.
#[derive(Debug, Clone)]
pub struct RetentionConfig {
    /// Who it is, for leadership: one life of one process.
    pub id: WorkerId,
    /// The pause between two looks.
    pub interval: Duration,
    /// How long it leads without renewal.
    pub leader_lease: Duration,
    /// Ended jobs, from their end.
    pub finished: Duration,
    /// Operation keys, from the removal of their job.
    pub keys: Duration,
    /// Blobs that no job refers to, from their last upload.
    pub blobs: Duration,
}

/// The loop that removes.
#[derive(Debug)]
pub struct Retention {
    store: Store,
    blobs: Blobs,
    config: RetentionConfig,
    swept: Option<Instant>,
}

impl Retention {
    /// On a store and its blobs.
    pub fn new(store: Store, blobs: Blobs, config: RetentionConfig) -> Self {
        Self {
            store,
            blobs,
            config,
            swept: None,
        }
    }

    /// Runs until `shutdown` resolves.
    ///
    /// # Cancel safety
    /// Safe: every step is a whole transaction.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let (id, lease) = (self.config.id.clone(), self.config.leader_lease);
        let mut office = Office::new(self.store.clone(), "retention", id, lease);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep(self.config.interval) => {}
            }
            if !office.leads().await {
                continue;
            }
            let looked = tokio::select! {
                () = &mut shutdown => break,
                looked = self.look() => looked,
            };
            if let Err(error) = looked {
                tracing::warn!(%error, "what has served its time could not be removed; trying again");
            }
        }
        office.resign().await;
    }

    async fn look(&mut self) -> Result<(), BlobError> {
        let (mut jobs, mut keys, mut blobs) = (0, 0, 0);
        loop {
            let prune = Prune {
                finished_for: self.config.finished,
                keep_keys: self.config.keys,
                limit: JOBS,
            };
            let pruned = self.store.prune(prune).await?;
            jobs += pruned.jobs;
            keys += pruned.keys;
            if pruned.jobs < u64::from(JOBS) && pruned.keys < u64::from(JOBS) {
                break;
            }
            tokio::time::sleep(BREATH).await;
        }
        loop {
            let collect = CollectBlobs {
                unused_for: self.config.blobs,
                limit: BLOBS,
            };
            let collected = self.store.collect_blobs(collect).await?;
            self.blobs.delete(&collected).await;
            blobs += collected.len();
            if collected.len() < BLOBS as usize {
                break;
            }
            tokio::time::sleep(BREATH).await;
        }
        if jobs + keys > 0 || blobs > 0 {
            tracing::info!(jobs, keys, blobs, "removed what had served its time");
        }
        if self.swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
            let swept = self.blobs.sweep(&self.store, self.config.blobs).await?;
            self.swept = Some(Instant::now());
            if swept > 0 {
                tracing::info!(swept, "deleted uploads that had broken off");
            }
        }
        Ok(())
    }
}
