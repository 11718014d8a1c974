//! Queues: what stands in them, who may pause them, what a pause does.

use std::time::Duration;

use fencepost_core::id::{QueueName, WorkerId};
use fencepost_store::{ClaimJob, ClaimOutcome, Heartbeat, Role};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Server, key};

async fn ask(server: &Server, token: &str, method: Method, path: &str) -> Answer {
    Answer::of(server.anonymous(method, path).bearer_auth(token)).await
}

fn named<'a>(page: &'a Value, name: &str) -> &'a Value {
    let items = page["items"].as_array().unwrap();
    items.iter().find(|queue| queue["name"] == name).unwrap()
}

#[tokio::test]
async fn a_queue_shows_what_waits_what_runs_and_who_serves_it() {
    let server = Server::start().await;
    let admin = key(&server.store, "ops", "carol", &[Role::Admin]).await;
    let first = server.accepted("1").await;
    let oldest = server.accepted("2").await;
    server.accepted("3").await;
    server.claim(first).await;
    let beat = Heartbeat {
        worker: WorkerId::new("w").unwrap(),
        version: "0".to_owned(),
        queues: vec![QueueName::new("default").unwrap()],
        slots: 7,
    };
    server.store.heartbeat(beat).await.unwrap();
    let page = ask(&server, &admin, Method::GET, "/queues").await.json();
    let queue = named(&page, "default");
    let accepted = server.get(&format!("/jobs/{oldest}")).await.json()["created_at"].clone();
    assert_eq!(
        queue,
        &json!({"name": "default", "queued": 2, "parked": 0, "running": 1, "slots": 7,
            "oldest_queued_at": accepted, "paused_at": null})
    );
    // Configured, and empty.
    assert_eq!(named(&page, "documents")["queued"], 0);
}

#[tokio::test]
async fn a_paused_queue_gives_out_no_claims_until_it_is_resumed() {
    let server = Server::start().await;
    let admin = key(&server.store, "ops", "carol", &[Role::Admin]).await;
    let job = server.accepted("1").await;
    for _ in 0..2 {
        let paused = ask(&server, &admin, Method::POST, "/queues/default/pause").await;
        assert_eq!(paused.status, 200, "{}", paused.text);
        assert!(paused.json()["paused_at"].is_string());
    }
    let claim = ClaimJob {
        job,
        worker: WorkerId::new("w").unwrap(),
        lease: Duration::from_mins(1),
        epoch_leaves: false,
    };
    let refused = server.store.claim(claim.clone()).await.unwrap();
    assert!(matches!(refused, ClaimOutcome::Refused(_)), "{refused:?}");
    // Accepting goes on.
    server.accepted("2").await;
    let resumed = ask(&server, &admin, Method::POST, "/queues/default/resume").await;
    assert_eq!(resumed.json()["paused_at"], Value::Null);
    let claimed = server.store.claim(claim).await.unwrap();
    assert!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
}

#[tokio::test]
async fn queues_are_an_administrators_and_a_misspelt_one_pauses_nothing() {
    let server = Server::start().await;
    let tenants = [Role::Submit, Role::Read, Role::Operator];
    let tenants = key(&server.store, "a", "app", &tenants).await;
    for (method, path) in [
        (Method::GET, "/queues"),
        (Method::POST, "/queues/default/pause"),
        (Method::POST, "/queues/default/resume"),
    ] {
        let answer = ask(&server, &tenants, method, path).await;
        answer.refused(403, "forbidden");
    }
    let admin = key(&server.store, "ops", "carol", &[Role::Admin]).await;
    for path in [
        "/queues/defualt/pause",
        "/queues/a%20b/resume",
        "/queues/%ff/pause",
    ] {
        let answer = ask(&server, &admin, Method::POST, path).await;
        answer.refused(404, "not_found");
    }
}
