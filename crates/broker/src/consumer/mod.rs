//! The worker's connection to the broker.
//!
//! Owns one connection, a channel for each queue, and on it at most one
//! consumer. Whatever ends a channel — the broker killed, a silent network, a
//! delivery held for longer than the broker's consumer timeout, an operator's
//! hand, a deleted queue — it is replaced within seconds, and its deliveries
//! come back under a new [`DeliveryTag`]. Settles nothing by itself: rule 4,
//! save and then acknowledge, is the worker's to keep.
//!
//! Each channel is a *generation*. A tag is good for its own generation only:
//! what was delivered on a channel that has ended is the broker's again, and
//! settling it is a no-op that says so ([`Settlement::Stale`]).
//!
//! ```text
//!  Consumer ── pause, resume, ack ──▶ Ledger ◀── generation, tags ── queue task
//!  Deliveries ◀──────────── bounded channel ◀───────────────────────┘ (one per queue)
//!                                                supervisor: connect, run, replace
//! ```
//!
//! A crash anywhere here costs redeliveries, never a message.

mod ledger;
mod queue;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::id::QueueName;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::connection::{ConnectionOptions, Link};
use crate::error::BrokerError;
use crate::reconnect::Backoff;
use crate::state::{BrokerState, Reporter};
use crate::topology::Topology;

use ledger::Ledger;
pub use ledger::{DeliveryTag, Settlement};

/// After how long an idle channel is replaced by default: some twenty small
/// requests, against a broker that has forgotten a consumer.
pub const IDLE_REFRESH: Duration = Duration::from_secs(15);

/// What a consumer needs to know.
#[derive(Debug, Clone)]
pub struct ConsumerOptions {
    /// Its connection.
    pub connection: ConnectionOptions,
    /// The queues it consumes.
    pub topology: Topology,
    /// Unsettled deliveries that may be in hand, for each queue.
    pub prefetch: NonZeroU16,
    /// Of these queues fewer than that.
    pub prefetch_of: BTreeMap<QueueName, NonZeroU16>,
    /// After how long without a delivery and with nothing in hand a channel
    /// is replaced; looked at as often, so it happens within twice the time.
    pub idle_refresh: Duration,
}

impl ConsumerOptions {
    /// The defaults, for a connection, its queues and a prefetch.
    pub fn new(connection: ConnectionOptions, topology: Topology, prefetch: NonZeroU16) -> Self {
        Self {
            connection,
            topology,
            prefetch,
            prefetch_of: BTreeMap::new(),
            idle_refresh: IDLE_REFRESH,
        }
    }
}

/// A message in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What it is settled by.
    pub tag: DeliveryTag,
    /// The queue it came from.
    pub queue: QueueName,
    /// The encoded envelope.
    pub body: Bytes,
    /// The broker's word that it was delivered before. A hint, not a count.
    pub redelivered: bool,
}

/// A running consumer. Dropping it ends its connection on the spot, and what
/// is in hand goes back to the broker.
#[derive(Debug)]
pub struct Consumer {
    ledger: Arc<Ledger>,
    state: watch::Receiver<BrokerState>,
    control: watch::Sender<Control>,
    task: JoinSet<()>,
}

/// What the handle wants of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Consume,
    Pause,
    Close,
}

/// The receiving end of a [`Consumer`].
#[derive(Debug)]
pub struct Deliveries {
    receiver: mpsc::Receiver<Delivery>,
    ledger: Arc<Ledger>,
}

impl Consumer {
    /// Starts a consumer, which connects and consumes by itself.
    pub fn start(options: ConsumerOptions) -> (Self, Deliveries) {
        let queues = options.topology.queues().len();
        // The prefetch bounds what is on its way, so that nothing waits in
        // lapin, which would take any number.
        let in_hand = usize::from(options.prefetch.get()).saturating_mul(queues.max(1));
        let (sender, receiver) = mpsc::channel(in_hand);
        let ledger = Arc::new(Ledger::new());
        let reporter = Reporter::new("consumer");
        let state = reporter.subscribe();
        let control = watch::Sender::new(Control::Consume);
        let context = Arc::new(Context {
            prefetch: options.prefetch,
            prefetch_of: options.prefetch_of,
            idle_refresh: options.idle_refresh,
            ledger: Arc::clone(&ledger),
            deliveries: sender,
            control: control.subscribe(),
            board: Mutex::new(Board {
                reporter,
                queues: BTreeMap::new(),
            }),
        });
        let mut task = JoinSet::new();
        task.spawn(supervise(context, options.connection, options.topology));
        let consumer = Self {
            ledger: Arc::clone(&ledger),
            state,
            control,
            task,
        };
        (consumer, Deliveries { receiver, ledger })
    }

    /// How it stands, and every change of it.
    pub fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.clone()
    }

    /// The number of channels there have been; it rises when one begins or
    /// ends, which is when tags in hand may have died: ask
    /// [`is_live`](Self::is_live) again.
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.ledger.generations()
    }

    /// Whether a tag's channel still lives, so that its message is in hand
    /// here and nowhere else.
    pub fn is_live(&self, tag: DeliveryTag) -> bool {
        self.ledger.is_live(tag)
    }

    /// Acknowledges a delivery: the broker forgets it.
    ///
    /// Like the other settlements it is put on its way at once and not waited
    /// for; should it be lost with the channel, the message comes again.
    pub fn ack(&self, tag: DeliveryTag) -> Settlement {
        self.ledger.ack(tag)
    }

    /// Sends a delivery to the dead-letter queue.
    pub fn reject(&self, tag: DeliveryTag) -> Settlement {
        self.ledger.reject(tag)
    }

    /// Gives a delivery back to its queue.
    pub fn nack_requeue(&self, tag: DeliveryTag) -> Settlement {
        self.ledger.nack_requeue(tag)
    }

    /// Stops consuming; what is in hand stays, and its tags stay good. What
    /// the broker has sent already is still delivered.
    pub fn pause(&self) {
        self.steer(Control::Pause);
    }

    /// Consumes again after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.steer(Control::Consume);
    }

    /// Says goodbye to the broker, after the settlements made before; what is
    /// not settled goes back to its queue.
    ///
    /// The broker has no word for "and all of them have arrived": of many
    /// settlements in the last moments it may forget some, and their messages
    /// come again.
    ///
    /// # Cancel safety
    /// Dropping the future ends the connection on the spot.
    pub async fn close(mut self) {
        self.steer(Control::Close);
        if let Some(Err(error)) = self.task.join_next().await {
            tracing::error!("the consumer's task ended early: {error}");
        }
    }

    fn steer(&self, control: Control) {
        self.control.send_replace(control);
    }
}

impl Deliveries {
    /// The next delivery whose tag is live; `None` when the consumer has ended.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn recv(&mut self) -> Option<Delivery> {
        loop {
            let delivery = self.receiver.recv().await?;
            // What a channel left behind as it ended comes again on the next.
            if self.ledger.is_live(delivery.tag) {
                return Some(delivery);
            }
        }
    }

    /// The next delivery if there is one now.
    pub fn try_recv(&mut self) -> Option<Delivery> {
        loop {
            let delivery = self.receiver.try_recv().ok()?;
            if self.ledger.is_live(delivery.tag) {
                return Some(delivery);
            }
        }
    }
}

/// What the tasks of a consumer share.
#[derive(Debug)]
struct Context {
    prefetch: NonZeroU16,
    prefetch_of: BTreeMap<QueueName, NonZeroU16>,
    idle_refresh: Duration,
    ledger: Arc<Ledger>,
    deliveries: mpsc::Sender<Delivery>,
    control: watch::Receiver<Control>,
    board: Mutex<Board>,
}

/// How each queue stands, and what it adds up to.
#[derive(Debug)]
struct Board {
    reporter: Reporter,
    queues: BTreeMap<QueueName, QueueState>,
}

#[derive(Debug)]
enum QueueState {
    Starting,
    /// Consuming, or paused and able to.
    Ready,
    Faulty(BrokerError),
}

impl Context {
    fn start(&self, topology: &Topology) {
        let starting = topology.queues().map(|q| (q.clone(), QueueState::Starting));
        let mut board = self.board();
        board.queues = starting.collect();
        let sum = board.sum();
        board.reporter.set(sum);
    }

    fn prefetch(&self, queue: &QueueName) -> u16 {
        let own = self.prefetch_of.get(queue).copied();
        own.map_or(self.prefetch, |own| own.min(self.prefetch))
            .get()
    }

    fn report(&self, queue: &QueueName, state: QueueState) {
        let mut board = self.board();
        board.queues.insert(queue.clone(), state);
        let sum = board.sum();
        board.reporter.set(sum);
    }

    fn report_down(&self, reason: String) {
        self.board().reporter.set(BrokerState::Down(reason));
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the handle wants something of this kind.
    async fn told(&self, wanted: impl Fn(Control) -> bool) {
        let mut control = self.control.clone();
        if control.wait_for(|control| wanted(*control)).await.is_err() {
            // The handle is gone, and with it this task: it is being aborted.
            std::future::pending::<()>().await;
        }
    }

    async fn closed(&self) {
        self.told(|control| control == Control::Close).await;
    }
}

impl Board {
    fn sum(&self) -> BrokerState {
        let mut starting = false;
        let mut misconfigured = false;
        let mut faults = Vec::new();
        for state in self.queues.values() {
            match state {
                QueueState::Ready => {}
                QueueState::Starting => starting = true,
                QueueState::Faulty(fault) => {
                    misconfigured |= matches!(fault, BrokerError::Mismatch(_));
                    faults.push(fault.to_string());
                }
            }
        }
        // The exchanges and the dead-letter queue are shared, and so is their fault.
        faults.dedup();
        match faults.join("; ") {
            text if misconfigured => BrokerState::Misconfigured(text),
            text if !text.is_empty() => BrokerState::Down(text),
            _ if starting => BrokerState::Connecting,
            _ => BrokerState::Ready,
        }
    }
}

/// Keeps a connection up and a task for each queue on it.
async fn supervise(context: Arc<Context>, connection: ConnectionOptions, topology: Topology) {
    let mut backoff = Backoff::new(connection.reconnect_initial, connection.reconnect_max);
    loop {
        let opened = tokio::select! {
            opened = Link::open(&connection) => opened,
            () = context.closed() => return,
        };
        match opened {
            Ok(link) => {
                let since = Instant::now();
                let Some(lost) = consume(&context, &connection, &topology, link).await else {
                    return;
                };
                // One that broke at once is not a success to start afresh from.
                if since.elapsed() >= connection.reconnect_max {
                    backoff.reset();
                }
                context.report_down(format!("the connection to the broker was lost: {lost}"));
            }
            Err(error) => context.report_down(error.to_string()),
        }
        tokio::select! {
            () = sleep(backoff.next_delay()) => {}
            () = context.closed() => return,
        }
    }
}

/// Consumes over one connection until it is lost, and says why; `None` when
/// the consumer was closed.
async fn consume(
    context: &Arc<Context>,
    connection: &ConnectionOptions,
    topology: &Topology,
    link: Link,
) -> Option<String> {
    let link = Arc::new(link);
    context.start(topology);
    let mut tasks = JoinSet::new();
    for queue in topology.queues() {
        let backoff = Backoff::new(connection.reconnect_initial, connection.reconnect_max);
        tasks.spawn(queue::run(
            Arc::clone(context),
            Arc::clone(&link),
            queue.clone(),
            backoff,
        ));
    }
    let lost = tokio::select! {
        lost = link.lost() => Some(lost),
        () = context.closed() => None,
        // They end by themselves only when nobody receives any more, or by a
        // panic, which must not leave a queue without its consumer.
        Some(ended) = tasks.join_next() => Some(match ended {
            Ok(()) => "nobody takes deliveries any more".to_owned(),
            Err(error) => format!("a queue's task ended early: {error}"),
        }),
    };
    if lost.is_none() {
        // While the tasks still hold the channels, since a channel that is
        // closed first would take the last settlements with it.
        link.close().await;
    }
    // Every generation of this connection ends here, before the next begins.
    tasks.shutdown().await;
    lost
}
