//! Effects on the outside world: zombies refused, commands that end with their
//! claim, crashes around a mark.

use std::process::Command;

use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume, built};
use serde_json::json;

use crate::workers::{ledger_worker, noted};

/// The reference receiver, and where it listens.
fn receiver(volume: &Volume) -> (Process, String) {
    let mut command = Command::new(built("receiver"));
    command
        .args(["127.0.0.1:0"])
        .arg(volume.path().join("received"));
    let receiver = Process::start(command, volume.path(), "receiver");
    let address = receiver.url.trim_start_matches("http://");
    let address = address.trim_end_matches('/').to_owned();
    (receiver, address)
}

fn received(volume: &Volume) -> Vec<String> {
    let text = std::fs::read_to_string(volume.path().join("received")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A worker is frozen past its lease between its claim and its call; another
/// takes the job and makes the call. What the first sends when it wakes comes
/// under a lower epoch, and the receiver refuses it.
#[tokio::test]
async fn a_zombie_is_refused_by_the_receiver() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let (_receiver, address) = receiver(&volume);
    let zombie = ledger_worker(&volume, "zombie");
    let id = client
        .accepted(
            "k",
            "ledger",
            json!({"block_ms": 1000, "post": address, "call": false}),
        )
        .await;
    noted(&volume, "start", 1).await;
    zombie.freeze();
    let _other = ledger_worker(&volume, "other");
    let job = client.at_rest(&id).await;
    assert_eq!(
        (&job["result"], &job["epoch"]),
        (&json!("other"), &json!(2))
    );
    assert_eq!(
        received(&volume),
        [format!(r#"{{"key":"{id}/call","job":"{id}","epoch":2}}"#)]
    );
    zombie.thaw();
    noted(&volume, "409", 1).await;
    assert!(volume.ledger().contains(&format!("{id} 1 409")));
    assert_eq!(received(&volume).len(), 1);
    assert_eq!(client.get(&format!("/jobs/{id}")).await, job);
    volume.verify();
}

/// Processes whose command line holds a word, zombies not counted.
fn processes(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let with_word = all.filter(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    });
    with_word.count()
}

/// A command that runs as a tree: itself, a child, and one that left its group.
fn tree(word: &str) -> String {
    format!(
        "\n[kinds.tree]\nsafe_to_repeat = true\nlease = \"1500ms\"\n\
         command = {{ program = [\"sh\", \"-c\", \"sleep 600 & setsid sh -c 'sleep 600; : {word}' & sleep 600; : {word}\"] }}\n"
    )
}

async fn are_left(word: &str, count: usize) {
    eventually(PATIENCE, "that many processes of the command", || async {
        let seen = processes(word);
        require(seen == count, seen)
    })
    .await;
}

#[tokio::test]
async fn a_killed_worker_leaves_no_command_at_work() {
    let word = format!("killed-{}", std::process::id());
    let volume = Volume::new().with_settings(&tree(&word));
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let id = client.accepted("k", "tree", json!({})).await;
    are_left(&word, 2).await;
    up.kill_9();
    are_left(&word, 0).await;
    // It is run again, and only once at a time.
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    are_left(&word, 2).await;
    let job = client.get(&format!("/jobs/{id}")).await;
    assert_eq!(
        (&job["state"], &job["epoch"]),
        (&json!("leased"), &json!(2))
    );
    drop(client);
    assert_eq!(up.terminate().0, 0);
    are_left(&word, 0).await;
    volume.verify();
}

#[tokio::test]
async fn a_frozen_worker_leaves_no_command_at_work_past_its_lease() {
    let word = format!("frozen-{}", std::process::id());
    let volume = Volume::new().with_settings(&tree(&word));
    let worker = volume.start("worker");
    let api = volume.start("api");
    let client = Client::new(&api, &volume);
    client.accepted("k", "tree", json!({})).await;
    are_left(&word, 2).await;
    worker.freeze();
    are_left(&word, 0).await;
    worker.thaw();
    // The job comes back to it, under a new epoch.
    are_left(&word, 2).await;
    assert_eq!(worker.terminate().0, 0);
    are_left(&word, 0).await;
    volume.verify();
}

/// The example's script, as a reader would run it.
#[tokio::test]
async fn a_crash_before_the_mark_is_repeated_and_one_after_it_is_not() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = tokio::process::Command::new("examples/crash-around-an-effect.sh")
        .current_dir(root)
        .env("BIN", built("receiver").parent().unwrap())
        .env("TMPDIR", std::env::temp_dir())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(
        said.contains("before: completed, attempts 2, effects made 1\n"),
        "{said}{complained}"
    );
    assert!(
        said.contains("after: unknown, attempts 1, effects made 1\n"),
        "{said}{complained}"
    );
}
