//! One run after another: outcomes, failures, what is put back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::fingerprint::Moment;
use fencepost_core::lifecycle::State;
use fencepost_core::limits::{ERROR_TEXT_BYTES_MAX, RESULT_BYTES_MAX};
use fencepost_store::{PauseQueue, ResumeQueue, Submit};
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::Outcome;
use fencepost_worker::builtin::{DocumentExtract, Echo};
use fencepost_worker::extract::Extractor;
use fencepost_worker::source::{Poll, Source as _};
use tokio::sync::Semaphore;

use crate::setup::{LONG, PATIENCE, SHORT, World, kind, queue, submission};

/// A submission of a kind that ships with the worker.
fn builtin(name: &str, key: &str, payload: &str) -> Submit {
    Submit {
        kind: kind(name),
        ..submission(key, payload)
    }
}

#[tokio::test]
async fn a_result_is_kept_digit_for_digit() {
    let world = World::new().await;
    let payload = r#"{"n": 12345678901234567890.10, "big":1e400,"s":"\u00fc"}"#;
    let job = world.submit(builtin("echo", "k", payload)).await;
    let worker = world.start(world.builder(LONG).handler(kind("echo"), Echo));
    let done = world.reaches(job, State::Completed).await;
    assert_eq!(done.result.as_deref(), Some(payload));
    assert_eq!((done.attempts, done.epoch.0), (1, 1));
    assert_eq!(
        world.events(job).await,
        ["accepted", "claimed", "completed"]
    );
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_document_is_extracted_from_a_blob_and_from_text() {
    let world = World::new().await;
    let content = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from("Grüße"))]);
    let (hash, _) = world.put(content).await;
    let own = std::env::current_exe().unwrap();
    let guard = own.ancestors().nth(2).unwrap();
    let extractor = Extractor::new(guard.join("examples/extract-guard"), Vec::new());
    let extract = DocumentExtract::new(extractor);
    let worker = world.start(
        world
            .builder(LONG)
            .handler(kind("document.extract"), extract),
    );
    let missing = format!("sha256:{}", "0".repeat(64));
    let submitted = async |key: &str, payload: String| {
        let job = builtin("document.extract", key, &payload);
        world.submit(job).await
    };
    let expected = r#"{"text":"Grüße","pages":1,"media_type":"text/plain","truncated":false}"#;
    for (key, payload) in [
        ("blob", format!(r#"{{"document":{{"blob":"{hash}"}}}}"#)),
        ("text", r#"{"text":"Grüße"}"#.to_owned()),
    ] {
        let job = submitted(key, payload).await;
        let done = world.reaches(job, State::Completed).await;
        assert_eq!(done.result.as_deref(), Some(expected), "{key}");
    }
    for (key, payload, code) in [
        (
            "missing",
            format!(r#"{{"document":{{"blob":"{missing}"}}}}"#),
            "blob_unusable",
        ),
        ("neither", "{}".to_owned(), "invalid_payload"),
        (
            "other",
            r#"{"text":"a","lang":"de"}"#.to_owned(),
            "invalid_payload",
        ),
    ] {
        let job = submitted(key, payload).await;
        let dead = world.reaches(job, State::Dead).await;
        assert_eq!(
            (dead.error.unwrap().code.as_str(), dead.attempts),
            (code, 1)
        );
    }
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_failure_is_tried_again_until_the_attempts_are_spent() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let worker = world.worker(LONG, |context| async move {
        Err(format!("attempt {} broke", context.attempt()).into())
    });
    let dead = world.reaches(job, State::Dead).await;
    let error = dead.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("handler_failed", "attempt 3 broke")
    );
    assert_eq!(
        world.events(job).await,
        [
            "accepted", "claimed", "failed", "claimed", "failed", "claimed", "dead"
        ]
    );
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_failure_for_good_is_not_repeated_and_a_retry_says_when() {
    let world = World::new().await;
    let worker = world.worker(LONG, |context| async move {
        Ok(match (context.payload(), context.attempt()) {
            ("1", _) => Outcome::dead("not_wanted", "no"),
            (_, 1) => Outcome::Retry {
                code: "later".parse()?,
                message: "soon".into(),
                after: Some(Duration::from_millis(1_500)),
            },
            _ => Outcome::completed(&"done")?,
        })
    });
    let dead = world.submit(submission("dead", "1")).await;
    let dead = world.reaches(dead, State::Dead).await;
    assert_eq!(dead.attempts, 1);
    assert_eq!(dead.error.unwrap().code.as_str(), "not_wanted");
    let retried = world.submit(submission("retried", "2")).await;
    let done = world.reaches(retried, State::Completed).await;
    // Far above the backoff of these jobs, which ends at 200 ms.
    let waited = done.finished_at.unwrap().since(done.created_at);
    assert!(waited >= Duration::from_millis(1_500), "{waited:?}");
    assert_eq!(done.attempts, 2);
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_panic_of_any_text_is_a_failure_and_costs_no_slot() {
    let world = World::new().await;
    let builder = world.builder(LONG).slots(1);
    let does = crate::setup::Does(|context: fencepost_worker::Context| async move {
        match context.payload() {
            "0" => panic!("\0 no text\u{1b}[31m {}", "x".repeat(5 * 1024 * 1024)),
            "1" => std::panic::panic_any(7_u32),
            "2" => Err("a\0b".into()),
            _ => Ok(Outcome::completed(&"good")?),
        }
    });
    let worker = world.start(builder.handler(kind(crate::setup::KIND), does));
    let mut dead = Vec::new();
    for payload in ["0", "1", "2"] {
        let once = Submit {
            max_attempts: 1,
            ..submission(payload, payload)
        };
        let job = world.submit(once).await;
        dead.push(world.reaches(job, State::Dead).await.error.unwrap());
    }
    let codes: Vec<&str> = dead.iter().map(|error| error.code.as_str()).collect();
    assert_eq!(
        codes,
        ["handler_panicked", "handler_panicked", "handler_failed"]
    );
    assert!(
        dead[0]
            .message
            .starts_with("\u{fffd} no text\u{fffd}[31m xxx")
    );
    assert!(dead[0].message.len() <= ERROR_TEXT_BYTES_MAX);
    assert_eq!(dead[2].message, "a\u{fffd}b");
    let good = world.submit(submission("good", "3")).await;
    world.reaches(good, State::Completed).await;
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_result_that_cannot_be_kept_ends_the_job_at_once() {
    let world = World::new().await;
    let worker = world.worker(LONG, |context| async move {
        Ok(Outcome::Completed(match context.payload() {
            "0" => "{\"a\":".to_owned(),
            "1" => "\"\\u0000\"".to_owned(),
            "2" => format!("{}1{}", "[".repeat(100), "]".repeat(100)),
            _ => format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX)),
        }))
    });
    for payload in ["0", "1", "2", "3"] {
        let job = world.submit(submission(payload, payload)).await;
        let dead = world.reaches(job, State::Dead).await;
        let error = dead.error.unwrap();
        assert_eq!(
            (error.code.as_str(), dead.attempts),
            ("invalid_result", 1),
            "{}",
            error.message
        );
    }
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_snooze_gives_its_attempt_back() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let worker = world.worker(LONG, |context| async move {
        Ok(if context.epoch().0 < 3 {
            Outcome::Snooze(Duration::from_millis(100))
        } else {
            Outcome::completed(&context.attempt())?
        })
    });
    let done = world.reaches(job, State::Completed).await;
    assert_eq!(
        (done.attempts, done.epoch.0, done.result.as_deref()),
        (1, 3, Some("1"))
    );
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn no_more_jobs_are_claimed_than_there_are_slots() {
    let world = World::new().await;
    let mut jobs = Vec::new();
    for n in 0..12 {
        jobs.push(world.queued(&n.to_string()).await);
    }
    let started = Arc::new(AtomicU32::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let worker = world.worker(SHORT, {
        let (started, gate) = (Arc::clone(&started), Arc::clone(&gate));
        move |_| {
            started.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok(Outcome::completed(&())?)
            }
        }
    });
    let running = async || {
        let mut running = Vec::new();
        for job in &jobs {
            let job = world.job(*job).await;
            if job.state == State::Leased {
                running.push(job.id);
            } else {
                assert!(job.attempts <= u32::from(job.state == State::Completed));
            }
        }
        running
    };
    eventually(PATIENCE, "every slot is taken", async || {
        let running = running().await;
        require(running.len() == 4, running.len())
    })
    .await;
    // One that ends makes room for one.
    gate.add_permits(1);
    eventually(PATIENCE, "the next one has started", async || {
        let count = started.load(Ordering::SeqCst);
        require(count == 5, count)
    })
    .await;
    let charged = running().await;
    assert_eq!(charged.len(), 4);
    worker.crash().await;
    for job in &charged {
        assert_eq!(world.reap(*job).await, State::Queued);
    }
    for job in jobs {
        let job = world.job(job).await;
        let expected = u32::from(charged.contains(&job.id) || job.state == State::Completed);
        assert_eq!(job.attempts, expected, "{job:?}");
    }
    world.verify().await;
}

#[tokio::test]
async fn a_paused_queue_costs_no_attempt_and_its_jobs_run_when_it_is_resumed() {
    let world = World::new().await;
    let pause = PauseQueue {
        queue: queue(),
        actor: "ann".to_owned(),
    };
    world.store.pause_queue(pause).await.unwrap();
    let job = world.queued("k").await;
    let worker = world.worker(LONG, |_| async { Ok(Outcome::completed(&())?) });
    eventually(PATIENCE, "it is put back", async || {
        let events = world.events(job).await;
        require(events.contains(&"put_back".to_owned()), events.join(", "))
    })
    .await;
    let waiting = world.job(job).await;
    assert_eq!((waiting.attempts, waiting.epoch.0), (0, 0));
    let resume = ResumeQueue {
        queue: queue(),
        actor: "ann".to_owned(),
    };
    world.store.resume_queue(resume).await.unwrap();
    assert_eq!(world.reaches(job, State::Completed).await.attempts, 1);
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_job_whose_kind_is_not_here_is_put_back_for_another_worker() {
    let world = World::new().await;
    let job = world.queued("k").await;
    let without = world.start(world.builder(LONG).handler(kind("echo"), Echo));
    eventually(PATIENCE, "it is put back", async || {
        let events = world.events(job).await;
        require(events.contains(&"put_back".to_owned()), events.join(", "))
    })
    .await;
    without.stop().await;
    let with = world.worker(LONG, |_| async { Ok(Outcome::completed(&())?) });
    assert_eq!(world.reaches(job, State::Completed).await.attempts, 1);
    with.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_job_past_its_deadline_is_left_to_the_reaper() {
    let world = World::new().await;
    let late = Submit {
        deadline: Moment::After(Duration::from_millis(100)),
        ..submission("late", "{}")
    };
    let late = world.submit(late).await;
    eventually(PATIENCE, "the deadline has passed", async || {
        let page = world.store.expired(None, 10).await.unwrap();
        require(!page.jobs.is_empty(), "nothing has expired")
    })
    .await;
    let fresh = world.queued("fresh").await;
    let mut poll = Poll::new(world.store.clone(), vec![queue()]);
    let next = tokio::time::timeout(PATIENCE, poll.next()).await.unwrap();
    // The late one was first in line; delivering it would only be refused, again and again.
    assert_eq!(next.unwrap().jobs[0].id, fresh);
    let worker = world.worker(LONG, |_| async { Ok(Outcome::completed(&())?) });
    world.reaches(fresh, State::Completed).await;
    assert_eq!(world.job(late).await.epoch.0, 0);
    assert_eq!(world.reap(late).await, State::Dead);
    worker.stop().await;
    world.verify().await;
}
