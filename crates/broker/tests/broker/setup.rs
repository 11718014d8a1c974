//! What the tests start from: short limits, and words for what they wait for.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use fencepost_broker::{
    BrokerState, ConnectionOptions, Consumer, ConsumerOptions, Deliveries, Delivery, Publication,
    Publish as _, PublishOutcome, Publisher, PublisherOptions, Topology,
};
use fencepost_core::id::QueueName;
use fencepost_testkit::broker::{Admin, Queue};
use fencepost_testkit::wait::{eventually, require};
use tokio::sync::watch;
use tokio::time::timeout;

/// For whatever should happen within seconds, on a machine busy with builds.
pub(crate) const LIMIT: Duration = Duration::from_secs(45);

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn broker_name(queue: &QueueName) -> String {
    fencepost_broker::topology::broker_queue(queue)
}

pub(crate) fn connection(url: &str, client: &str) -> ConnectionOptions {
    ConnectionOptions {
        heartbeat: Duration::from_secs(2),
        connect_limit: Duration::from_secs(3),
        ..ConnectionOptions::new(url.parse().unwrap(), client)
    }
}

pub(crate) fn publisher(url: &str, queues: &[&QueueName]) -> Publisher {
    Publisher::start(PublisherOptions {
        confirm_limit: Duration::from_secs(5),
        ..PublisherOptions::new(connection(url, "publisher"), topology(queues))
    })
}

pub(crate) async fn ready_publisher(url: &str, queues: &[&QueueName]) -> Publisher {
    let publisher = publisher(url, queues);
    reaches(publisher.state(), BrokerState::is_ready).await;
    publisher
}

pub(crate) fn consumer_options(url: &str, queues: &[&QueueName]) -> ConsumerOptions {
    let prefetch = NonZeroU16::new(100).unwrap();
    ConsumerOptions::new(connection(url, "consumer"), topology(queues), prefetch)
}

pub(crate) fn consumer(url: &str, queues: &[&QueueName]) -> (Consumer, Deliveries) {
    Consumer::start(consumer_options(url, queues))
}

pub(crate) async fn ready_consumer(url: &str, queues: &[&QueueName]) -> (Consumer, Deliveries) {
    let (consumer, deliveries) = consumer(url, queues);
    reaches(consumer.state(), BrokerState::is_ready).await;
    (consumer, deliveries)
}

fn topology(queues: &[&QueueName]) -> Topology {
    Topology::new(queues.iter().map(|queue| (*queue).clone()))
}

pub(crate) fn publication(token: u64, queue: &QueueName) -> Publication {
    Publication {
        token,
        queue: queue.clone(),
        body: format!("message {token}").into(),
    }
}

/// Publishes a message until it is confirmed.
pub(crate) async fn confirmed(publisher: &Publisher, message: Publication) {
    eventually(LIMIT, "a confirm", async || {
        let outcome = publisher.publish(vec![message.clone()]).await.remove(0).1;
        require(outcome == PublishOutcome::Confirmed, format!("{outcome:?}"))
    })
    .await;
}

/// Waits for a state of this kind, and returns it.
pub(crate) async fn reaches(
    mut state: watch::Receiver<BrokerState>,
    wanted: impl Fn(&BrokerState) -> bool,
) -> BrokerState {
    let waiting = state.wait_for(|state| wanted(state));
    let reached = timeout(LIMIT, async { waiting.await.unwrap().clone() }).await;
    reached.unwrap_or_else(|_| panic!("not within {LIMIT:?}; the state is {:?}", *state.borrow()))
}

pub(crate) async fn next(deliveries: &mut Deliveries) -> Delivery {
    let next = timeout(LIMIT, deliveries.recv()).await;
    next.expect("a delivery in time").expect("a live consumer")
}

/// Waits until the broker reports a queue like this.
pub(crate) async fn queue_is(
    admin: &Admin,
    queue: &QueueName,
    what: &str,
    wanted: impl Fn(&Queue) -> bool,
) {
    let name = broker_name(queue);
    eventually(LIMIT, what, async || -> Result<()> {
        let found = admin.queue(&name).await?.context("there is no queue")?;
        require(wanted(&found), anyhow!("{found:?}"))
    })
    .await;
}
