//! Faults of the broker and of what is in it, seen through whole processes.

use std::time::Duration;

use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Volume};
use serde_json::json;

use crate::workers::{ledger_worker, noted};

const QUEUE: &str = "fencepost.jobs.ledger";

/// The address of an AMQP URL replaced by a proxy's.
async fn behind_a_proxy(url: &str) -> (Proxy, String) {
    let parts = url.split_once('@').and_then(|(credential, place)| {
        let (address, vhost) = place.split_once('/')?;
        Some((credential, address.parse().ok()?, vhost))
    });
    let (credential, address, vhost) = parts.expect("a URL with a user, an address and a vhost");
    let proxy = Proxy::start(address).await.expect("a free port");
    let url = format!("{credential}@{}/{vhost}", proxy.address());
    (proxy, url)
}

#[tokio::test]
async fn nothing_is_marked_published_while_confirms_are_swallowed() {
    let broker = SharedBroker::new().await;
    let (proxy, url) = behind_a_proxy(broker.amqp_url()).await;
    let volume = Volume::new().with_broker(&url);
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let relay = volume.start("relay");
    eventually(PATIENCE, "the relay has declared the queue", async || {
        let queue = broker.admin().queue(QUEUE).await;
        require(
            queue.as_ref().is_ok_and(Option::is_some),
            format!("{queue:?}"),
        )
    })
    .await;
    proxy.set(Mode::BlackHoleToClient);
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(client.accepted(&format!("k{n}"), "ledger", json!({})).await);
    }
    // Messages arrive; only their confirms do not.
    eventually(PATIENCE, "the broker has messages", async || {
        let queue = broker.admin().queue(QUEUE).await;
        let ready = queue.ok().flatten().map_or(0, |queue| queue.ready);
        require(ready > 0, ready)
    })
    .await;
    eventually(
        PATIENCE,
        "the relay says that no confirm came",
        async || require(relay.log().contains("the route is at fault"), relay.log()),
    )
    .await;
    for id in &ids {
        assert_eq!(client.events(id).await, ["accepted"]);
    }
    proxy.set(Mode::Pass);
    proxy.cut();
    let _worker = ledger_worker(&volume, "ledger");
    for id in &ids {
        assert_eq!(client.at_rest(id).await["state"], "completed");
        let events = client.events(id).await;
        assert_eq!(
            events.iter().filter(|kind| *kind == "claimed").count(),
            1,
            "{events:?}"
        );
    }
    eventually(
        PATIENCE,
        "the relay's channel is in confirm mode",
        async || {
            let channels = broker.admin().channels().await.unwrap_or_default();
            let confirms = channels
                .iter()
                .any(|channel| channel.consumers == 0 && channel.confirm);
            require(confirms, format!("{channels:?}"))
        },
    )
    .await;
    volume.verify();
}

#[tokio::test]
async fn messages_that_nobody_can_read_are_dealt_with_once() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let _relay = volume.start("relay");
    let _worker = ledger_worker(&volume, "ledger");
    let done = client.accepted("done", "ledger", json!({})).await;
    client.at_rest(&done).await;
    let nobody = "018f0d5e-7a31-7c3a-9a39-0242ac120002";
    let naming = |id: &str| format!(r#"{{"v":1,"jobs":[{{"id":"{id}","kind":"ledger"}}]}}"#);
    let zeros = "\0".repeat(100_000);
    let publish = async |body: &str| {
        assert!(
            broker
                .admin()
                .publish("fencepost.jobs", "ledger", body)
                .await
                .unwrap()
        );
    };
    for body in [
        "{",
        "",
        zeros.as_str(),
        r#"{"v":2,"work":1}"#,
        naming(nobody).as_str(),
    ] {
        publish(body).await;
    }
    for _ in 0..100 {
        publish(&naming(&done)).await;
    }
    for n in 0..10 {
        let id = client.accepted(&format!("k{n}"), "ledger", json!({})).await;
        assert_eq!(client.at_rest(&id).await["state"], "completed");
    }
    eventually(
        PATIENCE,
        "five messages in the dead-letter queue and none in hand",
        async || {
            let dead = broker
                .admin()
                .queue("fencepost.dead")
                .await
                .ok()
                .flatten()
                .map_or(0, |queue| queue.ready);
            let live = broker.admin().queue(QUEUE).await.ok().flatten();
            let left = live.map_or(u64::MAX, |queue| queue.ready + queue.unacked);
            require((dead, left) == (5, 0), format!("{dead} dead, {left} left"))
        },
    )
    .await;
    assert_eq!(
        volume
            .ledger()
            .iter()
            .filter(|line| line.starts_with(&done))
            .count(),
        2,
        "one start, one call"
    );
    volume.verify();
}

#[tokio::test]
async fn workers_consume_again_after_closed_connections_and_a_deleted_queue() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let relay = volume.start("relay");
    let workers = [ledger_worker(&volume, "one"), ledger_worker(&volume, "two")];
    for fault in ["none", "connections", "queue", "purge"] {
        match fault {
            "connections" => {
                let closed = broker
                    .admin()
                    .close_connections("ledger-worker")
                    .await
                    .unwrap();
                assert!(closed <= 2);
            }
            "queue" => broker.admin().delete_queue(QUEUE).await.unwrap(),
            "purge" => broker.admin().purge(QUEUE).await.unwrap(),
            _ => {}
        }
        let id = client.accepted(fault, "ledger", json!({})).await;
        assert_eq!(
            client.at_rest(&id).await["state"],
            "completed",
            "after: {fault}"
        );
    }
    eventually(PATIENCE, "two consumers, never double", async || {
        let queue = broker.admin().queue(QUEUE).await.ok().flatten();
        let consumers = queue.map_or(0, |queue| queue.consumers);
        require(consumers == 2, consumers)
    })
    .await;
    for process in workers.into_iter().chain([relay, api]) {
        assert_eq!(process.terminate().0, 0);
    }
    volume.verify();
}

#[tokio::test]
async fn a_queue_with_other_arguments_is_one_clear_line_and_heals_when_it_goes() {
    let broker = SharedBroker::new().await;
    broker
        .admin()
        .declare_queue(QUEUE, true, json!({"x-queue-type": "classic"}))
        .await
        .unwrap();
    let mut volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    volume
        .environment
        .push(("FENCEPOST_HEALTH_LISTEN".to_owned(), port.to_string()));
    let relay = volume.start("relay");
    volume.environment.pop();
    let _worker = ledger_worker(&volume, "ledger");
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(client.accepted(&format!("k{n}"), "ledger", json!({})).await);
    }
    let clear = eventually(PATIENCE, "one line says what is wrong", async || {
        let log = relay.log();
        let line = log
            .lines()
            .find(|line| line.contains(QUEUE) && line.contains("exists with"));
        line.map(str::to_owned).ok_or(log.clone())
    })
    .await;
    assert!(clear.contains("expected fencepost.dead"), "{clear}");
    let ready = reqwest::get(format!("http://{port}/readyz"))
        .await
        .unwrap()
        .status();
    assert_eq!(ready, 503);
    for id in &ids {
        assert_eq!(client.events(id).await, ["accepted"]);
    }
    broker.admin().delete_queue(QUEUE).await.unwrap();
    for id in &ids {
        assert_eq!(client.at_rest(id).await["state"], "completed");
    }
    noted(&volume, "call", 5).await;
    let (code, took) = relay.terminate();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(8), "{took:?}");
    volume.verify();
}

/// A relay that is killed between the broker's confirm and its record repeats
/// what it had published; nobody runs it twice.
#[tokio::test]
async fn a_relay_killed_ten_times_publishes_everything_and_nothing_runs_twice() {
    const JOBS: usize = 500;
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let _worker = ledger_worker(&volume, "ledger");
    let mut ids = Vec::new();
    for round in 0..10 {
        let relay = volume.start("relay");
        let posts = (0..JOBS / 10).map(|n| {
            let client = client.clone();
            async move {
                client
                    .accepted(&format!("{round}-{n}"), "ledger", json!({}))
                    .await
            }
        });
        ids.extend(futures_util::future::join_all(posts).await);
        noted(&volume, "call", round * 10 + 1).await;
        relay.kill_9();
    }
    let _relay = volume.start("relay");
    for id in &ids {
        assert_eq!(client.at_rest(id).await["state"], "completed");
    }
    let mut called: Vec<String> = volume.ledger();
    called.retain(|line| line.ends_with("call"));
    called.sort();
    let total = called.len();
    called.dedup();
    assert_eq!((total, called.len()), (JOBS, JOBS));
    volume.verify();
}
