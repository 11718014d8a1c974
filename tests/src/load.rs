//! A load on a running Fencepost: what it accepts, what it finishes, how long one job takes.
//!
//! `load URL KEY JOBS CLIENTS` posts no-op jobs of 200 bytes, one a request, by
//! so many clients at once, and waits until all are finished; then one at a
//! time on the idle system.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement, not a product"
)]

use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};

/// Jobs posted one by one on the idle system.
const ALONE: usize = 300;

#[derive(Clone)]
struct Target {
    http: Client,
    url: String,
    key: String,
    run: u32,
}

impl Target {
    async fn submit(&self, key: String) -> String {
        let body = json!({"kind": "echo", "payload": {"pad": "x".repeat(190)}});
        let answer = self
            .http
            .post(format!("{}/jobs", self.url))
            .bearer_auth(&self.key)
            .header("idempotency-key", format!("{}-{key}", self.run))
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 202);
        let job: Value = answer.json().await.unwrap();
        job["id"].as_str().unwrap().to_owned()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self
            .http
            .get(format!("{}{path}", self.url))
            .bearer_auth(&self.key)
            .send()
            .await
            .unwrap();
        answer.json().await.unwrap()
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, key, jobs, clients] = arguments.as_slice() else {
        println!("load URL KEY JOBS CLIENTS");
        return;
    };
    let (jobs, clients): (usize, usize) = (jobs.parse().unwrap(), clients.parse().unwrap());
    let http = Client::builder()
        .timeout(Duration::from_secs(60))
        .build()
        .unwrap();
    let target = Target {
        http,
        url: url.clone(),
        key: key.clone(),
        run: std::process::id(),
    };

    let started = Instant::now();
    let mut posting = tokio::task::JoinSet::new();
    for client in 0..clients {
        let target = target.clone();
        posting.spawn(async move {
            for n in 0..jobs / clients {
                target.submit(format!("{client}-{n}")).await;
            }
        });
    }
    while let Some(posted) = posting.join_next().await {
        posted.unwrap();
    }
    let accepted = started.elapsed();
    loop {
        let waiting = target.get("/jobs?state=queued&state=leased&limit=1").await;
        if waiting["items"].as_array().unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // deliberate: the pace of asking
    }
    let finished = started.elapsed();
    println!(
        "accepted: {:.0} jobs/s",
        jobs as f64 / accepted.as_secs_f64()
    );
    println!(
        "end to end: {:.0} jobs/s",
        jobs as f64 / finished.as_secs_f64()
    );

    let mut times = Vec::with_capacity(ALONE);
    for n in 0..ALONE {
        let started = Instant::now();
        let id = target.submit(format!("alone-{n}")).await;
        let job = target.get(&format!("/jobs/{id}?wait=30")).await;
        assert_eq!(job["state"], "completed");
        times.push(started.elapsed().as_micros());
        // No step with any timer of the server.
        let pause = Duration::from_micros(500 + 7_919 * (n as u64 % 7));
        tokio::time::sleep(pause).await; // deliberate: an idle system
    }
    times.sort_unstable();
    let at = |part: f64| times[((ALONE - 1) as f64 * part) as usize] as f64 / 1_000.0;
    println!(
        "one at a time, submit to completed: p50 {:.1} ms, p99 {:.1} ms",
        at(0.5),
        at(0.99)
    );
}
