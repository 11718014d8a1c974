//! Verdicts: who may give them, what they do, and what waits for one.

use fencepost_core::lifecycle::Failure;
use fencepost_store::Role;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Server, key};

/// An operator of the server's tenant.
struct Operator<'a> {
    server: &'a Server,
    token: String,
}

impl<'a> Operator<'a> {
    async fn of(server: &'a Server) -> Self {
        let token = key(&server.store, "a", "carol", &[Role::Operator]).await;
        Self { server, token }
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        let request = self.server.anonymous(Method::POST, path);
        Answer::of(request.bearer_auth(&self.token).json(&body)).await
    }

    async fn get(&self, path: &str) -> Answer {
        let request = self.server.anonymous(Method::GET, path);
        Answer::of(request.bearer_auth(&self.token)).await
    }
}

/// A job that is unknown: its id and the path of its verdict.
async fn unknown(server: &Server, key: &str) -> (String, String) {
    let job = server.accepted(key).await;
    server.lose(job).await;
    (job.to_string(), format!("/jobs/{job}/resolve"))
}

#[tokio::test]
async fn an_unknown_job_is_resolved_in_each_of_the_four_ways() {
    let server = Server::start().await;
    let operator = Operator::of(&server).await;
    for (n, verdict, more, status, state) in [
        (
            "1",
            "happened",
            json!({"outcome": {"id": 7}}),
            202,
            "queued",
        ),
        ("2", "did-not-happen", json!({}), 202, "queued"),
        (
            "3",
            "complete",
            json!({"result": 18_446_744_073_709_551_615_u64}),
            200,
            "completed",
        ),
        ("4", "abandon", json!({}), 200, "dead"),
    ] {
        let (job, path) = unknown(&server, n).await;
        let mut body =
            json!({"verdict": verdict, "reason": "the bank says so", "evidence": "statement 7"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let answer = operator.post(&path, body.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
        assert_eq!(answer.json()["state"], state);
        if verdict == "complete" {
            assert!(
                answer.text.contains("\"result\":18446744073709551615"),
                "{}",
                answer.text
            );
        }
        // The first one stands.
        let again = operator.post(&path, body).await;
        let detail = again.refused(409, "state_conflict");
        assert!(detail.contains(state), "{detail}");
        if verdict == "abandon" {
            // Nobody knows any better than before: running it again could repeat the call.
            let retry = server.post(&format!("/jobs/{job}/retry"), json!({})).await;
            let detail = retry.refused(409, "state_conflict");
            assert!(detail.contains("no known outcome"), "{detail}");
        }
        let history = server.get(&format!("/jobs/{job}/events")).await.json();
        let events = history["items"].as_array().unwrap();
        let told: Vec<&Value> = events
            .iter()
            .filter(|event| event["type"] == "verdict")
            .collect();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["code"], verdict);
        assert_eq!(told[0]["detail"], "the bank says so\nevidence: statement 7");
        assert_eq!(told[0]["actor"], "carol");
    }
}

#[tokio::test]
async fn what_waits_for_a_verdict_is_listed_with_all_there_is_to_decide_by() {
    let server = Server::start().await;
    let operator = Operator::of(&server).await;
    let (job, _) = unknown(&server, "1").await;
    let (_, other) = unknown(&server, "2").await;
    let page = operator.get("/unknown?limit=1").await.json();
    let [item] = &page["items"].as_array().unwrap()[..] else {
        panic!("{page}")
    };
    assert_eq!((&item["job"], &item["kind"]), (&json!(job), &json!("echo")));
    let effect = &item["effect"];
    assert_eq!(
        (
            &effect["name"],
            &effect["key"],
            &effect["epoch"],
            &effect["worker"]
        ),
        (
            &json!("send"),
            &json!(format!("{job}/send")),
            &json!(1),
            &json!("test-worker")
        )
    );
    let next = page["next"].as_str().unwrap();
    let rest = operator
        .get(&format!("/unknown?cursor={next}"))
        .await
        .json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next"], Value::Null);
    let none = operator.get("/unknown?kind=other").await.json();
    assert_eq!(none["items"], json!([]));
    let gone = operator
        .post(&other, json!({"verdict": "abandon", "reason": "x"}))
        .await;
    assert_eq!(gone.status, 200);
    let left = operator.get("/unknown").await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn only_an_operator_of_the_tenant_decides() {
    let server = Server::start().await;
    let (_, path) = unknown(&server, "1").await;
    let body = json!({"verdict": "abandon", "reason": "x"});
    let submitter = key(&server.store, "a", "app", &[Role::Submit, Role::Read]).await;
    let stranger = key(&server.store, "b", "carol", &Role::ALL).await;
    let ask = async |token: &str, method: Method, path: &str| {
        let request = server.anonymous(method, path).bearer_auth(token);
        Answer::of(request.json(&body)).await
    };
    ask(&submitter, Method::POST, &path)
        .await
        .refused(403, "forbidden");
    ask(&submitter, Method::GET, "/unknown")
        .await
        .refused(403, "forbidden");
    ask(&stranger, Method::POST, &path)
        .await
        .refused(404, "not_found");
    let others = ask(&stranger, Method::GET, "/unknown").await.json();
    assert_eq!(others["items"], json!([]));
}

#[tokio::test]
async fn a_verdict_that_does_not_fit_is_refused_by_its_field_and_changes_nothing() {
    let server = Server::start().await;
    let operator = Operator::of(&server).await;
    let (job, path) = unknown(&server, "1").await;
    for (body, named) in [
        (json!({"reason": "x"}), "`verdict`"),
        (json!({"verdict": "maybe", "reason": "x"}), "`verdict`"),
        (json!({"verdict": "abandon"}), "`reason`"),
        (json!({"verdict": "abandon", "reason": "  "}), "`reason`"),
        (json!({"verdict": "complete", "reason": "x"}), "`result`"),
        (
            json!({"verdict": "complete", "reason": "x", "result": "a\u{0}b"}),
            "`result`",
        ),
        (
            json!({"verdict": "abandon", "reason": "x", "result": 1}),
            "`result`",
        ),
        (
            json!({"verdict": "happened", "reason": "x", "effect": "no such name!"}),
            "`effect`",
        ),
        (
            json!({"verdict": "did-not-happen", "reason": "x", "timeout_ms": 0}),
            "`timeout_ms`",
        ),
    ] {
        let detail = operator
            .post(&path, body.clone())
            .await
            .refused(400, "invalid_input");
        assert!(detail.contains(named), "{body}: {detail}");
    }
    let other = json!({"verdict": "happened", "reason": "x", "effect": "other"});
    operator
        .post(&path, other)
        .await
        .refused(409, "state_conflict");
    let large = json!({"verdict": "happened", "reason": "x", "outcome": "x".repeat(300_000)});
    operator
        .post(&path, large)
        .await
        .refused(413, "payload_too_large");
    let state = server.get(&format!("/jobs/{job}")).await.json()["state"].clone();
    assert_eq!(state, "unknown");
    let dead = server.accepted("2").await;
    server.fail(dead, Failure::Permanent).await;
    let late = operator
        .post(
            &format!("/jobs/{dead}/resolve"),
            json!({"verdict": "abandon", "reason": "x"}),
        )
        .await;
    late.refused(409, "state_conflict");
}
