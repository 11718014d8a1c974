//! How several processes share one file: writes per second, and how long each waited.
//!
//! `cargo run --release --example contention -- PROCESSES SECONDS`
//!
//! Each process sends bursts of submissions, as many as its share, and now and
//! then a heartbeat on its own, which stands for a renewal: small, alone and urgent.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "a measurement, not a product"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::fingerprint::{Fingerprint, Moment};
use fencepost_core::id::IdSource;
use fencepost_core::time::{Clock, Timestamp};
use fencepost_store::{Heartbeat, OpenOptions, Store, Submit};

#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap())
    }
}

#[derive(Debug)]
struct Ids;

impl IdSource for Ids {
    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }

    fn random(&self) -> u64 {
        1
    }

    fn secret(&self) -> [u8; 32] {
        [0; 32]
    }
}

fn submission(key: &str) -> Submit {
    Submit {
        tenant: "t".parse().unwrap(),
        owner: "o".parse().unwrap(),
        key: key.parse().unwrap(),
        fingerprint: Fingerprint([0; 32]),
        kind: "echo".parse().unwrap(),
        queue: "default".parse().unwrap(),
        priority: 0,
        payload: format!("{{\"pad\":\"{}\"}}", "x".repeat(190)),
        max_attempts: 3,
        run: None,
        deadline: Moment::After(Duration::from_secs(3_600)),
        timeout: Duration::from_secs(3_600),
        backoff: fencepost_core::retry::Backoff::default(),
        on_crash: fencepost_core::kind::OnCrash::Retry,
        trace: None,
        blobs: Vec::new(),
    }
}

async fn child(path: &str, number: &str, seconds: u64) {
    let options = OpenOptions {
        path: path.into(),
        clock: Arc::new(Wall),
        ids: Arc::new(Ids),
        allow_network_filesystem: true,
        wake_poll: Duration::from_secs(1),
    };
    let store = Store::open(options)
        .await
        .unwrap()
        .with_budget(Duration::from_secs(60));
    let end = Instant::now() + Duration::from_secs(seconds);
    let burst = async {
        let mut written = 0_u64;
        while Instant::now() < end {
            let calls =
                (0..64).map(|n| store.submit(submission(&format!("{number}-{written}-{n}"))));
            for answer in futures_util::future::join_all(calls).await {
                drop(answer.unwrap());
            }
            written += 64;
        }
        written
    };
    let beat = async {
        let mut waits = Vec::new();
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let started = Instant::now();
            let beat = Heartbeat {
                worker: format!("w{number}").parse().unwrap(),
                version: String::new(),
                queues: Vec::new(),
                slots: 1,
            };
            store.heartbeat(beat).await.unwrap();
            waits.push(started.elapsed());
        }
        waits
    };
    let (written, waits) = tokio::join!(burst, beat);
    let waits: Vec<String> = waits
        .iter()
        .map(|wait| wait.as_micros().to_string())
        .collect();
    println!("{written} {}", waits.join(","));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    if let [_, mode, path, number, seconds] = arguments.as_slice()
        && mode == "child"
    {
        runtime.block_on(child(path, number, seconds.parse().unwrap()));
        return;
    }
    let processes: usize = arguments.get(1).map_or(4, |text| text.parse().unwrap());
    let seconds: u64 = arguments.get(2).map_or(5, |text| text.parse().unwrap());
    let directory =
        std::env::temp_dir().join(format!("fencepost-contention-{}", std::process::id()));
    let path = directory.join("fencepost.db").display().to_string();
    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..processes)
        .map(|number| {
            std::process::Command::new(&program)
                .args(["child", &path, &number.to_string(), &seconds.to_string()])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let (mut total, mut waits, mut shares) = (0_u64, Vec::new(), Vec::new());
    for child in children {
        let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let (written, times) = output.trim().split_once(' ').unwrap();
        let written: u64 = written.parse().unwrap();
        total += written;
        shares.push(written);
        waits.extend(times.split(',').map(|wait| wait.parse::<u64>().unwrap()));
    }
    waits.sort_unstable();
    let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize] as f64 / 1_000.0;
    shares.sort_unstable();
    println!(
        "{processes} processes: {:.0} jobs/s; fewest/most by one process {:.2}; small write p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        total as f64 / seconds as f64,
        shares[0] as f64 / shares[processes - 1] as f64,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    std::fs::remove_dir_all(directory).unwrap();
}
