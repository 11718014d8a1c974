//! `docs/reference/http.md` says what the server does: its examples are sent,
//! its codes and paths compared with those there are.

use std::collections::BTreeSet;

use fencepost_api::documented_codes;
use fencepost_core::lifecycle::Failure;
use fencepost_store::Role;
use reqwest::Method;
use serde_json::Value;

use crate::harness::{Answer, Server, key};

const PAGE: &str = include_str!("../../../docs/reference/http.md");

/// A fenced block: what follows the fence, and its content.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = PAGE.split("\n```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap_or((block, "")))
        .collect()
}

/// The cells of every table row whose first cell is code.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = PAGE
        .lines()
        .filter(|line| line.starts_with("| ") || line.starts_with("| `"));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// A value with everything replaced by its type: names stay.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => {
            let shaped = members
                .iter()
                .map(|(name, value)| (name.clone(), shape(value)));
            Value::Object(shaped.collect())
        }
    }
}

#[tokio::test]
async fn reference_examples_are_answered_as_shown() {
    let server = Server::start().await;
    let operator = key(&server.store, "a", "carol", &[Role::Operator, Role::Admin]).await;
    let mut examples = 0;
    let blocks = blocks();
    for pair in blocks.windows(2) {
        let [(asked, body), (answered, expected)] = pair else {
            unreachable!("windows of two");
        };
        let Some((_, line)) = asked.split_once("request ") else {
            continue;
        };
        let (method, path) = line.split_once(' ').unwrap();
        let job = prepared(&server, &format!("{method} {path}")).await;
        let path = path.replace("{id}", &job);
        let mut request = server.request(method.parse().unwrap(), &path);
        if path.ends_with("/resolve") || path.starts_with("/unknown") || path == "/queues" {
            request = server.anonymous(method.parse().unwrap(), &path);
            request = request.bearer_auth(&operator);
        }
        if asked.starts_with("json") {
            let _parses: Value = serde_json::from_str(body).unwrap();
            request = request
                .header("content-type", "application/json")
                .body(*body);
        }
        if path == "/jobs" {
            request = request.header("idempotency-key", "reference");
        }
        if path == "/blobs" {
            request = request.body("hello");
        }
        let answer = Answer::of(request).await;
        let status = answered.split(' ').nth(2).unwrap();
        assert_eq!(answer.status.as_str(), status, "{line}: {}", answer.text);
        let expected: Value = serde_json::from_str(expected).unwrap();
        let found = answer.json();
        if path.starts_with("/jobs?") || path == "/queues" {
            // The newest job is the one that was prepared.
            assert_eq!(
                shape(&found["items"][0]),
                shape(&expected["items"][0]),
                "{line}"
            );
        } else if path == "/readyz" {
            assert_eq!(found["ready"], expected["ready"]);
        } else {
            assert_eq!(shape(&found), shape(&expected), "{line}");
        }
        for word in ["state", "kind", "queue", "code", "size", "alive"] {
            assert_eq!(found.get(word), expected.get(word), "{line}");
        }
        assert_eq!(
            found.pointer("/error/code"),
            expected.pointer("/error/code"),
            "{line}"
        );
        assert_eq!(
            found.pointer("/error/message"),
            expected.pointer("/error/message"),
            "{line}"
        );
        examples += 1;
    }
    assert_eq!(examples, 13, "an example was not found");

    let conflict = server
        .submit("reference", r#"{"kind":"echo","payload":0}"#)
        .await;
    conflict.refused(409, "key_conflict");
    let (_, problem) = blocks
        .iter()
        .find(|(info, _)| info.ends_with("problem"))
        .unwrap();
    let shown: Value = serde_json::from_str(problem).unwrap();
    let mut told = conflict.json();
    told["request_id"] = shown["request_id"].clone();
    assert_eq!(told, shown);
}

/// A job as the example needs it.
async fn prepared(server: &Server, line: &str) -> String {
    let job = server.accepted(&line.replace(' ', "-")).await;
    let result = r#"{ "hello": "world", "id": 9007199254740993 }"#;
    match line {
        "GET /jobs/{id}?wait=30" | "GET /jobs/{id}/events" => server.complete(job, result).await,
        "POST /jobs/{id}/resolve" | "GET /unknown?limit=1" => server.lose(job).await,
        "POST /jobs/{id}/retry" => server.fail(job, Failure::Permanent).await,
        line if line.starts_with("GET /jobs?") => server.fail(job, Failure::Repeatable).await,
        _ => {}
    }
    job.to_string()
}

#[test]
fn reference_lists_the_codes_that_there_are() {
    let listed: BTreeSet<(&str, u16)> = rows()
        .filter_map(|row| {
            let code = row.first()?.strip_prefix('`')?.strip_suffix('`')?;
            Some((code, row.get(1)?.parse().ok()?))
        })
        .collect();
    assert_eq!(listed, documented_codes().collect());
}

#[tokio::test]
async fn reference_lists_the_paths_that_there_are() {
    let server = Server::start().await;
    let refusals: BTreeSet<u16> = documented_codes().map(|(_, status)| status).collect();
    let mut paths = 0;
    for row in rows() {
        let Some((status, [named, ..])) = row.split_last() else {
            continue;
        };
        let routes: Vec<&str> = named
            .split('`')
            .filter(|text| text.contains(" /"))
            .collect();
        if routes.is_empty() {
            continue;
        }
        for status in status.split(", ") {
            let status: u16 = status.parse().unwrap();
            assert!(status < 300 || refusals.contains(&status), "{status}");
        }
        for route in routes {
            let (method, path) = route.split_once(' ').unwrap();
            let path = path
                .replace("{id}", "018f0d5e-7a31-7c3a-9a39-0242ac120002")
                .replace("{name}", "default");
            let method: Method = method.parse().unwrap();
            let answer = Answer::of(server.anonymous(method, &path)).await;
            let status = answer.status.as_u16();
            // Without a key: 401, so there is such a path. Probes need none.
            assert!(
                status == 401 || (status == 200 && path.ends_with('z')),
                "{route}: {status}"
            );
            paths += 1;
        }
    }
    assert_eq!(paths, 15);
}
