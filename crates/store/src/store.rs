//! The handle through which everything reads and writes.
//!
//! Cheap to clone; all clones share one writer. Owns the methods of the
//! contract and nothing behind them.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::id::{IdSource, JobId, QueueName, Tenant};
use fencepost_core::time::{Clock, Timestamp};
use tokio::sync::watch;

use crate::command::Verb;
use crate::contract::{
    AuditPage, BlobHash, BlobKnown, BlobPlace, Cancel, Cancelled, ClaimJob, ClaimOutcome,
    CollectBlobs, Complete, CreateKey, DeclineEffect, ExpiredPage, Fail, FeedEvent, Heartbeat,
    HistoryPage, JobFilter, JobPage, JobView, KeyCreated, KeyRecord, KeyRevoked, Lead, Leadership,
    Marked, OpenEffect, Opened, ParkedEntry, PauseQueue, Prune, Pruned, PutBack, PutBackOutcome,
    QueueDepth, Reap, Reaped, RecordBlob, Redispatch, Release, Renew, Renewed, Report, Resign,
    Resolve, Resolved, ResumeQueue, Retried, Retry, RevokeKey, SaveStep, Scope, SettleDispatches,
    SettleEffect, Snooze, StageCount, Submit, Submitted, Take, Taken, TouchBlob, Unclaimed,
    UnclaimedPage, UnknownPage, Unpark, WorkerRecord,
};
use crate::error::StoreError;
use crate::sqlite;
use crate::wake::Wake;
use crate::writer::Writer;

/// How long a verb may wait for the database unless a handle says otherwise:
/// long enough for a foreign lock of some seconds, short enough that an API
/// can answer within ten.
pub const BUDGET: Duration = Duration::from_secs(8);

/// How long closing may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// How to open a store.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The SQLite file; made if it does not exist, its directory too.
    pub path: std::path::PathBuf,
    /// The clock that rules leases, deadlines and due times.
    pub clock: Arc<dyn Clock>,
    /// Where job ids and jitter come from.
    pub ids: Arc<dyn IdSource>,
    /// Open a file on a file system whose locks are not trusted.
    pub allow_network_filesystem: bool,
    /// The slow poll behind the wake file.
    pub wake_poll: Duration,
}

/// A job store.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
    budget: Duration,
}

#[derive(Debug)]
struct Inner {
    writer: Writer,
    reader: sqlite::Reader,
    checkpointer: sqlite::Checkpointer,
    path: std::path::PathBuf,
    wake: Wake,
}

/// The write-ahead log beside the database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSize {
    /// Its length on disk; above 64 MiB some program keeps a reading open.
    pub bytes: u64,
    /// How long ago it was last begun anew, by whichever process, or else the
    /// database was first opened. Less than 16 MiB in it is left where it is.
    pub since_checkpoint: Duration,
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $method:ident($request:ident) -> $outcome:ty;)*) => {
        /// The mutating verbs. Each waits its turn with the one writer, at most
        /// the handle's budget.
        ///
        /// # Errors
        /// [`StoreError::Busy`] and [`StoreError::Overloaded`] say that nothing was
        /// written; [`StoreError::OutcomeUnknown`] that it may have been.
        ///
        /// # Cancel safety
        /// Dropping the future does not stop the verb: it is committed or refused as
        /// if its answer had been lost.
        impl Store {
            $($(#[$doc])*
            ///
            /// # Errors
            /// See the type's page on mutating verbs.
            pub async fn $method(&self, request: $request) -> Result<$outcome, StoreError> {
                self.write(request).await
            })*
        }
    };
}

verbs! {
    /// Accepts a job, or finds it accepted before.
    submit(Submit) -> Submitted;
    /// Gives out the right to run a job.
    claim(ClaimJob) -> ClaimOutcome;
    /// Lengthens a lease.
    renew(Renew) -> Renewed;
    /// Ends a job with its result.
    complete(Complete) -> Report;
    /// Reports a failed attempt.
    fail(Fail) -> Report;
    /// Gives a job back unfinished.
    release(Release) -> Report;
    /// Puts a job off.
    snooze(Snooze) -> Report;
    /// Marks an outside call open, before it goes out.
    open_effect(OpenEffect) -> Opened;
    /// Records the outcome of an outside call.
    settle_effect(SettleEffect) -> Marked;
    /// Records that an outside call did nothing.
    decline_effect(DeclineEffect) -> Marked;
    /// Saves the outcome of repeatable work.
    save_step(SaveStep) -> Marked;
    /// Ends a job, or asks its holder to stop.
    cancel(Cancel) -> Cancelled;
    /// Queues an ended job anew.
    retry(Retry) -> Retried;
    /// Decides about a job whose outcome nobody knows.
    resolve(Resolve) -> Resolved;
    /// Takes a job back whose lease or deadline has passed.
    reap(Reap) -> Reaped;
    /// Puts a dispatch back that a worker cannot run.
    put_back(PutBack) -> PutBackOutcome;
    /// Takes due entries for publication.
    take(Take) -> Taken;
    /// Records how publications ended; answers how many still matched.
    settle_dispatches(SettleDispatches) -> u64;
    /// Makes published entries due again; answers how many still matched.
    redispatch(Redispatch) -> u64;
    /// Records that a blob's content is durable.
    record_blob(RecordBlob) -> BlobKnown;
    /// Says that a blob is wanted; false when its content has to be stored.
    touch_blob(TouchBlob) -> bool;
    /// Forgets blobs that nobody refers to; answers where their content lies.
    collect_blobs(CollectBlobs) -> Vec<BlobPlace>;
    /// Removes jobs that ended long ago.
    prune(Prune) -> Pruned;
    /// Releases parked entries; answers of which jobs.
    unpark(Unpark) -> Vec<JobId>;
    /// Stops claims on a queue.
    pause_queue(PauseQueue) -> ();
    /// Allows claims on a queue again.
    resume_queue(ResumeQueue) -> ();
    /// Stores an API key.
    create_key(CreateKey) -> KeyCreated;
    /// Ends an API key.
    revoke_key(RevokeKey) -> KeyRevoked;
    /// Takes or renews leadership.
    lead(Lead) -> Leadership;
    /// Gives leadership up.
    resign(Resign) -> ();
    /// Says that a worker is alive.
    heartbeat(Heartbeat) -> ();
}

impl Store {
    /// Opens the file, brings its schema up to date, and starts the writer.
    ///
    /// Any number of processes may do so at once: migrations run under one
    /// lock, by whichever is first.
    ///
    /// # Errors
    /// [`StoreError::Newer`], [`StoreError::Foreign`] and
    /// [`StoreError::NetworkFilesystem`] leave the file untouched.
    pub async fn open(options: OpenOptions) -> Result<Self, StoreError> {
        sqlite::prepare(&options).await?;
        let wake = Wake::start(&options.path, options.wake_poll)?;
        let engine = sqlite::Engine::open(&options).await?;
        let reader = sqlite::Reader::open(&options).await?;
        let writer = Writer::start(engine, Arc::clone(&options.clock), wake.bell())?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer,
                reader,
                checkpointer: sqlite::Checkpointer::start(&options.path)?,
                path: options.path,
                wake,
            }),
            budget: BUDGET,
        })
    }

    /// The same store with another time to wait for the database.
    #[must_use]
    pub fn with_budget(&self, budget: Duration) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            budget,
        }
    }

    /// A number that changes when something was committed, here or in another
    /// process, that others wait for: a job queued, ended or become unknown.
    ///
    /// Subscribe first, then read: what is committed in between is not missed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.wake.subscribe()
    }

    /// How long the write-ahead log is, and when it was last begun anew.
    ///
    /// # Errors
    /// [`StoreError::File`] when the file that tells the time cannot be looked at.
    pub fn log_size(&self) -> Result<LogSize, StoreError> {
        sqlite::log_size(&self.inner.path, self.now())
    }

    /// Waits for what is in the writer's hands, then closes the file. Verbs
    /// called from now on answer [`StoreError::Closed`].
    ///
    /// A lock that another process never gives back keeps nobody from ending: after
    /// a few seconds the file is left as it is, which loses nothing.
    pub async fn close(&self) {
        if tokio::time::timeout(CLOSE_LIMIT, self.close_in_order())
            .await
            .is_err()
        {
            tracing::warn!("the database did not close in time");
        }
    }

    async fn close_in_order(&self) {
        self.inner.checkpointer.close().await;
        // The writer last: who closes last moves the log into the file.
        self.inner.reader.close().await;
        self.inner.writer.close().await;
    }

    async fn write<V: Verb>(&self, request: V) -> Result<V::Outcome, StoreError> {
        let answer = self.inner.writer.call(request.into(), self.budget).await?;
        V::outcome(answer).ok_or_else(|| StoreError::Corrupt {
            what: "the writer answered another verb".to_owned(),
        })
    }
}

/// The readings: single short statements on read-only connections.
///
/// # Errors
/// [`StoreError::Database`], mostly transient, and [`StoreError::Corrupt`].
///
/// # Cancel safety
/// A dropped reading has no effect.
impl Store {
    /// Whether the database answers.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.inner.reader.ping().await
    }

    /// The present instant by the clock that rules.
    pub fn now(&self) -> Timestamp {
        self.inner.writer.now()
    }

    /// A job, if it is in the scope.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn job(&self, scope: &Scope, job: JobId) -> Result<Option<JobView>, StoreError> {
        self.inner.reader.job(scope, job).await
    }

    /// Jobs of a scope, newest first, after (older than) a job id; without their results.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn jobs(
        &self,
        scope: &Scope,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<JobPage, StoreError> {
        self.inner.reader.jobs(scope, filter, after, limit).await
    }

    /// Unknown jobs of a scope with their open effects, oldest job first, after a job
    /// id. The filter's states are not looked at.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn unknown(
        &self,
        scope: &Scope,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<UnknownPage, StoreError> {
        let scope = Some(scope);
        self.inner.reader.unknown(scope, filter, after, limit).await
    }

    /// The same of every tenant: for this process's own probes.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn all_unknown(
        &self,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<UnknownPage, StoreError> {
        self.inner.reader.unknown(None, filter, after, limit).await
    }

    /// A job's history, oldest first, after an event id; `None` when the job is not in the scope.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn history(
        &self,
        scope: &Scope,
        job: JobId,
        after: i64,
        limit: u32,
    ) -> Result<Option<HistoryPage>, StoreError> {
        self.inner.reader.history(scope, job, after, limit).await
    }

    /// Events of all jobs after an id, in order. Not scoped: for this process's own waiters.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn feed(&self, after: i64, limit: u32) -> Result<Vec<FeedEvent>, StoreError> {
        self.inner.reader.feed(after, limit).await
    }

    /// The id of the newest event; 0 when there is none.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn feed_end(&self) -> Result<i64, StoreError> {
        self.inner.reader.feed_end().await
    }

    /// Due jobs of some queues, published or not, highest priority first; what a worker
    /// without a broker runs.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn due(
        &self,
        queues: &[QueueName],
        limit: u32,
    ) -> Result<Vec<fencepost_core::dispatch::JobRef>, StoreError> {
        self.inner.reader.due(queues, self.now(), limit).await
    }

    /// When the next entry of these queues that is not due yet becomes so.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn next_due_at(&self, queues: &[QueueName]) -> Result<Option<Timestamp>, StoreError> {
        self.inner.reader.next_due_at(queues, self.now()).await
    }

    /// Jobs whose lease or deadline has passed, longest ago first, after a cursor.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn expired(
        &self,
        after: Option<(Timestamp, JobId)>,
        limit: u32,
    ) -> Result<ExpiredPage, StoreError> {
        self.inner.reader.expired(self.now(), after, limit).await
    }

    /// Entries of a queue that were published at least `age` ago and are unclaimed, oldest
    /// publication first, after a cursor of the same shape.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn unclaimed(
        &self,
        queue: &QueueName,
        age: Duration,
        after: Option<Unclaimed>,
        limit: u32,
    ) -> Result<UnclaimedPage, StoreError> {
        self.inner
            .reader
            .unclaimed(queue, self.now(), age, after, limit)
            .await
    }

    /// Queues that have entries or a pause, with their depths.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn queues(&self) -> Result<Vec<QueueDepth>, StoreError> {
        self.inner.reader.queues().await
    }

    /// Entries that failed alone and are held back, in their order, after a place.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn parked(
        &self,
        queue: Option<&QueueName>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ParkedEntry>, StoreError> {
        self.inner.reader.parked(queue, after, limit).await
    }

    /// How many outbox entries of each queue are at each stage.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn stages(&self) -> Result<Vec<StageCount>, StoreError> {
        self.inner.reader.stages().await
    }

    /// Where a blob's content lies, if the tenant has it.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn blob(
        &self,
        tenant: &Tenant,
        hash: &BlobHash,
    ) -> Result<Option<BlobPlace>, StoreError> {
        self.inner.reader.blob(tenant, hash).await
    }

    /// Which of these objects hold a blob's content.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn known_objects(&self, names: &[String]) -> Result<Vec<String>, StoreError> {
        self.inner.reader.known_objects(names).await
    }

    /// Workers heard of since an instant.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn workers(&self, since: Timestamp) -> Result<Vec<WorkerRecord>, StoreError> {
        self.inner.reader.workers(since).await
    }

    /// The API key of a public id.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn key(&self, id: &str) -> Result<Option<KeyRecord>, StoreError> {
        self.inner.reader.key(id).await
    }

    /// All API keys, oldest first.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.inner.reader.keys().await
    }

    /// How many jobs there are, for the progress of long work.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn count_jobs(&self) -> Result<u64, StoreError> {
        self.inner.reader.count_jobs().await
    }

    /// Jobs with their whole histories, by id, after a job id: each page is one moment's truth.
    ///
    /// # Errors
    /// As for all readings.
    pub async fn audit(&self, after: Option<JobId>, limit: u32) -> Result<AuditPage, StoreError> {
        self.inner.reader.audit(after, limit).await
    }

    /// Outbox entries and events whose job does not exist: (entries, events).
    ///
    /// # Errors
    /// As for all readings.
    pub async fn orphans(&self) -> Result<(u64, u64), StoreError> {
        self.inner.reader.orphans().await
    }
}
