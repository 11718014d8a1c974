//! What every request is answered from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::id::{IdSource, KindName};
use fencepost_core::kind::Kinds;
use fencepost_store::blobs::Blobs;
use fencepost_store::{Store, StoreError};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::catalogue::Catalogue;
use crate::keys::Keys;
use crate::problem::{ApiError, OUTCOME_UNKNOWN};
use crate::waiters::Waiters;

/// Batches read and answered at once: with their bytes this bounds the memory they take.
const BATCHES_MAX: usize = 16;

/// How long past its budget a write that the database has in hand is waited for.
/// With the budget of eight seconds an answer comes within ten.
const ANSWER_GRACE: Duration = Duration::from_secs(1);

/// The API could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A kind's schema is not one, or refers to something outside itself.
    #[error("the JSON Schema of kind `{kind}` cannot be used: {reason}")]
    Schema {
        /// The kind.
        kind: KindName,
        /// What is wrong with it.
        reason: String,
    },
}

/// What an API is told.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// The kinds that are accepted.
    pub kinds: Kinds,
    /// How long a client may take to send a request's headers; an idle
    /// connection is closed after it too.
    pub header_timeout: Duration,
    /// How long a client may take to send a body; a blob may take four times as long.
    pub body_timeout: Duration,
    /// How long a request may wait for the database before it is answered 503.
    pub request_budget: Duration,
    /// The longest `?wait=`; more is cut to it.
    pub wait_max: Duration,
    /// How long running requests may take to end once the end is asked for.
    pub shutdown_grace: Duration,
}

/// Whether the process is ready, and the JSON body that says so.
pub type Readiness = Arc<dyn Fn() -> (bool, String) + Send + Sync>;

/// The API, ready to be served. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Api(pub(crate) Arc<Parts>);

/// The parts that handlers work with.
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) readiness: Readiness,
    pub(crate) catalogue: Catalogue,
    pub(crate) keys: Keys,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) batches: Semaphore,
    /// True once the end is asked for.
    pub(crate) ending: watch::Sender<bool>,
    pub(crate) timers: Timers,
    answer_limit: Duration,
}

/// The times that [`ApiConfig`] explains.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers {
    pub(crate) header: Duration,
    pub(crate) body: Duration,
    pub(crate) wait_max: Duration,
    pub(crate) grace: Duration,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Api {
    /// Makes an API on a store. `readiness` speaks for the rest of the process;
    /// whether the database answers is asked here.
    ///
    /// # Errors
    /// [`StartError`], when a kind cannot be served as configured.
    pub fn new(
        store: &Store,
        blobs: Blobs,
        ids: Arc<dyn IdSource>,
        readiness: Readiness,
        config: &ApiConfig,
    ) -> Result<Self, StartError> {
        let catalogue = Catalogue::compile(&config.kinds)?;
        Ok(Self(Arc::new(Parts {
            store: store.with_budget(config.request_budget),
            blobs,
            ids,
            readiness,
            catalogue,
            keys: Keys::default(),
            waiters: Arc::default(),
            batches: Semaphore::new(BATCHES_MAX),
            ending: watch::Sender::new(false),
            timers: Timers {
                header: config.header_timeout,
                body: config.body_timeout,
                wait_max: config.wait_max,
                grace: config.shutdown_grace,
            },
            answer_limit: config.request_budget.saturating_add(ANSWER_GRACE),
        })))
    }
}

impl Parts {
    /// Waits for the store, never for longer than a request may.
    pub(crate) async fn ask<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, ApiError> {
        if let Ok(answer) = timeout(self.answer_limit, asked).await {
            return answer.map_err(|error| self.of_store(&error));
        }
        tracing::warn!("the store did not answer in time");
        Err(self.unavailable(OUTCOME_UNKNOWN))
    }

    /// Resolves once the end is asked for.
    pub(crate) async fn ending(&self) {
        let mut ending = self.ending.subscribe();
        // The sender is held by `self`: it cannot be gone.
        drop(ending.wait_for(|ending| *ending).await);
    }

    pub(crate) fn of_store(&self, error: &StoreError) -> ApiError {
        ApiError::of_store(error, self.ids.random())
    }

    pub(crate) fn unavailable(&self, detail: &'static str) -> ApiError {
        ApiError::unavailable(detail, self.ids.random())
    }

    /// How long something that is not the store's may take before 503.
    pub(crate) fn answer_limit(&self) -> Duration {
        self.answer_limit
    }
}
