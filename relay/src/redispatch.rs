//! Entries that were published and not claimed are dispatched again.
//!
//! Looks only at those: a message may have been lost, purged, or thrown away
//! with its queue. Pages past entries that are not due yet.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_broker::{Publish, QueueDepth};
use fencepost_core::id::QueueName;
use fencepost_core::outbox::{self, BrokerQueue};
use fencepost_store::{Redispatch, Store, Unclaimed};
use tokio::time::Instant;

use crate::counters::Counters;

/// Entries looked at in one reading.
const PAGE: u32 = 500;

/// Readings of one queue in one look; the next look goes on after them.
const PAGES_MAX: u32 = 20;

/// The shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(200);

/// Looks in the shortest time after which an entry is due.
const LOOKS_PER_DELAY: u32 = 5;

/// When to look, and how far the last look came.
#[derive(Debug)]
pub(crate) struct Redispatcher {
    timers: outbox::Redispatch,
    look_at: Instant,
    cursors: BTreeMap<QueueName, Unclaimed>,
}

impl Redispatcher {
    pub(crate) fn new(timers: outbox::Redispatch) -> Self {
        Self {
            timers,
            look_at: Instant::now(),
            cursors: BTreeMap::new(),
        }
    }

    /// Looks when it is time; whether anything became due.
    pub(crate) async fn step(
        &mut self,
        store: &Store,
        publish: &dyn Publish,
        queues: Vec<QueueName>,
        counters: &Counters,
    ) -> bool {
        if Instant::now() < self.look_at {
            return false;
        }
        let soonest = self.timers.initial.min(self.timers.when_empty);
        self.look_at = Instant::now() + (soonest / LOOKS_PER_DELAY).max(LOOK_MIN);
        if !publish.state().borrow().is_ready() {
            // Nothing could be published anew; and an empty queue could not be told from a lost broker.
            return false;
        }
        let mut found = false;
        for queue in queues {
            match self.look(store, publish, &queue).await {
                Ok(0) => {}
                Ok(again) => {
                    found = true;
                    counters.redispatched.add(again);
                    tracing::info!(%queue, entries = again, "dispatched again: published and not claimed in time");
                }
                Err(error) => {
                    tracing::debug!(%queue, %error, "unclaimed entries could not be read");
                }
            }
        }
        found
    }

    async fn look(
        &mut self,
        store: &Store,
        publish: &dyn Publish,
        queue: &QueueName,
    ) -> Result<u64, fencepost_store::StoreError> {
        let soonest = self.timers.initial.min(self.timers.when_empty);
        let mut after = self.cursors.remove(queue);
        let mut broker = None;
        let mut again = 0;
        for _ in 0..PAGES_MAX {
            let page = store.unclaimed(queue, soonest, after, PAGE).await?;
            let Some(last) = page.entries.last().copied() else {
                return Ok(again);
            };
            // Asked only when there is something to decide.
            let depth = match broker {
                Some(depth) => depth,
                None => *broker.insert(depth(publish, queue).await),
            };
            let entries: Vec<_> = page
                .entries
                .iter()
                .filter(|entry| {
                    page.now.since(entry.published_at)
                        >= self.timers.after(entry.redispatches, depth)
                })
                .map(|entry| entry.entry)
                .collect();
            if !entries.is_empty() {
                again += store.redispatch(Redispatch { entries }).await?;
            }
            after = Some(last);
        }
        if let Some(after) = after {
            self.cursors.insert(queue.clone(), after);
        }
        Ok(again)
    }
}

/// Empty only when the broker could be asked and says so.
async fn depth(publish: &dyn Publish, queue: &QueueName) -> BrokerQueue {
    match publish.depth(queue).await {
        Ok(Some(QueueDepth { ready: 0, .. }) | None) => BrokerQueue::Empty,
        Ok(Some(_)) | Err(_) => BrokerQueue::HoldsMessages,
    }
}
