//! Consuming: settlement, tags, and one consumer per queue whatever happens.

use std::time::Duration;

use anyhow::anyhow;
use fencepost_broker::{
    BrokerState, Consumer, ConsumerOptions, Publication, Publish as _, Settlement,
};
use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::wait::{eventually, require};
use tokio::time::Instant;

use crate::publishing::proxied;
use crate::setup::*;

#[tokio::test]
async fn each_settlement_does_what_it_says() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    let unreadable = Publication {
        body: vec![0, 159, 146, 150].into(),
        ..publication(1, &jobs)
    };
    confirmed(&publisher, unreadable.clone()).await;
    let delivery = next(&mut deliveries).await;
    assert_eq!((&delivery.body, &delivery.queue), (&unreadable.body, &jobs));
    assert!(!delivery.redelivered);

    assert_eq!(consumer.nack_requeue(delivery.tag), Settlement::Sent);
    let again = next(&mut deliveries).await;
    assert_eq!((&again.body, again.redelivered), (&unreadable.body, true));
    assert_ne!(again.tag, delivery.tag);
    assert_eq!(consumer.reject(again.tag), Settlement::Sent);

    confirmed(&publisher, publication(2, &jobs)).await;
    let second = next(&mut deliveries).await;
    assert_eq!(second.body, "message 2");
    assert_eq!(consumer.ack(second.tag), Settlement::Sent);
    queue_is(broker.admin(), &jobs, "nothing is left in hand", |q| {
        (q.ready, q.unacked, q.consumers) == (0, 0, 1)
    })
    .await;
    let dead = broker.admin().messages("fencepost.dead", 5).await.unwrap();
    assert_eq!(dead.len(), 1, "{dead:?}");
}

#[tokio::test]
async fn settling_twice_or_with_a_made_up_tag_costs_nothing() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    let tag = next(&mut deliveries).await.tag;
    assert_eq!(consumer.ack(tag), Settlement::Sent);
    assert_eq!(consumer.ack(tag), Settlement::Repeated);
    assert_eq!(consumer.reject(tag), Settlement::Repeated);
    let mut foreign = tag;
    foreign.generation += 1;
    assert_eq!(consumer.ack(foreign), Settlement::Stale);

    confirmed(&publisher, publication(2, &jobs)).await;
    let second = next(&mut deliveries).await.tag;
    assert_eq!(second.generation, tag.generation, "the channel was lost");
}

#[tokio::test]
async fn closing_flushes_the_settlements_made_before() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let batch = (0..31).map(|token| publication(token, &jobs)).collect();
    assert_eq!(publisher.publish(batch).await.len(), 31);
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    // RabbitMQ has at most 32 at a time on their way to a quorum queue, and
    // forgets the rest when the channel ends; those messages come again.
    for _ in 0..30 {
        assert_eq!(
            consumer.ack(next(&mut deliveries).await.tag),
            Settlement::Sent
        );
    }
    consumer.close().await;
    // The one that was not settled is back.
    queue_is(broker.admin(), &jobs, "one message is left", |q| {
        (q.ready, q.unacked, q.consumers) == (1, 0, 0)
    })
    .await;
    assert_eq!(publisher.depth(&jobs).await.unwrap().unwrap().ready, 1);
}

#[tokio::test]
async fn a_paused_consumer_keeps_what_is_in_hand_and_takes_nothing_more() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    let held = next(&mut deliveries).await;

    consumer.pause();
    // Not the queue's figure: it counts a cancelled consumer for as long as
    // something is in its hand.
    eventually(LIMIT, "the channel has no consumer", async || {
        let channels = broker.admin().channels().await?;
        let consuming = channels.iter().filter(|channel| channel.consumers > 0);
        require(consuming.count() == 0, anyhow!("{channels:?}"))
    })
    .await;
    confirmed(&publisher, publication(2, &jobs)).await;
    queue_is(broker.admin(), &jobs, "the second message waits", |q| {
        (q.ready, q.unacked) == (1, 1)
    })
    .await;
    assert_eq!(deliveries.try_recv(), None);
    assert!(consumer.is_live(held.tag) && consumer.state().borrow().is_ready());

    // Back and forth must not leave a consumer too many.
    for _ in 0..5 {
        consumer.resume();
        consumer.pause();
    }
    consumer.resume();
    let second = next(&mut deliveries).await;
    assert_eq!(second.body, "message 2");
    assert_eq!(consumer.ack(held.tag), Settlement::Sent);
    assert_eq!(consumer.ack(second.tag), Settlement::Sent);
    queue_is(
        broker.admin(),
        &jobs,
        "one consumer, nothing in hand",
        |q| (q.ready, q.unacked, q.consumers) == (0, 0, 1),
    )
    .await;
}

#[tokio::test]
async fn a_connection_closed_by_an_operator_is_replaced_once() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    let held = next(&mut deliveries).await;
    let mut generations = consumer.generations();
    generations.borrow_and_update();

    let closed = eventually(LIMIT, "it is listed", async || {
        match broker.admin().close_connections("consumer").await {
            Ok(1) => Ok(1),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(closed.await, 1);
    broker.admin().close_connections("publisher").await.unwrap();
    let again = next(&mut deliveries).await;
    assert!(again.redelivered);
    assert_eq!(again.body, held.body);
    assert!(generations.has_changed().unwrap(), "nobody was told");
    assert!(!consumer.is_live(held.tag) && consumer.is_live(again.tag));
    assert_eq!(consumer.ack(held.tag), Settlement::Stale);
    assert_eq!(consumer.ack(again.tag), Settlement::Sent);
    confirmed(&publisher, publication(2, &jobs)).await;
    let second = next(&mut deliveries).await;
    assert_eq!(consumer.ack(second.tag), Settlement::Sent);
    queue_is(
        broker.admin(),
        &jobs,
        "one consumer, nothing in hand",
        |q| (q.ready, q.unacked, q.consumers) == (0, 0, 1),
    )
    .await;
}

#[tokio::test]
async fn a_deleted_queue_is_declared_again_and_consumed_once() {
    let broker = SharedBroker::new().await;
    let (jobs, other) = (queue("jobs"), queue("other"));
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs, &other]).await;
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs, &other]).await;
    let (second, mut seconds) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &other)).await;
    let untouched = next(&mut deliveries).await;

    let name = broker_name(&jobs);
    broker.admin().delete_queue(&name).await.unwrap();
    confirmed(&publisher, publication(2, &jobs)).await;
    let settled = tokio::select! {
        delivery = next(&mut deliveries) => consumer.ack(delivery.tag),
        delivery = next(&mut seconds) => second.ack(delivery.tag),
    };
    assert_eq!(settled, Settlement::Sent);
    queue_is(broker.admin(), &jobs, "two consumers", |q| {
        (q.ready, q.unacked, q.consumers) == (0, 0, 2)
    })
    .await;
    assert!(
        consumer.is_live(untouched.tag),
        "the other queue was disturbed"
    );
}

#[tokio::test]
async fn a_consumer_that_the_broker_forgot_is_replaced() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = Consumer::start(ConsumerOptions {
        idle_refresh: Duration::from_secs(1),
        ..consumer_options(broker.amqp_url(), &[&jobs])
    });
    reaches(consumer.state(), BrokerState::is_ready).await;
    // Another process declares the queue again before the broker has told
    // the consumer of its end.
    let name = broker_name(&jobs);
    broker.admin().delete_queue(&name).await.unwrap();
    let declaring = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    let delivery = next(&mut deliveries).await;
    assert_eq!(consumer.ack(delivery.tag), Settlement::Sent);
    queue_is(broker.admin(), &jobs, "one consumer", |q| {
        (q.ready, q.unacked, q.consumers) == (0, 0, 1)
    })
    .await;
    declaring.close().await;
}

#[tokio::test]
async fn a_message_that_comes_back_too_often_is_dead_lettered() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    for _ in 0..=fencepost_broker::topology::DELIVERY_LIMIT {
        let tag = next(&mut deliveries).await.tag;
        assert_eq!(consumer.nack_requeue(tag), Settlement::Sent);
    }
    eventually(LIMIT, "it is dead", async || {
        let dead = broker.admin().messages("fencepost.dead", 5).await;
        match dead.as_deref() {
            Ok([text]) if text == "message 1" => Ok(()),
            _ => Err(format!("{dead:?}")),
        }
    })
    .await;
    assert_eq!(deliveries.try_recv(), None);
}

#[tokio::test]
async fn a_silent_network_is_noticed_and_the_consumer_replaced_once() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let (url, proxy) = proxied(&broker).await;
    let (consumer, mut deliveries) = ready_consumer(&url, &[&jobs]).await;

    proxy.set(Mode::BlackHole);
    let silent = Instant::now();
    reaches(consumer.state(), |s| matches!(s, BrokerState::Down(_))).await;
    println!(
        "silence was noticed after {:?}; the heartbeat is 2 s",
        silent.elapsed()
    );
    confirmed(&publisher, publication(1, &jobs)).await;
    proxy.set(Mode::Pass);
    let healed = Instant::now();
    let delivery = next(&mut deliveries).await;
    println!(
        "consuming again {:?} after the network came back",
        healed.elapsed()
    );
    assert_eq!(consumer.ack(delivery.tag), Settlement::Sent);
    queue_is(broker.admin(), &jobs, "one consumer", |q| {
        (q.ready, q.unacked, q.consumers) == (0, 0, 1)
    })
    .await;
}
