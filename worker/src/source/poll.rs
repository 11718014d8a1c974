//! Straight from the database: due outbox entries, published or not.
//!
//! What a worker without a broker runs on. Woken by commits and by due times,
//! with the store's slow poll behind both.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::dispatch::JobRef;
use fencepost_core::id::{JobId, KindName, QueueName};
use fencepost_core::kind::Kinds;
use fencepost_store::Store;
use tokio::sync::watch;

use super::{Delivered, Source, Token, TokenOf};
use crate::ack::Settlement;

/// Entries read at once beyond those in hand.
const PAGE: u32 = 512;

/// The pause after a reading that failed.
const AGAIN: Duration = Duration::from_millis(500);

/// A source that reads due entries.
#[derive(Debug)]
pub struct Poll {
    store: Store,
    queues: Vec<QueueName>,
    changes: watch::Receiver<u64>,
    ready: VecDeque<JobRef>,
    /// Delivered or about to be, and not settled; with the lane of its kind.
    in_hand: HashMap<JobId, Option<QueueName>>,
    /// The lanes of kinds, and how much of a lane may be in hand.
    lanes: BTreeMap<KindName, QueueName>,
    limits: BTreeMap<QueueName, usize>,
    paused: bool,
}

impl Poll {
    /// Reads the given queues.
    pub fn new(store: Store, queues: Vec<QueueName>) -> Self {
        Self::limited(store, queues, &Kinds::default(), BTreeMap::new())
    }

    /// Reads the given queues, and of some no more than a limit at a time; the
    /// kinds say which jobs belong to which queue.
    pub fn limited(
        store: Store,
        queues: Vec<QueueName>,
        kinds: &Kinds,
        limits: BTreeMap<QueueName, usize>,
    ) -> Self {
        let changes = store.changes();
        Self {
            store,
            queues,
            changes,
            ready: VecDeque::new(),
            in_hand: HashMap::new(),
            lanes: kinds
                .iter()
                .map(|kind| (kind.name.clone(), kind.queue.clone()))
                .collect(),
            limits,
            paused: false,
        }
    }

    /// Whether a lane's limit is reached.
    fn is_full(&self, queue: &QueueName) -> bool {
        self.limits.get(queue).is_some_and(|limit| {
            let held = self.in_hand.values().flatten();
            held.filter(|lane| *lane == queue).count() >= *limit
        })
    }

    /// Reads due entries that are not in hand; whether there were any.
    async fn read(&mut self) -> bool {
        // Subscribe, then read: a commit in between is not missed.
        self.changes.borrow_and_update();
        let open: Vec<QueueName> = self
            .queues
            .iter()
            .filter(|queue| !self.is_full(queue))
            .cloned()
            .collect();
        let limit = PAGE.saturating_add(u32::try_from(self.in_hand.len()).unwrap_or(u32::MAX));
        let due = match self.store.due(&open, limit).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "due jobs could not be read");
                tokio::time::sleep(AGAIN).await;
                return false;
            }
        };
        for job in due {
            let lane = self.lanes.get(&job.kind).cloned();
            let full = lane.as_ref().is_some_and(|lane| self.is_full(lane));
            if !full && !self.in_hand.contains_key(&job.id) {
                self.in_hand.insert(job.id, lane);
                self.ready.push_back(job);
            }
        }
        !self.ready.is_empty()
    }

    async fn wait(&mut self) {
        let next = self.store.next_due_at(&self.queues).await.ok().flatten();
        let until_due = next.map(|at| at.since(self.store.now()));
        tokio::select! {
            changed = self.changes.changed() => if changed.is_err() {
                // The store is closing; its errors will say so.
                tokio::time::sleep(AGAIN).await;
            },
            () = sleep(until_due) => {}
        }
    }
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

#[async_trait]
impl Source for Poll {
    async fn next(&mut self) -> Option<Delivered> {
        loop {
            if self.paused {
                std::future::pending::<()>().await;
            }
            if let Some(job) = self.ready.pop_front() {
                return Some(Delivered {
                    token: Token(TokenOf::Poll(job.id)),
                    jobs: vec![job],
                });
            }
            if !self.read().await {
                self.wait().await;
            }
        }
    }

    fn is_live(&self, _token: Token) -> bool {
        true
    }

    fn settle(&mut self, token: Token, _how: Settlement) {
        if let TokenOf::Poll(job) = token.0 {
            self.in_hand.remove(&job);
        }
    }

    fn pause(&mut self) {
        self.paused = true;
    }

    fn resume(&mut self) {
        self.paused = false;
    }

    async fn close(self: Box<Self>) {}
}
