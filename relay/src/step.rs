//! The relay's loop: take what is due, publish it, settle it.
//!
//! Owns the pace: woken by commits, with a slow poll behind; again at once while
//! there is more; backing off per queue while its route is at fault. Decides
//! nothing about outcomes, that is [`crate::plan`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fencepost_broker::reconnect::Backoff;
use fencepost_broker::{BrokerState, Publication, Publish, PublishOutcome};
use fencepost_core::dispatch::encode;
use fencepost_core::id::{QueueName, WorkerId};
use fencepost_core::outbox::{self, DispatchRef};
use fencepost_store::{Dispatch, DispatchResult, SettleDispatches, Store, StoreError, Take};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::counters::Counters;
use crate::leadership::Office;
use crate::plan::{self, Route};
use crate::redispatch::Redispatcher;

/// Entries of one queue published in one step: some milliseconds of the broker's time.
const STEP_ENTRIES_MAX: u32 = 512;

/// The pauses of a route that is at fault. A change of the broker's state ends one at once.
const ROUTE_PAUSE_INITIAL: Duration = Duration::from_millis(200);
const ROUTE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// An entry is due again this long after its confirm should have come: longer
/// than any answer takes, within the half minute after which nobody may wait
/// for a killed relay.
const HOLD_BEYOND_CONFIRM: Duration = Duration::from_secs(10);

/// How a relay works.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// Who it is, for leadership and the history: one life of one process.
    pub id: WorkerId,
    /// The queues that kinds are configured for; those seen in the database are added.
    pub queues: Vec<QueueName>,
    /// The pause when nothing wakes it.
    pub poll: Duration,
    /// How long a confirm may take; the publisher's own limit.
    pub confirm_timeout: Duration,
    /// How long it leads without renewal.
    pub leader_lease: Duration,
    /// After this long without a heartbeat a worker's slots no longer count.
    pub worker_timeout: Duration,
    /// The timers of redispatch.
    pub redispatch: outbox::Redispatch,
}

/// How it stands with a relay, for readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayState {
    /// It publishes, or stands by.
    Ready,
    /// Something keeps it from publishing.
    NotReady(String),
}

/// The relay.
#[derive(Debug)]
pub struct Relay {
    store: Store,
    publish: Arc<dyn Publish>,
    config: RelayConfig,
    counters: Arc<Counters>,
    state: watch::Sender<RelayState>,
    routes: BTreeMap<QueueName, RouteState>,
    /// Live slots by queue, and when that was read.
    slots: (BTreeMap<QueueName, u32>, Option<Instant>),
}

#[derive(Debug)]
struct RouteState {
    backoff: Backoff,
    fault: Option<(String, Instant)>,
}

impl Default for RouteState {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(ROUTE_PAUSE_INITIAL, ROUTE_PAUSE_MAX),
            fault: None,
        }
    }
}

/// How often live slots and queues are read.
const SLOTS_EVERY: Duration = Duration::from_secs(2);

impl Relay {
    /// A relay between a store and a publisher.
    pub fn new(store: Store, publish: Arc<dyn Publish>, config: RelayConfig) -> Self {
        let (state, _) = watch::channel(RelayState::NotReady("starting".to_owned()));
        Self {
            store,
            publish,
            config,
            counters: Arc::default(),
            state,
            routes: BTreeMap::new(),
            slots: (BTreeMap::new(), None),
        }
    }

    /// What it has done.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// How it stands.
    pub fn state(&self) -> watch::Receiver<RelayState> {
        self.state.subscribe()
    }

    /// Runs until `shutdown` resolves.
    ///
    /// # Cancel safety
    /// Dropping the future leaves entries taken; they are due again after their hold.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut changes = self.store.changes();
        let mut broker = self.publish.state();
        let mut office = Office::new(
            self.store.clone(),
            "relay",
            self.config.id.clone(),
            self.config.leader_lease,
        );
        let mut redispatcher = Redispatcher::new(self.config.redispatch);
        loop {
            // Subscribe, then look: what is committed in between is not missed.
            changes.borrow_and_update();
            if broker.has_changed().unwrap_or(false) && broker.borrow_and_update().is_ready() {
                // The route is back: nobody waits out a pause.
                self.routes.clear();
            }
            let more = if office.leads().await {
                self.look_around().await;
                let found = redispatcher
                    .step(&self.store, &*self.publish, self.queues(), &self.counters)
                    .await;
                self.step().await || found
            } else {
                false
            };
            self.report(&broker.borrow().clone());
            if more {
                // Again at once, unless the end was asked for.
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    () = std::future::ready(()) => continue,
                }
            }
            tokio::select! {
                () = &mut shutdown => break,
                _ = changes.changed() => {}
                _ = broker.changed() => broker.mark_changed(),
                () = tokio::time::sleep(self.config.poll) => {}
            }
        }
        office.resign().await;
    }

    fn queues(&self) -> Vec<QueueName> {
        let all: BTreeSet<&QueueName> = self
            .config
            .queues
            .iter()
            .chain(self.slots.0.keys())
            .collect();
        all.into_iter().cloned().collect()
    }

    /// Which queues there are, and how many slots serve each.
    async fn look_around(&mut self) {
        if self.slots.1.is_some_and(|at| at.elapsed() < SLOTS_EVERY) {
            return;
        }
        let now = self.store.now();
        let since = fencepost_core::time::Timestamp::from_millis(
            now.as_millis() - fencepost_core::time::millis(self.config.worker_timeout),
        );
        let mut slots = BTreeMap::new();
        match tokio::join!(self.store.workers(since), self.store.queues()) {
            (Ok(workers), Ok(queues)) => {
                for queue in queues {
                    slots.entry(queue.queue).or_insert(0);
                }
                for worker in workers {
                    for queue in worker.said.queues {
                        *slots.entry(queue).or_insert(0) += worker.said.slots;
                    }
                }
                self.slots = (slots, Some(Instant::now()));
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(%error, "workers and queues could not be read");
            }
        }
    }

    /// One step over all queues whose route is not backing off; whether there is more to do.
    async fn step(&mut self) -> bool {
        let mut taking = JoinSet::new();
        for queue in self.queues() {
            let route = self.routes.entry(queue.clone()).or_default();
            if route
                .fault
                .as_ref()
                .is_some_and(|(_, until)| *until > Instant::now())
            {
                continue;
            }
            let store = self.store.clone();
            let slots = self.slots.0.get(&queue).copied().unwrap_or(0);
            // A route that was at fault is tried with one entry.
            let limit = if route.fault.is_some() {
                1
            } else {
                STEP_ENTRIES_MAX
            };
            let take = Take {
                queue: queue.clone(),
                window: outbox::window(slots),
                limit,
                hold: self.config.confirm_timeout + HOLD_BEYOND_CONFIRM,
            };
            taking.spawn(async move { (queue, limit, store.take(take).await) });
        }
        let mut batch: Vec<(QueueName, Dispatch)> = Vec::new();
        let mut more = false;
        while let Some(taken) = taking.join_next().await {
            match taken {
                Ok((queue, limit, Ok(taken))) => {
                    more |= taken.dispatches.len() >= limit as usize;
                    batch.extend(
                        taken
                            .dispatches
                            .into_iter()
                            .map(|dispatch| (queue.clone(), dispatch)),
                    );
                }
                Ok((queue, _, Err(error))) => {
                    tracing::warn!(%queue, %error, "entries could not be taken");
                }
                Err(error) => tracing::error!(%error, "taking entries ended by a panic"),
            }
        }
        if batch.is_empty() {
            return false;
        }
        self.publish_and_settle(batch).await && more
    }

    /// Publishes a batch and settles it; whether every route proved good.
    async fn publish_and_settle(&mut self, batch: Vec<(QueueName, Dispatch)>) -> bool {
        let mut publications = Vec::with_capacity(batch.len());
        let mut sent: BTreeMap<u64, (QueueName, DispatchRef, u32)> = BTreeMap::new();
        for (token, (queue, dispatch)) in (0_u64..).zip(batch) {
            let body = encode(vec![dispatch.job]).into();
            publications.push(Publication {
                token,
                queue: queue.clone(),
                body,
            });
            sent.insert(token, (queue, dispatch.entry, dispatch.failures));
        }
        let outcomes = self.publish.publish(publications).await;
        let mut results = Vec::with_capacity(outcomes.len());
        let mut routes: BTreeMap<QueueName, (bool, Option<String>)> = BTreeMap::new();
        for (token, outcome) in outcomes {
            let Some((queue, entry, failures)) = sent.remove(&token) else {
                continue;
            };
            let (result, route) = plan::settle(&outcome, failures);
            self.count(&outcome, &result);
            let seen = routes.entry(queue).or_default();
            match (route, &result) {
                (Route::Good, _) => seen.0 = true,
                (Route::Faulty, DispatchResult::RouteFault(text)) => {
                    seen.1 = Some(text.to_string());
                }
                (Route::Faulty | Route::Unknown, _) => {}
            }
            results.push((entry, result));
        }
        for (queue, (good, fault)) in &routes {
            self.judge(queue, *good, fault.as_deref());
        }
        self.settle(results).await;
        routes.values().all(|(_, fault)| fault.is_none())
    }

    fn judge(&mut self, queue: &QueueName, good: bool, fault: Option<&str>) {
        let route = self.routes.entry(queue.clone()).or_default();
        match fault {
            Some(text) => {
                if route
                    .fault
                    .as_ref()
                    .is_none_or(|(before, _)| before != text)
                {
                    tracing::warn!(%queue, fault = text, "the route is at fault; backing off");
                }
                let until = Instant::now() + route.backoff.next_delay();
                route.fault = Some((text.to_owned(), until));
            }
            None if good => {
                if route.fault.take().is_some() {
                    tracing::info!(%queue, "the route is good again");
                }
                route.backoff.reset();
            }
            None => {}
        }
    }

    /// Settles results. What cannot be settled is due again after its hold, and
    /// its message, if it arrives, is recognised by the claim.
    async fn settle(&self, results: Vec<(DispatchRef, DispatchResult)>) {
        let request = SettleDispatches {
            results,
            actor: self.config.id.to_string(),
        };
        match self.store.settle_dispatches(request).await {
            Ok(_) | Err(StoreError::Closed) => {}
            Err(error) => {
                tracing::warn!(%error, "publications could not be recorded; they are repeated");
            }
        }
    }

    fn count(&self, outcome: &PublishOutcome, result: &DispatchResult) {
        if matches!(outcome, PublishOutcome::Returned { .. }) {
            self.counters.unroutable.add(1);
        }
        match result {
            DispatchResult::Published => self.counters.published.add(1),
            DispatchResult::RouteFault(_) => self.counters.route_faults.add(1),
            DispatchResult::Failed { .. } => self.counters.failed.add(1),
            DispatchResult::Parked(error) => {
                self.counters.parked.add(1);
                tracing::error!(%error, "an entry failed alone too often and is parked");
            }
        }
    }

    fn report(&self, broker: &BrokerState) {
        let fault = self.routes.iter().find_map(|(queue, route)| {
            let (text, _) = route.fault.as_ref()?;
            Some(format!("queue {queue}: {text}"))
        });
        let now = match (broker, fault) {
            (BrokerState::Ready, None) => RelayState::Ready,
            (BrokerState::Ready, Some(fault)) => RelayState::NotReady(fault),
            (broker, _) => RelayState::NotReady(broker.to_string()),
        };
        self.state.send_if_modified(|state| {
            let changed = *state != now;
            if changed {
                *state = now;
            }
            changed
        });
    }
}
