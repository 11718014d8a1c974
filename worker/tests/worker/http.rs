//! HTTP calls: what a receiver is told, and what each of its answers means.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_core::id::{Epoch, JobId};
use fencepost_core::kind::Http;
use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;
use fencepost_store::JobView;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::http::{HttpHandler, HttpSetupError};
use fencepost_worker::probe::{Answer, HttpProbe, Probe as _, Question};

use crate::receiver::{Does, Receiver, status};
use crate::setup::{KIND, LONG, PATIENCE, World, kind, submission};

fn http(url: &str) -> Http {
    Http {
        url: url.to_owned(),
        secret_file: None,
        timeout: Duration::from_secs(30),
        declined: BTreeSet::new(),
    }
}

impl World {
    /// Runs one job with a call to its rest.
    async fn calls(&self, http: Http, safe_to_repeat: bool, state: State) -> JobView {
        let handler = HttpHandler::new(http, safe_to_repeat).unwrap();
        let worker = self.start(self.builder(LONG).handler(kind(KIND), handler));
        let job = self.submit(submission("k", "{\"n\": 1.0}")).await;
        let job = self.reaches(job, state).await;
        worker.stop().await;
        self.verify().await;
        job
    }
}

fn code(job: &JobView) -> String {
    job.error
        .as_ref()
        .map(|error| error.code.to_string())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_receiver_is_told_the_job_its_epoch_and_its_key_and_can_check_who_calls() {
    let receiver =
        Receiver::new(vec![status("200 OK", "", "{\"id\": 18446744073709551616}")]).await;
    let directory = tempfile::tempdir().unwrap();
    let secret_file = directory.path().join("secret");
    std::fs::write(&secret_file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let world = World::new().await;
    let http = Http {
        secret_file: Some(secret_file),
        ..http(&receiver.url)
    };
    let job = world.calls(http, false, State::Completed).await;
    assert_eq!(
        job.result.as_deref(),
        Some("{\"id\": 18446744073709551616}")
    );
    let [request] = &receiver.requests()[..] else {
        panic!("one call")
    };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "{\"n\": 1.0}");
    assert!(head.starts_with("post /hook?team=7 http/1.1\r\n"), "{head}");
    let id = job.id;
    for line in [
        "content-type: application/json".to_owned(),
        format!("fencepost-job-id: {id}"),
        "fencepost-epoch: 1".to_owned(),
        "fencepost-attempt: 1".to_owned(),
        format!("fencepost-kind: {KIND}"),
        format!("idempotency-key: {id}/http"),
        format!("webhook-id: {id}/http"),
    ] {
        assert!(head.lines().any(|sent| sent == line), "{line} in {head}");
    }
    for name in [
        "webhook-timestamp: ",
        "webhook-signature: v1,",
        "fencepost-deadline: ",
    ] {
        assert!(head.lines().any(|sent| sent.starts_with(name)), "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_refuses_ends_the_job_and_one_that_declines_is_tried_again() {
    let moved = status(
        "308 Permanent Redirect",
        "location: http://127.0.0.1:1/\r\n",
        "",
    );
    for (answer, expected) in [
        (
            status("422 Unprocessable Content", "", "no"),
            "http_refused",
        ),
        (moved, "http_redirected"),
    ] {
        let receiver = Receiver::new(vec![answer]).await;
        let world = World::new().await;
        let job = world.calls(http(&receiver.url), false, State::Dead).await;
        assert_eq!((code(&job).as_str(), job.attempts), (expected, 1));
        assert_eq!(receiver.requests().len(), 1);
    }
    let busy = status("503 Service Unavailable", "", "");
    let receiver = Receiver::new(vec![busy, status("204 No Content", "", "")]).await;
    let world = World::new().await;
    let job = world
        .calls(http(&receiver.url), false, State::Completed)
        .await;
    assert_eq!((job.result.as_deref(), job.attempts), (Some("null"), 2));
    let epochs: Vec<bool> = receiver
        .requests()
        .iter()
        .zip(1..)
        .map(|(request, epoch)| request.contains(&format!("fencepost-epoch: {epoch}\r\n")))
        .collect();
    assert_eq!(epochs, [true, true]);
}

#[tokio::test]
async fn a_receiver_says_when_to_come_again() {
    let later = status("429 Too Many Requests", "retry-after: 600\r\n", "");
    let receiver = Receiver::new(vec![later]).await;
    let world = World::new().await;
    let handler = HttpHandler::new(http(&receiver.url), false).unwrap();
    let worker = world.start(world.builder(LONG).handler(kind(KIND), handler));
    let job = world.queued("k").await;
    receiver.was_called(1).await;
    let job = world.reaches(job, State::Queued).await;
    let job = eventually(PATIENCE, "the failed attempt", async || {
        let job = world.job(job.id).await;
        require(job.error.is_some(), "no error yet")?;
        Ok::<_, String>(job)
    })
    .await;
    let wait = job.run_at.since(world.store.now());
    assert!((590..=600).contains(&wait.as_secs()), "{wait:?}");
    worker.stop().await;
}

/// Sent, and no word of what it did: nobody may call again.
#[tokio::test]
async fn a_call_whose_outcome_is_not_known_leaves_the_job_unknown_and_is_not_repeated() {
    for (does, timeout) in [
        (status("500 Internal Server Error", "", ""), 30_000),
        (status("302 Found", "location: /\r\n", ""), 30_000),
        (Does::HangsUp, 30_000),
        (Does::Nothing, 300),
        (Does::Answers("SMTP ready\r\n".to_owned()), 30_000),
    ] {
        let receiver = Receiver::new(vec![does]).await;
        let world = World::new().await;
        let http = Http {
            timeout: Duration::from_millis(timeout),
            ..http(&receiver.url)
        };
        let job = world.calls(http, false, State::Unknown).await;
        assert_eq!((code(&job).as_str(), job.attempts), ("effect_open", 1));
        let message = job.error.unwrap().message;
        assert!(!message.contains("team=7"), "{message}");
        assert_eq!(receiver.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_kind_may_declare_repeats_or_failures_of_its_receiver_harmless() {
    let receiver = Receiver::new(vec![Does::HangsUp, status("200 OK", "", "1")]).await;
    let world = World::new().await;
    let job = world
        .calls(http(&receiver.url), true, State::Completed)
        .await;
    assert_eq!(job.attempts, 2);
    let broken = status("500 Internal Server Error", "", "");
    let receiver = Receiver::new(vec![broken, status("200 OK", "", "1")]).await;
    let world = World::new().await;
    let declared = Http {
        declined: BTreeSet::from([500]),
        ..http(&receiver.url)
    };
    let job = world.calls(declared, false, State::Completed).await;
    assert_eq!(job.attempts, 2);
}

#[tokio::test]
async fn a_receiver_that_is_not_there_did_nothing() {
    // Bound and closed again: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for url in [
        format!("http://127.0.0.1:{port}/?token=CANARY"),
        "http://no-such-host.invalid/?token=CANARY".to_owned(),
    ] {
        let world = World::new().await;
        let job = world.calls(http(&url), false, State::Dead).await;
        assert_eq!(
            (code(&job).as_str(), job.attempts),
            ("http_not_connected", 3)
        );
        let message = job.error.unwrap().message;
        assert!(!message.contains("CANARY"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_kept_ends_the_job_after_the_effect() {
    let long = status("200 OK", "", &"x".repeat(2_000_000));
    let cut = Does::Answers("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_owned());
    for answer in [long, cut] {
        let receiver = Receiver::new(vec![answer]).await;
        let world = World::new().await;
        let job = world.calls(http(&receiver.url), false, State::Dead).await;
        assert_eq!(code(&job), "invalid_result");
        assert!(
            world
                .events(job.id)
                .await
                .contains(&"effect_settled".to_owned())
        );
        assert_eq!(receiver.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_probe_asks_a_service_under_the_effects_key() {
    let yes = status(
        "200 OK",
        "",
        "{\"happened\": true, \"outcome\": {\"n\": 1.0}}",
    );
    let no = status("200 OK", "", "{\"happened\": false}");
    let broken = status("500 Internal Server Error", "", "{\"happened\": false}");
    let unheard = status("404 Not Found", "", "");
    let receiver = Receiver::new(vec![yes, no, broken, unheard, Does::HangsUp]).await;
    let probe = HttpProbe::new(HttpHandler::new(http(&receiver.url), true).unwrap());
    let job: JobId = "0193a5c8-6d7e-7cc0-8a51-3f1d2a9b4e77".parse().unwrap();
    let question = Question {
        job,
        kind: kind(KIND),
        effect: "http".parse().unwrap(),
        key: format!("{job}/http"),
        epoch: Epoch(3),
        opened_at: Timestamp::from_millis(0),
    };
    let now = Timestamp::from_millis(1_000);
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(probe.ask(&question, now).await);
    }
    let happened = Answer::Happened(Some("{\"n\": 1.0}".to_owned()));
    assert_eq!(answers.remove(0), happened);
    assert_eq!(answers.remove(0), Answer::DidNotHappen);
    // Neither an error nor silence is a word about the effect.
    for answer in &answers {
        assert!(matches!(answer, Answer::NotKnown(_)), "{answer:?}");
    }
    let asked = receiver.requests().remove(0);
    assert!(
        asked.contains(&format!("idempotency-key: {job}/http\r\n")),
        "{asked}"
    );
    assert!(asked.contains("fencepost-epoch: 3\r\n"));
    assert!(asked.contains(&format!("\"key\":\"{job}/http\"")));
}

#[test]
fn a_secret_that_cannot_be_used_is_told_before_any_job_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    let with = |file: &std::path::Path| {
        HttpHandler::new(
            Http {
                secret_file: Some(file.to_owned()),
                ..http("http://127.0.0.1/")
            },
            false,
        )
    };
    assert!(matches!(
        with(&file),
        Err(HttpSetupError::SecretFile { .. })
    ));
    std::fs::write(&file, "hunter2").unwrap();
    let error = with(&file).unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        text.contains("whsec_") && !text.contains("hunter2"),
        "{text}"
    );
}
