//! Brokers that take too long, are full, or throw away; seen through whole
//! processes, on the broker at hand (RabbitMQ 3.10 where it is Debian 12's).

use std::time::Duration;

use fencepost_testkit::broker::{BrokerNode, NodeOptions, SharedBroker};
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume};
use serde_json::{Value, json};

use crate::workers::{ledger_worker, noted};

const QUEUE: &str = "fencepost.jobs.ledger";

/// A relay whose readiness can be asked.
fn relay(volume: &mut Volume) -> (Process, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let variable = ("FENCEPOST_HEALTH_LISTEN".to_owned(), port.to_string());
    volume.environment.push(variable);
    let relay = volume.start("relay");
    volume.environment.pop();
    (relay, format!("http://{port}/readyz"))
}

async fn readiness(url: &str) -> (u16, String) {
    let answer = reqwest::get(url).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn calls(volume: &Volume, id: &str) -> usize {
    let all = volume.ledger();
    let calls = all
        .iter()
        .filter(|line| line.starts_with(id) && line.ends_with("call"));
    calls.count()
}

async fn is_once(volume: &Volume, client: &Client, id: &str) {
    let job = client.at_rest(id).await;
    assert_eq!(
        (&job["state"], &job["attempts"], &job["epoch"]),
        (&json!("completed"), &json!(1), &json!(1)),
        "{job}"
    );
    assert_eq!(calls(volume, id), 1);
}

/// The broker takes back what is not acknowledged in time, again and again; the
/// job is claimed once and runs once, and short ones are not held up.
#[tokio::test]
async fn node_a_job_that_outlasts_the_consumer_timeout_runs_once() {
    let node = BrokerNode::start(NodeOptions {
        config: vec!["consumer_timeout = 2000".into()],
        advanced: vec!["{channel_tick_interval, 500}".into()],
    })
    .await
    .unwrap();
    let volume = Volume::new().with_broker(&node.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let _relay = volume.start("relay");
    let _worker = ledger_worker(&volume, "ledger");
    let long = client
        .accepted("long", "ledger", json!({"after_ms": 8_000}))
        .await;
    noted(&volume, "call", 1).await;
    for n in 0..10 {
        let short = client.accepted(&format!("s{n}"), "ledger", json!({})).await;
        is_once(&volume, &client, &short).await;
    }
    let state = client.get(&format!("/jobs/{long}")).await["state"].clone();
    assert_eq!(state, "leased", "the short ones did not wait for it");
    is_once(&volume, &client, &long).await;
    eventually(PATIENCE, "one consumer and nothing in hand", async || {
        let queue = node.admin().queue(QUEUE).await.ok().flatten();
        let seen = queue.map(|queue| (queue.ready, queue.unacked, queue.consumers));
        require(seen == Some((0, 0, 1)), format!("{seen:?}"))
    })
    .await;
    volume.verify();
}

/// The broker's disk is full: accepting goes on, results are recorded and their
/// messages acknowledged, and nothing counts as published.
#[tokio::test]
async fn node_a_full_broker_holds_up_dispatches_and_nothing_else() {
    let node = BrokerNode::start(NodeOptions::default()).await.unwrap();
    let mut volume = Volume::new().with_broker(&node.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let (relay, ready) = relay(&mut volume);
    let _worker = ledger_worker(&volume, "ledger");
    for cycle in 0..3 {
        let running = client
            .accepted(&format!("r{cycle}"), "ledger", json!({"after_ms": 3_000}))
            .await;
        noted(&volume, "call", 1 + cycle * 21).await;
        node.raise_alarm().await.unwrap();
        let mut waiting = Vec::new();
        for n in 0..20 {
            let key = format!("{cycle}-{n}");
            waiting.push(client.accepted(&key, "ledger", json!({})).await);
        }
        let told = eventually(PATIENCE, "the relay says that it is blocked", async || {
            let (status, text) = readiness(&ready).await;
            require(
                status == 503 && text.contains("out of memory or disk"),
                text.clone(),
            )?;
            Ok::<_, String>(text)
        })
        .await;
        assert!(told.contains("broker"), "{told}");
        is_once(&volume, &client, &running).await;
        for id in &waiting {
            let events = client.events(id).await;
            assert!(!events.contains(&"published".to_owned()), "{events:?}");
        }
        node.clear_alarm().await.unwrap();
        for id in &waiting {
            is_once(&volume, &client, id).await;
        }
        eventually(PATIENCE, "the relay is ready again", async || {
            let (status, text) = readiness(&ready).await;
            require(status == 200, text)
        })
        .await;
    }
    assert_eq!(relay.terminate().0, 0);
    volume.verify();
}

/// As another program in the middle of a long write: the worker holds what it
/// has and gives nothing back, so the broker does not count it to death.
#[tokio::test]
async fn a_database_out_of_reach_costs_no_delivery_and_no_attempt() {
    let broker = SharedBroker::new().await;
    // The lock is not to outlast a lease: that is another fault.
    let volume = Volume::new()
        .with_settings("lease = \"60s\"\n")
        .with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let _relay = volume.start("relay");
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(client.accepted(&format!("k{n}"), "ledger", json!({})).await);
    }
    eventually(PATIENCE, "all are published", async || {
        let queue = broker.admin().queue(QUEUE).await.ok().flatten();
        let ready = queue.map_or(0, |queue| queue.ready);
        require(ready == 10, ready)
    })
    .await;
    // Locked as soon as it runs: most of what it gets comes while it cannot claim.
    let worker = ledger_worker(&volume, "ledger");
    let lock = volume.lock();
    eventually(PATIENCE, "the worker says that it waits", async || {
        let log = worker.log();
        require(
            log.contains("another process holds the database's write lock"),
            log,
        )
    })
    .await;
    drop(lock);
    for id in &ids {
        is_once(&volume, &client, id).await;
    }
    let dead = broker.admin().queue("fencepost.dead").await.unwrap();
    assert_eq!(dead.map_or(0, |queue| queue.ready), 0);
    assert_eq!(worker.terminate().0, 0);
    volume.verify();
}

/// Killed again and again with the job's message in hand: whatever the broker
/// makes of the returns, the job is neither lost nor charged for more than its claims.
#[tokio::test]
async fn a_worker_killed_many_times_loses_no_job() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let _relay = volume.start("relay");
    let first = ledger_worker(&volume, "first");
    let id = client
        .accepted("k", "ledger", json!({"call": false, "before_ms": 600_000}))
        .await;
    noted(&volume, "start", 1).await;
    // The lease is live, and its message comes to each of them in turn.
    drop(first);
    for life in 0..4 {
        drop(ledger_worker(&volume, &format!("life-{life}")));
    }
    let job = client.get(&format!("/jobs/{id}")).await;
    let attempts = job["attempts"].as_u64().unwrap();
    assert!((1..=3).contains(&attempts), "{job}");
    // Purged on top: the reaper and the relay bring it back.
    broker.admin().purge(QUEUE).await.unwrap();
    let short = json!({"call": false});
    let other = client.accepted("other", "ledger", short).await;
    let _last = ledger_worker(&volume, "last");
    assert_eq!(client.at_rest(&other).await["state"], "completed");
    eventually(
        Duration::from_secs(30),
        "the job is claimed again",
        async || {
            let job: Value = client.get(&format!("/jobs/{id}")).await;
            let again = job["epoch"].as_u64() > Some(1) || job["state"] == "dead";
            require(again, job.to_string())
        },
    )
    .await;
    volume.verify();
}
