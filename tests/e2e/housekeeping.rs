//! What operators do by hand and what goes by itself.

use std::sync::Arc;
use std::time::Duration;

use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::{DispatchResult, OpenOptions, SettleDispatches, Store, Take};
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Volume};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn store(volume: &Volume) -> Store {
    Store::open(OpenOptions {
        path: volume.path().join("data/fencepost.db"),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        allow_network_filesystem: true,
        wake_poll: Duration::from_secs(1),
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_ended_job_is_removed_and_its_key_says_so() {
    let volume = Volume::new()
        .with_settings("\n[retention]\nfinished = \"1s\"\ninterval = \"100ms\"\nblobs = \"1s\"\n");
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let id = client.accepted("k", "echo", json!({})).await;
    client.at_rest(&id).await;
    let gone = eventually(PATIENCE, "the job to be removed", || async {
        let (status, body) = client.submit("k", "echo", json!({})).await.unwrap();
        require(status == 410, format!("{status} {body}"))?;
        Ok::<_, String>(body)
    })
    .await;
    assert_eq!((&gone["code"], &gone["job"]), (&json!("gone"), &json!(id)));
    volume.verify();
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed_by_hand() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let run = |arguments: &[&str]| volume.run(&[&["--url", &up.url], arguments].concat());
    let (code, out, err) = run(&["queues", "pause", "default"]);
    assert_eq!(code, 0, "{out}{err}");
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(client.accepted(&format!("k{n}"), "echo", json!({})).await);
    }
    // Each was met by a worker and put back, and none spent an attempt.
    for id in &jobs {
        eventually(PATIENCE, "a put-back", || async {
            let events = client.events(id).await;
            require(
                events.contains(&"put_back".to_owned()),
                format!("{events:?}"),
            )
        })
        .await;
        let job = client.get(&format!("/jobs/{id}")).await;
        assert_eq!(
            (&job["state"], &job["epoch"]),
            (&json!("queued"), &json!(0))
        );
    }
    let (_, out, _) = run(&["queues", "list"]);
    let line = out
        .lines()
        .find(|line| line.starts_with("default"))
        .unwrap();
    assert!(line.split_whitespace().nth(1) == Some("5"), "{out}");
    let (code, _, err) = run(&["queues", "resume", "default"]);
    assert_eq!(code, 0, "{err}");
    for id in &jobs {
        let job = client.at_rest(id).await;
        assert_eq!(
            (&job["state"], &job["attempts"]),
            (&json!("completed"), &json!(1))
        );
    }
    let (code, _, err) = run(&["queues", "pause", "defualt"]);
    assert_eq!(code, 1, "{err}");
    volume.verify();
}

#[tokio::test]
async fn what_is_held_back_is_listed_and_released() {
    let volume = Volume::new();
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let id = client.accepted("k", "echo", json!({})).await;
    let store = store(&volume).await;
    let take = Take {
        queue: "default".parse().unwrap(),
        window: 10,
        limit: 10,
        hold: Duration::from_secs(60),
    };
    let entry = store.take(take).await.unwrap().dispatches[0].entry;
    let park = SettleDispatches {
        results: vec![(entry, DispatchResult::Parked("refused: too large".into()))],
        actor: "relay".to_owned(),
    };
    assert_eq!(store.settle_dispatches(park).await.unwrap(), 1);
    let job = client.get(&format!("/jobs/{id}")).await;
    assert_eq!(
        (&job["state"], &job["dispatch"]),
        (&json!("queued"), &json!("parked"))
    );
    let (code, out, err) = volume.run(&["outbox", "list"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains(&id) && out.contains("refused: too large"),
        "{out}"
    );
    let (code, out, _) = volume.run(&["outbox", "release", &id]);
    assert_eq!((code, out.contains("released")), (0, true), "{out}");
    let (code, _, err) = volume.run(&["outbox", "release", &id]);
    assert_eq!(code, 1);
    assert!(err.contains("no entry is held back"), "{err}");
    assert_eq!(
        client.get(&format!("/jobs/{id}")).await.get("dispatch"),
        None
    );
    let worker = volume.start("worker");
    assert_eq!(client.at_rest(&id).await["state"], "completed");
    drop(worker);
    store.close().await;
    volume.verify();
}

/// Answers are made whole before the first byte is sent: a client that hardly
/// reads holds its connection, and nothing of the database.
#[tokio::test]
async fn a_client_that_hardly_reads_does_not_keep_the_log_from_shortening() {
    const LOG_MAX: u64 = 64 * 1024 * 1024;
    const JOBS: usize = 1_500;
    let volume = Volume::new();
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let long = json!("x".repeat(60_000));
    let post = |n: usize| {
        let (client, long) = (client.clone(), long.clone());
        async move { client.accepted(&format!("k{n}"), "ledger", long).await }
    };
    post(JOBS).await;
    let address = api.url.trim_start_matches("http://");
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        volume.key()
    );
    slow.write_all(request.repeat(50).as_bytes()).await.unwrap();
    slow.read_u8().await.unwrap();
    // More than the log may be long.
    for batch in 0..JOBS / 50 {
        futures_util::future::join_all((batch * 50..batch * 50 + 50).map(post)).await;
    }
    eventually(PATIENCE, "a short log", || async {
        let log = volume.path().join("data/fencepost.db-wal");
        let bytes = std::fs::metadata(log).map_or(0, |file| file.len());
        require(bytes <= LOG_MAX, bytes)
    })
    .await;
    slow.read_u8().await.unwrap();
    volume.verify();
}
