//! From RabbitMQ, over the broker crate's consumer.

use async_trait::async_trait;
use fencepost_broker::{Consumer, ConsumerOptions, Deliveries, Delivery};
use fencepost_core::dispatch;

use super::{Delivered, Source, Token, TokenOf};
use crate::ack::Settlement;

/// A source that consumes.
#[derive(Debug)]
pub struct Amqp {
    consumer: Consumer,
    deliveries: Deliveries,
}

impl Amqp {
    /// Starts consuming; it connects, and connects again, by itself.
    #[must_use]
    pub fn start(options: ConsumerOptions) -> Self {
        let (consumer, deliveries) = Consumer::start(options);
        Self {
            consumer,
            deliveries,
        }
    }

    /// How it stands with the broker.
    pub fn state(&self) -> tokio::sync::watch::Receiver<fencepost_broker::BrokerState> {
        self.consumer.state()
    }
}

fn read(delivery: &Delivery) -> Delivered {
    let jobs = dispatch::decode(&delivery.body).unwrap_or_else(|error| {
        // Its content may be anyone's: the reason is enough.
        tracing::warn!(queue = %delivery.queue, %error, "an unreadable message goes to the dead-letter queue");
        Vec::new()
    });
    Delivered {
        token: Token(TokenOf::Amqp(delivery.tag)),
        jobs,
    }
}

#[async_trait]
impl Source for Amqp {
    async fn next(&mut self) -> Option<Delivered> {
        self.deliveries.recv().await.map(|delivery| read(&delivery))
    }

    fn is_live(&self, token: Token) -> bool {
        match token.0 {
            TokenOf::Amqp(tag) => self.consumer.is_live(tag),
            TokenOf::Poll(_) => false,
        }
    }

    fn settle(&mut self, token: Token, how: Settlement) {
        let TokenOf::Amqp(tag) = token.0 else { return };
        let settled = match how {
            Settlement::Ack | Settlement::PutBack(_) => self.consumer.ack(tag),
            Settlement::Reject => self.consumer.reject(tag),
            Settlement::Requeue => self.consumer.nack_requeue(tag),
            Settlement::Replace | Settlement::Hold => return,
        };
        tracing::trace!(?tag, ?how, ?settled, "settled a delivery");
    }

    fn pause(&mut self) {
        self.consumer.pause();
    }

    fn resume(&mut self) {
        self.consumer.resume();
    }

    async fn close(self: Box<Self>) {
        self.consumer.close().await;
    }
}
