//! The worker's loop: what is in hand, what runs, what is settled.
//!
//! A claim takes at most the slots free to start at once: the rest of what was
//! delivered stays unclaimed in hand, so a crash charges only jobs that had
//! started. One task owns the source and all bookkeeping; slots only answer.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::dispatch::JobRef;
use fencepost_core::id::{IdSource, InvalidName, JobId, KindName, QueueName, WorkerId};
use fencepost_core::kind::{Kind, Kinds, Runner};
use fencepost_store::blobs::Blobs;
use fencepost_store::{Heartbeat, Store};
use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::ack::{FirstTag, Said, Settlement, settle};
use crate::handler::Handler;
use crate::renew::Renewals;
use crate::slot::{self, Bench, Workshop};
use crate::source::{Delivered, Source, Token};

/// Slots by default: handlers that wait for something cost little.
pub const SLOTS: u32 = 256;

/// Slots at most; each is a task, a claim and a place in memory.
pub const SLOTS_MAX: u32 = 4_096;

/// Deliveries in hand per slot: the next one is there when a slot falls free.
pub const IN_HAND_PER_SLOT: usize = 2;

/// Threads that handlers run on, besides those that block.
const HANDLER_THREADS_MIN: usize = 2;

/// After the grace, how long releasing what still runs may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// A worker could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A handler was given for a kind that is not configured.
    #[error("there is a handler for kind `{0}`, but no such kind is configured")]
    NoSuchKind(KindName),
    /// The worker's name is not usable.
    #[error("the worker's name is not usable")]
    Name(#[from] InvalidName),
    /// A thread could not be started.
    #[error("a thread of the worker could not be started")]
    Thread(#[from] std::io::Error),
}

/// Makes a [`Worker`].
#[derive(Debug)]
pub struct Builder {
    store: Store,
    blobs: Blobs,
    kinds: Kinds,
    ids: Arc<dyn IdSource>,
    handlers: BTreeMap<KindName, Arc<dyn Handler>>,
    name: String,
    queues: Vec<QueueName>,
    slots: u32,
    grace: Duration,
    heartbeat: Duration,
}

impl Builder {
    /// Runs jobs of a kind with a handler.
    #[must_use]
    pub fn handler(mut self, kind: KindName, handler: impl Handler) -> Self {
        self.handlers.insert(kind, Arc::new(handler));
        self
    }

    /// Its name in the history; each life of a process adds a part of its own.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The queues it says it serves; by default those of the kinds it has handlers for.
    #[must_use]
    pub fn queues(mut self, queues: Vec<QueueName>) -> Self {
        self.queues = queues;
        self
    }

    /// Jobs it runs at once, at most [`SLOTS_MAX`].
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots.clamp(1, SLOTS_MAX);
        self
    }

    /// How long running jobs may take to end once the end is asked for.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How often it says that it is alive.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Makes the worker.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(self) -> Result<Worker, BuildError> {
        let mut handlers = BTreeMap::new();
        let mut queues = self.queues;
        let all = queues.is_empty();
        for (name, handler) in self.handlers {
            let kind = self
                .kinds
                .get(&name)
                .ok_or_else(|| BuildError::NoSuchKind(name.clone()))?;
            if all && !queues.contains(&kind.queue) {
                queues.push(kind.queue.clone());
            }
            handlers.insert(name, bench(handler, kind));
        }
        let limits = limits(&self.kinds, &handlers, &queues);
        // The end of the id is the process's own life: a restarted worker is another one.
        let life = self.ids.uuid().as_simple().to_string();
        let worker = WorkerId::new(format!("{}-{}", self.name, life.get(20..).unwrap_or(&life)))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores().max(HANDLER_THREADS_MIN))
            .thread_name("fencepost-handler")
            .enable_all()
            .build()?;
        let shop = Workshop {
            renewals: Renewals::start(self.store.clone())?,
            store: self.store,
            blobs: self.blobs,
            worker,
            handlers,
            runtime: runtime.handle().clone(),
            waiting: watch::Sender::new(0),
        };
        Ok(Worker {
            shop: Arc::new(shop),
            runtime: Some(runtime),
            queues,
            limits,
            slots: self.slots as usize,
            grace: self.grace,
            heartbeat: self.heartbeat,
        })
    }
}

fn bench(handler: Arc<dyn Handler>, kind: &Kind) -> Bench {
    let calls_out = matches!(kind.runner, Runner::Command(_) | Runner::Http(_));
    Bench {
        handler,
        lease: kind.lease,
        epoch_leaves: calls_out && kind.safe_to_repeat,
        cap: match (kind.concurrency, &kind.runner) {
            (Some(jobs), _) => Some(jobs as usize),
            // A program is most likely busy, not waiting.
            (None, Runner::Command(_)) => Some(cores()),
            (None, _) => None,
        },
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The most that is to be in hand of a queue all of whose kinds run here with a cap.
fn limits(
    kinds: &Kinds,
    handlers: &BTreeMap<KindName, Bench>,
    queues: &[QueueName],
) -> BTreeMap<QueueName, usize> {
    let limit = |queue: &QueueName| {
        let own = kinds.iter().filter(|kind| kind.queue == *queue);
        let caps = own.map(|kind| handlers.get(&kind.name)?.cap);
        let sum: usize = caps.collect::<Option<Vec<_>>>()?.into_iter().sum();
        (sum > 0).then(|| (queue.clone(), sum * IN_HAND_PER_SLOT))
    };
    queues.iter().filter_map(limit).collect()
}

/// A worker, ready to run.
#[derive(Debug)]
pub struct Worker {
    shop: Arc<Workshop>,
    runtime: Option<tokio::runtime::Runtime>,
    queues: Vec<QueueName>,
    limits: BTreeMap<QueueName, usize>,
    slots: usize,
    grace: Duration,
    heartbeat: Duration,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A handler that blocks may not keep the process.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Worker {
    /// Starts making a worker.
    pub fn builder(store: Store, blobs: Blobs, kinds: Kinds, ids: Arc<dyn IdSource>) -> Builder {
        Builder {
            store,
            blobs,
            kinds,
            ids,
            handlers: BTreeMap::new(),
            name: "worker".to_owned(),
            queues: Vec::new(),
            slots: SLOTS,
            grace: Duration::from_secs(15),
            heartbeat: Duration::from_secs(5),
        }
    }

    /// One life of this worker.
    pub fn id(&self) -> &WorkerId {
        &self.shop.worker
    }

    /// The queues it serves.
    pub fn queues(&self) -> &[QueueName] {
        &self.queues
    }

    /// The most that a source should deliver of a queue at a time, for queues all of
    /// whose kinds run here with a cap; of any other, [`IN_HAND_PER_SLOT`] for each slot.
    pub fn limits(&self) -> &BTreeMap<QueueName, usize> {
        &self.limits
    }

    /// Runs jobs from a source until `shutdown` resolves, then ends gracefully:
    /// running handlers get the grace, the rest is released, and what was not
    /// claimed goes back.
    ///
    /// # Cancel safety
    /// Dropping the future abandons what runs: its leases end and the reaper
    /// takes it back.
    pub async fn run(self, source: Box<dyn Source>, shutdown: impl Future<Output = ()>) {
        let mut hand = Hand {
            source,
            shop: Arc::clone(&self.shop),
            deliveries: HashMap::new(),
            unclaimed: VecDeque::new(),
            running: HashMap::new(),
            capped: BTreeMap::new(),
            slots: JoinSet::new(),
            put_backs: JoinSet::new(),
            held: false,
        };
        let mut beats = JoinSet::new();
        let mut beat = interval(self.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting = self.shop.waiting.subscribe();
        let mut shutdown = std::pin::pin!(shutdown);
        tracing::info!(worker = %self.shop.worker, slots = self.slots, "the worker runs");
        loop {
            hand.hold(*waiting.borrow_and_update() > 0);
            hand.start(self.slots);
            let has_room = hand.unclaimed.len() < self.slots * IN_HAND_PER_SLOT;
            tokio::select! {
                () = &mut shutdown => break,
                delivered = hand.source.next(), if has_room => match delivered {
                    Some(delivered) => hand.take(delivered),
                    None => break,
                },
                Some(ended) = hand.slots.join_next() => hand.ran(ended),
                Some(ended) = hand.put_backs.join_next() => hand.end(ended),
                _ = waiting.changed() => {}
                _ = beat.tick() => self.say(&mut beats, self.slots),
                Some(_) = beats.join_next() => {}
            }
        }
        self.end(hand, beats).await;
    }

    async fn end(&self, mut hand: Hand, mut beats: JoinSet<()>) {
        let running = hand.running.len();
        tracing::info!(worker = %self.shop.worker, running, "the worker ends; no new jobs are taken");
        hand.source.pause();
        hand.give_back();
        // Zero slots: the relay no longer counts this worker.
        self.say(&mut beats, 0);
        let graceful = Instant::now() + self.grace;
        if tokio::time::timeout_at(graceful, hand.drain())
            .await
            .is_err()
        {
            tracing::warn!(
                running = hand.running.len(),
                "the grace is over; releasing what still runs"
            );
            self.shop.renewals.end_all();
            if tokio::time::timeout(RELEASE_LIMIT, hand.drain())
                .await
                .is_err()
            {
                tracing::warn!(running = hand.running.len(), "left to the reaper");
            }
        }
        drop(tokio::time::timeout(RELEASE_LIMIT, beats.join_next()).await);
        drop(tokio::time::timeout(RELEASE_LIMIT, hand.source.close()).await);
        tracing::info!(worker = %self.shop.worker, "the worker has ended");
    }

    fn say(&self, beats: &mut JoinSet<()>, slots: usize) {
        let said = Heartbeat {
            worker: self.shop.worker.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: self.queues.clone(),
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
        };
        let store = self.shop.store.clone();
        beats.spawn(async move {
            if let Err(error) = store.heartbeat(said).await {
                tracing::debug!(%error, "a heartbeat was not recorded");
            }
        });
    }
}

/// What was delivered and is not settled.
#[derive(Debug)]
struct Hand {
    source: Box<dyn Source>,
    shop: Arc<Workshop>,
    /// Jobs of a delivery that are not settled, and whether any of them was known.
    deliveries: HashMap<Token, Open>,
    unclaimed: VecDeque<JobRef>,
    /// Every job in hand, claimed or not, with the delivery that stands for it.
    running: HashMap<JobId, Token>,
    /// Of each kind with a cap: what runs, and what waits in hand.
    capped: BTreeMap<KindName, Capped>,
    slots: JoinSet<(JobRef, Settlement)>,
    /// Jobs that are put back without a slot.
    put_backs: JoinSet<(JobRef, Settlement)>,
    held: bool,
}

#[derive(Debug, Default)]
struct Capped {
    running: usize,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Open {
    left: usize,
    known: bool,
    /// One of its jobs was not claimed and goes back; the others are recognised when they come again.
    unclaimed: bool,
}

impl Hand {
    /// Stops consuming while the database does not answer.
    fn hold(&mut self, hold: bool) {
        if hold && !self.held {
            self.source.pause();
        } else if !hold && self.held {
            self.source.resume();
        }
        self.held = hold;
    }

    fn take(&mut self, delivered: Delivered) {
        let Delivered { token, jobs } = delivered;
        if jobs.is_empty() {
            self.source.settle(token, settle(Said::Unreadable));
            return;
        }
        self.deliveries.insert(
            token,
            Open {
                left: jobs.len(),
                ..Open::default()
            },
        );
        for job in jobs {
            let Some(first) = self.running.get(&job.id).copied() else {
                self.running.insert(job.id, token);
                self.queue(job);
                continue;
            };
            let tag = if first != token && !self.source.is_live(first) {
                FirstTag::Dead
            } else {
                FirstTag::Live
            };
            let how = settle(Said::InHand(tag));
            if how == Settlement::Replace {
                self.running.insert(job.id, token);
                self.forget(first);
            } else {
                self.settle(token, how);
            }
        }
    }

    fn cap(&self, kind: &KindName) -> Option<usize> {
        self.shop.handlers.get(kind)?.cap
    }

    /// Keeps a job until there is a slot for it. Of a kind with a cap only the
    /// next ones are kept: others of its queue are not to wait behind it.
    fn queue(&mut self, job: JobRef) {
        if let Some(cap) = self.cap(&job.kind) {
            let capped = self.capped.entry(job.kind.clone()).or_default();
            if capped.running + capped.waiting >= cap * IN_HAND_PER_SLOT {
                let shop = Arc::clone(&self.shop);
                self.put_backs.spawn(async move {
                    let settlement = slot::settled(&shop, &job, Said::CapReached).await;
                    (job, settlement)
                });
                return;
            }
            capped.waiting += 1;
        }
        self.unclaimed.push_back(job);
    }

    /// The next job that may start now.
    fn startable(&mut self) -> Option<JobRef> {
        let place = self.unclaimed.iter().position(|job| {
            let running = self.capped.get(&job.kind).map_or(0, |of| of.running);
            self.cap(&job.kind).is_none_or(|cap| running < cap)
        })?;
        let job = self.unclaimed.remove(place)?;
        if let Some(capped) = self.capped.get_mut(&job.kind) {
            capped.waiting -= 1;
            capped.running += 1;
        }
        Some(job)
    }

    /// A job no longer belongs to a delivery whose channel is gone.
    fn forget(&mut self, token: Token) {
        if let Some(open) = self.deliveries.get_mut(&token) {
            open.left -= 1;
            if open.left == 0 {
                self.deliveries.remove(&token);
            }
        }
    }

    /// Starts as many jobs as there are free slots.
    fn start(&mut self, slots: usize) {
        while !self.held && self.slots.len() < slots {
            let Some(job) = self.startable() else {
                return;
            };
            let shop = Arc::clone(&self.shop);
            self.slots.spawn(async move {
                // Whatever a slot meets, its job leaves our hands; a claim it
                // had is the reaper's.
                let ran = AssertUnwindSafe(slot::run(&shop, &job)).catch_unwind().await;
                let settlement = ran.unwrap_or_else(|_| {
                    tracing::error!(job = %job.id, "a slot panicked; its claim is left to the reaper");
                    settle(Said::Expired)
                });
                (job, settlement)
            });
        }
    }

    fn ran(&mut self, ended: Result<(JobRef, Settlement), tokio::task::JoinError>) {
        if let Ok((job, _)) = &ended
            && let Some(capped) = self.capped.get_mut(&job.kind)
        {
            capped.running -= 1;
        }
        self.end(ended);
    }

    fn end(&mut self, ended: Result<(JobRef, Settlement), tokio::task::JoinError>) {
        match ended {
            Ok((job, settlement)) => {
                if let Some(token) = self.running.remove(&job.id) {
                    self.settle(token, settlement);
                }
            }
            Err(error) => tracing::error!(%error, "a slot was ended from outside"),
        }
    }

    /// Settles one job of a delivery; the delivery when it was the last.
    fn settle(&mut self, token: Token, how: Settlement) {
        let Some(open) = self.deliveries.get_mut(&token) else {
            return;
        };
        open.left -= 1;
        // A message of several jobs is rejected only if none of them exists.
        open.known |= how != Settlement::Reject;
        open.unclaimed |= how == Settlement::Requeue;
        if open.left > 0 {
            return;
        }
        let how = match how {
            _ if open.unclaimed => Settlement::Requeue,
            Settlement::Reject if open.known => Settlement::Ack,
            Settlement::Ack
            | Settlement::PutBack(_)
            | Settlement::Reject
            | Settlement::Requeue
            | Settlement::Replace
            | Settlement::Hold => how,
        };
        self.deliveries.remove(&token);
        self.source.settle(token, how);
    }

    /// Gives back what was not claimed.
    fn give_back(&mut self) {
        for capped in self.capped.values_mut() {
            capped.waiting = 0;
        }
        for job in std::mem::take(&mut self.unclaimed) {
            if let Some(token) = self.running.remove(&job.id) {
                self.settle(token, settle(Said::Ending));
            }
        }
    }

    /// Waits until nothing runs. What was on its way when consuming stopped goes
    /// back at once, for others to run.
    async fn drain(&mut self) {
        let mut delivers = true;
        while !self.slots.is_empty() || !self.put_backs.is_empty() {
            tokio::select! {
                Some(ended) = self.slots.join_next() => self.ran(ended),
                Some(ended) = self.put_backs.join_next() => self.end(ended),
                delivered = self.source.next(), if delivers => match delivered {
                    Some(delivered) => {
                        self.take(delivered);
                        self.give_back();
                    }
                    None => delivers = false,
                },
            }
        }
    }
}
