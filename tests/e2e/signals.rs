//! Stop signals: every role ends in time, with exit code 0, whatever it is doing.

use std::time::Duration;

use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume};
use rustix::process::Signal;
use serde_json::json;

use crate::workers::{ledger_worker, noted};

/// What a container engine waits before it kills, scaled down: the grace of two
/// seconds, giving back, closing.
const IN_TIME: Duration = Duration::from_secs(10);

/// An idle process has nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(3);

fn ends(process: Process, signal: Signal, limit: Duration) {
    let log = process.log();
    let (code, took) = process.stop(signal);
    assert_eq!(code, 0, "{log}");
    assert!(took < limit, "{took:?}: {log}");
}

#[tokio::test]
async fn idle_processes_end_at_once_by_either_signal() {
    let broker = SharedBroker::new().await;
    for signal in [Signal::TERM, Signal::INT] {
        let volume = Volume::new();
        let up = volume.start("up");
        ends(up, signal, AT_ONCE);
        let volume = Volume::new().with_broker(broker.amqp_url());
        for verb in ["api", "relay", "worker"] {
            ends(volume.start(verb), signal, AT_ONCE);
        }
    }
}

#[tokio::test]
async fn processes_end_in_time_while_the_broker_is_away() {
    // Nobody listens there.
    let volume = Volume::new().with_broker("amqp://guest:guest@127.0.0.1:1/%2f");
    for verb in ["api", "relay", "worker"] {
        ends(volume.start(verb), Signal::TERM, AT_ONCE);
    }
}

#[tokio::test]
async fn processes_end_in_time_while_another_holds_the_database() {
    let volume = Volume::new();
    let processes: Vec<Process> = ["up", "api", "worker"]
        .iter()
        .map(|verb| volume.start(verb))
        .collect();
    let client = Client::new(&processes[1], &volume);
    let id = client
        .accepted("k", "ledger", json!({"call": false, "after_ms": 600_000}))
        .await;
    let ledger = ledger_worker(&volume, "ledger");
    noted(&volume, "start", 1).await;
    let lock = volume.lock();
    for process in processes {
        ends(process, Signal::TERM, IN_TIME);
    }
    ends(ledger, Signal::TERM, IN_TIME);
    drop(lock);
    // Its release could not be recorded: the lease is what ends.
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let _other = ledger_worker(&volume, "other");
    eventually(PATIENCE, "the job runs again", async || {
        let job = client.get(&format!("/jobs/{id}")).await;
        require(job["epoch"] == json!(2), job.to_string())
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_ends_a_worker_at_once() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let worker = ledger_worker(&volume, "ledger");
    client
        .accepted("k", "ledger", json!({"call": false, "after_ms": 600_000}))
        .await;
    noted(&volume, "start", 1).await;
    worker.signal(Signal::TERM);
    eventually(PATIENCE, "the worker is ending", async || {
        require(worker.log().contains("ending gracefully"), worker.log())
    })
    .await;
    // Well before the grace is over.
    ends(worker, Signal::TERM, Duration::from_secs(1));
}

/// Short jobs are finished and recorded; long ones are given back without an
/// attempt and run elsewhere at once; one whose call is out is unknown and says so.
#[tokio::test]
async fn a_stop_finishes_what_is_short_and_gives_back_what_is_long() {
    let broker = SharedBroker::new().await;
    let volume = Volume::new().with_broker(broker.amqp_url());
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    let _relay = volume.start("relay");
    let worker = ledger_worker(&volume, "first");
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for n in 0..3 {
        let plan = json!({"after_ms": 1_000});
        short.push(client.accepted(&format!("s{n}"), "ledger", plan).await);
        let plan = json!({"call": false, "after_ms": 600_000});
        long.push(client.accepted(&format!("l{n}"), "ledger", plan).await);
    }
    let out = json!({"inside_ms": 600_000});
    let out = client.accepted("out", "ledger", out).await;
    noted(&volume, "start", 7).await;
    noted(&volume, "call", 4).await;
    ends(worker, Signal::TERM, IN_TIME);
    for id in &short {
        let job = client.get(&format!("/jobs/{id}")).await;
        assert_eq!(
            (&job["state"], &job["epoch"]),
            (&json!("completed"), &json!(1))
        );
    }
    let job = client.get(&format!("/jobs/{out}")).await;
    assert_eq!(
        (&job["state"], &job["error"]["code"]),
        (&json!("unknown"), &json!("effect_open"))
    );
    for id in &long {
        let job = client.get(&format!("/jobs/{id}")).await;
        assert_eq!(
            (&job["state"], &job["attempts"]),
            (&json!("queued"), &json!(0))
        );
    }
    let _other = ledger_worker(&volume, "other");
    for id in &long {
        eventually(
            Duration::from_secs(5),
            "the job runs elsewhere",
            async || {
                let job = client.get(&format!("/jobs/{id}")).await;
                require(job["epoch"] == json!(2), job.to_string())
            },
        )
        .await;
    }
    volume.verify();
}
