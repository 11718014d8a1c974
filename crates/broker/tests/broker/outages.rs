//! Brokers that die, fill up, or are set up in an awkward way.

use fencepost_broker::{BrokerState, Publication, Publish as _, PublishOutcome, Settlement};
use fencepost_testkit::broker::{BrokerNode, NodeOptions};
use fencepost_testkit::wait::{eventually, require};
use tokio::time::Instant;

use crate::setup::*;

#[tokio::test]
async fn a_killed_broker_loses_nothing_confirmed_and_both_sides_come_back() {
    let mut node = BrokerNode::start(NodeOptions::default()).await.unwrap();
    let jobs = queue("jobs");
    let publisher = ready_publisher(&node.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(&node.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    let held = next(&mut deliveries).await;

    node.kill_9().await.unwrap();
    reaches(publisher.state(), |s| matches!(s, BrokerState::Down(_))).await;
    reaches(consumer.state(), |s| matches!(s, BrokerState::Down(_))).await;
    assert_eq!(consumer.ack(held.tag), Settlement::Stale);
    let outcome = publisher
        .publish(vec![publication(2, &jobs)])
        .await
        .remove(0)
        .1;
    assert!(
        matches!(outcome, PublishOutcome::ChannelClosed { .. }),
        "{outcome:?}"
    );

    node.restart().await.unwrap();
    let back = Instant::now();
    reaches(publisher.state(), BrokerState::is_ready).await;
    reaches(consumer.state(), BrokerState::is_ready).await;
    println!("both are ready {:?} after the broker is", back.elapsed());
    let again = next(&mut deliveries).await;
    assert_eq!((&again.body, again.redelivered), (&held.body, true));
    assert_eq!(consumer.ack(again.tag), Settlement::Sent);
    confirmed(&publisher, publication(2, &jobs)).await;
    let second = next(&mut deliveries).await;
    assert_eq!(consumer.ack(second.tag), Settlement::Sent);
    queue_is(&node.admin(), &jobs, "one consumer, nothing in hand", |q| {
        (q.ready, q.unacked, q.consumers) == (0, 0, 1)
    })
    .await;
}

#[tokio::test]
async fn a_full_broker_blocks_publishing_and_is_used_again_when_it_has_room() {
    let node = BrokerNode::start(NodeOptions::default()).await.unwrap();
    let jobs = queue("jobs");
    let publisher = ready_publisher(&node.amqp_url(), &[&jobs]).await;
    let (consumer, mut deliveries) = ready_consumer(&node.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(1, &jobs)).await;
    let held = next(&mut deliveries).await;

    node.raise_alarm().await.unwrap();
    for token in 2..5 {
        let outcome = publisher
            .publish(vec![publication(token, &jobs)])
            .await
            .remove(0)
            .1;
        assert_eq!(outcome, PublishOutcome::TimedOut);
        assert_eq!(*publisher.state().borrow(), BrokerState::Blocked);
    }
    // A consumer is not blocked: settling is what makes room.
    assert!(consumer.state().borrow().is_ready());
    assert_eq!(consumer.ack(held.tag), Settlement::Sent);
    queue_is(&node.admin(), &jobs, "the ack arrives", |q| q.unacked == 0).await;

    node.clear_alarm().await.unwrap();
    reaches(publisher.state(), BrokerState::is_ready).await;
    confirmed(&publisher, publication(5, &jobs)).await;
    // Of those that timed out at most the first was on its way.
    let mut bodies = Vec::new();
    eventually(LIMIT, "the last message", async || {
        while let Some(delivery) = deliveries.try_recv() {
            assert_eq!(consumer.ack(delivery.tag), Settlement::Sent);
            bodies.push(delivery.body);
        }
        require(bodies.iter().any(|body| body == "message 5"), "not yet")
    })
    .await;
    assert!(bodies.len() <= 2, "{bodies:?}");
}

#[tokio::test]
async fn a_delivery_held_beyond_the_consumer_timeout_disturbs_only_its_own_queue() {
    let node = BrokerNode::start(NodeOptions {
        config: vec!["consumer_timeout = 3000".into()],
        // How often channels look for deliveries that are held too long.
        advanced: vec!["{channel_tick_interval, 500}".into()],
    })
    .await
    .unwrap();
    let (long, short) = (queue("long"), queue("short"));
    let publisher = ready_publisher(&node.amqp_url(), &[&long, &short]).await;
    let (consumer, mut deliveries) = ready_consumer(&node.amqp_url(), &[&long, &short]).await;
    confirmed(&publisher, publication(1, &long)).await;
    let held = next(&mut deliveries).await;
    confirmed(&publisher, publication(2, &short)).await;
    let other = next(&mut deliveries).await;
    assert_eq!(consumer.ack(other.tag), Settlement::Sent);

    let again = next(&mut deliveries).await;
    assert_eq!((&again.body, again.redelivered), (&held.body, true));
    assert!(!consumer.is_live(held.tag) && consumer.is_live(again.tag));
    assert_eq!(consumer.ack(held.tag), Settlement::Stale);
    assert_eq!(consumer.ack(again.tag), Settlement::Sent);
    confirmed(&publisher, publication(3, &short)).await;
    let third = next(&mut deliveries).await;
    assert_eq!(
        third.tag.generation, other.tag.generation,
        "the other queue was disturbed"
    );
    assert_eq!(consumer.ack(third.tag), Settlement::Sent);
    for queue in [&long, &short] {
        queue_is(&node.admin(), queue, "one consumer, nothing in hand", |q| {
            (q.ready, q.unacked, q.consumers) == (0, 0, 1)
        })
        .await;
    }
}

#[tokio::test]
async fn a_message_that_the_broker_does_not_take_is_refused_alone() {
    let node = BrokerNode::start(NodeOptions {
        config: vec!["max_message_size = 100000".into()],
        ..NodeOptions::default()
    })
    .await
    .unwrap();
    let jobs = queue("jobs");
    let publisher = ready_publisher(&node.amqp_url(), &[&jobs]).await;
    let large = Publication {
        body: vec![b' '; 200_000].into(),
        ..publication(2, &jobs)
    };
    let batch = vec![publication(1, &jobs), large.clone(), publication(3, &jobs)];
    for (token, outcome) in publisher.publish(batch).await {
        // In company, nobody can tell whose fault it was.
        let innocent = matches!(
            outcome,
            PublishOutcome::Confirmed | PublishOutcome::ChannelClosed { .. }
        );
        assert!(innocent, "message {token}: {outcome:?}");
        assert!(token != 2 || outcome != PublishOutcome::Confirmed);
    }
    reaches(publisher.state(), BrokerState::is_ready).await;
    let alone = publisher.publish(vec![large]).await.remove(0).1;
    assert!(matches!(alone, PublishOutcome::Refused { .. }), "{alone:?}");
    confirmed(&publisher, publication(3, &jobs)).await;
}

#[tokio::test]
async fn a_frozen_broker_is_noticed_by_its_silence() {
    let node = BrokerNode::start(NodeOptions::default()).await.unwrap();
    let jobs = queue("jobs");
    let publisher = ready_publisher(&node.amqp_url(), &[&jobs]).await;
    node.pause().await.unwrap();
    let frozen = Instant::now();
    let outcome = publisher
        .publish(vec![publication(1, &jobs)])
        .await
        .remove(0)
        .1;
    assert_ne!(outcome, PublishOutcome::Confirmed);
    reaches(publisher.state(), |s| matches!(s, BrokerState::Down(_))).await;
    println!("noticed after {:?}; the heartbeat is 2 s", frozen.elapsed());
    node.resume().await.unwrap();
    confirmed(&publisher, publication(2, &jobs)).await;
}
