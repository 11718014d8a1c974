//! API, relay and workers as processes of their own, through RabbitMQ.

use std::time::Duration;

use fencepost_testkit::broker::{BrokerNode, NodeOptions, SharedBroker};
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Volume};
use serde_json::{Value, json};

use crate::workers::{ledger_worker, noted};

#[tokio::test]
async fn six_processes_start_on_an_empty_volume_in_the_same_second() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let verbs = ["api", "api", "relay", "worker", "worker", "worker"];
    let processes: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = verbs
            .iter()
            .map(|verb| scope.spawn(|| volume.start(verb)))
            .collect();
        starting
            .into_iter()
            .map(|process| process.join().unwrap())
            .collect()
    });
    let client = Client::new(&processes[0], &volume);
    let id = client.accepted("k", "echo", json!(1)).await;
    assert_eq!(client.at_rest(&id).await["state"], "completed");
    // A claim may be quicker than the record of the confirm it follows from.
    let mut events = client.events(&id).await;
    events.retain(|kind| kind != "published");
    assert_eq!(events, ["accepted", "claimed", "completed"]);
    for process in processes {
        let (code, took) = process.terminate();
        assert_eq!(code, 0);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    volume.verify();
}

#[tokio::test]
async fn a_file_is_served_without_a_broker_through_one_and_back() {
    let broker = SharedBroker::new().await;
    let plain = Volume::new();
    let up = plain.start("up");
    let client = Client::new(&up, &plain);
    let first = client.accepted("first", "echo", json!(1)).await;
    client.at_rest(&first).await;
    // Left waiting, for a worker that comes later.
    let waiting = client.accepted("waiting", "ledger", json!({})).await;
    assert_eq!(up.terminate().0, 0);

    let volume = plain.with_broker(broker.amqp_url());
    let api = volume.start("api");
    let relay = volume.start("relay");
    let worker = volume.start("worker");
    let ledger = ledger_worker(&volume, "ledger");
    let client = Client::new(&api, &volume);
    assert_eq!(client.at_rest(&waiting).await["state"], "completed");
    let second = client.accepted("second", "echo", json!(2)).await;
    assert_eq!(client.at_rest(&second).await["state"], "completed");
    drop(ledger);
    let last = client.accepted("last", "ledger", json!({})).await;
    eventually(PATIENCE, "the last job is published", || async {
        let events = client.events(&last).await;
        require(events.contains(&"published".to_owned()), events.join(", "))
    })
    .await;
    for process in [api, relay, worker] {
        assert_eq!(process.terminate().0, 0);
    }

    let mut volume = volume;
    volume.environment.clear();
    let up = volume.start("up");
    let _ledger = ledger_worker(&volume, "ledger");
    let client = Client::new(&up, &volume);
    for id in [&first, &second, &waiting, &last] {
        assert_eq!(client.at_rest(id).await["state"], "completed");
    }
    volume.verify();
}

/// Two workers of one name, as two containers of one configuration have: each
/// life is another worker all the same.
#[tokio::test]
async fn a_frozen_worker_is_not_taken_for_its_namesake() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let _relay = volume.start("relay");
    let client = Client::new(&api, &volume);
    let first = ledger_worker(&volume, "twin");
    let id = client
        .accepted("k", "ledger", json!({"call": false, "after_ms": 1000}))
        .await;
    noted(&volume, "start", 1).await;
    first.freeze();
    let _second = ledger_worker(&volume, "twin");
    let job = client.at_rest(&id).await;
    assert_eq!(
        (&job["state"], &job["epoch"]),
        (&json!("completed"), &json!(2))
    );
    first.thaw();
    eventually(
        PATIENCE,
        "the first worker says that its lease is lost",
        || async { require(first.log().contains("lost lease"), first.log()) },
    )
    .await;
    assert_eq!(client.get(&format!("/jobs/{id}")).await, job);
    let history = client.get(&format!("/jobs/{id}/events")).await;
    let claims: Vec<&Value> = history["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "claimed")
        .map(|event| &event["actor"])
        .collect();
    assert_eq!(claims.len(), 2);
    assert_ne!(claims[0], claims[1]);
    volume.verify();
}

/// Fifteen seconds when scenarios run with their literal times, else three.
fn outage() -> Duration {
    let literal = std::env::var_os("FENCEPOST_TEST_FULL").is_some();
    Duration::from_secs(if literal { 15 } else { 3 })
}

/// Two thousand jobs by several clients at once; during it a worker is killed,
/// the relay restarted, the broker stopped, its queue purged.
#[tokio::test]
async fn node_two_thousand_jobs_survive_kills_restarts_a_stopped_broker_and_a_purge() {
    const JOBS: usize = 2_000;
    const CLIENTS: usize = 8;
    let mut node = BrokerNode::start(NodeOptions::default()).await.unwrap();
    let volume = Volume::new().with_broker(&node.amqp_url());
    let api = volume.start("api");
    let relay = volume.start("relay");
    let first = ledger_worker(&volume, "first");
    let _second = ledger_worker(&volume, "second");
    let client = Client::new(&api, &volume);
    let mut posting = tokio::task::JoinSet::new();
    for poster in 0..CLIENTS {
        let client = client.clone();
        posting.spawn(async move {
            let mut ids = Vec::new();
            for n in 0..JOBS / CLIENTS {
                let plan = json!({"call": false, "after_ms": 5});
                ids.push(
                    client
                        .accepted(&format!("{poster}-{n}"), "ledger", plan)
                        .await,
                );
            }
            ids
        });
    }
    noted(&volume, "start", 50).await;
    first.kill_9();
    let _third = ledger_worker(&volume, "third");
    assert_eq!(relay.terminate().0, 0);
    let _relay = volume.start("relay");
    noted(&volume, "start", 200).await;
    node.stop().await.unwrap();
    let mut ids: Vec<String> = Vec::new();
    while let Some(posted) = posting.join_next().await {
        // Accepted while there is no broker.
        ids.extend(posted.unwrap());
    }
    tokio::time::sleep(outage()).await; // deliberate: the length of the outage
    node.restart().await.unwrap();
    node.admin().purge("fencepost.jobs.ledger").await.unwrap();
    assert_eq!(ids.len(), JOBS);
    for id in &ids {
        let job = client.at_rest(id).await;
        assert_eq!(job["state"], "completed", "{job}");
    }
    // The killed worker's runs are repeated, and no other's.
    let ledger = volume.ledger();
    let repeated = ledger.len() - JOBS;
    assert!(repeated <= 256, "{repeated} runs were repeated");
    volume.verify();
    eventually(PATIENCE, "the broker's queue is at rest", || async {
        let queue = node.admin().queue("fencepost.jobs.ledger").await;
        let seen = format!("{queue:?}");
        require(
            queue.is_ok_and(|queue| queue.is_some_and(|queue| queue.unacked == 0)),
            seen,
        )
    })
    .await;
    let dead: Value = json!(
        node.admin()
            .messages("fencepost.dead", 10)
            .await
            .unwrap_or_default()
    );
    assert_eq!(dead, json!([]), "nothing was thrown away");
}
