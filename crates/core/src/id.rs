//! Names and numbers that must not be swapped for one another.
//!
//! Owns the newtypes and their validity; a value that exists is valid. Does
//! not make ids: [`IdSource`] is injected, so that tests and simulations
//! choose their own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits;

/// Where ids and random numbers come from.
pub trait IdSource: Send + Sync + fmt::Debug {
    /// A new `UUIDv7`: unique, and sorted by the time it was made.
    fn uuid(&self) -> Uuid;

    /// A uniformly random number, for jitter.
    fn random(&self) -> u64;

    /// 32 bytes fit for a secret.
    fn secret(&self) -> [u8; 32];
}

/// A name that is not of the form its type asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {expected}")]
pub struct InvalidName {
    /// Which name was refused.
    pub what: &'static str,
    /// The form that would have been accepted.
    pub expected: &'static str,
}

/// A job's identity: a `UUIDv7`, given at submission and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(pub Uuid);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Only the hyphenated form: one id, one spelling.
        let id = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
        id.map(JobId).ok_or(InvalidName {
            what: "a job id",
            expected: "a UUID in its hyphenated form",
        })
    }
}

impl TryFrom<String> for JobId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

/// The number of a claim on a job. It only ever rises; a write under an older
/// epoch changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(pub i64);

impl Epoch {
    /// A job that was never claimed.
    pub const ZERO: Self = Self(0);

    /// The epoch of the next claim.
    #[must_use]
    pub fn raised(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $expected:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// [`InvalidName`], with the accepted form.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                let check: fn(&str) -> bool = $ok;
                if !text.is_empty() && text.len() <= $max && check(&text) {
                    Ok(Self(text))
                } else {
                    Err(InvalidName { what: $what, expected: $expected })
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

fn is_word(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_label(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, 0x20..=0x7e)) && text.trim() == text
}

text_name!(
    /// What is to be run, such as `document.extract`.
    KindName, "a kind", limits::NAME_BYTES_MAX, "1 to 100 letters, digits, `.`, `_` or `-`", is_word
);
text_name!(
    /// A lane that workers subscribe to.
    QueueName, "a queue", limits::NAME_BYTES_MAX, "1 to 100 letters, digits, `.`, `_` or `-`", is_word
);
text_name!(
    /// Who a job belongs to: the organisation. Only ever from a verified identity.
    Tenant, "a tenant", limits::NAME_BYTES_MAX,
    "1 to 100 printable ASCII characters without spaces at its ends", is_label
);
text_name!(
    /// Who a job belongs to within its tenant. Only ever from a verified identity.
    Owner, "an owner", limits::NAME_BYTES_MAX,
    "1 to 100 printable ASCII characters without spaces at its ends", is_label
);
text_name!(
    /// The client's idempotency key, scoped to (tenant, owner) and compared byte for byte.
    OperationKey, "an operation key", limits::OPERATION_KEY_BYTES_MAX,
    "1 to 255 visible ASCII characters (no spaces)",
    |text| text.bytes().all(|b| matches!(b, 0x21..=0x7e))
);
text_name!(
    /// The name of an effect or step, unique within its job.
    EffectName, "an effect name", limits::NAME_BYTES_MAX, "1 to 100 letters, digits, `.`, `_` or `-`", is_word
);
text_name!(
    /// A stable machine-readable reason, such as `worker_lost`.
    ErrorCode, "an error code", limits::NAME_BYTES_MAX, "1 to 100 of a-z, 0-9 and `_`",
    |text| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
);
text_name!(
    /// One life of one worker process. A restarted process is another worker,
    /// whatever its host or configured name, because the id ends in a random part.
    WorkerId, "a worker id", limits::WORKER_ID_BYTES_MAX,
    "1 to 200 printable ASCII characters without spaces at its ends", is_label
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_keys_are_visible_ascii_up_to_255_bytes() {
        for ok in ["1", "b:c", "a/b|c%3A", &"k".repeat(255)] {
            assert!(OperationKey::new(ok).is_ok(), "{ok}");
        }
        for bad in ["", "a b", "a\0b", "é", "a\n", &"k".repeat(256)] {
            assert!(OperationKey::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_are_neither_folded_nor_trimmed() {
        assert_ne!(OperationKey::new("K").ok(), OperationKey::new("k").ok());
        assert!(Tenant::new(" a").is_err());
        assert!(Tenant::new("a b").is_ok());
    }

    #[test]
    fn a_job_id_has_one_spelling() {
        let id = "018f0d5e-7a31-7c3a-9a39-0242ac120002";
        assert_eq!(
            id.parse::<JobId>().map(|id| id.to_string()),
            Ok(id.to_owned())
        );
        assert!("018f0d5e7a317c3a9a390242ac120002".parse::<JobId>().is_err());
        assert!(
            "{018f0d5e-7a31-7c3a-9a39-0242ac120002}"
                .parse::<JobId>()
                .is_err()
        );
    }
}
