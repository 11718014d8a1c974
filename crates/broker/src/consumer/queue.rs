//! Consuming one queue over one connection.
//!
//! Owns the queue's channel and its consumer, of which there is one at a
//! time: a new channel is opened only after the one before was given up. Runs
//! until it is aborted with its connection.
//!
//! lapin ends a consumer's stream when the broker cancels the consumer, when
//! the channel is closed and when the connection is lost. The stream is not
//! relied on for that: the channel's state is looked at as well, and the
//! connection's by the supervisor.
//!
//! Nor is the broker relied on. When a queue is deleted and declared again
//! within some 30 ms, RabbitMQ 3.10 does not cancel its consumers: it ties
//! them to the new queue, hands them messages there that never leave the
//! broker, and shows them as delivered. Nothing that a client can ask tells
//! this from an idle queue. So a channel with nothing in hand on which nothing
//! came for a while is replaced, which also returns what was stuck on it.

use std::pin::pin;
use std::sync::Arc;

use fencepost_core::id::QueueName;
use futures_util::StreamExt as _;
use lapin::Channel;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use tokio::time::{Instant, interval, sleep};

use super::ledger::Life;
use super::{Context, Control, Delivery, QueueState};
use crate::connection::{LOOK, Link};
use crate::error::BrokerError;
use crate::reconnect::Backoff;
use crate::topology::{self, broker_queue, short};

/// Why a channel's life has ended.
enum End {
    /// The channel or its consumer is gone: begin again.
    Broken(BrokerError),
    /// It was idle for so long that it is replaced, to be sure of it.
    Idle,
    /// Nobody receives deliveries any more.
    Unwanted,
}

/// Keeps consuming a queue, channel after channel.
pub(super) async fn run(
    context: Arc<Context>,
    link: Arc<Link>,
    queue: QueueName,
    mut backoff: Backoff,
) {
    loop {
        let since = Instant::now();
        let error = match live(&context, &link, &queue).await {
            Ok(End::Unwanted) => return,
            Ok(End::Idle) => continue,
            Ok(End::Broken(error)) | Err(error) => error,
        };
        context.report(&queue, QueueState::Faulty(error));
        if since.elapsed() >= LOOK * 10 {
            backoff.reset();
        }
        sleep(backoff.next_delay()).await;
    }
}

/// One channel's life.
async fn live(context: &Arc<Context>, link: &Link, queue: &QueueName) -> Result<End, BrokerError> {
    topology::declare(link, queue).await?;
    let channel = link.channel().await?;
    let qos = channel.basic_qos(context.prefetch(queue), BasicQosOptions { global: false });
    link.ask("set the prefetch", qos).await?;
    let life = context.ledger.begin(channel.clone());
    loop {
        if *context.control.borrow() != Control::Consume {
            context.report(queue, QueueState::Ready);
        }
        tokio::select! {
            () = context.told(|control| control == Control::Consume) => {}
            broken = broken(&channel, queue) => return Ok(End::Broken(broken)),
        }
        if let Some(end) = consume(context, link, queue, &channel, &life).await? {
            return Ok(end);
        }
    }
}

/// Consumes until the consumer is paused (`None`) or the channel's life ends.
async fn consume(
    context: &Context,
    link: &Link,
    queue: &QueueName,
    channel: &Channel,
    life: &Life,
) -> Result<Option<End>, BrokerError> {
    let name = broker_queue(queue);
    let consuming = channel.basic_consume(
        short(&name),
        // The broker makes up a tag that no other consumer has.
        ShortString::default(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let doing = format!("consume queue {name}");
    let mut consumer = link.ask(&doing, consuming).await?;
    context.report(queue, QueueState::Ready);
    let tag = consumer.tag();
    let mut cancelled = false;
    let mut last_delivery = Instant::now();
    let mut look = interval(context.idle_refresh);
    let mut pausing = pin!(context.told(|control| control != Control::Consume));
    let mut broken = pin!(broken(channel, queue));
    loop {
        // Room first: a delivery that was taken from lapin is never dropped.
        let next = async {
            let room = context.deliveries.reserve().await;
            (room, consumer.next().await)
        };
        tokio::select! {
            // The stream goes before the channel's state, since it knows why
            // it ended, and after the pause, since it may never run dry.
            biased;
            () = &mut pausing, if !cancelled => {
                let cancel = channel.basic_cancel(tag.clone(), BasicCancelOptions::default());
                link.ask(&format!("stop consuming queue {name}"), cancel).await?;
                cancelled = true;
            }
            (room, next) = next => match (room, next) {
                (Err(_), _) => return Ok(Some(End::Unwanted)),
                (Ok(room), Some(Ok(delivery))) => {
                    last_delivery = Instant::now();
                    room.send(Delivery {
                        tag: life.take(delivery.delivery_tag),
                        queue: queue.clone(),
                        body: delivery.data.into(),
                        redelivered: delivery.redelivered,
                    });
                }
                (Ok(_), Some(Err(error))) => {
                    return Ok(Some(End::Broken(BrokerError::failed(doing, &error))));
                }
                // What the broker had sent before our cancel was delivered above.
                (Ok(_), None) if cancelled && channel.status().connected() => return Ok(None),
                (Ok(_), None) => {
                    let reason = "the broker ended the consumer, as when a queue is deleted".into();
                    return Ok(Some(End::Broken(BrokerError::Failed { doing, reason })));
                }
            },
            _ = look.tick(), if !cancelled => {
                if last_delivery.elapsed() >= context.idle_refresh && life.in_hand() == 0 {
                    return Ok(Some(End::Idle));
                }
            }
            broken = &mut broken => return Ok(Some(End::Broken(broken))),
        }
    }
}

/// Waits until the channel is not usable any more.
async fn broken(channel: &Channel, queue: &QueueName) -> BrokerError {
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        if !channel.status().connected() {
            return BrokerError::Failed {
                doing: format!("consume queue {}", broker_queue(queue)),
                reason: "its channel has ended".to_owned(),
            };
        }
    }
}
