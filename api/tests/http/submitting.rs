//! `POST /jobs`: what is accepted, what is refused, and what a repeat is told.

use std::collections::BTreeSet;

use fencepost_core::lifecycle::Failure;
use fencepost_store::{Cancel, Cancelled, Role, Scope};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Answer, Server, key, logs};

#[tokio::test]
async fn an_accepted_job_is_answered_as_get_answers_it() {
    let server = Server::start().await;
    let answer = server
        .submit(
            "k",
            r#"{"kind":"echo","payload":{"secret":"canary"},"priority":7}"#,
        )
        .await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(answer.header("idempotent-replayed"), None);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let location = answer.header("location").unwrap();
    assert_eq!(location, format!("/jobs/{}", answer.id()));
    let shown = server.get(location).await;
    assert_eq!(shown.status, 200);
    assert_eq!(shown.text, answer.text);
    let job = answer.json();
    for (field, value) in [
        ("kind", json!("echo")),
        ("queue", json!("default")),
        ("priority", json!(7)),
        ("state", json!("queued")),
        ("attempts", json!(0)),
        ("max_attempts", json!(3)),
        ("epoch", json!(0)),
        ("finished_at", json!(null)),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    for absent in [
        "result",
        "error",
        "dispatch",
        "cancel_requested_at",
        "payload",
    ] {
        assert_eq!(job.get(absent), None, "{absent}");
    }
    assert!(!answer.text.contains("canary"));
    let canary = server
        .submit(
            "key-canary",
            r#"{"kind":"echo","payload":{"password":"payload-canary"}}"#,
        )
        .await;
    server.complete(canary.id(), r#""result-canary""#).await;
    let shown = server.get(&format!("/jobs/{}", canary.id())).await;
    assert!(shown.text.contains("result-canary"));
    for canary in ["payload-canary", "result-canary", "key-canary"] {
        assert!(!logs().contains(canary), "{canary} was logged");
    }
}

/// Scenario 9: the same key at the same moment, through two servers on one file.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_key_at_the_same_moment_is_one_job() {
    let one = Server::start().await;
    let other = one.beside().await;
    for round in 0..10 {
        let key = format!("round-{round}");
        let answers = join_all((0..50).map(|number| {
            let server = if number % 2 == 0 { &one } else { &other };
            server.submit(&key, r#"{"kind":"echo","payload":{"a":1}}"#)
        }))
        .await;
        for answer in &answers {
            assert_eq!(answer.status, 202, "{}", answer.text);
        }
        let places: BTreeSet<_> = answers
            .iter()
            .map(|answer| answer.header("location"))
            .collect();
        assert_eq!(places.len(), 1);
        let replayed = |answer: &&Answer| answer.header("idempotent-replayed") == Some("true");
        assert_eq!(answers.iter().filter(replayed).count(), 49);
    }
    assert_eq!(one.store.count_jobs().await.unwrap(), 10);
    assert_eq!(one.store.orphans().await.unwrap(), (0, 0));
}

/// Scenario 10: what a repeat is told depends on its content and never on the job's state.
#[tokio::test]
async fn a_repeat_is_answered_by_its_content_whatever_became_of_the_job() {
    let server = Server::start().await;
    let base = r#"{"kind":"echo","payload":{"amount":100,"t":"A"},"max_attempts":3}"#;
    for state in [
        "queued",
        "leased",
        "waiting",
        "completed",
        "dead",
        "cancelled",
        "unknown",
    ] {
        let answer = server.submit(state, base).await;
        let job = answer.id();
        match state {
            "leased" => drop(server.claim(job).await),
            "waiting" => server.fail(job, Failure::Repeatable).await,
            "completed" => server.complete(job, r#"{"r":"the result"}"#).await,
            "dead" => server.fail(job, Failure::Permanent).await,
            "cancelled" => cancel(&server, job).await,
            "unknown" => server.lose(job).await,
            _ => {}
        }
        for same in [
            base,
            r#" { "payload" : {"t":"\u0041","amount" : 100}, "max_attempts":3, "kind":"echo" } "#,
            r#"{"kind":"echo","payload":{"amount":100,"t":"A"},"max_attempts":3,"run_at":null}"#,
        ] {
            let repeat = server.submit(state, same).await;
            assert_eq!(repeat.status, 202, "{state}: {}", repeat.text);
            assert_eq!(repeat.id(), job, "{state}");
            assert_eq!(repeat.header("idempotent-replayed"), Some("true"));
            assert_eq!(repeat.header("location"), answer.header("location"));
        }
        for other in [
            base.replace("100", "101"),
            base.replace("\"t\"", "\"x\":null,\"t\""),
            base.replace("100", "100.0"),
            base.replace("\"max_attempts\":3", "\"max_attempts\":4"),
            base.replace("\"max_attempts\":3", "\"timeout_ms\":5000"),
            r#"{"kind":"order","payload":{"n":1}}"#.to_owned(),
        ] {
            let conflict = server.submit(state, other).await;
            let detail = conflict.refused(409, "key_conflict");
            assert!(
                !detail.contains("amount") && !detail.contains("result"),
                "{detail}"
            );
        }
    }
    assert_eq!(server.store.count_jobs().await.unwrap(), 7);
}

async fn cancel(server: &Server, job: fencepost_core::id::JobId) {
    let cancelled = server.store.cancel(Cancel {
        scope: Scope {
            tenant: "a".parse().unwrap(),
            owner: None,
        },
        job,
        how: fencepost_core::lifecycle::Cancel::Ask,
        actor: "test".into(),
    });
    assert!(matches!(cancelled.await.unwrap(), Cancelled::Done(_)));
}

/// Scenario 25: keys of different callers never meet.
#[tokio::test]
async fn keys_belong_to_their_tenant_and_owner() {
    let server = Server::start().await;
    let body = r#"{"kind":"echo","payload":1}"#;
    let mut jobs = BTreeSet::new();
    let mut made = 0;
    for (tenant, owner, keys) in [
        (
            "a",
            "app",
            &["1", "K", "k", "K0", "K00", "b:c", "a/b|c%3A"][..],
        ),
        ("b", "app", &["1"]),
        ("a", "web", &["1", "c"]),
        ("a:b", "app", &["c"]),
        ("a|b", "app", &["c"]),
        ("a/b", "app", &["c"]),
        ("a%3Ab", "app", &["c"]),
        ("a b", "app", &["c"]),
    ] {
        let token = key(&server.store, tenant, owner, &[Role::Submit]).await;
        for key in keys {
            let answer = Answer::of(server.submission(&token, key, body)).await;
            assert_eq!(answer.status, 202, "{}", answer.text);
            assert_eq!(answer.header("idempotent-replayed"), None, "{tenant} {key}");
            jobs.insert(answer.id());
            made += 1;
            let other = Answer::of(server.submission(&token, key, body.replace('1', "2"))).await;
            other.refused(409, "key_conflict");
        }
    }
    assert_eq!(jobs.len(), made);
}

#[tokio::test]
async fn an_operation_key_is_one_header_of_visible_ascii() {
    let server = Server::start().await;
    let body = json!({"kind": "echo", "payload": 1});
    let request = || server.request(Method::POST, "/jobs").json(&body);
    let long = "k".repeat(256);
    for key in ["", "a b", "é", "a\tb", &long] {
        let answer = Answer::of(request().header("idempotency-key", key)).await;
        let detail = answer.refused(400, "invalid_input");
        assert!(detail.contains("Idempotency-Key"), "{detail}");
    }
    let none = Answer::of(request()).await;
    assert!(none.refused(400, "invalid_input").contains("exactly once"));
    let two = request()
        .header("idempotency-key", "a")
        .header("idempotency-key", "a");
    Answer::of(two).await.refused(400, "invalid_input");
    let longest = Answer::of(request().header("idempotency-key", "k".repeat(255))).await;
    assert_eq!(longest.status, 202);
    let trimmed = Answer::of(request().header("idempotency-key", " x ")).await;
    assert_eq!(trimmed.status, 202);
    assert_eq!(
        server.submit("x", body.to_string()).await.id(),
        trimmed.id()
    );
}

/// Scenario 12: one instant, however it is written.
#[tokio::test]
async fn a_deadline_is_the_same_instant_in_every_offset_and_precision() {
    let server = Server::start().await;
    // 2035-06-01T12:00:00.000Z, in twelve spellings.
    let spellings = [
        "2035-06-01T12:00:00Z",
        "2035-06-01T12:00:00z",
        "2035-06-01t12:00:00Z",
        "2035-06-01T17:30:00+05:30",
        "2035-06-01T01:00:00-11:00",
        "2035-06-01T08:30:00-03:30",
        "2035-06-01T12:00:00.0Z",
        "2035-06-01T12:00:00.000Z",
        "2035-06-01T17:30:00.000000+05:30",
        "2035-06-01T01:00:00.000000000-11:00",
        "2035-06-01T12:00:00+00:00",
        "2035-06-01T12:00:00.000000999Z",
    ];
    for (number, text) in spellings.iter().enumerate() {
        let body = json!({"kind": "echo", "payload": 1, "deadline_at": text});
        let answer = server.submit(&number.to_string(), body.to_string()).await;
        assert_eq!(
            answer.json()["deadline_at"],
            "2035-06-01T12:00:00.000Z",
            "{text}"
        );
        // The fingerprint reads instants, too: another spelling is a repeat.
        let same = json!({"kind": "echo", "payload": 1, "deadline_at": spellings[0]});
        let repeat = server.submit(&number.to_string(), same.to_string()).await;
        assert_eq!(repeat.header("idempotent-replayed"), Some("true"), "{text}");
    }
    for (field, text) in [
        ("deadline_at", "2035-06-01T12:00:00"),
        ("run_at", "2035-06-01 12:00:00Z"),
        ("deadline_at", "2020-01-01T00:00:00Z"),
    ] {
        let body = json!({"kind": "echo", "payload": 1, field: text});
        let detail = server
            .submit("bad", body.to_string())
            .await
            .refused(400, "invalid_input");
        assert!(detail.contains(field), "{detail}");
    }
}

/// Scenario 30: numbers keep every digit, to the handler and back.
#[tokio::test]
async fn numbers_are_kept_digit_for_digit() {
    let server = Server::start().await;
    for (number, text) in [
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "123456789012345678901234567890",
        "-9223372036854775809",
        "0.1",
        "1e2",
        "1.0",
        "-0",
        "1e308",
        "1e309",
        "1e-400",
    ]
    .into_iter()
    .enumerate()
    {
        let payload = format!(r#"{{ "n": {text} }}"#);
        let body = format!(r#"{{"kind":"echo","payload":{payload}}}"#);
        let job = server.submit(&number.to_string(), body).await.id();
        let claimed = server.claim(job).await;
        assert_eq!(claimed.payload, payload);
        let complete = fencepost_store::Complete {
            claim: claimed.claim,
            result: payload.clone(),
        };
        let report = server.store.complete(complete).await.unwrap();
        assert!(matches!(report, fencepost_store::Report::Recorded { .. }));
        let shown = server.get(&format!("/jobs/{job}")).await;
        assert!(
            shown.text.contains(&format!(r#""result":{payload}"#)),
            "{}",
            shown.text
        );
    }
    let body = r#"{"kind":"order","payload":{"n":1e309}}"#;
    let detail = server
        .submit("schema", body)
        .await
        .refused(400, "invalid_input");
    assert!(detail.contains("payload.n"), "{detail}");
}

/// Scenario 11, and the order of section 8: each refusal has its code and names its field.
#[tokio::test]
async fn a_bad_submission_is_refused_by_name_and_stores_nothing() {
    let server = Server::start().await;
    for (body, status, code, name) in [
        ("", 400, "invalid_input", "the body"),
        ("{", 400, "invalid_input", "the body"),
        ("[]", 400, "invalid_input", "the body"),
        (
            r#"{"kind":"echo","payload":"\u0000"}"#,
            400,
            "invalid_input",
            "`payload`",
        ),
        (
            r#"{"kind":"echo","payload":{"\u0000":1}}"#,
            400,
            "invalid_input",
            "`payload`",
        ),
        (
            r#"{"kind":"echo\u0000","payload":1}"#,
            400,
            "invalid_input",
            "`kind`",
        ),
        (
            r#"{"kind":"echo","payload":"\ud800"}"#,
            400,
            "invalid_input",
            "`payload`",
        ),
        (
            r#"{"kind":"nobody.knows","payload":1}"#,
            400,
            "invalid_input",
            "`kind`",
        ),
        (
            r#"{"kind":"echo","kind":"echo","payload":1}"#,
            400,
            "invalid_input",
            "`kind`",
        ),
        (r#"{"kind":"echo"}"#, 400, "invalid_input", "`payload`"),
        (
            r#"{"kind":"echo","payload":1,"prio":1}"#,
            400,
            "invalid_input",
            "`prio`",
        ),
        (
            r#"{"kind":"order","payload":{"n":"canary"}}"#,
            400,
            "invalid_input",
            "payload.n",
        ),
        (
            r#"{"kind":"echo","payload":1,"tenant":"b"}"#,
            403,
            "forbidden",
            "`tenant`",
        ),
        (
            r#"{"kind":"echo","payload":1,"owner":"app"}"#,
            403,
            "forbidden",
            "`owner`",
        ),
    ] {
        let answer = server.submit("k", body).await;
        let detail = answer.refused(status, code);
        assert!(detail.contains(name), "{body}: {detail}");
        assert!(!answer.text.contains("canary"));
    }
    let long = format!(
        r#"{{"kind":"order","payload":{{"n":1,"x":"{}"}}}}"#,
        "x".repeat(1_000)
    );
    let detail = server
        .submit("k", long)
        .await
        .refused(413, "payload_too_large");
    assert!(detail.contains("1000 bytes"), "{detail}");
    let longer = format!(r#"{{"kind":"echo","payload":"{}"}}"#, "x".repeat(70_000));
    server
        .submit("k", longer)
        .await
        .refused(413, "payload_too_large");
    let longest = format!(r#"{{"kind":"echo","payload":"{}"}}"#, "x".repeat(200_000));
    server
        .submit("k", longest)
        .await
        .refused(413, "payload_too_large");

    let request = || {
        server
            .request(Method::POST, "/jobs")
            .header("idempotency-key", "k")
    };
    let bytes = request()
        .header("content-type", "application/json")
        .body(&b"{\"kind\":\"\xff\"}"[..]);
    let detail = Answer::of(bytes).await.refused(400, "invalid_input");
    assert!(detail.contains("UTF-8"), "{detail}");
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        let request = kind.map_or(request(), |kind| request().header("content-type", kind));
        Answer::of(request.body("{}"))
            .await
            .refused(415, "unsupported_media_type");
    }
    let zipped = request()
        .header("content-type", "application/json")
        .header("content-encoding", "gzip")
        .body("{}");
    Answer::of(zipped)
        .await
        .refused(415, "unsupported_media_type");
    let strange = request()
        .header("content-type", "Application/JSON; charset=utf-8")
        .body(r#"{"kind":"echo","payload":1}"#);
    assert_eq!(server.store.count_jobs().await.unwrap(), 0);
    assert_eq!(Answer::of(strange).await.status, 202);
}
