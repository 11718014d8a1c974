//! Queues that exist in another shape.

use fencepost_broker::{BrokerState, Publish as _, PublishOutcome, Settlement};
use fencepost_testkit::broker::SharedBroker;
use serde_json::{Value, json};

use crate::setup::*;

async fn is_named_and_used_once_it_is_gone(durable: bool, arguments: Value, argument: &str) {
    let broker = SharedBroker::new().await;
    let (wrong, right) = (queue("wrong"), queue("right"));
    let name = broker_name(&wrong);
    let declared = broker
        .admin()
        .declare_queue(&name, durable, arguments)
        .await;
    declared.unwrap();
    let publisher = publisher(broker.amqp_url(), &[&wrong, &right]);
    let (consumer, mut deliveries) = consumer(broker.amqp_url(), &[&wrong, &right]);

    let misconfigured = |s: &BrokerState| matches!(s, BrokerState::Misconfigured(_));
    for state in [publisher.state(), consumer.state()] {
        let text = reaches(state, misconfigured).await.to_string();
        let start = format!("queue {name} exists with {argument} ");
        assert!(text.starts_with(&start), "{text}");
    }
    // The other queue is served meanwhile, and nothing is sent to this one.
    confirmed(&publisher, publication(1, &right)).await;
    assert_eq!(next(&mut deliveries).await.queue, right);
    let outcome = publisher
        .publish(vec![publication(2, &wrong)])
        .await
        .remove(0)
        .1;
    let unavailable = matches!(&outcome,
        PublishOutcome::RouteUnavailable { reason } if reason.contains(argument));
    assert!(unavailable, "{outcome:?}");
    assert!(misconfigured(&publisher.state().borrow()));

    broker.admin().delete_queue(&name).await.unwrap();
    reaches(publisher.state(), BrokerState::is_ready).await;
    reaches(consumer.state(), BrokerState::is_ready).await;
    confirmed(&publisher, publication(2, &wrong)).await;
    let delivery = next(&mut deliveries).await;
    assert_eq!(delivery.queue, wrong);
    assert_eq!(consumer.ack(delivery.tag), Settlement::Sent);
    queue_is(broker.admin(), &wrong, "one consumer", |q| q.consumers == 1).await;
}

#[tokio::test]
async fn a_classic_queue_is_named_and_used_once_it_is_gone() {
    let classic = json!({
        "x-dead-letter-exchange": "fencepost.dead",
    });
    is_named_and_used_once_it_is_gone(true, classic, "x-queue-type").await;
}

#[tokio::test]
async fn a_queue_with_other_arguments_is_named_and_used_once_it_is_gone() {
    let quorum = json!({"x-queue-type": "quorum", "x-max-length": 5});
    is_named_and_used_once_it_is_gone(true, quorum, "x-dead-letter-exchange").await;
}

#[tokio::test]
async fn a_transient_queue_is_named_and_used_once_it_is_gone() {
    is_named_and_used_once_it_is_gone(false, json!({}), "durable").await;
}
