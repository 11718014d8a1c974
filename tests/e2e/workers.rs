//! Workers that freeze, crash and are killed, without a broker.

use std::process::Command;
use std::time::Duration;

use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume};
use serde_json::json;

pub(crate) fn ledger_worker(volume: &Volume, name: &str) -> Process {
    let mut command: Command = volume.command(env!("CARGO_BIN_EXE_ledger-worker").as_ref());
    command.env("FENCEPOST_TEST_NAME", name);
    Process::start(command, volume.path(), name)
}

/// Waits until the ledger has so many lines with a word.
pub(crate) async fn noted(volume: &Volume, what: &str, count: usize) {
    eventually(
        PATIENCE,
        &format!("{count} `{what}` in the ledger"),
        || async {
            let seen = volume
                .ledger()
                .iter()
                .filter(|line| line.ends_with(what))
                .count();
            require(seen >= count, seen)
        },
    )
    .await;
}

#[tokio::test]
async fn a_frozen_worker_is_fenced_and_the_others_result_stands() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let first = ledger_worker(&volume, "first");
    let id = client
        .accepted("k", "ledger", json!({"call": false, "after_ms": 1000}))
        .await;
    noted(&volume, "start", 1).await;
    first.freeze();
    let second = ledger_worker(&volume, "second");
    let job = client.at_rest(&id).await;
    assert_eq!(
        (&job["result"], &job["attempts"]),
        (&json!("second"), &json!(2))
    );
    let before = client.get(&format!("/jobs/{id}")).await;
    first.thaw();
    eventually(
        PATIENCE,
        "the first worker says that its lease is lost",
        || async { require(first.log().contains("lost lease"), first.log()) },
    )
    .await;
    assert_eq!(
        first.log().matches("lost lease").count(),
        1,
        "{}",
        first.log()
    );
    assert_eq!(client.get(&format!("/jobs/{id}")).await, before);
    drop(second);
    volume.verify();
}

/// The frozen worker had made its call: nobody may call again, and nobody
/// knows; on waking its outcome is kept as evidence and changes nothing.
#[tokio::test]
async fn a_worker_frozen_inside_a_call_leaves_the_job_unknown() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let first = ledger_worker(&volume, "first");
    let id = client
        .accepted("k", "ledger", json!({"inside_ms": 1000}))
        .await;
    noted(&volume, "call", 1).await;
    first.freeze();
    let _second = ledger_worker(&volume, "second");
    let job = client.at_rest(&id).await;
    assert_eq!(
        (&job["state"], &job["error"]["code"]),
        (&json!("unknown"), &json!("effect_open"))
    );
    first.thaw();
    eventually(
        PATIENCE,
        "the first worker says that its lease is lost",
        || async { require(first.log().contains("lost lease"), first.log()) },
    )
    .await;
    assert_eq!(client.get(&format!("/jobs/{id}")).await["state"], "unknown");
    let calls = volume
        .ledger()
        .iter()
        .filter(|line| line.ends_with("call"))
        .count();
    assert_eq!(calls, 1);
    volume.verify();
}

#[tokio::test]
async fn a_handler_that_kills_its_process_three_times_ends_dead() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let id = client
        .accepted("bad", "ledger", json!({"abort": true}))
        .await;
    let supervisor = async {
        // What restarts a crashed container.
        for life in 0..3 {
            let worker = ledger_worker(&volume, &format!("life-{life}"));
            noted(&volume, "start", life + 1).await;
            drop(worker);
        }
    };
    supervisor.await;
    let last = ledger_worker(&volume, "last");
    let good = client
        .accepted("good", "ledger", json!({"call": false}))
        .await;
    let job = client.at_rest(&id).await;
    assert_eq!(
        (&job["state"], &job["error"]["code"]),
        (&json!("dead"), &json!("worker_lost"))
    );
    assert_eq!(job["attempts"], 3);
    assert_eq!(client.at_rest(&good).await["state"], "completed");
    assert_eq!(
        volume
            .ledger()
            .iter()
            .filter(|line| line.starts_with(&id))
            .count(),
        3
    );
    drop(last);
    volume.verify();
}

#[tokio::test]
async fn after_a_hard_kill_of_everything_jobs_run_again_or_are_unknown() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let worker = ledger_worker(&volume, "first");
    let (mut before, mut inside) = (Vec::new(), Vec::new());
    for n in 0..10 {
        let pause = json!({"before_ms": 1200});
        before.push(client.accepted(&format!("b{n}"), "ledger", pause).await);
        let pause = json!({"inside_ms": 60_000});
        inside.push(client.accepted(&format!("i{n}"), "ledger", pause).await);
    }
    noted(&volume, "start", 20).await;
    noted(&volume, "call", 10).await;
    worker.kill_9();
    up.kill_9();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let worker = ledger_worker(&volume, "second");
    for id in &before {
        let job = client.at_rest(id).await;
        assert_eq!(
            (&job["state"], &job["attempts"]),
            (&json!("completed"), &json!(2))
        );
    }
    for id in &inside {
        let job = client.at_rest(id).await;
        assert_eq!(
            (&job["state"], &job["error"]["code"]),
            (&json!("unknown"), &json!("effect_open"))
        );
    }
    for id in before.iter().chain(&inside) {
        let calls = volume
            .ledger()
            .iter()
            .filter(|line| line.starts_with(id) && line.ends_with("call"))
            .count();
        assert_eq!(calls, 1, "{id}");
    }
    drop(worker);
    volume.verify();
}

#[tokio::test]
async fn a_stopped_worker_finishes_what_is_short_and_gives_back_what_is_long() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let worker = ledger_worker(&volume, "first");
    let short = client
        .accepted("short", "ledger", json!({"after_ms": 1000}))
        .await;
    let long = client
        .accepted(
            "long",
            "ledger",
            json!({"call": false, "after_ms": 600_000}),
        )
        .await;
    noted(&volume, "start", 2).await;
    let (code, took) = worker.terminate();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(client.at_rest(&short).await["state"], "completed");
    let job = client.get(&format!("/jobs/{long}")).await;
    assert_eq!(
        (&job["state"], &job["attempts"]),
        (&json!("queued"), &json!(0))
    );
    volume.verify();
}
