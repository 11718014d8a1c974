//! Cancel, retry, batches and blobs.

use fencepost_core::lifecycle::Failure;
use fencepost_store::Role;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Server, key};

#[tokio::test]
async fn cancel_ends_what_waits_and_asks_what_runs() {
    let server = Server::start().await;
    let waits = server.accepted("1").await;
    let path = format!("/jobs/{waits}/cancel");
    // In parallel: both are told the same.
    let (one, other) = tokio::join!(server.post(&path, json!({})), server.post(&path, json!({})));
    for answer in [
        one,
        other,
        server.post(&path, json!({"force": false})).await,
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.json()["state"], "cancelled");
    }
    let runs = server.accepted("2").await;
    let claimed = server.claim(runs).await;
    let path = format!("/jobs/{runs}/cancel");
    for _ in 0..2 {
        let asked = server.post(&path, json!({})).await;
        assert_eq!(asked.status, 202);
        let job = asked.json();
        assert_eq!(job["state"], "leased");
        assert!(job["cancel_requested_at"].is_string());
    }
    let forced = server.post(&path, json!({"force": true})).await;
    assert_eq!(
        (forced.status.as_u16(), forced.json()["state"].clone()),
        (200, json!("cancelled"))
    );
    let late = fencepost_store::Complete {
        claim: claimed.claim,
        result: "1".into(),
    };
    let report = server.store.complete(late).await.unwrap();
    assert!(
        matches!(report, fencepost_store::Report::Fenced(_)),
        "{report:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_cancelled_or_retried_is_a_conflict_that_changes_nothing() {
    let server = Server::start().await;
    let [done, dead, lost, waits] = [
        server.accepted("1").await,
        server.accepted("2").await,
        server.accepted("3").await,
        server.accepted("4").await,
    ];
    server.complete(done, "1").await;
    server.fail(dead, Failure::Permanent).await;
    server.lose(lost).await;
    for (job, verb) in [
        (done, "cancel"),
        (dead, "cancel"),
        (lost, "cancel"),
        (done, "retry"),
        (lost, "retry"),
        (waits, "retry"),
    ] {
        let before = server.get(&format!("/jobs/{job}")).await.text;
        let detail = server.post(&format!("/jobs/{job}/{verb}"), json!({})).await;
        let detail = detail.refused(409, "state_conflict");
        let state = serde_json::from_str::<Value>(&before).unwrap()["state"].clone();
        assert!(detail.contains(state.as_str().unwrap()), "{verb}: {detail}");
        assert_eq!(server.get(&format!("/jobs/{job}")).await.text, before);
    }
}

#[tokio::test]
async fn retry_queues_an_ended_job_anew() {
    let server = Server::start().await;
    let job = server.accepted("k").await;
    server.fail(job, Failure::Permanent).await;
    let path = format!("/jobs/{job}/retry");
    for (body, name) in [
        (json!({"timeout_ms": 0}), "timeout_ms"),
        (
            json!({"deadline_at": "2020-01-01T00:00:00Z"}),
            "deadline_at",
        ),
        (json!({"force": true}), "force"),
        (json!([]), "the body"),
    ] {
        let detail = server.post(&path, body).await.refused(400, "invalid_input");
        assert!(detail.contains(name), "{detail}");
    }
    let retried = server
        .post(&path, json!({"deadline_at": "2035-01-01T01:00:00+01:00"}))
        .await;
    assert_eq!(retried.status, 202, "{}", retried.text);
    let told = retried.json();
    assert_eq!(told["state"], "queued");
    assert_eq!((&told["attempts"], &told["epoch"]), (&json!(0), &json!(1)));
    assert_eq!(told["deadline_at"], "2035-01-01T00:00:00.000Z");
    server.fail(job, Failure::Permanent).await;
    // Without a body: the kind's own deadline.
    let plain = Answer::of(server.request(Method::POST, &path)).await;
    assert_eq!(plain.status, 202, "{}", plain.text);
    let text = server.request(Method::POST, &path).body("{}");
    Answer::of(text)
        .await
        .refused(415, "unsupported_media_type");
}

#[tokio::test]
async fn each_submission_of_a_batch_stands_alone() {
    let server = Server::start().await;
    let item = |key: &str, n: i64| json!({"key": key, "kind": "echo", "payload": {"n": n}});
    let batch = json!({"jobs": [
        item("a", 1), item("b", 2), item("a", 1), item("a", 9),
        {"kind": "echo", "payload": 1},
        {"key": "c", "kind": "nobody", "payload": 1},
        {"key": "d", "kind": "echo", "payload": 1, "tenant": "b"},
        {"key": "e", "kind": "order", "payload": {"n": 11}},
        7,
    ]});
    let request = server
        .request(Method::POST, "/jobs/batch")
        .header("x-request-id", "batch-1");
    let answer = Answer::of(request.json(&batch)).await;
    assert_eq!(answer.status, 207, "{}", answer.text);
    let told = answer.json();
    let items = told["items"].as_array().unwrap();
    let statuses: Vec<_> = items
        .iter()
        .map(|item| item["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [202, 202, 202, 409, 400, 400, 403, 400, 400]);
    assert_eq!(items[0]["job"]["id"], items[2]["job"]["id"]);
    assert_eq!(items[0]["replayed"], false);
    assert_eq!(items[2]["replayed"], true);
    let place = format!("/jobs/{}", items[1]["job"]["id"].as_str().unwrap());
    assert_eq!(items[1]["location"], place);
    let shown: Value = server.get(&place).await.json();
    assert_eq!(items[1]["job"], shown);
    for (place, code) in [(3, "key_conflict"), (4, "invalid_input"), (6, "forbidden")] {
        assert_eq!(items[place]["problem"]["code"], code);
        assert_eq!(items[place]["problem"]["request_id"], "batch-1");
    }
    assert_eq!(server.store.count_jobs().await.unwrap(), 2);
    // A key of a batch and a key of a header are the same keys.
    let single = server
        .submit("a", r#"{"kind":"echo","payload":{"n":1}}"#)
        .await;
    assert_eq!(single.header("idempotent-replayed"), Some("true"));

    let full: Vec<Value> = (0..1_000).map(|n| item(&format!("full-{n}"), n)).collect();
    let answer = server
        .post("/jobs/batch", json!({"jobs": full}))
        .await
        .json();
    let items = answer["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["status"] == 202));
    assert_eq!(server.store.count_jobs().await.unwrap(), 1_002);
    let more: Vec<Value> = (0..1_001).map(|n| item(&format!("more-{n}"), n)).collect();
    let answer = server.post("/jobs/batch", json!({"jobs": more})).await;
    answer.refused(413, "payload_too_large");
    for bad in [
        json!({}),
        json!({"jobs": 1}),
        json!([]),
        json!({"jobs": [], "x": 1}),
    ] {
        server
            .post("/jobs/batch", bad)
            .await
            .refused(400, "invalid_input");
    }
    let empty = server.post("/jobs/batch", json!({"jobs": []})).await;
    assert_eq!(
        (empty.status.as_u16(), empty.text.as_str()),
        (207, r#"{"items":[]}"#)
    );
}

#[tokio::test]
async fn a_blob_is_put_before_it_is_referred_to() {
    let server = Server::start().await;
    let put = async |token: &str, content: Vec<u8>| {
        let request = server.anonymous(Method::PUT, "/blobs").bearer_auth(token);
        Answer::of(request.body(content)).await
    };
    let hash = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let body = json!({"kind": "echo", "payload": {"document": {"blob": hash}}}).to_string();
    let missing = server
        .submit("k", body.clone())
        .await
        .refused(400, "invalid_input");
    assert!(missing.contains(hash), "{missing}");
    for _ in 0..2 {
        let answer = put(&server.token, b"hello".to_vec()).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(answer.json(), json!({"blob": hash, "size": 5}));
    }
    assert_eq!(server.submit("k", body.clone()).await.status, 202);
    // Blobs are known within their tenant only.
    let other = key(&server.store, "b", "app", &[Role::Submit]).await;
    let foreign = Answer::of(server.submission(&other, "k", body)).await;
    foreign.refused(400, "invalid_input");
    let reader = key(&server.store, "a", "app", &[Role::Read]).await;
    put(&reader, b"x".to_vec()).await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_blob_has_a_greatest_size_whether_it_says_so_or_not() {
    let server = Server::start().await;
    let most = 16 * 1024 * 1024;
    let put = |body: reqwest::Body| Answer::of(server.request(Method::PUT, "/blobs").body(body));
    let chunked = |length: usize| {
        let chunk = vec![7; 1024 * 1024];
        let whole = length / chunk.len();
        let mut chunks: Vec<_> = (0..whole)
            .map(|_| Ok::<_, std::io::Error>(chunk.clone()))
            .collect();
        chunks.push(Ok(vec![7; length % chunk.len()]));
        reqwest::Body::wrap_stream(futures_util::stream::iter(chunks))
    };
    let answer = put(chunked(most)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()["size"].clone()),
        (201, json!(most))
    );
    let said = server
        .request(Method::PUT, "/blobs")
        .header("expect", "100-continue")
        .body(vec![7; most + 1]);
    // A client that does not wait for the 413 may find the connection closed instead.
    if let Ok(response) = said.send().await {
        Answer::read(response)
            .await
            .refused(413, "payload_too_large");
    }
    if let Ok(response) = server
        .request(Method::PUT, "/blobs")
        .body(chunked(most + 1))
        .send()
        .await
    {
        Answer::read(response)
            .await
            .refused(413, "payload_too_large");
    }
}
