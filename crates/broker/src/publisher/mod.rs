//! The relay's connection to the broker.
//!
//! Owns one connection that nothing is consumed on, one channel in confirm
//! mode, and the declarations of the queues it publishes to. A single task
//! does it all: it connects and connects again, declares what is missing,
//! publishes one batch at a time, and reports its state whether anyone
//! publishes or not. Marks nothing: the caller does, by the outcome.
//!
//! ```text
//!            ┌────────── lost ───────────┐
//!            ▼                           │
//!  connect (backoff) ──▶ declare ──▶ publish, wait for confirms
//!                           ▲            │
//!                           └─ returned ─┘
//! ```
//!
//! A crash, or a lost connection, between a message's arrival and its confirm
//! leaves the entry pending, and it is published again: messages repeat, jobs
//! do not.

mod flight;
mod routes;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::id::QueueName;
use fencepost_core::limits::DISPATCH_BYTES_MAX;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lapin::Channel;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::connection::{ConnectionOptions, Link};
use crate::error::BrokerError;
use crate::publish::{Publication, Publish, PublishOutcome};
use crate::reconnect::Backoff;
use crate::state::{BrokerState, Reporter};
use crate::topology::{self, QueueDepth, Topology};

use flight::{Flight, Published, channel_closed};
use routes::Routes;

/// How long a confirm may take by default: a quorum queue confirms after its
/// members have flushed, which a busy disk may hold up for seconds.
pub const CONFIRM_LIMIT: Duration = Duration::from_secs(10);

/// Requests that may wait for the task; callers beyond that wait themselves.
const REQUESTS_MAX: usize = 16;

/// What a publisher needs to know.
#[derive(Debug, Clone)]
pub struct PublisherOptions {
    /// Its connection.
    pub connection: ConnectionOptions,
    /// The queues it publishes to.
    pub topology: Topology,
    /// How long a confirm may take.
    pub confirm_limit: Duration,
}

impl PublisherOptions {
    /// The defaults, for a connection and the queues to publish to.
    pub fn new(connection: ConnectionOptions, topology: Topology) -> Self {
        Self {
            connection,
            topology,
            confirm_limit: CONFIRM_LIMIT,
        }
    }
}

/// A running publisher. Dropping it ends its connection on the spot.
#[derive(Debug)]
pub struct Publisher {
    requests: mpsc::Sender<Request>,
    state: watch::Receiver<BrokerState>,
    task: JoinSet<()>,
}

impl Publisher {
    /// Starts a publisher, which connects by itself.
    pub fn start(options: PublisherOptions) -> Self {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let reporter = Reporter::new("publisher");
        let state = reporter.subscribe();
        let mut task = JoinSet::new();
        let actor = Actor {
            options,
            reporter,
            requests,
        };
        task.spawn(actor.run());
        Self {
            requests: sender,
            state,
            task,
        }
    }

    /// Finishes the batch under way and says goodbye to the broker.
    ///
    /// # Cancel safety
    /// Dropping the future ends the connection on the spot.
    pub async fn close(mut self) {
        drop(self.requests);
        if let Some(Err(error)) = self.task.join_next().await {
            tracing::error!("the publisher's task ended early: {error}");
        }
    }
}

#[async_trait]
impl Publish for Publisher {
    async fn publish(&self, batch: Vec<Publication>) -> Vec<(u64, PublishOutcome)> {
        let tokens: Vec<u64> = batch.iter().map(|publication| publication.token).collect();
        let (reply, answered) = oneshot::channel();
        let request = Request::Publish { batch, reply };
        if self.requests.send(request).await.is_ok()
            && let Ok(outcomes) = answered.await
        {
            return outcomes;
        }
        let closed = |token| (token, channel_closed("the publisher has ended"));
        tokens.into_iter().map(closed).collect()
    }

    async fn depth(&self, queue: &QueueName) -> Result<Option<QueueDepth>, BrokerError> {
        let (reply, answered) = oneshot::channel();
        let queue = queue.clone();
        let request = Request::Depth { queue, reply };
        if self.requests.send(request).await.is_ok()
            && let Ok(depth) = answered.await
        {
            return depth;
        }
        Err(BrokerError::NotConnected("the publisher has ended".into()))
    }

    fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.clone()
    }
}

#[derive(Debug)]
enum Request {
    Publish {
        batch: Vec<Publication>,
        reply: oneshot::Sender<Vec<(u64, PublishOutcome)>>,
    },
    Depth {
        queue: QueueName,
        reply: oneshot::Sender<Result<Option<QueueDepth>, BrokerError>>,
    },
}

impl Request {
    /// Answers while there is no connection.
    fn decline(self, why: &str) {
        match self {
            Self::Publish { batch, reply } => {
                let declined = |p: Publication| (p.token, channel_closed(why));
                answer(reply, batch.into_iter().map(declined).collect());
            }
            Self::Depth { reply, .. } => {
                answer(reply, Err(BrokerError::NotConnected(why.to_owned())));
            }
        }
    }
}

/// A caller that has gone away does not wait for its answer.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}

/// Something that was waited for beside the requests.
enum Done {
    Declared(QueueName, Result<(), BrokerError>),
    Published(Published),
    Answered,
}

type Work = FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>;

struct Actor {
    options: PublisherOptions,
    reporter: Reporter,
    requests: mpsc::Receiver<Request>,
}

impl Actor {
    async fn run(mut self) {
        let connection = self.options.connection.clone();
        let mut backoff = Backoff::new(connection.reconnect_initial, connection.reconnect_max);
        loop {
            let Some(opened) = self.while_down(Link::open(&connection)).await else {
                return;
            };
            let down = match opened {
                Ok(link) => {
                    let since = Instant::now();
                    let Some(lost) = self.serve(Arc::new(link)).await else {
                        return;
                    };
                    // One that broke at once is not a success to start afresh from.
                    if since.elapsed() >= connection.reconnect_max {
                        backoff.reset();
                    }
                    format!("the connection to the broker was lost: {lost}")
                }
                Err(error) => error.to_string(),
            };
            self.reporter.set(BrokerState::Down(down));
            if self.while_down(sleep(backoff.next_delay())).await.is_none() {
                return;
            }
        }
    }

    /// Does something while there is no connection, declining requests
    /// meanwhile; `None` when the publisher was closed.
    async fn while_down<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return Some(result),
                request = self.requests.recv() => {
                    let state = self.reporter.subscribe().borrow().to_string();
                    request?.decline(&state);
                }
            }
        }
    }

    /// Serves requests over a connection until it is lost, and says why;
    /// `None` when the publisher was closed.
    async fn serve(&mut self, link: Arc<Link>) -> Option<String> {
        let connection = &self.options.connection;
        let backoff = || Backoff::new(connection.reconnect_initial, connection.reconnect_max);
        let mut routes = Routes::new(self.options.topology.queues(), backoff);
        let mut health = link.health();
        let mut work = Work::new();
        // The channel is there before the first batch, for whoever looks.
        let mut channel = None;
        let mut publishing = true;
        let opening = self.flight(&link, None);
        work.push(Box::pin(
            async move { Done::Published(opening.open().await) },
        ));
        for queue in self.options.topology.queues() {
            work.push(declare(Arc::clone(&link), queue.clone()));
        }
        loop {
            let state = routes.state(&health.borrow_and_update());
            self.reporter.set(state);
            let due = routes.next_due();
            tokio::select! {
                // When it is lost, a batch in flight is answered right after.
                lost = link.lost(), if !publishing => return Some(lost),
                Ok(()) = health.changed() => {}
                Some(done) = work.next() => match done {
                    Done::Declared(queue, result) => routes.declared(&queue, result),
                    Done::Published(published) => {
                        publishing = false;
                        channel = published.channel;
                        for (queue, reason) in published.faulty {
                            routes.spoil(&queue, reason);
                        }
                    }
                    Done::Answered => {}
                },
                request = self.requests.recv(), if !publishing => match request {
                    Some(Request::Publish { batch, reply }) => {
                        publishing = true;
                        let flight = self.flight(&link, channel.take());
                        let (sendable, declined) = split(batch, &routes);
                        work.push(Box::pin(async move {
                            let (outcomes, published) = flight.publish(sendable, declined).await;
                            answer(reply, outcomes);
                            Done::Published(published)
                        }));
                    }
                    Some(Request::Depth { queue, reply }) => {
                        let link = Arc::clone(&link);
                        work.push(Box::pin(async move {
                            answer(reply, topology::depth(&link, &queue).await);
                            Done::Answered
                        }));
                    }
                    None => {
                        link.close().await;
                        return None;
                    }
                },
                Some(queue) = due => {
                    routes.retry(&queue);
                    work.push(declare(Arc::clone(&link), queue));
                }
            }
        }
    }

    fn flight(&self, link: &Arc<Link>, channel: Option<Channel>) -> Flight {
        Flight {
            link: Arc::clone(link),
            channel,
            limit: self.options.confirm_limit,
        }
    }
}

fn declare(link: Arc<Link>, queue: QueueName) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(async move {
        let result = topology::declare(&link, &queue).await;
        Done::Declared(queue, result)
    })
}

/// Takes out of a batch what need not be sent at all.
fn split(
    batch: Vec<Publication>,
    routes: &Routes,
) -> (Vec<Publication>, Vec<(u64, PublishOutcome)>) {
    let mut sendable = Vec::with_capacity(batch.len());
    let mut declined = Vec::new();
    for publication in batch {
        let outcome = if publication.body.len() > DISPATCH_BYTES_MAX {
            Some(PublishOutcome::Refused {
                reason: format!(
                    "the message has {} bytes; a dispatch has at most {DISPATCH_BYTES_MAX}",
                    publication.body.len()
                ),
            })
        } else {
            let fault = routes.fault(&publication.queue);
            fault.map(|reason| PublishOutcome::RouteUnavailable { reason })
        };
        match outcome {
            Some(outcome) => declined.push((publication.token, outcome)),
            None => sendable.push(publication),
        }
    }
    (sendable, declined)
}
