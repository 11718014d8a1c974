//! A cancellation meets a job at every point of its life.

use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Volume};
use serde_json::{Value, json};

use crate::workers::{ledger_worker, noted};

const QUEUE: &str = "fencepost.jobs.ledger";

fn lines(volume: &Volume, id: &str) -> usize {
    let all = volume.ledger();
    all.iter().filter(|line| line.starts_with(id)).count()
}

#[tokio::test]
async fn a_job_that_waits_is_cancelled_at_once_and_its_message_runs_nothing() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    // Not published yet.
    let early = client.accepted("early", "ledger", json!({})).await;
    let (status, job) = client.cancel(&early).await;
    assert_eq!((status, &job["state"]), (200, &json!("cancelled")));
    // Published, and in the broker's queue.
    let _relay = volume.start("relay");
    let late = client.accepted("late", "ledger", json!({})).await;
    eventually(PATIENCE, "the message is in the queue", async || {
        let queue = broker.admin().queue(QUEUE).await.ok().flatten();
        let ready = queue.map_or(0, |queue| queue.ready);
        require(ready == 1, ready)
    })
    .await;
    // Twice at once: both are told the same.
    let (one, other) = tokio::join!(client.cancel(&late), client.cancel(&late));
    assert_eq!(one, other);
    assert_eq!((one.0, &one.1["state"]), (200, &json!("cancelled")));
    let _worker = ledger_worker(&volume, "ledger");
    eventually(PATIENCE, "the message is acknowledged", async || {
        let queue = broker.admin().queue(QUEUE).await.ok().flatten();
        let seen = queue.map(|queue| (queue.ready, queue.unacked, queue.consumers));
        require(seen == Some((0, 0, 1)), format!("{seen:?}"))
    })
    .await;
    assert_eq!((lines(&volume, &early), lines(&volume, &late)), (0, 0));
    volume.verify();
}

/// What a running job becomes when it is cancelled while its handler waits there.
async fn cancelled_while(plan: Value, at: &str) -> Value {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let _worker = ledger_worker(&volume, "ledger");
    let id = client.accepted("k", "ledger", plan).await;
    noted(&volume, at, 1).await;
    if at == "call" {
        eventually(PATIENCE, "the call is settled", async || {
            let events = client.events(&id).await;
            require(
                events.contains(&"effect_settled".to_owned()),
                format!("{events:?}"),
            )
        })
        .await;
    }
    let (status, job) = client.cancel(&id).await;
    assert_eq!((status, &job["state"]), (202, &json!("leased")));
    let job = client.at_rest(&id).await;
    // Its end is one, and nothing runs again.
    let (status, _) = client.cancel(&id).await;
    assert_eq!(
        status,
        if job["state"] == "cancelled" {
            200
        } else {
            409
        }
    );
    assert_eq!(job["attempts"], 1);
    volume.verify();
    job
}

#[tokio::test]
async fn a_running_job_is_told_and_ends_cancelled_with_what_it_had_done() {
    let before = cancelled_while(json!({"before_ms": 600_000}), "start").await;
    assert_eq!(before["error"]["code"], "cancelled");
    // After its call a plain cancellation would be a lie.
    let after = cancelled_while(json!({"after_ms": 600_000}), "call").await;
    assert_eq!(after["state"], "cancelled");
    assert_eq!(after["error"]["code"], "cancelled_after_effect");
    assert!(after["error"]["message"].as_str().unwrap().contains("call"));
}

#[tokio::test]
async fn a_result_that_comes_first_stands_and_nothing_ended_is_cancelled() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let _worker = ledger_worker(&volume, "ledger");
    // It does not listen inside its call, and ends with a result.
    let id = client
        .accepted("k", "ledger", json!({"inside_ms": 1_500}))
        .await;
    noted(&volume, "call", 1).await;
    let (status, _) = client.cancel(&id).await;
    assert_eq!(status, 202);
    let job = client.at_rest(&id).await;
    assert!(
        matches!(job["state"].as_str(), Some("completed" | "cancelled")),
        "{job}"
    );
    if job["state"] == "cancelled" {
        assert_eq!(job["error"]["code"], "cancelled_after_effect");
    }
    let done = client.accepted("done", "echo", json!({})).await;
    client.at_rest(&done).await;
    let before = client.get(&format!("/jobs/{done}")).await;
    let (status, refused) = client.cancel(&done).await;
    assert_eq!((status, &refused["code"]), (409, &json!("state_conflict")));
    assert_eq!(client.get(&format!("/jobs/{done}")).await, before);
    volume.verify();
}
