//! Publishing: what counts as a confirm, and what everything else is.

use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use fencepost_broker::{BrokerState, Publication, Publish as _, PublishOutcome};
use fencepost_core::limits::DISPATCH_BYTES_MAX;
use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::wait::{eventually, require};

use crate::setup::*;

#[tokio::test]
async fn an_idle_publisher_has_a_name_a_heartbeat_and_one_channel_in_confirm_mode() {
    let broker = SharedBroker::new().await;
    let publisher = ready_publisher(broker.amqp_url(), &[&queue("jobs")]).await;
    eventually(LIMIT, "one channel in confirm mode", async || {
        let channels = broker.admin().channels().await?;
        let confirming = channels.iter().filter(|channel| channel.confirm).count();
        require(
            channels.len() == 1 && confirming == 1,
            anyhow!("{channels:?}"),
        )
    })
    .await;
    let connections = broker.admin().connections().await.unwrap();
    let seen = connections.iter();
    let seen: Vec<_> = seen
        .map(|c| (c.client.as_str(), c.heartbeat_seconds))
        .collect();
    assert_eq!(seen, [("publisher", 2)]);
    publisher.close().await;
}

#[tokio::test]
async fn a_confirmed_message_is_in_its_queue() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;

    let batch = (0..3_000).map(|token| publication(token, &jobs)).collect();
    let outcomes = publisher.publish(batch).await;
    assert_eq!(outcomes.len(), 3_000);
    for (token, outcome) in outcomes {
        assert_eq!(outcome, PublishOutcome::Confirmed, "message {token}");
    }
    let depth = publisher.depth(&jobs).await.unwrap().unwrap();
    assert_eq!((depth.ready, depth.consumers), (3_000, 0));
    assert_eq!(publisher.depth(&queue("other")).await.unwrap(), None);
}

#[tokio::test]
async fn a_return_is_counted_for_its_own_message_among_many_in_flight() {
    let broker = SharedBroker::new().await;
    let (kept, lost) = (queue("kept"), queue("lost"));
    let publisher = ready_publisher(broker.amqp_url(), &[&kept, &lost]).await;
    let name = broker_name(&lost);
    broker.admin().delete_queue(&name).await.unwrap();

    let to = |token| if token % 3 == 0 { &lost } else { &kept };
    let batch = (0..900)
        .map(|token| publication(token, to(token)))
        .collect();
    for (token, outcome) in publisher.publish(batch).await {
        if token % 3 == 0 {
            let returned = matches!(outcome, PublishOutcome::Returned { .. });
            assert!(returned, "message {token}: {outcome:?}");
        } else {
            assert_eq!(outcome, PublishOutcome::Confirmed, "message {token}");
        }
    }
    // The route is declared again without being asked, and works.
    reaches(publisher.state(), BrokerState::is_ready).await;
    confirmed(&publisher, publication(0, &lost)).await;
    let depth = publisher.depth(&lost).await.unwrap().unwrap();
    assert_eq!(depth.ready, 1);
}

#[tokio::test]
async fn swallowed_confirms_confirm_nothing() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let (url, proxy) = proxied(&broker).await;
    let publisher = ready_publisher(&url, &[&jobs]).await;
    confirmed(&publisher, publication(0, &jobs)).await;

    proxy.set(Mode::BlackHoleToClient);
    let batch = (1..21).map(|token| publication(token, &jobs)).collect();
    for (token, outcome) in publisher.publish(batch).await {
        let unanswered = matches!(
            outcome,
            PublishOutcome::TimedOut | PublishOutcome::ChannelClosed { .. }
        );
        assert!(unanswered, "message {token}: {outcome:?}");
    }
    // They had arrived: a confirm that is missing does not say they had not.
    queue_is(broker.admin(), &jobs, "all 21 have arrived", |q| {
        q.ready == 21
    })
    .await;
    proxy.set(Mode::Pass);
    proxy.cut();
    confirmed(&publisher, publication(21, &jobs)).await;
}

#[tokio::test]
async fn a_message_over_our_limit_is_refused_and_its_neighbours_are_confirmed() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    let large = Publication {
        body: Bytes::from(vec![b' '; DISPATCH_BYTES_MAX + 1]),
        ..publication(2, &jobs)
    };
    let batch = vec![publication(1, &jobs), large, publication(3, &jobs)];
    for (token, outcome) in publisher.publish(batch).await {
        let refused = matches!(outcome, PublishOutcome::Refused { .. });
        assert_eq!(refused, token == 2, "message {token}: {outcome:?}");
        assert_eq!(outcome == PublishOutcome::Confirmed, token != 2);
    }
}

#[tokio::test]
async fn a_deleted_exchange_is_declared_again() {
    let broker = SharedBroker::new().await;
    let jobs = queue("jobs");
    let publisher = ready_publisher(broker.amqp_url(), &[&jobs]).await;
    confirmed(&publisher, publication(0, &jobs)).await;
    broker
        .admin()
        .delete_exchange("fencepost.jobs")
        .await
        .unwrap();

    let outcome = publisher
        .publish(vec![publication(1, &jobs)])
        .await
        .remove(0)
        .1;
    assert!(
        matches!(outcome, PublishOutcome::ChannelClosed { .. }),
        "{outcome:?}"
    );
    confirmed(&publisher, publication(1, &jobs)).await;
    assert_eq!(publisher.depth(&jobs).await.unwrap().unwrap().ready, 2);
}

#[tokio::test]
async fn a_publisher_without_a_broker_answers_at_once_and_hides_its_password() {
    let jobs = queue("jobs");
    let closed = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let publisher = publisher(&format!("amqp://me:s3cret@127.0.0.1:{port}/v"), &[&jobs]);
    let down = reaches(publisher.state(), |s| matches!(s, BrokerState::Down(_))).await;
    let text = down.to_string();
    assert!(text.contains(&format!("127.0.0.1:{port}/v")), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    let outcomes = publisher.publish(vec![publication(1, &jobs)]).await;
    assert!(matches!(
        outcomes[..],
        [(1, PublishOutcome::ChannelClosed { .. })]
    ));
    assert!(publisher.depth(&jobs).await.is_err());
}

#[tokio::test]
async fn a_wrong_password_is_said_in_the_brokers_words() {
    let broker = SharedBroker::new().await;
    let url = broker.amqp_url().replace("guest:guest", "guest:s3cret");
    let publisher = publisher(&url, &[&queue("jobs")]);
    let down = reaches(publisher.state(), |s| matches!(s, BrokerState::Down(_))).await;
    let text = down.to_string();
    assert!(
        text.contains("ACCESS_REFUSED") && !text.contains("s3cret"),
        "{text}"
    );
}

#[tokio::test]
async fn connections_that_were_given_up_leave_no_thread_behind() {
    let broker = SharedBroker::new().await;
    let (url, proxy) = proxied(&broker).await;
    // Accepted, and never answered.
    proxy.set(Mode::BlackHole);
    let mut options = connection(&url, "publisher");
    options.connect_limit = Duration::from_millis(200);
    options.reconnect_initial = Duration::from_millis(1);
    options.reconnect_max = Duration::from_millis(1);
    let publisher = fencepost_broker::Publisher::start(fencepost_broker::PublisherOptions::new(
        options,
        fencepost_broker::Topology::new([queue("jobs")]),
    ));
    let mut most = 0;
    let mut attempts = publisher.state();
    eventually(LIMIT, "some attempts", async || {
        most = most.max(threads_of_lapin());
        require(
            attempts
                .borrow_and_update()
                .to_string()
                .contains("no answer"),
            "none yet",
        )
    })
    .await;
    drop(publisher);
    assert!(most >= 1, "the attempts were not seen");
    eventually(LIMIT, "no thread is left", async || {
        require(
            threads_of_lapin() == 0,
            format!("{} threads", threads_of_lapin()),
        )
    })
    .await;
}

/// Threads that drive a connection; each test has a process of its own.
fn threads_of_lapin() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("lapin-io-loop"))
        .count()
}

/// A proxy in front of the shared broker, and the URL that leads through it.
pub(crate) async fn proxied(broker: &SharedBroker) -> (String, Proxy) {
    let (start, end) = broker.amqp_url().split_once('@').unwrap();
    let (address, vhost) = end.split_once('/').unwrap();
    let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
    (format!("{start}@{}/{vhost}", proxy.address()), proxy)
}
