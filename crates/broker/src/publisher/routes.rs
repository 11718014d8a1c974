//! The ways to a publisher's queues, and what is wrong with them.
//!
//! Owns when a queue is declared again. Declares nothing itself.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::id::QueueName;
use tokio::time::{Instant, sleep_until};

use crate::connection::Health;
use crate::error::BrokerError;
use crate::reconnect::Backoff;
use crate::state::BrokerState;

/// The queues of one connection.
#[derive(Debug)]
pub(super) struct Routes(BTreeMap<QueueName, Route>);

#[derive(Debug)]
struct Route {
    progress: Progress,
    /// What was wrong when it was last looked at; kept while it is declared
    /// again, so that a fault which stays does not flicker.
    fault: Option<BrokerError>,
    backoff: Backoff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Underway,
    Declared,
    /// It could not be declared, and is tried again then.
    Failed(Instant),
}

impl Routes {
    /// Routes that are all being declared.
    pub(super) fn new<'a>(
        queues: impl Iterator<Item = &'a QueueName>,
        backoff: impl Fn() -> Backoff,
    ) -> Self {
        let route = || Route {
            progress: Progress::Underway,
            fault: None,
            backoff: backoff(),
        };
        Self(queues.map(|queue| (queue.clone(), route())).collect())
    }

    /// Takes over the result of a declaration.
    pub(super) fn declared(&mut self, queue: &QueueName, result: Result<(), BrokerError>) {
        let Some(route) = self.0.get_mut(queue) else {
            return;
        };
        match result {
            Ok(()) => {
                route.progress = Progress::Declared;
                route.fault = None;
                route.backoff.reset();
            }
            Err(fault) => {
                let due = Instant::now() + route.backoff.next_delay();
                route.progress = Progress::Failed(due);
                route.fault = Some(fault);
            }
        }
    }

    /// A message did not get through: the queue is declared again, but not at
    /// once. RabbitMQ 3.10 needs some 30 ms to tell consumers that a queue was
    /// deleted, and never does when it is there again by then.
    pub(super) fn spoil(&mut self, queue: &QueueName, reason: String) {
        let doing = format!("publish to queue {queue}");
        self.declared(queue, Err(BrokerError::Failed { doing, reason }));
    }

    /// A queue that was due is being declared again.
    pub(super) fn retry(&mut self, queue: &QueueName) {
        if let Some(route) = self.0.get_mut(queue) {
            route.progress = Progress::Underway;
        }
    }

    /// Waits for the time to declare a queue again; `None` when there is none.
    pub(super) fn next_due(&self) -> impl Future<Output = Option<QueueName>> + use<> {
        let failed = self
            .0
            .iter()
            .filter_map(|(queue, route)| match route.progress {
                Progress::Failed(due) => Some((due, queue)),
                Progress::Underway | Progress::Declared => None,
            });
        let due = failed.min().map(|(due, queue)| (due, queue.clone()));
        async move {
            let (due, queue) = due?;
            sleep_until(due).await;
            Some(queue)
        }
    }

    /// Why nothing is sent to a queue; `None` when it can be.
    pub(super) fn fault(&self, queue: &QueueName) -> Option<String> {
        let Some(route) = self.0.get(queue) else {
            return Some("its queue is not one of this publisher's".to_owned());
        };
        match (&route.progress, &route.fault) {
            (Progress::Declared, _) => None,
            (_, Some(fault)) => Some(fault.to_string()),
            (_, None) => Some("its queue is being declared".to_owned()),
        }
    }

    /// The state that they and the connection's health add up to.
    pub(super) fn state(&self, health: &Health) -> BrokerState {
        match health {
            Health::Blocked => return BrokerState::Blocked,
            Health::Lost(reason) => return BrokerState::Down(reason.clone()),
            Health::Up => {}
        }
        let faults = || self.0.values().filter_map(|route| route.fault.as_ref());
        // Several queues may share one fault.
        let texts: BTreeSet<String> = faults().map(ToString::to_string).collect();
        let text = texts.into_iter().collect::<Vec<_>>().join("; ");
        if faults().any(|fault| matches!(fault, BrokerError::Mismatch(_))) {
            BrokerState::Misconfigured(text)
        } else if !text.is_empty() {
            BrokerState::Down(text)
        } else if self.0.values().all(|r| r.progress == Progress::Declared) {
            BrokerState::Ready
        } else {
            BrokerState::Connecting
        }
    }
}
