//! The facts that are written to a job's history.
//!
//! One row per transition, publication, effect mark and operator action, never
//! a payload, prompt or result. The history is the audit trail, the change
//! feed, and what [`crate::verify`] replays.

use serde::{Deserialize, Serialize};

use crate::id::Epoch;
use crate::lifecycle::State;
use crate::time::Timestamp;

macro_rules! event_types {
    ($($(#[$doc:meta])* $variant:ident => $word:literal,)*) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum EventType {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl EventType {
            /// Every type, for documentation and exhaustive tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word used in the database and in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Reads the word of [`EventType::as_str`].
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

event_types! {
    /// The submission was committed; the job is queued.
    Accepted => "accepted",
    /// The broker confirmed a dispatch and routed it. Repeats of one entry share a row.
    Published => "published",
    /// A worker put the dispatch back unclaimed. Repeats of one entry share a row.
    PutBack => "put_back",
    /// The entry failed alone and is held back until someone releases it.
    Parked => "parked",
    /// A parked entry was released.
    Unparked => "unparked",
    /// A worker claimed the job under a new epoch.
    Claimed => "claimed",
    /// The job ended with a result.
    Completed => "completed",
    /// An attempt failed and another will be made.
    Failed => "failed",
    /// The worker gave the job back unfinished; the attempt is not counted.
    Released => "released",
    /// The handler put the job off; the attempt is not counted.
    Snoozed => "snoozed",
    /// The reaper took the job back from a lost worker.
    Reaped => "reaped",
    /// The job ended without a result.
    Dead => "dead",
    /// Cancellation was asked of a running job.
    CancelRequested => "cancel_requested",
    /// The job ended because someone asked for it.
    Cancelled => "cancelled",
    /// The job was left with an outcome that nobody knows.
    Unknown => "unknown",
    /// An ended job was queued anew.
    Retried => "retried",
    /// A decision about an unknown outcome was recorded.
    Verdict => "verdict",
    /// A call to the outside world may go out from now on.
    EffectOpened => "effect_opened",
    /// The outcome of a call is known.
    EffectSettled => "effect_settled",
    /// A call is known not to have done anything.
    EffectDeclined => "effect_declined",
    /// The outcome of a repeatable step was saved.
    StepSaved => "step_saved",
    /// A write came under a claim that was no longer good, and changed nothing.
    Fenced => "fenced",
    /// An operator paused a queue.
    QueuePaused => "queue_paused",
    /// An operator resumed a queue.
    QueueResumed => "queue_resumed",
    /// An API key was made.
    KeyCreated => "key_created",
    /// An API key was revoked.
    KeyRevoked => "key_revoked",
}

impl EventType {
    /// The state that a job is in after this event; none for events that move nothing.
    pub fn leads_to(self) -> Option<State> {
        match self {
            Self::Accepted
            | Self::Failed
            | Self::Released
            | Self::Snoozed
            | Self::Reaped
            | Self::Retried => Some(State::Queued),
            Self::Claimed => Some(State::Leased),
            Self::Completed => Some(State::Completed),
            Self::Dead => Some(State::Dead),
            Self::Cancelled => Some(State::Cancelled),
            Self::Unknown => Some(State::Unknown),
            Self::Published
            | Self::PutBack
            | Self::Parked
            | Self::Unparked
            | Self::CancelRequested
            | Self::Verdict
            | Self::EffectOpened
            | Self::EffectSettled
            | Self::EffectDeclined
            | Self::StepSaved
            | Self::Fenced
            | Self::QueuePaused
            | Self::QueueResumed
            | Self::KeyCreated
            | Self::KeyRevoked => None,
        }
    }

    /// Whether the job is at rest after this event, so that those who wait for it are told.
    pub fn ends_a_wait(self) -> bool {
        self.leads_to().is_some_and(State::is_at_rest)
    }
}

/// One row of a job's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its place in the feed; never reused.
    pub id: i64,
    /// The job's epoch after it.
    pub epoch: Epoch,
    /// What happened.
    pub kind: EventType,
    /// When, by the clock that rules.
    pub at: Timestamp,
    /// Who: a worker, a relay, an owner or an operator.
    pub actor: String,
    /// A stable reason, where there is one.
    pub code: Option<String>,
    /// What a person reads; never a payload or result.
    pub detail: Option<String>,
    /// How often it happened; above one for publications and put-backs only.
    pub count: u32,
    /// The last time it happened.
    pub last_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_type_is_read_as_it_is_written() {
        for kind in EventType::ALL {
            assert_eq!(EventType::parse(kind.as_str()), Some(*kind));
            assert_eq!(
                serde_json::to_value(kind).unwrap(),
                serde_json::Value::from(kind.as_str())
            );
        }
        assert_eq!(EventType::parse("Accepted"), None);
    }

    #[test]
    fn every_state_is_reached_by_some_event() {
        for state in State::ALL {
            assert!(
                EventType::ALL
                    .iter()
                    .any(|kind| kind.leads_to() == Some(state)),
                "{state:?}"
            );
        }
    }
}
