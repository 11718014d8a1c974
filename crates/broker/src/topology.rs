//! Which exchanges and queues there are.
//!
//! Owns their names and arguments, and declaring them; there is no other
//! place that creates anything at the broker. Declaring what exists as we
//! would make it changes nothing, so every process declares what it uses.
//!
//! ```text
//! fencepost.jobs (direct) ──<queue>──▶ fencepost.jobs.<queue> (quorum)
//!                                            │ rejected, or returned too often
//!                                            ▼
//! fencepost.dead (fanout) ──────────▶ fencepost.dead (quorum, bounded)
//! ```

use std::collections::BTreeSet;

use fencepost_core::id::QueueName;
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::connection::Link;
use crate::error::{BrokerError, is_not_found};

/// The exchange that dispatches are published to; the routing key is the queue.
pub const JOBS_EXCHANGE: &str = "fencepost.jobs";

/// The exchange and queue of messages that no worker could read.
pub const DEAD: &str = "fencepost.dead";

/// How often a message may come back before the broker sets it aside.
///
/// Far above what restarts of workers and consumer timeouts amount to, so that
/// only a message that kills whoever takes it gets there; its job is safe in
/// the database and dispatched anew.
pub const DELIVERY_LIMIT: u32 = 100;

/// How many dead messages are kept, the newest: they are evidence for a
/// person, and at half a MiB at most each they must not fill the broker.
pub const DEAD_MESSAGES_MAX: u32 = 10_000;

/// The queues that a process publishes to or consumes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    queues: BTreeSet<QueueName>,
}

/// What the broker holds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages that wait for a consumer; those in hand are not among them.
    pub ready: u32,
    /// Consumers of all workers.
    pub consumers: u32,
}

impl Topology {
    /// The topology of these queues.
    pub fn new(queues: impl IntoIterator<Item = QueueName>) -> Self {
        Self {
            queues: queues.into_iter().collect(),
        }
    }

    /// Its queues, each once, in order.
    pub fn queues(&self) -> impl ExactSizeIterator<Item = &QueueName> {
        self.queues.iter()
    }
}

/// The name of a queue at the broker.
pub fn broker_queue(queue: &QueueName) -> String {
    format!("{JOBS_EXCHANGE}.{queue}")
}

/// Declares a queue and all that its messages meet on their way.
///
/// Everything is declared on a channel of its own, since the broker closes
/// the channel of a declaration that it refuses.
pub(crate) async fn declare(link: &Link, queue: &QueueName) -> Result<(), BrokerError> {
    declare_exchange(link, DEAD, ExchangeKind::Fanout).await?;
    let bounded = [
        ("x-max-length", AMQPValue::from(DEAD_MESSAGES_MAX)),
        ("x-overflow", text("drop-head")),
    ];
    declare_queue(link, DEAD, bounded, DEAD, "").await?;
    declare_exchange(link, JOBS_EXCHANGE, ExchangeKind::Direct).await?;
    let dead_lettered = [
        ("x-delivery-limit", AMQPValue::from(DELIVERY_LIMIT)),
        ("x-dead-letter-exchange", text(DEAD)),
    ];
    let name = broker_queue(queue);
    declare_queue(link, &name, dead_lettered, JOBS_EXCHANGE, queue.as_str()).await
}

/// Asks for a queue's depth; `None` when there is no such queue.
pub(crate) async fn depth(
    link: &Link,
    queue: &QueueName,
) -> Result<Option<QueueDepth>, BrokerError> {
    let name = broker_queue(queue);
    let doing = format!("ask for the depth of queue {name}");
    let channel = link.channel().await?;
    let passive = QueueDeclareOptions::durable().passive();
    let asked = channel.queue_declare(short(&name), passive, FieldTable::default());
    match link.limited(&doing, asked).await? {
        Ok(queue) => Ok(Some(QueueDepth {
            ready: queue.message_count(),
            consumers: queue.consumer_count(),
        })),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(BrokerError::failed(doing, &error)),
    }
}

async fn declare_exchange(link: &Link, name: &str, kind: ExchangeKind) -> Result<(), BrokerError> {
    let channel = link.channel().await?;
    let what = format!("exchange {name}");
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let asked = channel.exchange_declare(short(name), kind, durable, FieldTable::default());
    let declared = link.limited(&format!("declare {what}"), asked).await?;
    declared.map_err(|error| BrokerError::declaring(&what, &error))
}

async fn declare_queue<const N: usize>(
    link: &Link,
    name: &str,
    arguments: [(&str, AMQPValue); N],
    exchange: &str,
    routing_key: &str,
) -> Result<(), BrokerError> {
    let channel = link.channel().await?;
    let what = format!("queue {name}");
    let mut table = FieldTable::default();
    table.insert(short("x-queue-type"), text("quorum"));
    for (argument, value) in arguments {
        table.insert(short(argument), value);
    }
    let asked = channel.queue_declare(short(name), QueueDeclareOptions::durable(), table);
    let declared = link.limited(&format!("declare {what}"), asked).await?;
    declared.map_err(|error| BrokerError::declaring(&what, &error))?;
    let bound = channel.queue_bind(
        short(name),
        short(exchange),
        short(routing_key),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    link.ask(&format!("bind {what}"), bound).await
}

/// Our names are short enough: a queue's name is bounded with AMQP's limit in mind.
pub(crate) fn short(name: &str) -> ShortString {
    ShortString::from(name)
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::limits::NAME_BYTES_MAX;

    #[test]
    fn the_longest_queue_name_fits_the_protocol() {
        let longest = QueueName::new("q".repeat(NAME_BYTES_MAX)).unwrap();
        assert!(ShortString::try_new(broker_queue(&longest)).is_ok());
    }

    #[test]
    fn a_queue_is_in_a_topology_once() {
        let name = |name: &str| QueueName::new(name).unwrap();
        let topology = Topology::new([name("b"), name("a"), name("b")]);
        assert_eq!(
            topology.queues().collect::<Vec<_>>(),
            [&name("a"), &name("b")]
        );
    }
}
