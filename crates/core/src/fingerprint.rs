//! Are two submissions under one operation key the same?
//!
//! SHA-256 over the kind, the canonical payload and the options that the
//! client sent: instants in milliseconds, durations as given, what was left
//! out left out. Every part is length-prefixed, so that no two different
//! submissions share a preimage.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::KindName;
use crate::time::{Timestamp, millis};

/// When a submission wants to run, as the client wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// At an instant.
    At(Timestamp),
    /// So long after acceptance.
    After(Duration),
}

impl Moment {
    /// The instant, for a submission accepted at `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::After(delay) => now.after(delay),
        }
    }
}

/// The options a client sent; `None` was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// `run_at` or `delay_ms`.
    pub run: Option<Moment>,
    /// `deadline_at` or `timeout_ms`.
    pub deadline: Option<Moment>,
    /// `priority`.
    pub priority: Option<u8>,
    /// `max_attempts`.
    pub max_attempts: Option<u32>,
}

/// What identifies the content of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Fingerprint {
    /// The fingerprint of a submission whose payload is already canonical.
    #[must_use]
    pub fn of(kind: &KindName, canonical_payload: &str, options: &Options) -> Self {
        let mut hash = Sha256::new();
        let mut part = |name: &str, value: &str| {
            for text in [name, value] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        };
        part("kind", kind.as_str());
        part("payload", canonical_payload);
        for (name, moment) in [("run", options.run), ("deadline", options.deadline)] {
            match moment {
                Some(Moment::At(at)) => part(&format!("{name}_at"), &at.as_millis().to_string()),
                Some(Moment::After(delay)) => {
                    part(&format!("{name}_after"), &millis(delay).to_string());
                }
                None => {}
            }
        }
        if let Some(priority) = options.priority {
            part("priority", &priority.to_string());
        }
        if let Some(max_attempts) = options.max_attempts {
            part("max_attempts", &max_attempts.to_string());
        }
        Self(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, payload: &str, options: &Options) -> Fingerprint {
        Fingerprint::of(&KindName::new(kind).unwrap(), payload, options)
    }

    #[test]
    fn every_part_counts() {
        let none = Options::default();
        let base = of("echo", "{}", &none);
        let at = Timestamp::from_millis(60_000);
        let others = [
            of("echo2", "{}", &none),
            of("echo", "{\"a\":null}", &none),
            of(
                "echo",
                "{}",
                &Options {
                    run: Some(Moment::At(at)),
                    ..none
                },
            ),
            of(
                "echo",
                "{}",
                &Options {
                    deadline: Some(Moment::At(at)),
                    ..none
                },
            ),
            of(
                "echo",
                "{}",
                &Options {
                    deadline: Some(Moment::After(Duration::from_mins(1))),
                    ..none
                },
            ),
            of(
                "echo",
                "{}",
                &Options {
                    priority: Some(0),
                    ..none
                },
            ),
            of(
                "echo",
                "{}",
                &Options {
                    max_attempts: Some(3),
                    ..none
                },
            ),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(base, *other, "{index}");
            assert_eq!(others.iter().filter(|o| *o == other).count(), 1, "{index}");
        }
        assert_eq!(base, of("echo", "{}", &none));
    }
}
