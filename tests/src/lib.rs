//! What tests across processes share: starting the program, asking its API,
//! killing and freezing it.
//!
//! Every process here is ended when its value is dropped, and every directory
//! is a temporary one.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::disallowed_methods,
    reason = "a harness: what fails here fails the test"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A data directory with its settings.
#[derive(Debug)]
pub struct Volume {
    directory: tempfile::TempDir,
    /// Variables for every process on it.
    pub environment: Vec<(String, String)>,
}

/// Short timers, so that what takes minutes in production takes seconds here.
const SETTINGS: &str = r#"
shutdown_grace = "2s"
[relay]
leader_lease = "2s"
reap_interval = "200ms"
redispatch_initial = "3s"
redispatch_when_empty = "1s"
confirm_timeout = "3s"
[worker]
heartbeat = "1s"
timeout = "4s"
[amqp]
heartbeat = "2s"
reconnect_max = "1s"
[defaults]
lease = "1500ms"
backoff = { initial = "100ms", max = "500ms" }
[kinds.ledger]
registered = true
queue = "ledger"
"#;

impl Default for Volume {
    fn default() -> Self {
        Self::new()
    }
}

impl Volume {
    /// An empty volume.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("fencepost.toml"), SETTINGS).unwrap();
        Self {
            directory,
            environment: Vec::new(),
        }
    }

    /// With more in its settings file.
    #[must_use]
    pub fn with_settings(self, more: &str) -> Self {
        std::fs::write(
            self.path().join("fencepost.toml"),
            format!("{SETTINGS}{more}"),
        )
        .unwrap();
        self
    }

    /// With a broker for every process on it.
    #[must_use]
    pub fn with_broker(mut self, url: &str) -> Self {
        self.environment
            .push(("FENCEPOST_AMQP_URL".to_owned(), url.to_owned()));
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The lines that handlers of kind `ledger` wrote: `<job> <epoch> <what>`.
    pub fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A command on this volume, with nothing of the caller's environment but where programs are.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("FENCEPOST_DATA_DIR", self.path().join("data"))
            .env("FENCEPOST_CONFIG", self.path().join("fencepost.toml"))
            .env("FENCEPOST_LISTEN", "127.0.0.1:0")
            .env("FENCEPOST_TEST_LEDGER", self.path().join("ledger"))
            .envs(self.environment.iter().cloned());
        command
    }

    /// Starts `fencepost` with a verb and waits until it says that it runs.
    pub fn start(&self, verb: &str) -> Process {
        let mut command = self.command(&program());
        command.arg(verb);
        Process::start(command, self.path(), verb)
    }

    /// Runs `fencepost` to its end: exit code, standard output, standard error.
    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(&program()).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap_or(-1),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Takes the turn at the database, as another process that writes does, until dropped.
    pub fn lock(&self) -> std::fs::File {
        let path = self.path().join("data/fencepost.db.lock");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.lock().unwrap();
        file
    }

    /// Every rule holds, as `fencepost verify` sees it.
    pub fn verify(&self) {
        let (code, out, err) = self.run(&["verify"]);
        assert_eq!(code, 0, "{out}{err}");
    }

    /// The first key of this volume.
    pub fn key(&self) -> String {
        let file = self.path().join("data/dev.key");
        if !file.exists() {
            let all = "submit,read,operator,admin";
            let make = [
                "keys", "create", "--tenant", "default", "--owner", "default", "--roles", all,
            ];
            let (code, token, err) = self.run(&make);
            assert_eq!(code, 0, "{err}");
            std::fs::write(&file, token).unwrap();
        }
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }
}

/// The program under test.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("FENCEPOST_TEST_BIN") {
        return path.into();
    }
    // Beside the test's own program: target/<profile>/deps/e2e-….
    let own = std::env::current_exe().unwrap();
    let built = own.ancestors().nth(2).unwrap().join("fencepost");
    assert!(
        built.exists(),
        "run `cargo xtask test`, which builds {}",
        built.display()
    );
    built
}

/// Another program of this repository, built beside the one under test.
pub fn built(name: &str) -> PathBuf {
    let path = program().with_file_name(name);
    assert!(
        path.exists(),
        "run `cargo xtask test`, which builds {}",
        path.display()
    );
    path
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    /// The base URL, of a process that serves the API.
    pub url: String,
}

impl Process {
    /// Starts a command and waits for its first line.
    pub fn start(mut command: Command, directory: &Path, name: &str) -> Self {
        let unique = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        let log = directory.join(format!("{name}-{unique}.log"));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        let told = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(!first.is_empty(), "`{name}` ended at its start: {}", told());
        let url = first
            .trim()
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .to_owned();
        Self { child, log, url }
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        // It may have ended by itself; the test will see that.
        let _gone = kill_process(pid, signal).is_err();
    }

    /// Kills it, as a crash would.
    pub fn kill_9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it where it is.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end; its exit code and how long it took.
    pub fn terminate(self) -> (i32, Duration) {
        self.stop(Signal::TERM)
    }

    /// Asks it to end by a signal; its exit code and how long it took.
    pub fn stop(mut self, signal: Signal) -> (i32, Duration) {
        let started = Instant::now();
        self.signal(signal);
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), started.elapsed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A client of the API.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Client {
    /// A client of a process that serves the API on a volume.
    pub fn new(api: &Process, volume: &Volume) -> Self {
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            .build()
            .unwrap();
        Self {
            http,
            url: api.url.clone(),
            key: volume.key(),
        }
    }

    /// Submits a job: status and body.
    pub async fn submit(
        &self,
        key: &str,
        kind: &str,
        payload: Value,
    ) -> reqwest::Result<(u16, Value)> {
        let answer = self
            .http
            .post(format!("{}/jobs", self.url))
            .bearer_auth(&self.key)
            .header("idempotency-key", key)
            .json(&json!({"kind": kind, "payload": payload}))
            .send()
            .await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await?))
    }

    /// Submits a job that must be accepted; its id.
    pub async fn accepted(&self, key: &str, kind: &str, payload: Value) -> String {
        let (status, body) = self.submit(key, kind, payload).await.unwrap();
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    /// Gets a path that must be there.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self
            .http
            .get(format!("{}{path}", self.url))
            .bearer_auth(&self.key)
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.json().await.unwrap()
    }

    /// Cancels a job: status and body.
    pub async fn cancel(&self, id: &str) -> (u16, Value) {
        let url = format!("{}/jobs/{id}/cancel", self.url);
        let request = self.http.post(url).bearer_auth(&self.key).json(&json!({}));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// Waits until a job is at rest, and answers it.
    pub async fn at_rest(&self, id: &str) -> Value {
        let started = Instant::now();
        loop {
            let job = self.get(&format!("/jobs/{id}?wait=5")).await;
            let state = job["state"].as_str().unwrap();
            if matches!(state, "completed" | "dead" | "cancelled" | "unknown") {
                return job;
            }
            assert!(started.elapsed() < PATIENCE, "not at rest: {job}");
        }
    }

    /// The types of a job's events, in order.
    pub async fn events(&self, id: &str) -> Vec<String> {
        let page = self.get(&format!("/jobs/{id}/events")).await;
        let items = page["items"].as_array().unwrap();
        items
            .iter()
            .map(|event| event["type"].as_str().unwrap().to_owned())
            .collect()
    }
}
