//! For a handler's own tests: a worker on a store in a temporary directory.
//!
//! ```
//! # use fencepost_worker::builtin::Echo;
//! # use fencepost_worker::testing::{State, Trial};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fencepost_worker::testing::TrialError> {
//! let mut trial = Trial::new(Echo).await?;
//! let job = trial.run(&"hello").await?;
//! assert_eq!((job.state, job.result.as_deref()), (State::Completed, Some("\"hello\"")));
//! # Ok(())
//! # }
//! ```
//!
//! Everything is real: claims, leases, marks, the database. What a crash does
//! is shown by a crash: [`Trial::submit`] a job, let the handler reach the point
//! in question, [`Trial::crash`], and see with [`Trial::rest`] what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
pub use fencepost_core::event::EventType;
use fencepost_core::fingerprint::{Fingerprint, Moment, Options};
use fencepost_core::id::{
    IdSource as _, InvalidName, JobId, KindName, OperationKey, Owner, QueueName, Tenant,
};
use fencepost_core::kind::{Kind, Kinds, Runner};
pub use fencepost_core::lifecycle::State;
use fencepost_core::retry::Backoff;
use fencepost_service::system::{SystemClock, SystemIds};
pub use fencepost_store::JobView;
use fencepost_store::blobs::{BlobError, Blobs};
use fencepost_store::{
    BlobHash, OpenOptions, Reap, Reaped, Scope, Store, StoreError, Submit, Submitted,
};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use crate::context::Context;
use crate::handler::{Handler, HandlerResult};
use crate::source::Poll;
use crate::worker::{BuildError, Worker};

/// The kind, queue, tenant and owner of every job of a trial.
const NAME: &str = "trial";

/// Short, so that what a crash left behind is soon taken back.
const LEASE: Duration = Duration::from_secs(1);

/// How long a trial waits for a job before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(10);

/// A trial could not go on.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The temporary directory could not be made.
    #[error("the trial's directory could not be made")]
    Directory(#[from] std::io::Error),
    /// The store failed.
    #[error("the trial's store failed")]
    Store(#[from] StoreError),
    /// The blob storage failed.
    #[error("the trial's blob storage failed")]
    Blobs(#[from] BlobError),
    /// The worker could not be made.
    #[error("the trial's worker could not be made")]
    Build(#[from] BuildError),
    /// The payload is no JSON.
    #[error("the payload cannot be written as JSON")]
    Payload(#[from] serde_json::Error),
    /// The store did not take the job.
    #[error("the job was not accepted: {0}")]
    NotAccepted(String),
    /// The job did not get there.
    #[error("the job {job} did not reach {what} within a minute; it is {state}")]
    TookTooLong {
        /// The job.
        job: JobId,
        /// What was waited for.
        what: &'static str,
        /// Where it stands.
        state: &'static str,
    },
    /// A name of the trial itself is malformed; a fault of this module.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// One handler, in the hands of every worker of a trial.
#[derive(Debug)]
struct Shared(Arc<dyn Handler>);

#[async_trait]
impl Handler for Shared {
    async fn run(&self, context: &Context) -> HandlerResult {
        self.0.run(context).await
    }
}

/// A handler on trial. Its directory goes when it is dropped.
#[derive(Debug)]
pub struct Trial {
    handler: Arc<dyn Handler>,
    store: Store,
    blobs: Blobs,
    kind: Kind,
    /// The worker; none after a crash.
    worker: Option<JoinSet<()>>,
    _directory: tempfile::TempDir,
}

impl Trial {
    /// A store of its own and a worker with this handler. Jobs have three
    /// attempts with next to no pause between them, and a lease of one second.
    ///
    /// # Errors
    /// [`TrialError`] when the directory or the store cannot be made.
    pub async fn new(handler: impl Handler) -> Result<Self, TrialError> {
        let directory = tempfile::tempdir()?;
        let store = Store::open(OpenOptions {
            path: directory.path().join("fencepost.db"),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            allow_network_filesystem: true,
            wake_poll: Duration::from_secs(1),
        })
        .await?;
        let blobs = Blobs::local(&directory.path().join("blobs"))?;
        let mut kind = Kind::new(
            KindName::new(NAME)?,
            QueueName::new(NAME)?,
            Runner::Registered,
        );
        kind.lease = LEASE;
        kind.backoff = Backoff {
            initial: LOOK,
            max: LOOK,
        };
        Ok(Self {
            handler: Arc::new(handler),
            store,
            blobs,
            kind,
            worker: None,
            _directory: directory,
        })
    }

    /// Gives up jobs this long after they were submitted; an hour otherwise.
    pub fn deadline(&mut self, deadline: Duration) {
        self.kind.deadline = deadline;
    }

    /// Puts a blob that payloads may refer to.
    ///
    /// # Errors
    /// [`TrialError::Blobs`].
    pub async fn put_blob(&self, content: impl Into<Bytes>) -> Result<BlobHash, TrialError> {
        let chunk = Ok::<_, std::io::Error>(content.into());
        let content = futures_util::stream::iter([chunk]);
        let (store, unique) = (&self.store, SystemIds.uuid());
        let tenant = Tenant::new(NAME)?;
        let (hash, _) = self.blobs.put(store, unique, &tenant, content).await?;
        Ok(hash)
    }

    /// Submits a job and waits until it has ended or is unknown.
    ///
    /// # Errors
    /// [`TrialError`]; above all when that takes longer than a minute.
    pub async fn run(&mut self, payload: &impl Serialize) -> Result<JobView, TrialError> {
        let job = self.submit(payload).await?;
        self.rest(job).await
    }

    /// Submits a job; the worker takes it up at once.
    ///
    /// # Errors
    /// [`TrialError`] when it is not accepted.
    pub async fn submit(&mut self, payload: &impl Serialize) -> Result<JobId, TrialError> {
        self.start()?;
        let payload = serde_json::to_string(payload)?;
        let submit = Submit {
            tenant: Tenant::new(NAME)?,
            owner: Owner::new(NAME)?,
            key: OperationKey::new(SystemIds.uuid().to_string())?,
            fingerprint: Fingerprint::of(&self.kind.name, &payload, &Options::default()),
            kind: self.kind.name.clone(),
            queue: self.kind.queue.clone(),
            priority: 0,
            payload,
            max_attempts: self.kind.max_attempts,
            run: None,
            deadline: Moment::After(self.kind.deadline),
            timeout: self.kind.deadline,
            backoff: self.kind.backoff,
            on_crash: self.kind.on_crash,
            trace: None,
            blobs: Vec::new(),
        };
        match self.store.submit(submit).await? {
            Submitted::Created(job) => Ok(job.id),
            other @ (Submitted::Replayed(_)
            | Submitted::KeyConflict
            | Submitted::Gone(_)
            | Submitted::BlobMissing(_)
            | Submitted::DeadlineUnusable) => Err(TrialError::NotAccepted(format!("{other:?}"))),
        }
    }

    /// Ends the worker on the spot, as a killed process would: nothing is
    /// reported and nothing given back.
    pub async fn crash(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            worker.shutdown().await;
        }
    }

    /// Waits until a job has ended or is unknown. After a crash a new worker is
    /// started, and what the old one held is taken back when its lease ends.
    ///
    /// # Errors
    /// [`TrialError::TookTooLong`], and as the store's.
    pub async fn rest(&mut self, job: JobId) -> Result<JobView, TrialError> {
        self.start()?;
        self.wait(job, "its end", async |trial| {
            trial.reap().await?;
            let seen = trial.job(job).await?;
            Ok(seen.filter(|seen| seen.state.is_at_rest()))
        })
        .await
    }

    /// Waits until something has happened to a job, such as
    /// [`EventType::EffectOpened`].
    ///
    /// # Errors
    /// As [`Trial::rest`].
    pub async fn has(&self, job: JobId, event: EventType) -> Result<(), TrialError> {
        self.wait(job, event.as_str(), async |trial| {
            let seen = trial.history(job).await?;
            Ok(seen.contains(&event).then_some(()))
        })
        .await
    }

    /// What has happened to a job, in order.
    ///
    /// # Errors
    /// As the store's.
    pub async fn history(&self, job: JobId) -> Result<Vec<EventType>, TrialError> {
        let page = self.store.history(&Self::scope()?, job, 0, 1_000).await?;
        let events = page.map(|page| page.events).unwrap_or_default();
        Ok(events.into_iter().map(|event| event.kind).collect())
    }

    fn scope() -> Result<Scope, InvalidName> {
        Ok(Scope {
            tenant: Tenant::new(NAME)?,
            owner: None,
        })
    }

    async fn job(&self, job: JobId) -> Result<Option<JobView>, TrialError> {
        Ok(self.store.job(&Self::scope()?, job).await?)
    }

    async fn wait<T>(
        &self,
        job: JobId,
        what: &'static str,
        look: impl AsyncFn(&Self) -> Result<Option<T>, TrialError>,
    ) -> Result<T, TrialError> {
        let end = Instant::now() + PATIENCE;
        let mut looks = interval(LOOK);
        while Instant::now() < end {
            looks.tick().await;
            if let Some(seen) = look(self).await? {
                return Ok(seen);
            }
        }
        let seen = self.job(job).await?;
        let state = seen.map_or("not there", |seen| seen.state.as_str());
        Err(TrialError::TookTooLong { job, what, state })
    }

    /// Takes back what has expired, as the reaper does.
    async fn reap(&self) -> Result<(), TrialError> {
        for expired in self.store.expired(None, 100).await?.jobs {
            let reap = Reap {
                job: expired.job,
                epoch: expired.epoch,
                actor: NAME.to_owned(),
            };
            // What was renewed meanwhile is left alone.
            let (Reaped::Moved { .. } | Reaped::Skipped) = self.store.reap(reap).await?;
        }
        Ok(())
    }

    /// Starts a worker unless one runs.
    fn start(&mut self) -> Result<(), TrialError> {
        if self.worker.is_some() {
            return Ok(());
        }
        let kinds = Kinds::new([self.kind.clone()]);
        let (store, blobs) = (self.store.clone(), self.blobs.clone());
        let worker = Worker::builder(store, blobs, kinds, Arc::new(SystemIds))
            .name(NAME)
            .handler(self.kind.name.clone(), Shared(Arc::clone(&self.handler)))
            .build()?;
        let source = Box::new(Poll::new(self.store.clone(), worker.queues().to_vec()));
        let mut task = JoinSet::new();
        task.spawn(worker.run(source, std::future::pending()));
        self.worker = Some(task);
        Ok(())
    }
}
