//! A locked database, clients that hang up, and the end of the process.

use std::time::{Duration, Instant};

use fencepost_testkit::wait::{eventually, require};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Answer, LIMIT, Server, Timers, logs};

/// Scenario 3, scaled down: the lock is held for longer than the budget.
#[tokio::test]
async fn a_database_that_stays_locked_is_answered_503_and_nothing_is_written() {
    let budget = Duration::from_millis(500);
    let timers = Timers {
        budget,
        ..Timers::default()
    };
    let server = Server::with(timers).await;
    let body = r#"{"kind":"echo","payload":1}"#;
    let before = server.accepted("before").await;
    let lock = server.lock();
    let started = Instant::now();
    let batch = json!({"jobs": [
        {"key": "x", "kind": "echo", "payload": 1}, {"key": "y", "kind": "nobody", "payload": 1},
    ]});
    let cancel = format!("/jobs/{before}/cancel");
    let (single, cancel, batch) = tokio::join!(
        server.submit("k", body),
        server.post(&cancel, json!({})),
        server.post("/jobs/batch", batch),
    );
    assert!(started.elapsed() >= budget && started.elapsed() < Duration::from_secs(5));
    for answer in [single, cancel] {
        let detail = answer.refused(503, "unavailable");
        assert!(detail.contains("nothing was written"), "{detail}");
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=4).contains(&seconds));
    }
    assert_eq!(batch.status, 207);
    assert!(batch.header("retry-after").is_some());
    let items = batch.json()["items"].clone();
    assert_eq!(
        (&items[0]["status"], &items[1]["status"]),
        (&json!(503), &json!(400))
    );
    // Readings go on all the same.
    assert_eq!(
        server.get(&format!("/jobs/{before}")).await.json()["state"],
        "queued"
    );
    drop(lock);
    let repeat = server.submit("k", body).await;
    assert_eq!(
        (repeat.status.as_u16(), repeat.header("idempotent-replayed")),
        (202, None)
    );
    assert_eq!(server.store.count_jobs().await.unwrap(), 2);
}

/// Scenario 3: a lock of less than the budget costs time and nothing else.
#[tokio::test]
async fn a_lock_that_passes_is_waited_for() {
    let server = Server::start().await;
    let lock = server.lock();
    let release = async {
        tokio::time::sleep(Duration::from_secs(1)).await; // deliberate: the foreign lock's length
        drop(lock);
    };
    let (answer, ()) = tokio::join!(
        server.submit("k", r#"{"kind":"echo","payload":1}"#),
        release
    );
    assert_eq!(answer.status, 202, "{}", answer.text);
}

fn submission(server: &Server, id: &str) -> Vec<u8> {
    let body = r#"{"kind":"echo","payload":1}"#;
    let request = format!(
        "POST /jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nidempotency-key: {id}\r\nx-request-id: {id}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.token,
        body.len()
    );
    request.into_bytes()
}

/// Scenario 14: the store has the submission in hand when its client is gone.
#[tokio::test]
async fn a_client_that_hangs_up_leaves_a_line_and_a_job_or_nothing() {
    let server = Server::start().await;
    let lock = server.lock();
    for number in 0..20 {
        let id = format!("hangs-up-{number}");
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&submission(&server, &id)).await.unwrap();
        if number % 2 == 0 {
            stream.shutdown().await.unwrap();
        }
        drop(stream);
        eventually(LIMIT, "a line of the dropped request", async || {
            let logs = logs();
            let line = logs.lines().find(|line| {
                line.contains("dropped before its answer") && line.contains(&format!("\"{id}\""))
            });
            require(line.is_some(), "no line")
        })
        .await;
    }
    drop(lock);
    // What was dropped while it waited was committed all the same, or was not
    // handed over at all: a repeat finds out, and the next one says the same.
    for number in 0..20 {
        let key = format!("hangs-up-{number}");
        let body = r#"{"kind":"echo","payload":1}"#;
        let first = server.submit(&key, body).await;
        let second = server.submit(&key, body).await;
        assert_eq!((first.status.as_u16(), second.status.as_u16()), (202, 202));
        assert_eq!(first.id(), second.id());
    }
    assert_eq!(server.store.count_jobs().await.unwrap(), 20);
    assert_eq!(server.store.orphans().await.unwrap(), (0, 0));
}

/// Scenario 14, with the sockets closed at any moment after the last byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hanging_up_at_any_moment_never_makes_a_second_job() {
    let server = Server::start().await;
    let rounds = 0..200_u64;
    let hang_up = rounds.clone().map(async |number| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = submission(&server, &format!("moment-{number}"));
        stream.write_all(&request).await.unwrap();
        tokio::time::sleep(Duration::from_millis(number % 51)).await; // deliberate: 0 to 50 ms
    });
    futures_util::future::join_all(hang_up).await;
    for number in rounds {
        let answer = server
            .submit(
                &format!("moment-{number}"),
                r#"{"kind":"echo","payload":1}"#,
            )
            .await;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    assert_eq!(server.store.count_jobs().await.unwrap(), 200);
    assert_eq!(server.store.orphans().await.unwrap(), (0, 0));
}

#[tokio::test]
async fn the_end_answers_what_runs_and_closes_what_is_idle() {
    let mut server = Server::start().await;
    let job = server.accepted("k").await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut start = [0; 12];
    idle.read_exact(&mut start).await.unwrap();
    let lock = server.lock();
    let running = server.submission(&server.token, "late", r#"{"kind":"echo","payload":1}"#);
    let running = running.header("x-request-id", "end-running");
    let waiting = server.request(Method::GET, &format!("/jobs/{job}?wait=60"));
    let waiting = waiting.header("x-request-id", "end-waiting");
    let started = Instant::now();
    let end = async {
        // Both requests are under way once the log has their spans.
        eventually(LIMIT, "two requests under way", async || {
            let logs = logs();
            let both = ["end-running", "end-waiting"]
                .iter()
                .all(|id| logs.contains(id));
            require(both, "not yet")
        })
        .await;
        server.trigger.pull();
        // The waiting one is answered at once, the running one with its commit.
        tokio::time::sleep(Duration::from_millis(300)).await; // deliberate: the commit takes a while
        drop(lock);
    };
    let (running, waiting, ()) = tokio::join!(Answer::of(running), Answer::of(waiting), end);
    assert_eq!(running.status, 202, "{}", running.text);
    assert_eq!(
        (waiting.status.as_u16(), waiting.json()["state"].clone()),
        (200, json!("queued"))
    );
    let ended = tokio::time::timeout(LIMIT, server.running.join_next()).await;
    ended.expect("the server ends in time").unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
    for stream in [&mut silent, &mut idle] {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
    }
    assert!(TcpStream::connect(server.address).await.is_err());
}
