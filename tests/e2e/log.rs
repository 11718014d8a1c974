//! The write-ahead log of the database, over processes.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume};
use serde_json::json;

const MIB: u64 = 1024 * 1024;

fn beside(volume: &Volume, suffix: &str) -> PathBuf {
    volume.path().join(format!("data/fencepost.db{suffix}"))
}

/// When the log was last emptied, by whichever process.
fn emptied_at(volume: &Volume) -> SystemTime {
    let file = std::fs::metadata(beside(volume, ".checkpoint")).expect("a lock file");
    file.modified().expect("a time")
}

/// The process that holds the checkpoint lock, by the kernel's table of locks (proc(5)).
fn checkpoints(volume: &Volume, process: &Process) -> bool {
    let inode = std::fs::metadata(beside(volume, ".checkpoint"))
        .expect("a lock file")
        .ino();
    let locks = std::fs::read_to_string("/proc/locks").expect("the table of locks");
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        !fields.contains(&"->")
            && fields.contains(&"FLOCK")
            && fields.contains(&process.id().to_string().as_str())
            && fields
                .iter()
                .any(|field| field.ends_with(&format!(":{inode}")))
    })
}

/// Submits jobs that together are about so large.
async fn write(client: &Client, name: &str, bytes: u64) {
    const PAYLOAD: usize = 60 * 1024;
    let mut posting = tokio::task::JoinSet::new();
    for poster in 0..4_u64 {
        let (client, name) = (client.clone(), name.to_owned());
        posting.spawn(async move {
            for n in 0..=bytes / 4 / PAYLOAD as u64 {
                let key = format!("{name}-{poster}-{n}");
                client
                    .accepted(&key, "ledger", json!({"pad": "x".repeat(PAYLOAD)}))
                    .await;
            }
        });
    }
    while let Some(posted) = posting.join_next().await {
        posted.expect("all are accepted");
    }
}

async fn emptied_after(volume: &Volume, instant: SystemTime) {
    eventually(PATIENCE, "the log to be emptied", async || {
        let at = emptied_at(volume);
        require(at > instant, format!("{at:?}"))
    })
    .await;
    let log = std::fs::metadata(beside(volume, "-wal")).map_or(0, |file| file.len());
    assert!(log < 64 * MIB, "{} MiB", log / MIB);
}

#[tokio::test]
async fn another_process_checkpoints_when_the_one_that_did_is_killed() {
    let volume = Volume::new();
    let key = volume.key();
    assert!(!key.is_empty(), "made before, by a process that has ended");
    let (one, two) = (volume.start("api"), volume.start("api"));
    eventually(PATIENCE, "one of them checkpoints", async || {
        let both = (checkpoints(&volume, &one), checkpoints(&volume, &two));
        require(both.0 != both.1, format!("{both:?}"))
    })
    .await;
    let (chosen, other) = if checkpoints(&volume, &one) {
        (one, two)
    } else {
        (two, one)
    };
    let client = Client::new(&other, &volume);
    let start = emptied_at(&volume);
    write(&client, "first", 20 * MIB).await;
    emptied_after(&volume, start).await;
    chosen.kill_9();
    let killed = emptied_at(&volume);
    write(&client, "second", 20 * MIB).await;
    emptied_after(&volume, killed).await;
    assert!(checkpoints(&volume, &other));
    volume.verify();
}
