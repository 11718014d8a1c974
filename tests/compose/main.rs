//! The compose stack under load and at its end: `cargo xtask compose`, on a
//! machine with a Docker engine and Compose v2.
//!
//! 1. The image is small and holds no shell.
//! 2. Five thousand jobs of four kinds, while a worker is killed, the relay and
//!    the API are restarted, the broker is stopped, and a queue is deleted: each
//!    accepted job completes, each effect is made once, every history is right.
//! 3. A stop lets short jobs finish and gives long ones back, exit codes 0.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for tests alone"
)]

mod stack;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fencepost_tests::built;
use serde_json::{Value, json};
use stack::{Stack, docker};
use tokio::task::JoinSet;

const JOBS: usize = 5_000;
const CLIENTS: usize = 8;
/// Between two jobs of a client: the load lasts as long as the troubles do.
const PAUSE: Duration = Duration::from_millis(60);
const WORKERS: u32 = 4;
const IMAGE_BYTES_MAX: u64 = 60_000_000;

/// The reference receiver on this machine, ended when dropped.
struct Receiver(Child);

impl Receiver {
    fn start(port: u16, ledger: &std::path::Path, takes_ms: u64) -> Result<Self> {
        let child = Command::new(built("receiver"))
            .arg(format!("0.0.0.0:{port}"))
            .arg(ledger)
            .env("RECEIVER_TAKES_MS", takes_ms.to_string())
            .stdout(Stdio::null())
            .spawn()
            .context("starting the receiver")?;
        Ok(Self(child))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ledger = directory.path().join("received");
    let _receivers = [
        Receiver::start(18181, &ledger, 0)?,
        Receiver::start(18182, &directory.path().join("five"), 5_000)?,
        Receiver::start(18183, &directory.path().join("long"), 300_000)?,
    ];
    let stack = Arc::new(Stack::up(WORKERS)?);
    image()?;
    load(&stack, &ledger).await?;
    stop(&stack).await?;
    let verified = stack.compose(&["exec", "-T", "api", "/bin/fencepost", "verify"])?;
    println!("{verified}");
    Ok(())
}

fn image() -> Result<()> {
    let size = docker(&["image", "inspect", "--format", "{{.Size}}", "fencepost"])?;
    println!("the image has {size} bytes");
    ensure!(
        size.parse::<u64>()? < IMAGE_BYTES_MAX,
        "the image is too large"
    );
    let shell = docker(&[
        "run",
        "--rm",
        "--entrypoint",
        "/bin/sh",
        "fencepost",
        "-c",
        "true",
    ]);
    ensure!(shell.is_err(), "the image holds a shell");
    Ok(())
}

/// What the `n`th job is.
fn job(n: usize) -> (&'static str, Value) {
    match n % 10 {
        0..=3 => ("echo", json!({"n": n})),
        4..=7 => ("receive", json!({"n": n})),
        8 => ("document.extract", json!({"text": format!("document {n}")})),
        _ => ("version", json!({})),
    }
}

async fn load(stack: &Arc<Stack>, ledger: &std::path::Path) -> Result<()> {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let stack = Arc::clone(stack);
        clients.spawn(async move {
            let mut accepted = Vec::new();
            for n in (client..JOBS).step_by(CLIENTS) {
                let (kind, payload) = job(n);
                let id = stack.accepted(&format!("job-{n}"), kind, &payload).await?;
                accepted.push((kind, id));
                tokio::time::sleep(PAUSE).await; // deliberate: jobs arrive over a while
            }
            Ok::<_, anyhow::Error>(accepted)
        });
    }
    let troubles = {
        let stack = Arc::clone(stack);
        tokio::task::spawn_blocking(move || trouble(&stack))
    };
    let mut accepted = Vec::new();
    while let Some(client) = clients.join_next().await {
        accepted.extend(client??);
    }
    println!(
        "{} jobs accepted in {:.1?}",
        accepted.len(),
        started.elapsed()
    );
    troubles.await??;
    for (kind, id) in &accepted {
        stack
            .completes(id)
            .await
            .with_context(|| kind.to_string())?;
    }
    println!(
        "{} jobs completed in {:.1?}",
        accepted.len(),
        started.elapsed()
    );
    ensure!(accepted.len() == JOBS, "some job was not accepted");

    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for line in std::fs::read_to_string(ledger)?.lines() {
        let effect: Value = serde_json::from_str(line)?;
        let job = effect
            .get("job")
            .and_then(Value::as_str)
            .context("no job")?;
        *effects.entry(job.to_owned()).or_default() += 1;
    }
    let called = accepted.iter().filter(|(kind, _)| *kind == "receive");
    let called: Vec<&String> = called.map(|(_, id)| id).collect();
    let once = called.iter().all(|id| effects.get(*id) == Some(&1));
    ensure!(
        once && effects.len() == called.len(),
        "an effect was not made once"
    );
    println!("{} effects made, each once", effects.len());
    stack.queues_are_at_rest().await
}

/// What happens to the stack while jobs arrive.
fn trouble(stack: &Stack) -> Result<()> {
    let workers = stack.containers("worker")?;
    let first = workers.first().context("no worker")?;
    docker(&["kill", "--signal", "KILL", first])?;
    println!("killed a worker");
    stack.compose(&["restart", "relay"])?;
    println!("restarted the relay");
    stack.compose(&["stop", "rabbitmq"])?;
    std::thread::sleep(Duration::from_secs(15)); // deliberate: how long the broker is away
    stack.compose(&["start", "rabbitmq"])?;
    println!("the broker was away for 15 s");
    stack.compose(&["restart", "api"])?;
    println!("restarted the API");
    let queue = "fencepost.jobs.calls";
    let delete = [
        "exec",
        "-T",
        "rabbitmq",
        "rabbitmqctl",
        "-q",
        "delete_queue",
        queue,
    ];
    // It may not take commands yet.
    let patience = Instant::now();
    while let Err(error) = stack.compose(&delete) {
        ensure!(patience.elapsed() < Duration::from_secs(60), "{error:#}");
        std::thread::sleep(Duration::from_millis(500)); // deliberate: asked again, with a limit
    }
    println!("deleted {queue}");
    docker(&["start", first]).map(drop)
}

async fn stop(stack: &Stack) -> Result<()> {
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for n in 0..3 {
        short.push(
            stack
                .accepted(&format!("short-{n}"), "five-seconds", &json!({}))
                .await?,
        );
        long.push(
            stack
                .accepted(&format!("long-{n}"), "five-minutes", &json!({}))
                .await?,
        );
    }
    for id in short.iter().chain(&long) {
        drop(stack.reaches(id, "leased", 1).await?);
    }
    let stopping = Instant::now();
    stack.compose(&["stop", "worker", "relay", "api"])?;
    println!("stopped in {:.1?}", stopping.elapsed());
    for service in ["worker", "relay", "api"] {
        let codes = stack.exit_codes(service)?;
        ensure!(
            codes.iter().all(|code| code == "0"),
            "{service} ended with {codes:?}"
        );
    }
    let asked = Instant::now();
    stack.compose(&["start", "api", "relay", "worker"])?;
    let started = Instant::now();
    for id in &long {
        let job = stack.reaches(id, "leased", 2).await?;
        let attempts = job.get("attempts").and_then(Value::as_u64);
        ensure!(attempts == Some(1), "a stop spent an attempt: {job}");
    }
    println!(
        "long jobs run again {:.1?} after the start was asked for",
        asked.elapsed()
    );
    ensure!(
        started.elapsed() < Duration::from_secs(5),
        "long jobs were not taken up in time"
    );
    for id in &short {
        let job = stack.job(id, 0).await?;
        let done = job.get("state").and_then(Value::as_str) == Some("completed");
        ensure!(done, "a short job was not finished: {job}");
        ensure!(
            job.get("epoch").and_then(Value::as_u64) == Some(1),
            "a short job ran twice: {job}"
        );
    }
    for id in &long {
        stack.cancel(id).await?;
    }
    println!("short jobs had finished");
    Ok(())
}
