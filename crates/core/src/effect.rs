//! What is known about a call to the outside world.
//!
//! An effect is marked *open* durably before its call starts, and *settled*
//! (outcome known) or *declined* (proof that nothing was done) after it. A
//! step is the same without the open mark, for work that is safe to repeat.

use serde::{Deserialize, Serialize};

/// Whether a saved outcome guards an outside call or only saves work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectKind {
    /// A call that changes the outside world.
    Effect,
    /// Work that is safe to repeat; its outcome is a checkpoint.
    Step,
}

/// Where an effect stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectState {
    /// The call may have gone out; nobody knows how it ended.
    Open,
    /// The outcome is known and saved; the call is never repeated.
    Settled,
    /// Nothing was done; it may be opened again under a later epoch.
    Declined,
}

/// What a handler should do with an effect of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAnswer {
    /// Make the call.
    Call,
    /// Return the saved outcome; do not call.
    Saved,
    /// The mark of an earlier claim is still open: nobody may call.
    StillOpen,
}

/// Decides what opening an effect means, given what is recorded of it.
///
/// An open mark is never opened again, not even by the claim that wrote it: a
/// repeat of the same name within one run is a mistake that could repeat the call.
pub fn open(recorded: Option<EffectState>) -> OpenAnswer {
    match recorded {
        None | Some(EffectState::Declined) => OpenAnswer::Call,
        Some(EffectState::Settled) => OpenAnswer::Saved,
        Some(EffectState::Open) => OpenAnswer::StillOpen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unmarked_or_declined_effect_is_called() {
        assert_eq!(open(None), OpenAnswer::Call);
        assert_eq!(open(Some(EffectState::Declined)), OpenAnswer::Call);
        assert_eq!(open(Some(EffectState::Settled)), OpenAnswer::Saved);
        assert_eq!(open(Some(EffectState::Open)), OpenAnswer::StillOpen);
    }
}
