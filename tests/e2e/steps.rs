//! A workflow of three effects, killed at every point of it.

use fencepost_tests::{Client, Volume};
use serde_json::{Value, json};

use crate::workers::{ledger_worker, noted};

/// How much is killed.
#[derive(Clone, Copy)]
enum Killed {
    Worker,
    Everything,
}

fn called(volume: &Volume, id: &str, step: &str) -> usize {
    let all = volume.ledger();
    let calls = all
        .iter()
        .filter(|line| line.starts_with(id) && line.ends_with(&format!("{step} called")));
    calls.count()
}

/// Runs the workflow until the point, kills, starts anew, and answers the job at rest.
async fn killed_at(point: &str, killed: Killed) -> (Volume, Value) {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let worker = ledger_worker(&volume, "first");
    let plan = json!({"steps": ["a", "b", "c"], "stop_at": point});
    let id = client.accepted("k", "ledger", plan).await;
    noted(&volume, point, 1).await;
    worker.kill_9();
    let up = match killed {
        Killed::Worker => up,
        Killed::Everything => {
            up.kill_9();
            volume.start("up")
        }
    };
    let client = Client::new(&up, &volume);
    let _second = ledger_worker(&volume, "second");
    let job = client.at_rest(&id).await;
    drop(up);
    volume.verify();
    (volume, job)
}

/// No call was out: it goes on at the first step without a stored outcome.
async fn resumes(point: &str, killed: Killed) {
    let (volume, job) = killed_at(point, killed).await;
    let id = job["id"].as_str().unwrap();
    assert_eq!(
        (&job["state"], &job["result"]),
        (&json!("completed"), &json!("second")),
        "{point}"
    );
    assert_eq!((&job["attempts"], &job["epoch"]), (&json!(2), &json!(2)));
    for step in ["a", "b", "c"] {
        assert_eq!(called(&volume, id, step), 1, "{step} after {point}");
    }
}

/// A call was out: nobody calls again, and the steps after it are not begun.
async fn is_unknown(point: &str, killed: Killed) {
    let (volume, job) = killed_at(point, killed).await;
    let id = job["id"].as_str().unwrap();
    assert_eq!(
        (&job["state"], &job["attempts"]),
        (&json!("unknown"), &json!(1)),
        "{point}"
    );
    let lost = point.split(' ').next().unwrap();
    for step in ["a", "b", "c"] {
        let calls = usize::from(step <= lost);
        assert_eq!(called(&volume, id, step), calls, "{step} after {point}");
    }
}

#[tokio::test]
async fn a_worker_killed_between_calls_resumes_after_the_last_stored_one() {
    for point in ["a before", "a stored", "c stored"] {
        resumes(point, Killed::Worker).await;
    }
}

#[tokio::test]
async fn a_worker_killed_inside_a_call_leaves_the_workflow_unknown() {
    for point in ["a called", "b called", "c called"] {
        is_unknown(point, Killed::Worker).await;
    }
}

#[tokio::test]
async fn everything_killed_at_once_changes_nothing_of_that() {
    for point in ["b before", "b stored"] {
        resumes(point, Killed::Everything).await;
    }
    is_unknown("b called", Killed::Everything).await;
}

#[tokio::test]
async fn a_call_that_answers_with_an_error_of_its_own_stops_the_workflow_there() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let _worker = ledger_worker(&volume, "only");
    let plan = json!({"steps": ["a", "b", "c"], "unclear": "b"});
    let id = client.accepted("k", "ledger", plan).await;
    let job = client.at_rest(&id).await;
    assert_eq!(job["state"], "unknown");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("answered 500"), "{message}");
    let calls = ["a", "b", "c"].map(|step| called(&volume, &id, step));
    assert_eq!(calls, [1, 1, 0]);
    volume.verify();
}
