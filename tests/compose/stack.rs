//! The compose stack, as its users drive it.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

/// How long anything may take before the test gives up on it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A project of its own, taken down with its volumes at the end.
pub(crate) struct Stack {
    project: String,
    publish: String,
    http: Client,
    key: String,
}

impl Stack {
    /// Builds the image and starts everything, with so many workers.
    pub(crate) fn up(workers: u32) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let stack = Self {
            project: format!("fencepost-test-{}", std::process::id()),
            publish: format!("127.0.0.1:{port}"),
            http: Client::builder().timeout(Duration::from_secs(90)).build()?,
            key: std::fs::read_to_string("deploy/development.key")?
                .trim()
                .to_owned(),
        };
        stack.compose(&["build", "--quiet"])?;
        stack.compose(&[
            "up",
            "--detach",
            "--wait",
            "--scale",
            &format!("worker={workers}"),
        ])?;
        Ok(stack)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command
            .args(["compose", "--project-name", &self.project])
            .args([
                "--file",
                "docker-compose.yml",
                "--file",
                "tests/compose/override.yml",
            ])
            .args(arguments)
            .env("FENCEPOST_PUBLISH", &self.publish)
            .env("DOCKER_BUILDKIT", "1");
        command
    }

    /// Runs `docker compose` and answers what it printed.
    pub(crate) fn compose(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().context("running docker")?;
        said(&output).with_context(|| format!("docker compose {}", arguments.join(" ")))
    }

    /// The ids of a service's containers, stopped ones included.
    pub(crate) fn containers(&self, service: &str) -> Result<Vec<String>> {
        let ids = self.compose(&["ps", "--all", "--quiet", service])?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    pub(crate) fn exit_codes(&self, service: &str) -> Result<Vec<String>> {
        self.containers(service)?
            .iter()
            .map(|id| docker(&["inspect", "--format", "{{.State.ExitCode}}", id]))
            .collect()
    }

    /// Submits a job, however often that takes; its id.
    pub(crate) async fn accepted(&self, key: &str, kind: &str, payload: &Value) -> Result<String> {
        let started = Instant::now();
        loop {
            let sent = self
                .http
                .post(format!("http://{}/jobs", self.publish))
                .bearer_auth(&self.key)
                .header("idempotency-key", key)
                .json(&json!({"kind": kind, "payload": payload}))
                .send()
                .await;
            match sent {
                Ok(answer) if answer.status() == StatusCode::ACCEPTED => {
                    // An answer that breaks off is asked for again.
                    if let Ok(job) = answer.json::<Value>().await {
                        return id(&job);
                    }
                }
                // Restarting, or not reached: the same key again is the same job.
                Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(answer) => bail!("{kind} was answered {}", answer.status()),
                Err(_) => {}
            }
            ensure!(started.elapsed() < PATIENCE, "{kind} {key} is not accepted");
            tokio::time::sleep(Duration::from_millis(200)).await; // deliberate: the API restarts
        }
    }

    /// A job as the API shows it; `wait` seconds for its end.
    pub(crate) async fn job(&self, id: &str, wait: u32) -> Result<Value> {
        let url = format!("http://{}/jobs/{id}?wait={wait}", self.publish);
        let started = Instant::now();
        loop {
            let sent = self.http.get(&url).bearer_auth(&self.key).send().await;
            if let Ok(answer) = sent
                && answer.status().is_success()
                && let Ok(job) = answer.json().await
            {
                return Ok(job);
            }
            ensure!(started.elapsed() < PATIENCE, "{id} cannot be read");
            tokio::time::sleep(Duration::from_millis(200)).await; // deliberate: the API restarts
        }
    }

    /// Waits until a job has ended, and holds it to `completed`.
    pub(crate) async fn completes(&self, id: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let job = self.job(id, 30).await?;
            match job.get("state").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("queued" | "leased") => {}
                _ => bail!("it is finished otherwise: {job}"),
            }
            ensure!(started.elapsed() < PATIENCE, "it does not finish: {job}");
        }
    }

    /// Waits until a job is in a state, under at least this epoch.
    pub(crate) async fn reaches(&self, id: &str, state: &str, epoch: u64) -> Result<Value> {
        let started = Instant::now();
        loop {
            let job = self.job(id, 0).await?;
            let there = job.get("state").and_then(Value::as_str) == Some(state);
            if there && job.get("epoch").and_then(Value::as_u64) >= Some(epoch) {
                return Ok(job);
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "it does not become {state}: {job}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await; // deliberate: asked again, with a limit
        }
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<()> {
        let url = format!("http://{}/jobs/{id}/cancel", self.publish);
        let request = self.http.post(url).bearer_auth(&self.key);
        let answer = request.json(&json!({"force": true})).send().await?;
        ensure!(answer.status().is_success(), "{id} cannot be cancelled");
        Ok(())
    }

    /// Waits until no queue of the broker holds a message.
    pub(crate) async fn queues_are_at_rest(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let list = self.compose(&[
                "exec",
                "-T",
                "rabbitmq",
                "rabbitmqctl",
                "-q",
                "list_queues",
                "--no-table-headers",
                "name",
                "messages",
            ])?;
            let busy: Vec<&str> = list.lines().filter(|line| !line.ends_with("\t0")).collect();
            if busy.is_empty() && !list.is_empty() {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "not at rest: {busy:?}");
            tokio::time::sleep(Duration::from_millis(500)).await; // deliberate: asked again, with a limit
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("FENCEPOST_TEST_KEEP").is_some() {
            eprintln!("kept: docker compose --project-name {} …", self.project);
            return;
        }
        let down = self
            .command(&["down", "--volumes", "--timeout", "30"])
            .output();
        if let Err(error) = down
            .map_err(anyhow::Error::from)
            .and_then(|output| said(&output))
        {
            eprintln!("the stack could not be taken down: {error:#}");
        }
    }
}

pub(crate) fn id(job: &Value) -> Result<String> {
    let id = job.get("id").and_then(Value::as_str);
    Ok(id.context("a job without an id")?.to_owned())
}

/// Runs `docker` and answers what it printed.
pub(crate) fn docker(arguments: &[&str]) -> Result<String> {
    let output = Command::new("docker").args(arguments).output()?;
    said(&output).with_context(|| format!("docker {}", arguments.join(" ")))
}

fn said(output: &Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    bail!("{}", String::from_utf8_lossy(&output.stderr).trim())
}
