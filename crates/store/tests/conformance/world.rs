//! A store in a directory of its own, a clock that tests turn, ids that count.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fencepost_core::fingerprint::{Fingerprint, Moment, Options};
use fencepost_core::id::{
    ErrorCode, IdSource, JobId, KindName, OperationKey, Owner, QueueName, Tenant, WorkerId,
};
use fencepost_core::kind::OnCrash;
use fencepost_core::lifecycle::Failure;
use fencepost_core::retry::Backoff;
use fencepost_core::time::{Clock, Timestamp};
use fencepost_core::verify;
use fencepost_store::*;

/// A clock that stands still until a test turns it.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn turn(&self, by: Duration) {
        self.0
            .fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Ids that rise by one, and a fixed random number.
#[derive(Debug, Default)]
pub(crate) struct CountingIds(AtomicU64);

impl IdSource for CountingIds {
    fn uuid(&self) -> uuid::Uuid {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(number))
    }

    fn random(&self) -> u64 {
        // A backoff of about a second, the same every time.
        999
    }

    fn secret(&self) -> [u8; 32] {
        [7; 32]
    }
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) path: PathBuf,
    _directory: tempfile::TempDir,
}

pub(crate) const LEASE: Duration = Duration::from_secs(30);

impl World {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fencepost.db");
        let clock = Arc::new(ManualClock(AtomicI64::new(1_800_000_000_000)));
        let store = Store::open(options(&path, Arc::clone(&clock) as Arc<dyn Clock>))
            .await
            .unwrap();
        Self {
            store,
            clock,
            path,
            _directory: directory,
        }
    }

    pub(crate) async fn submitted(&self, request: Submit) -> JobView {
        match self.store.submit(request).await.unwrap() {
            Submitted::Created(job) => *job,
            other => panic!("not created: {other:?}"),
        }
    }

    /// A fresh job of the given key.
    pub(crate) async fn queued(&self, key: &str) -> JobId {
        self.submitted(submission(key)).await.id
    }

    pub(crate) async fn claimed(&self, job: JobId) -> ClaimedJob {
        match self.store.claim(claim_of(job)).await.unwrap() {
            ClaimOutcome::Claimed(claimed) => *claimed,
            ClaimOutcome::Refused(refusal) => panic!("refused: {refusal:?}"),
        }
    }

    pub(crate) async fn job(&self, job: JobId) -> JobView {
        self.store.job(&tenant_scope(), job).await.unwrap().unwrap()
    }

    pub(crate) async fn events(&self, job: JobId) -> Vec<String> {
        let page = self
            .store
            .history(&tenant_scope(), job, 0, 100)
            .await
            .unwrap()
            .unwrap();
        page.events
            .iter()
            .map(|event| event.kind.as_str().to_owned())
            .collect()
    }

    /// Every job obeys the rules, at this instant.
    pub(crate) async fn verify(&self) {
        let page = self.store.audit(None, 10_000).await.unwrap();
        for audit in page.jobs {
            let broken = verify::check(&audit.snapshot, &audit.history);
            assert!(broken.is_empty(), "{broken:#?}\n{:#?}", audit.history);
        }
        assert_eq!(self.store.orphans().await.unwrap(), (0, 0));
    }
}

pub(crate) fn options(path: &std::path::Path, clock: Arc<dyn Clock>) -> OpenOptions {
    OpenOptions {
        path: path.to_owned(),
        clock,
        ids: Arc::new(CountingIds::default()),
        allow_network_filesystem: true,
        wake_poll: Duration::from_secs(1),
    }
}

pub(crate) fn tenant_scope() -> Scope {
    Scope {
        tenant: Tenant::new("acme").unwrap(),
        owner: None,
    }
}

pub(crate) fn submission(key: &str) -> Submit {
    let kind = KindName::new("echo").unwrap();
    let payload = format!("{{\"key\":\"{key}\"}}");
    Submit {
        tenant: Tenant::new("acme").unwrap(),
        owner: Owner::new("ann").unwrap(),
        key: OperationKey::new(key).unwrap(),
        fingerprint: Fingerprint::of(&kind, &payload, &Options::default()),
        kind,
        queue: QueueName::new("default").unwrap(),
        priority: 0,
        payload,
        max_attempts: 3,
        run: None,
        deadline: Moment::After(Duration::from_hours(1)),
        timeout: Duration::from_hours(1),
        backoff: Backoff::default(),
        on_crash: OnCrash::Retry,
        trace: None,
        blobs: Vec::new(),
    }
}

pub(crate) fn claim_of(job: JobId) -> ClaimJob {
    ClaimJob {
        job,
        worker: WorkerId::new("worker-1").unwrap(),
        lease: LEASE,
        epoch_leaves: false,
    }
}

pub(crate) fn fail(claim: Claim, failure: Failure) -> Fail {
    Fail {
        claim,
        failure,
        code: ErrorCode::new("handler_failed").unwrap(),
        message: "it broke".into(),
        retry_after: None,
    }
}

pub(crate) fn complete(claim: Claim) -> Complete {
    Complete {
        claim,
        result: r#"{"ok":true}"#.to_owned(),
    }
}

pub(crate) fn reap(job: JobId, epoch: fencepost_core::id::Epoch) -> Reap {
    Reap {
        job,
        epoch,
        actor: "reaper-1".to_owned(),
    }
}
