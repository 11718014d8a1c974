//! Who asks. Scenario 20, as far as API keys go.

use std::time::Duration;

use fencepost_api::identity::{generate, parse_token};
use fencepost_core::time::Timestamp;
use fencepost_service::system::SystemIds;
use fencepost_store::{KeyRecord, KeyRevoked, RevokeKey, Role};
use fencepost_testkit::wait::{eventually, require};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Answer, Server, create_key, key, logs, open};

const ROUTES: [(Method, &str); 7] = [
    (Method::POST, "/jobs"),
    (Method::POST, "/jobs/batch"),
    (Method::GET, "/jobs"),
    (Method::GET, "/jobs/018f0d5e-7a31-7c3a-9a39-0242ac120002"),
    (
        Method::GET,
        "/jobs/018f0d5e-7a31-7c3a-9a39-0242ac120002/events",
    ),
    (
        Method::POST,
        "/jobs/018f0d5e-7a31-7c3a-9a39-0242ac120002/cancel",
    ),
    (Method::PUT, "/blobs"),
];

#[tokio::test]
async fn every_fault_of_a_credential_is_the_same_answer() {
    let server = Server::start().await;
    let good = server.token.clone();
    let (id, secret) = (&good[..35], &good[36..]);
    let flipped = if good.ends_with('0') { "1" } else { "0" };
    let (expired_id, secret_hash, expired) = generate(&SystemIds);
    let record = KeyRecord {
        id: expired_id,
        secret_hash,
        tenant: "a".parse().unwrap(),
        owner: "app".parse().unwrap(),
        roles: Role::ALL.to_vec(),
        created_at: server.store.now(),
        expires_at: Some(Timestamp::from_millis(
            server.store.now().as_millis() - 1_000,
        )),
        revoked_at: None,
    };
    create_key(&server.store, record).await;
    let other = key(&server.store, "b", "app", &Role::ALL).await;
    let nobody = generate(&SystemIds).2;
    let headers: Vec<Option<String>> = [
        format!("Bearer {good}0"),
        format!("Bearer {}", &good[..good.len() - 1]),
        format!("Bearer {}{flipped}", &good[..good.len() - 1]),
        format!("Bearer {}", good.to_uppercase()),
        format!("Bearer {id}_{}", &other[36..]),
        format!("Bearer {}_{secret}", &other[..35]),
        format!("Bearer {expired}"),
        format!("Bearer {nobody}"),
        format!("Bearer {}", "x".repeat(5_000)),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        good.clone(),
        format!("Basic {good}"),
        format!("Bearer {good} {good}"),
        "Bearer fp__".to_owned(),
    ]
    .map(Some)
    .into_iter()
    .chain([None])
    .collect();
    let mut shape = None;
    for header in &headers {
        for (method, path) in &ROUTES {
            let mut request = server
                .anonymous(method.clone(), path)
                .header("idempotency-key", "k")
                .json(&json!({"kind": "echo", "payload": 1}));
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            let answer = Answer::of(request).await;
            answer.refused(401, "unauthenticated");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            let shape = shape.get_or_insert_with(|| answer.shape());
            assert_eq!(answer.shape(), *shape, "{method} {path} {header:?}");
        }
    }
    let twice = server.request(Method::GET, "/jobs").bearer_auth(&good);
    Answer::of(twice).await.refused(401, "unauthenticated");
    for query in ["api_key", "token", "access_token", "authorization"] {
        let path = format!("/jobs?{query}={good}");
        let answer = Answer::of(server.anonymous(Method::GET, &path)).await;
        answer.refused(401, "unauthenticated");
    }
    let lower = server
        .anonymous(Method::GET, "/jobs")
        .header("authorization", format!("bearer {good}"));
    assert_eq!(Answer::of(lower).await.status, 200);
    assert_eq!(server.store.count_jobs().await.unwrap(), 0);
    for secret in [&good, &other, &expired, &nobody] {
        assert!(!logs().contains(&secret[36..]), "a secret was logged");
    }
    assert!(parse_token(&good).is_some());
}

#[tokio::test]
async fn a_role_that_is_missing_is_forbidden_before_anything_is_read() {
    let server = Server::start().await;
    let submits = [0, 1, 5, 6];
    let reads = [2, 3, 4];
    for (role, may) in [
        (Role::Submit, &submits[..]),
        (Role::Read, &reads[..]),
        (Role::Operator, &[2, 3, 4, 5]),
        (Role::Admin, &[]),
    ] {
        let token = key(&server.store, "a", "x", &[role]).await;
        for (place, (method, path)) in ROUTES.iter().enumerate() {
            let request = server.anonymous(method.clone(), path).bearer_auth(&token);
            // A body that is wrong in every way: it must not matter.
            let answer = Answer::of(request.header("content-encoding", "gzip").body("{")).await;
            if may.contains(&place) {
                assert_ne!(
                    answer.status, 403,
                    "{role:?} {method} {path}: {}",
                    answer.text
                );
                assert_ne!(answer.status, 401, "{role:?} {method} {path}");
            } else {
                let detail = answer.refused(403, "forbidden");
                assert!(detail.contains("role"), "{detail}");
            }
        }
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused_within_five_seconds_in_every_process() {
    let server = Server::start().await;
    let (id, _) = parse_token(&server.token).unwrap();
    let job = server.accepted("k").await;
    let elsewhere = open(&server.path).await;
    // Read just before, so that its record is at its freshest.
    assert_eq!(server.get("/jobs").await.status, 200);
    let waiting = server.request(Method::GET, &format!("/jobs/{job}?wait=6"));
    let revoke = async {
        let revoke = RevokeKey {
            id: id.clone(),
            actor: "test".into(),
        };
        assert_eq!(
            elsewhere.revoke_key(revoke).await.unwrap(),
            KeyRevoked::Revoked
        );
        eventually(Duration::from_secs(5), "the key is refused", async || {
            let answer = server.get("/jobs").await;
            require(answer.status == 401, answer.status)
        })
        .await;
    };
    let (waited, ()) = tokio::join!(Answer::of(waiting), revoke);
    // Begun with a good key, ended with a revoked one.
    waited.refused(401, "unauthenticated");
}
