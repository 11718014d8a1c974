//! A store in a directory of its own, handlers made of closures, workers that
//! are stopped or crash.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::fingerprint::{Fingerprint, Moment, Options};
use fencepost_core::id::{IdSource as _, JobId, KindName, OperationKey, Owner, QueueName, Tenant};
use fencepost_core::kind::{Kind, Kinds, OnCrash, Runner};
use fencepost_core::lifecycle::{self, State};
use fencepost_core::retry::Backoff;
use fencepost_core::verify;
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::blobs::Blobs;
use fencepost_store::{
    Audit, Cancel, JobView, OpenOptions, Reap, Reaped, Scope, Store, Submit, Submitted,
};
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::source::{Poll, Source};
use fencepost_worker::{Builder, Context, Handler, HandlerResult, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// For whatever should happen within seconds, on a machine busy with builds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// A lease that no test outlives, for tests that are not about leases.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A lease that a crashed worker's job is soon free of.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// The kind that closures run.
pub(crate) const KIND: &str = "work";

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fencepost.db");
        let store = Store::open(OpenOptions {
            path: path.clone(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            allow_network_filesystem: true,
            wake_poll: Duration::from_secs(1),
        })
        .await
        .unwrap();
        Self {
            store,
            blobs: Blobs::local(&directory.path().join("blobs")).unwrap(),
            path,
            _directory: directory,
        }
    }

    /// A worker that is yet to get its handlers.
    pub(crate) fn builder(&self, lease: Duration) -> Builder {
        self.builder_on(self.store.clone(), lease)
    }

    pub(crate) fn builder_on(&self, store: Store, lease: Duration) -> Builder {
        let own = Kind {
            lease,
            ..Kind::new(kind(KIND), queue(), Runner::Registered)
        };
        let kinds = Kinds::new(Kinds::builtin().iter().cloned().chain([own]));
        Worker::builder(store, self.blobs.clone(), kinds, Arc::new(SystemIds))
            .slots(4)
            .grace(Duration::from_millis(300))
    }

    /// A running worker that does this with every job.
    pub(crate) fn worker<R>(
        &self,
        lease: Duration,
        does: impl Fn(Context) -> R + Send + Sync + 'static,
    ) -> Running
    where
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.start(self.builder(lease).handler(kind(KIND), Does(does)))
    }

    /// Runs a worker on what is due in the database.
    pub(crate) fn start(&self, builder: Builder) -> Running {
        let poll = Poll::new(self.store.clone(), vec![queue()]);
        Running::start(builder, Box::new(poll))
    }

    /// Puts a blob.
    pub(crate) async fn put(
        &self,
        content: impl futures_util::Stream<Item = Result<bytes::Bytes, std::io::Error>>,
    ) -> (fencepost_store::BlobHash, u64) {
        let unique = SystemIds.uuid();
        let tenant = tenant();
        let put = self.blobs.put(&self.store, unique, &tenant, content);
        put.await.unwrap()
    }

    pub(crate) async fn submit(&self, request: Submit) -> JobId {
        match self.store.submit(request).await.unwrap() {
            Submitted::Created(job) => job.id,
            other => panic!("not created: {other:?}"),
        }
    }

    /// A fresh job of the given key.
    pub(crate) async fn queued(&self, key: &str) -> JobId {
        self.submit(submission(key, "{}")).await
    }

    pub(crate) async fn job(&self, job: JobId) -> JobView {
        self.store.job(&scope(), job).await.unwrap().unwrap()
    }

    /// Waits until a job is in a state.
    pub(crate) async fn reaches(&self, job: JobId, state: State) -> JobView {
        eventually(PATIENCE, "the job's state", async || {
            let job = self.job(job).await;
            if job.state == state {
                Ok(job)
            } else {
                Err(format!("{job:?}"))
            }
        })
        .await
    }

    pub(crate) async fn events(&self, job: JobId) -> Vec<String> {
        let page = self.store.history(&scope(), job, 0, 100).await.unwrap();
        let events = page.unwrap().events;
        events
            .iter()
            .map(|event| event.kind.as_str().to_owned())
            .collect()
    }

    pub(crate) async fn cancel(&self, job: JobId, how: lifecycle::Cancel) {
        let cancel = Cancel {
            scope: scope(),
            job,
            how,
            actor: "ann".to_owned(),
        };
        drop(self.store.cancel(cancel).await.unwrap());
    }

    /// Waits until a job's lease or deadline has passed, and takes it back.
    pub(crate) async fn reap(&self, job: JobId) -> State {
        let expired = eventually(PATIENCE, "an expired lease", async || {
            let page = self.store.expired(None, 100).await.unwrap();
            let found = page.jobs.into_iter().find(|expired| expired.job == job);
            found.ok_or("the job has not expired")
        })
        .await;
        let reap = Reap {
            job,
            epoch: expired.epoch,
            actor: "reaper".to_owned(),
        };
        match self.store.reap(reap).await.unwrap() {
            Reaped::Moved { to, .. } => to,
            Reaped::Skipped => panic!("the reaper skipped an expired job"),
        }
    }

    /// Every job obeys the rules, at this instant.
    pub(crate) async fn verify(&self) {
        for Audit { snapshot, history } in self.store.audit(None, 1_000).await.unwrap().jobs {
            let broken = verify::check(&snapshot, &history);
            assert!(broken.is_empty(), "{broken:#?}\n{history:#?}");
        }
        assert_eq!(self.store.orphans().await.unwrap(), (0, 0));
    }

    /// Holds the turn at the database, as another process in the middle of a
    /// long write would, until dropped.
    pub(crate) fn hold_database(&self) -> std::fs::File {
        let mut name = self.path.clone().into_os_string();
        name.push(".lock");
        let file = std::fs::File::options().write(true).open(name).unwrap();
        file.lock().unwrap();
        file
    }
}

/// A worker while it runs. Dropping it is a crash.
pub(crate) struct Running {
    tasks: JoinSet<()>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) id: String,
}

impl Running {
    pub(crate) fn start(builder: Builder, source: Box<dyn Source>) -> Self {
        Self::on(builder.build().unwrap(), source)
    }

    pub(crate) fn on(worker: Worker, source: Box<dyn Source>) -> Self {
        let id = worker.id().to_string();
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let stopped = async {
                if stopped.await.is_err() {
                    // A dropped sender is a crash, which comes as an abort.
                    std::future::pending::<()>().await;
                }
            };
            worker.run(source, stopped).await;
        });
        Self {
            tasks,
            stop: Some(stop),
            id,
        }
    }

    /// Asks it to end; how long that took.
    pub(crate) async fn stop(mut self) -> Duration {
        let started = tokio::time::Instant::now();
        self.stop.take().unwrap().send(()).unwrap();
        let ended = tokio::time::timeout(PATIENCE, self.tasks.join_next()).await;
        ended.expect("it ends").unwrap().unwrap();
        started.elapsed()
    }

    /// Ends it on the spot: nothing is reported, nothing given back.
    pub(crate) async fn crash(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A handler made of a closure.
pub(crate) struct Does<F>(pub(crate) F);

impl<F> fmt::Debug for Does<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Does")
    }
}

#[async_trait]
impl<F, R> Handler for Does<F>
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult> + Send + 'static,
{
    async fn run(&self, context: &Context) -> HandlerResult {
        (self.0)(context.clone()).await
    }
}

pub(crate) fn kind(name: &str) -> KindName {
    KindName::new(name).unwrap()
}

pub(crate) fn queue() -> QueueName {
    QueueName::new("default").unwrap()
}

pub(crate) fn scope() -> Scope {
    Scope {
        tenant: tenant(),
        owner: None,
    }
}

pub(crate) fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

pub(crate) fn submission(key: &str, payload: &str) -> Submit {
    let kind = kind(KIND);
    Submit {
        tenant: tenant(),
        owner: Owner::new("ann").unwrap(),
        key: OperationKey::new(key).unwrap(),
        fingerprint: Fingerprint::of(&kind, payload, &Options::default()),
        kind,
        queue: queue(),
        priority: 0,
        payload: payload.to_owned(),
        max_attempts: 3,
        run: None,
        deadline: Moment::After(Duration::from_hours(1)),
        timeout: Duration::from_hours(1),
        backoff: Backoff {
            initial: Duration::from_millis(50),
            max: Duration::from_millis(200),
        },
        on_crash: OnCrash::Retry,
        trace: None,
        blobs: Vec::new(),
    }
}

/// What was logged on this thread while the guard lives.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn lines(&self, with: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines()
            .filter(|line| line.contains(with))
            .map(str::to_owned)
            .collect()
    }

    /// Waits for a line.
    pub(crate) async fn says(&self, what: &str) {
        eventually(PATIENCE, what, async || {
            require(!self.lines(what).is_empty(), self.lines("").join("\n"))
        })
        .await;
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
