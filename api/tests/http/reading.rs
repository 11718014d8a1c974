//! Jobs, lists and histories, and who sees them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fencepost_core::id::JobId;
use fencepost_core::lifecycle::Failure;
use fencepost_store::Role;
use fencepost_testkit::wait::{eventually, require};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, LIMIT, Server, key, logs};

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_job_shows_its_result_only_when_completed_and_its_error_when_there_is_one() {
    let server = Server::start().await;
    let [done, dead, unknown] = [
        server.accepted("1").await,
        server.accepted("2").await,
        server.accepted("3").await,
    ];
    server.complete(done, r#"{ "pages" : 1.0 }"#).await;
    server.fail(dead, Failure::Permanent).await;
    server.lose(unknown).await;
    let shown = server.get(&format!("/jobs/{done}")).await;
    assert!(
        shown.text.contains(r#""result":{ "pages" : 1.0 }"#),
        "{}",
        shown.text
    );
    let job = shown.json();
    assert_eq!(
        (&job["state"], &job["attempts"], &job["epoch"]),
        (&json!("completed"), &json!(1), &json!(1))
    );
    assert!(job["finished_at"].is_string() && job.get("error").is_none());
    let job = server.get(&format!("/jobs/{dead}")).await.json();
    assert_eq!(job["state"], "dead");
    assert_eq!(
        job["error"],
        json!({"code": "test_failure", "message": "as the test wants it"})
    );
    assert!(job.get("result").is_none());
    let job = server.get(&format!("/jobs/{unknown}")).await.json();
    assert_eq!(
        (&job["state"], &job["finished_at"]),
        (&json!("unknown"), &json!(null))
    );
}

#[tokio::test]
async fn a_list_is_filtered_and_paged_without_gap_or_repeat() {
    let server = Server::start().await;
    let mut all = Vec::new();
    for number in 0..7 {
        all.push(server.accepted(&number.to_string()).await.to_string());
    }
    let order = server
        .submit("o", r#"{"kind":"order","payload":{"n":1}}"#)
        .await
        .id();
    all.push(order.to_string());
    server.complete(all[0].parse().unwrap(), "\"canary\"").await;
    all.reverse();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/jobs?limit=3{cursor}")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        // A result is read from its job: a page of them has no bound.
        assert!(!page.text.contains("canary"));
        let page = page.json();
        seen.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all);
    for (filter, count) in [
        ("state=completed", 1),
        ("state=queued", 7),
        ("state=queued&state=completed", 8),
        ("kind=order", 1),
        ("queue=orders", 1),
        ("queue=orders&kind=echo", 0),
    ] {
        let page = server.get(&format!("/jobs?{filter}")).await.json();
        assert_eq!(ids(&page).len(), count, "{filter}");
        assert_eq!(page["next"], json!(null));
    }
    for bad in [
        "state=running",
        "state=",
        "kind=a%20b",
        "queue=%FF",
        "limit=0",
        "limit=101",
        "limit=x",
        "cursor=x",
        "cursor=%00",
        "page=2",
        "limit=1&limit=2",
        "api_key=x",
    ] {
        server
            .get(&format!("/jobs?{bad}"))
            .await
            .refused(400, "invalid_input");
    }
    server.get("/jobs?tenant=b").await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_history_is_told_in_order_and_by_pages() {
    let server = Server::start().await;
    let job = server.accepted("k").await;
    server.complete(job, "1").await;
    let whole = server.get(&format!("/jobs/{job}/events")).await.json();
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    let events = whole["items"].as_array().unwrap();
    assert_eq!(
        events.iter().map(kind).collect::<Vec<_>>(),
        ["accepted", "claimed", "completed"]
    );
    assert_eq!(events[0]["actor"], "app");
    assert_eq!(events[1]["actor"], "test-worker");
    assert_eq!(
        (&events[2]["epoch"], &events[2]["count"]),
        (&json!(1), &json!(1))
    );
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server
            .get(&format!("/jobs/{job}/events?limit=1{cursor}"))
            .await
            .json();
        paged.extend(page["items"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(&paged, events);
    let list = server.get("/jobs?limit=1").await.json();
    let wrong = list["next"].as_str().unwrap_or("AQ");
    let answer = server
        .get(&format!("/jobs/{job}/events?cursor={wrong}"))
        .await;
    answer.refused(400, "invalid_input");
}

/// Scenario 31: another's job and one that is not there are the same answer.
#[tokio::test]
async fn a_foreign_job_is_one_that_does_not_exist() {
    let server = Server::start().await;
    let foreign = server.accepted("k").await;
    server.accepted("another").await;
    let random: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
    let theirs = server.get("/jobs?limit=1").await.json()["next"]
        .as_str()
        .unwrap()
        .to_owned();
    let roles = [Role::Submit, Role::Read, Role::Operator, Role::Admin];
    let tenant = key(&server.store, "b", "app", &roles).await;
    let owner = key(&server.store, "a", "web", &[Role::Submit, Role::Read]).await;
    for token in [tenant, owner] {
        let ask = async |method: Method, path: String| {
            Answer::of(server.anonymous(method, &path).bearer_auth(&token)).await
        };
        for (method, rest) in [
            (Method::GET, ""),
            (Method::GET, "?wait=1"),
            (Method::GET, "/events"),
            (Method::POST, "/cancel"),
            (Method::POST, "/retry"),
        ] {
            let answer = ask(method.clone(), format!("/jobs/{foreign}{rest}")).await;
            answer.refused(404, "not_found");
            for other in [
                random.to_string(),
                "x".into(),
                "%FF".into(),
                foreign.0.as_simple().to_string(),
            ] {
                let same = ask(method.clone(), format!("/jobs/{other}{rest}")).await;
                assert_eq!(same.shape(), answer.shape(), "{method} {other}{rest}");
            }
        }
        for list in [
            "/jobs".to_owned(),
            format!("/jobs?cursor={theirs}"),
            "/jobs?kind=echo".into(),
        ] {
            let page = ask(Method::GET, list).await;
            assert_eq!(page.text, r#"{"items":[],"next":null}"#);
        }
    }
    let job = server.get(&format!("/jobs/{foreign}")).await.json();
    assert_eq!(job["state"], "queued");
}

#[tokio::test]
async fn an_operator_sees_and_acts_on_the_whole_tenant() {
    let server = Server::start().await;
    let job = server.accepted("k").await;
    let token = key(&server.store, "a", "ops", &[Role::Operator]).await;
    let ask = async |method: Method, path: String| {
        Answer::of(server.anonymous(method, &path).bearer_auth(&token)).await
    };
    assert_eq!(ask(Method::GET, format!("/jobs/{job}")).await.id(), job);
    let page = ask(Method::GET, "/jobs".into()).await.json();
    assert_eq!(ids(&page), [job.to_string()]);
    let cancelled = ask(Method::POST, format!("/jobs/{job}/cancel")).await;
    assert_eq!(cancelled.json()["state"], "cancelled");
    let events = server.get(&format!("/jobs/{job}/events")).await.json();
    assert_eq!(events["items"][1]["actor"], "ops");
}

/// A job ended by another process is told to who waits here.
#[tokio::test]
async fn who_waits_is_woken_by_another_process() {
    let server = Server::start().await;
    let elsewhere = server.beside().await;
    let jobs = [server.accepted("1").await, server.accepted("2").await];
    let started = Instant::now();
    let [one, other] = jobs.map(|job| {
        let request = server.request(Method::GET, &format!("/jobs/{job}?wait=15"));
        request.header("x-request-id", format!("waits-for-{job}"))
    });
    let ends = async {
        eventually(LIMIT, "both requests under way", async || {
            let logs = logs();
            let both = jobs
                .iter()
                .all(|job| logs.contains(&format!("waits-for-{job}")));
            require(both, "not yet")
        })
        .await;
        elsewhere.complete(jobs[0], "1").await;
        elsewhere.lose(jobs[1]).await;
    };
    let (one, other, ()) = tokio::join!(Answer::of(one), Answer::of(other), ends);
    assert_eq!(one.json()["state"], "completed");
    assert_eq!(other.json()["state"], "unknown");
    // Woken, and not answered because the time was up.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_wait_ends_with_its_time_and_says_how_the_job_stands() {
    let server = Server::start().await;
    let job = server.accepted("k").await;
    let started = Instant::now();
    let answer = server.get(&format!("/jobs/{job}?wait=1")).await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(
        (answer.status.as_u16(), answer.json()["state"].clone()),
        (200, json!("queued"))
    );
    let at_once = server.get(&format!("/jobs/{job}?wait=0")).await;
    assert_eq!(at_once.status, 200);
    server.complete(job, "1").await;
    // More than the longest wait is cut to it, which no finished job needs.
    let done = server.get(&format!("/jobs/{job}?wait=100000")).await;
    assert_eq!(done.json()["state"], "completed");
    for bad in ["wait=-1", "wait=x", "wait=1.5", "wait=1&wait=1", "wait="] {
        server
            .get(&format!("/jobs/{job}?{bad}"))
            .await
            .refused(400, "invalid_input");
    }
}

#[tokio::test]
async fn many_who_wait_for_many_jobs_are_each_told() {
    let server = Server::start().await;
    let mut jobs = BTreeSet::new();
    for number in 0..20 {
        jobs.insert(server.accepted(&number.to_string()).await);
    }
    let waits = jobs.iter().flat_map(|job| {
        let path = format!("/jobs/{job}?wait=15");
        [0, 1, 2].map(|_| Answer::of(server.request(Method::GET, &path)))
    });
    let ends = async {
        for job in &jobs {
            server.complete(*job, "1").await;
        }
    };
    let started = Instant::now();
    let (answers, ()) = tokio::join!(futures_util::future::join_all(waits), ends);
    // Woken, and not answered because the time was up.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    for answer in answers {
        assert_eq!(answer.json()["state"], "completed");
    }
}

#[tokio::test]
async fn probes_are_answered_without_a_credential() {
    let server = Server::start().await;
    let probe = async |path| Answer::of(server.anonymous(Method::GET, path)).await;
    assert_eq!(probe("/healthz").await.text, r#"{"alive":true}"#);
    let ready = probe("/readyz").await;
    assert_eq!(
        (ready.status.as_u16(), ready.json()["ready"].clone()),
        (200, json!(true))
    );
    server.health.not_ready("broker", "blocked");
    let not = probe("/readyz").await;
    assert_eq!(not.status, 503);
    assert_eq!(not.json()["parts"]["broker"], "blocked");
    server.health.ready("broker");
    eventually(LIMIT, "ready again", async || {
        let answer = probe("/readyz").await;
        require(answer.status == 200, answer.text)
    })
    .await;
    server.store.close().await;
    assert_eq!(probe("/readyz").await.status, 503);
    assert_eq!(probe("/healthz").await.status, 200);
}
