//! Durable marks around calls to the outside world.

use fencepost_core::effect::{EffectKind, EffectState};
use fencepost_core::id::{EffectName, Epoch};
use fencepost_core::lease::Fenced;
use fencepost_core::time::Timestamp;

use super::Claim;

/// What is recorded of an effect or step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRecord {
    /// Unique within its job.
    pub name: EffectName,
    /// An outside call, or repeatable work.
    pub kind: EffectKind,
    /// The epoch under which it was last opened.
    pub epoch: Epoch,
    /// Where it stands.
    pub state: EffectState,
    /// When it was last opened.
    pub opened_at: Timestamp,
    /// The saved outcome, JSON text; settled effects and steps only.
    pub outcome: Option<String>,
}

/// Marks an effect open, flushed before the answer. Only after [`Opened::Call`] may the call go out.
#[derive(Debug, Clone)]
pub struct OpenEffect {
    /// The claim.
    pub claim: Claim,
    /// The effect.
    pub name: EffectName,
}

/// What became of an open mark.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Opened {
    /// The mark is durable: make the call.
    Call,
    /// The call was made before: here is its outcome. Do not call.
    Saved(String),
    /// An earlier call has no known outcome: nobody may call.
    StillOpen,
    /// The call was declined under this very claim: a later claim may open it again.
    Declined,
    /// The job has as many effects as a job may have.
    TooMany,
    /// The claim is no longer good: stop.
    Fenced(Fenced),
}

/// Records the outcome of an open effect.
///
/// A fenced settle changes no state but keeps its outcome beside the effect
/// as evidence for whoever decides.
#[derive(Debug, Clone)]
pub struct SettleEffect {
    /// The claim.
    pub claim: Claim,
    /// The effect.
    pub name: EffectName,
    /// JSON text.
    pub outcome: String,
}

/// Records that nothing was done; the effect may be opened again under a later epoch.
#[derive(Debug, Clone)]
pub struct DeclineEffect {
    /// The claim.
    pub claim: Claim,
    /// The effect.
    pub name: EffectName,
}

/// Saves the outcome of a repeatable step.
#[derive(Debug, Clone)]
pub struct SaveStep {
    /// The claim.
    pub claim: Claim,
    /// The step.
    pub name: EffectName,
    /// JSON text.
    pub outcome: String,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Marked {
    /// It is durable.
    Recorded,
    /// There is no open effect of this name under this claim; or, for a step,
    /// the name is taken or the job has as many as it may have.
    NotApplicable,
    /// The claim is no longer good: stop.
    Fenced(Fenced),
}
