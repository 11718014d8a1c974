//! What is known about a call to the outside world.
//!
//! An effect is marked *open* durably before its call starts, and *settled*
//! (outcome known) or *declined* (proof that nothing was done) after it. A
//! step is the same without the open mark, for work that is safe to repeat.

use serde::{Deserialize, Serialize};

use crate::id::Epoch;

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
    /// The mark of an earlier call is still open: nobody may call.
    StillOpen,
    /// It was declined under this very claim: a later claim may open it again.
    DeclinedUnderThisClaim,
}

/// Decides what opening an effect means, given what is recorded of it and
/// whether that was recorded under the present claim.
///
/// An open mark is never opened again, not even by the claim that wrote it: a
/// repeat of the same name within one run is a mistake that could repeat the
/// call. A declined effect is opened again under a later epoch only, since a
/// receiver takes an equal epoch with the same key for a repeat.
pub fn open(recorded: Option<(EffectState, Epoch)>, claimed: Epoch) -> OpenAnswer {
    match recorded {
        None => OpenAnswer::Call,
        Some((EffectState::Declined, epoch)) if epoch < claimed => OpenAnswer::Call,
        Some((EffectState::Declined, _)) => OpenAnswer::DeclinedUnderThisClaim,
        Some((EffectState::Settled, _)) => OpenAnswer::Saved,
        Some((EffectState::Open, _)) => OpenAnswer::StillOpen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unmarked_effect_or_one_declined_earlier_is_called() {
        let now = Epoch(2);
        let recorded = |state, epoch| open(Some((state, Epoch(epoch))), now);
        assert_eq!(open(None, now), OpenAnswer::Call);
        assert_eq!(recorded(EffectState::Declined, 1), OpenAnswer::Call);
        assert_eq!(
            recorded(EffectState::Declined, 2),
            OpenAnswer::DeclinedUnderThisClaim
        );
        assert_eq!(recorded(EffectState::Settled, 1), OpenAnswer::Saved);
        assert_eq!(recorded(EffectState::Open, 1), OpenAnswer::StillOpen);
        assert_eq!(recorded(EffectState::Open, 2), OpenAnswer::StillOpen);
    }
}
