//! A server on a port of its own, on a store in a directory of its own.

use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fencepost_api::{Api, ApiConfig, identity, serve};
use fencepost_core::id::{ErrorCode, JobId, KindName, Owner, QueueName, Tenant, WorkerId};
use fencepost_core::kind::{Kind, Kinds, Runner};
use fencepost_core::lifecycle::Failure;
use fencepost_service::health::Health;
use fencepost_service::shutdown::{Shutdown, Trigger};
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::blobs::Blobs;
use fencepost_store::{
    ClaimJob, ClaimOutcome, ClaimedJob, Complete, CreateKey, Fail, KeyCreated, KeyRecord,
    OpenEffect, OpenOptions, Opened, Report, Role, Store,
};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing_subscriber::fmt::format::FmtSpan;

/// Longer than anything here takes, shorter than anyone's patience.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) address: SocketAddr,
    pub(crate) health: Health,
    pub(crate) path: PathBuf,
    /// A key with the roles submit and read, of tenant `a` and owner `app`.
    pub(crate) token: String,
    pub(crate) trigger: Trigger,
    pub(crate) running: JoinSet<()>,
    http: reqwest::Client,
    /// Shared by the servers on one file.
    directory: Arc<tempfile::TempDir>,
}

/// What differs from test to test.
#[derive(Clone)]
pub(crate) struct Timers {
    pub(crate) header: Duration,
    pub(crate) body: Duration,
    pub(crate) budget: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            body: Duration::from_secs(10),
            budget: Duration::from_secs(8),
        }
    }
}

/// The builtin kinds, and `order` with a schema and a shorter payload.
fn kinds() -> Kinds {
    let mut order = Kind::new(
        KindName::new("order").unwrap(),
        QueueName::new("orders").unwrap(),
        Runner::Registered,
    );
    order.payload_bytes_max = 1_000;
    order.schema = Some(json!({
        "type": "object", "required": ["n"],
        "properties": {"n": {"type": "integer", "maximum": 10}},
    }));
    let builtin = Kinds::builtin();
    Kinds::new(builtin.iter().cloned().chain([order]))
}

pub(crate) async fn open(path: &Path) -> Store {
    Store::open(OpenOptions {
        path: path.to_owned(),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        allow_network_filesystem: true,
        wake_poll: Duration::from_secs(1),
    })
    .await
    .unwrap()
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(Timers::default()).await
    }

    pub(crate) async fn with(timers: Timers) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let path = directory.path().join("fencepost.db");
        let store = open(&path).await;
        let token = key(&store, "a", "app", &[Role::Submit, Role::Read]).await;
        Self::on(directory, store, token, timers).await
    }

    /// Another server on the same file, as another process would be: with a store of its own.
    pub(crate) async fn beside(&self) -> Self {
        let store = open(&self.path).await;
        let directory = Arc::clone(&self.directory);
        Self::on(directory, store, self.token.clone(), Timers::default()).await
    }

    async fn on(
        directory: Arc<tempfile::TempDir>,
        store: Store,
        token: String,
        timers: Timers,
    ) -> Self {
        logs();
        let health = Health::default();
        health.ready("test");
        let config = ApiConfig {
            kinds: kinds(),
            header_timeout: timers.header,
            body_timeout: timers.body,
            request_budget: timers.budget,
            wait_max: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(10),
        };
        let blobs = Blobs::local(&directory.path().join("blobs")).unwrap();
        let told = health.clone();
        let readiness = Arc::new(move || told.report());
        let api = Api::new(&store, blobs, Arc::new(SystemIds), readiness, &config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, shutdown) = Shutdown::manual();
        let mut running = JoinSet::new();
        running.spawn(async move { serve(listener, api, shutdown.requested()).await });
        Self {
            path: directory.path().join("fencepost.db"),
            store,
            address,
            health,
            token,
            trigger,
            running,
            http: reqwest::Client::builder().timeout(LIMIT).build().unwrap(),
            directory,
        }
    }

    /// A request with the server's own key.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    pub(crate) fn anonymous(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }

    /// Submits JSON text under a key.
    pub(crate) async fn submit(&self, key: &str, body: impl Into<String>) -> Answer {
        let request = self.submission(&self.token, key, body);
        Answer::of(request).await
    }

    pub(crate) fn submission(
        &self,
        token: &str,
        key: &str,
        body: impl Into<String>,
    ) -> reqwest::RequestBuilder {
        self.anonymous(Method::POST, "/jobs")
            .bearer_auth(token)
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(body.into())
    }

    /// Submits a job of the kind `echo` that must be accepted; answers its id.
    pub(crate) async fn accepted(&self, key: &str) -> JobId {
        let answer = self
            .submit(key, r#"{"kind":"echo","payload":{"n":1}}"#)
            .await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.id()
    }

    pub(crate) async fn claim(&self, job: JobId) -> ClaimedJob {
        let claim = ClaimJob {
            job,
            worker: WorkerId::new("test-worker").unwrap(),
            lease: Duration::from_mins(1),
            epoch_leaves: false,
        };
        match self.store.claim(claim).await.unwrap() {
            ClaimOutcome::Claimed(claimed) => *claimed,
            refused @ ClaimOutcome::Refused(_) => panic!("not claimed: {refused:?}"),
        }
    }

    pub(crate) async fn complete(&self, job: JobId, result: &str) {
        let claim = self.claim(job).await.claim;
        let result = result.to_owned();
        let report = self
            .store
            .complete(Complete { claim, result })
            .await
            .unwrap();
        assert!(matches!(report, Report::Recorded { .. }), "{report:?}");
    }

    pub(crate) async fn fail(&self, job: JobId, failure: Failure) {
        let claim = self.claim(job).await.claim;
        self.fail_claimed(claim, failure).await;
    }

    /// Leaves a job with a call whose outcome nobody knows.
    pub(crate) async fn lose(&self, job: JobId) {
        let claim = self.claim(job).await.claim;
        let name = "send".parse().unwrap();
        let opened = self.store.open_effect(OpenEffect { claim, name }).await;
        assert_eq!(opened.unwrap(), Opened::Call);
        self.fail_claimed(claim, Failure::Repeatable).await;
    }

    async fn fail_claimed(&self, claim: fencepost_store::Claim, failure: Failure) {
        let fail = Fail {
            claim,
            failure,
            code: ErrorCode::new("test_failure").unwrap(),
            message: "as the test wants it".into(),
            retry_after: Some(Duration::from_mins(1)),
        };
        let report = self.store.fail(fail).await.unwrap();
        assert!(matches!(report, Report::Recorded { .. }), "{report:?}");
    }

    /// Takes the turn on the file, as another process that writes does.
    pub(crate) fn lock(&self) -> File {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let file = File::options().write(true).open(path).unwrap();
        file.lock().unwrap();
        file
    }
}

/// Makes a key and answers its token.
pub(crate) async fn key(store: &Store, tenant: &str, owner: &str, roles: &[Role]) -> String {
    let (id, secret_hash, token) = identity::generate(&SystemIds);
    let key = KeyRecord {
        id,
        secret_hash,
        tenant: Tenant::new(tenant).unwrap(),
        owner: Owner::new(owner).unwrap(),
        roles: roles.to_vec(),
        created_at: store.now(),
        expires_at: None,
        revoked_at: None,
    };
    create_key(store, key).await;
    token
}

pub(crate) async fn create_key(store: &Store, key: KeyRecord) {
    let create = CreateKey {
        key,
        only_as_first: false,
        actor: "test".to_owned(),
    };
    assert_eq!(store.create_key(create).await.unwrap(), KeyCreated::Created);
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        Self::read(request.send().await.unwrap()).await
    }

    pub(crate) async fn read(response: Response) -> Self {
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub(crate) fn id(&self) -> JobId {
        let id = self.json()["id"].as_str().map(str::parse);
        id.unwrap_or_else(|| panic!("no job: {}", self.text))
            .unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks that this is a refusal in its one shape; answers its detail.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem = self.json();
        assert_eq!(problem["code"], code, "{}", self.text);
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("urn:fencepost:problem:{code}"));
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"));
        assert!(!problem["title"].as_str().unwrap().is_empty());
        problem["detail"].as_str().unwrap().to_owned()
    }

    /// Everything but what differs between any two requests.
    pub(crate) fn shape(&self) -> String {
        let mut shape = self.status.to_string();
        for (name, value) in &self.headers {
            if !matches!(name.as_str(), "x-request-id" | "date") {
                write!(shape, "\n{name}: {}", value.to_str().unwrap()).unwrap();
            }
        }
        let id = self.header("x-request-id").unwrap_or_default();
        format!("{shape}\n{}", self.text.replace(id, "(id)"))
    }
}

/// All that was logged by this process, at the most verbose level.
pub(crate) fn logs() -> String {
    static LOGS: OnceLock<Logs> = OnceLock::new();
    let logs = LOGS.get_or_init(|| {
        let logs = Logs::default();
        let writer = logs.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_ansi(false)
            .with_span_events(FmtSpan::NEW)
            .with_writer(move || writer.clone())
            .init();
        logs
    });
    let bytes = logs.0.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Clone, Default)]
struct Logs(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
