//! What a handler sees of its job, and its one way to the outside world.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::effect::{EffectKind, EffectState};
use fencepost_core::id::{EffectName, Epoch, InvalidName, JobId, KindName, Tenant};
use fencepost_core::lease::Fenced;
use fencepost_core::limits::OUTCOME_BYTES_MAX;
use fencepost_core::time::Timestamp;
use fencepost_store::blobs::{BlobError, Blobs};
use fencepost_store::{
    BlobHash, ClaimedJob, DeclineEffect, ErrorClass, Marked, OpenEffect, Opened, SaveStep,
    SettleEffect, Store, StoreError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::renew::Lease;

/// The pause before a mark is tried again when the database does not answer.
const MARK_AGAIN: Duration = Duration::from_millis(100);

/// A job in a handler's hands. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) job: Arc<ClaimedJob>,
    pub(crate) lease: Lease,
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
}

/// What a call to the outside world is told, to pass on: a receiver refuses a
/// lower epoch, and answers an equal epoch with the same key as the repeat it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectCall {
    /// The job.
    pub job: JobId,
    /// The claim under which the call is made.
    pub epoch: Epoch,
    /// `<job>/<name>`: the same for every repeat of this effect.
    pub key: String,
}

/// How a call to the outside world failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Proof that nothing was done: connection refused, or a refusal that the receiver's
    /// contract defines as such. The effect may be opened again under a later epoch.
    #[error("nothing was done: {0}")]
    Declined(String),
    /// It may have happened: a time-out after sending, a broken answer. The job becomes unknown.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

/// An effect or step did not give an outcome.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The claim is no longer good: stop. Nothing that is reported now counts.
    #[error("the claim is no longer good ({})", .0.as_str())]
    Fenced(Fenced),
    /// An earlier call has no known outcome; nobody may call again.
    #[error("effect `{0}` was called before and its outcome is not known")]
    StillOpen(EffectName),
    /// Nothing was done, now or earlier under this claim.
    #[error("effect `{name}` was declined: {reason}")]
    Declined {
        /// The effect.
        name: EffectName,
        /// What the receiver said.
        reason: String,
    },
    /// The call may have happened.
    #[error("effect `{name}` has no known outcome: {reason}")]
    OutcomeUnknown {
        /// The effect.
        name: EffectName,
        /// How the call ended.
        reason: String,
    },
    /// A mistake of the handler: a bad name, one used twice, too many, an outcome too large.
    #[error("effect `{name}`: {what}")]
    Misused {
        /// The effect.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The step itself failed.
    #[error("step `{name}` failed")]
    Step {
        /// The step.
        name: EffectName,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database did not answer before the lease ended.
    #[error("effect `{name}` could not be recorded")]
    Store {
        /// The effect.
        name: EffectName,
        /// What the store said.
        source: StoreError,
    },
}

impl Context {
    /// The job.
    pub fn job(&self) -> JobId {
        self.job.claim.job()
    }

    /// The number of this claim. Pass it on inside an effect only ([`EffectCall`]):
    /// a claim outside one is not flushed before its handler runs, and after a power
    /// cut another may get the same number.
    pub fn epoch(&self) -> Epoch {
        self.job.claim.epoch()
    }

    /// What is to be run.
    pub fn kind(&self) -> &KindName {
        &self.job.kind
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.job.attempt
    }

    /// Whose job it is.
    pub fn tenant(&self) -> &Tenant {
        &self.job.tenant
    }

    /// When the job is given up.
    pub fn deadline_at(&self) -> Timestamp {
        self.job.deadline_at
    }

    /// The time left until the job is given up, whatever becomes of its lease.
    pub fn deadline_in(&self) -> Duration {
        self.job.deadline_at.since(self.store.now())
    }

    /// The payload: JSON text as sent.
    pub fn payload(&self) -> &str {
        &self.job.payload
    }

    /// The payload as a value.
    ///
    /// # Errors
    /// When it is not of that shape.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.job.payload)
    }

    /// The time left before this run is stopped, unless its lease is renewed;
    /// never past the deadline.
    pub fn time_left(&self) -> Duration {
        self.lease
            .ends_at()
            .saturating_duration_since(Instant::now())
    }

    /// Resolves when the run should end: cancellation was asked for, the claim
    /// was lost, or the worker ends.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn cancelled(&self) {
        self.lease.told().await;
    }

    /// The content of a blob that the payload refers to.
    ///
    /// # Errors
    /// [`BlobError::Missing`] for a blob of another tenant too.
    pub async fn blob(&self, hash: &BlobHash) -> Result<Bytes, BlobError> {
        match self.store.blob(&self.job.tenant, hash).await? {
            Some(place) => self.blobs.get(&place).await,
            None => Err(BlobError::Missing(*hash)),
        }
    }

    /// Calls the outside world, at most once whatever crashes.
    ///
    /// An outcome that was saved before is returned without a call. Otherwise
    /// the effect is marked open, on disk, before `call` runs, and settled or
    /// declined after it. If the run breaks off in between, the job becomes
    /// `unknown` and a person decides.
    ///
    /// # Errors
    /// [`EffectError`]; return it from the handler, the store knows what it means.
    ///
    /// # Cancel safety
    /// Dropping the future after the call began leaves the effect open.
    pub async fn effect<T, F, C>(&self, name: &str, call: F) -> Result<T, EffectError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(EffectCall) -> C + Send,
        C: Future<Output = Result<T, CallError>> + Send,
    {
        let name = self.name(name)?;
        let claim = self.job.claim;
        let open = || {
            self.store.open_effect(OpenEffect {
                claim,
                name: name.clone(),
            })
        };
        match self.mark(&name, open).await? {
            Opened::Call => {}
            Opened::Saved(outcome) => return self.read(&name, &outcome),
            Opened::StillOpen => return Err(EffectError::StillOpen(name)),
            Opened::Declined => {
                let reason = "it was declined earlier in this run".to_owned();
                return Err(EffectError::Declined { name, reason });
            }
            Opened::TooMany => return Err(self.misused(&name, "the job has too many effects")),
            Opened::Fenced(fenced) => return Err(EffectError::Fenced(fenced)),
        }
        let key = format!("{}/{name}", self.job());
        let called = call(EffectCall {
            job: self.job(),
            epoch: self.epoch(),
            key,
        })
        .await;
        match called {
            Ok(value) => {
                let outcome = self.write(&name, &value)?;
                let settle = || {
                    let outcome = outcome.clone();
                    self.store.settle_effect(SettleEffect {
                        claim,
                        name: name.clone(),
                        outcome,
                    })
                };
                let marked = self.mark(&name, settle).await?;
                self.recorded(&name, marked)?;
                Ok(value)
            }
            Err(CallError::Declined(reason)) => {
                let decline = || {
                    self.store.decline_effect(DeclineEffect {
                        claim,
                        name: name.clone(),
                    })
                };
                let marked = self.mark(&name, decline).await?;
                self.recorded(&name, marked)?;
                Err(EffectError::Declined { name, reason })
            }
            Err(CallError::Unknown(reason)) => Err(EffectError::OutcomeUnknown { name, reason }),
        }
    }

    /// Does work that is safe to repeat, and saves its outcome: later attempts
    /// get the saved one.
    ///
    /// # Errors
    /// [`EffectError::Step`] with the work's own error, and as [`Context::effect`].
    ///
    /// # Cancel safety
    /// Dropping the future saves nothing; the work is repeated.
    pub async fn step<T, F, W, E>(&self, name: &str, work: F) -> Result<T, EffectError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> W + Send,
        W: Future<Output = Result<T, E>> + Send,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let name = self.name(name)?;
        let saved = self.job.effects.iter().find(|known| known.name == name);
        if let Some(saved) = saved {
            return match (saved.kind, saved.state, &saved.outcome) {
                (EffectKind::Step, EffectState::Settled, Some(outcome)) => {
                    self.read(&name, outcome)
                }
                _ => Err(self.misused(&name, "the name is that of an effect")),
            };
        }
        let value = work().await.map_err(|error| EffectError::Step {
            name: name.clone(),
            source: error.into(),
        })?;
        let outcome = self.write(&name, &value)?;
        let claim = self.job.claim;
        let save = || {
            let outcome = outcome.clone();
            self.store.save_step(SaveStep {
                claim,
                name: name.clone(),
                outcome,
            })
        };
        let marked = self.mark(&name, save).await?;
        self.recorded(&name, marked)?;
        Ok(value)
    }

    /// Writes a mark; a database that does not answer is asked again until the lease ends.
    async fn mark<T, M>(
        &self,
        name: &EffectName,
        mut write: impl FnMut() -> M,
    ) -> Result<T, EffectError>
    where
        M: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match write().await {
                Ok(answer) => return Ok(answer),
                Err(error)
                    if error.class() == ErrorClass::Transient && self.time_left() > MARK_AGAIN =>
                {
                    tokio::time::sleep(MARK_AGAIN).await;
                }
                Err(source) => {
                    return Err(EffectError::Store {
                        name: name.clone(),
                        source,
                    });
                }
            }
        }
    }

    fn recorded(&self, name: &EffectName, marked: Marked) -> Result<(), EffectError> {
        match marked {
            Marked::Recorded => Ok(()),
            Marked::NotApplicable => Err(self.misused(name, "the name was used before")),
            Marked::Fenced(fenced) => Err(EffectError::Fenced(fenced)),
        }
    }

    fn name(&self, name: &str) -> Result<EffectName, EffectError> {
        EffectName::new(name).map_err(|error: InvalidName| self.misused(&name, &error.to_string()))
    }

    fn misused(&self, name: &impl fmt::Display, what: &str) -> EffectError {
        tracing::warn!(job = %self.job(), effect = %name, what, "a handler misused an effect");
        EffectError::Misused {
            name: name.to_string(),
            what: what.to_owned(),
        }
    }

    fn write(&self, name: &EffectName, value: &impl Serialize) -> Result<String, EffectError> {
        let outcome = serde_json::to_string(value)
            .map_err(|_| self.misused(name, "the outcome is no JSON"))?;
        if outcome.len() > OUTCOME_BYTES_MAX {
            return Err(self.misused(name, "the outcome is too large"));
        }
        Ok(outcome)
    }

    fn read<T: DeserializeOwned>(
        &self,
        name: &EffectName,
        outcome: &str,
    ) -> Result<T, EffectError> {
        serde_json::from_str(outcome)
            .map_err(|_| self.misused(name, "the saved outcome is of another shape"))
    }
}
