//! What may be run: kinds, where they run, how often and for how long.
//!
//! Owns the settled value; reading it from a file is the business of the
//! settings, running it that of the worker.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{KindName, QueueName};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::retry::Backoff;

/// What becomes of a job whose worker was lost without an open effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCrash {
    /// It is run again, within its attempts.
    #[default]
    Retry,
    /// It becomes unknown and waits for a person.
    Hold,
}

/// What runs a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Runner {
    /// A handler that ships with Fencepost.
    Builtin(Builtin),
    /// A Rust handler registered by a worker binary of the user's own.
    Registered,
}

/// The handlers that ship with Fencepost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Builtin {
    /// Answers its payload.
    #[serde(rename = "echo")]
    Echo,
    /// Text and page count of a document.
    #[serde(rename = "document.extract")]
    DocumentExtract,
}

impl Builtin {
    /// Every builtin.
    pub const ALL: [Self; 2] = [Self::Echo, Self::DocumentExtract];

    /// The name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::DocumentExtract => "document.extract",
        }
    }
}

/// A kind of job, settled.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Its name in submissions.
    pub name: KindName,
    /// The lane its jobs wait in.
    pub queue: QueueName,
    /// What runs it.
    pub runner: Runner,
    /// Attempts of a job that asks for no other number.
    pub max_attempts: u32,
    /// How long a claim holds without renewal.
    pub lease: Duration,
    /// The time from acceptance to the deadline of a job that asks for no other.
    pub deadline: Duration,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// What becomes of a job whose worker was lost.
    pub on_crash: OnCrash,
    /// Payloads of this kind are at most this long, in bytes.
    pub payload_bytes_max: usize,
    /// A JSON Schema that payloads must fit.
    pub schema: Option<serde_json::Value>,
}

/// Attempts by default.
pub const MAX_ATTEMPTS: u32 = 3;

/// The lease by default; renewed at a third of it.
pub const LEASE: Duration = Duration::from_secs(30);

/// The time from acceptance to the deadline by default.
pub const DEADLINE: Duration = Duration::from_hours(1);

impl Kind {
    /// A kind with every default.
    #[must_use]
    pub fn new(name: KindName, queue: QueueName, runner: Runner) -> Self {
        Self {
            name,
            queue,
            runner,
            max_attempts: MAX_ATTEMPTS,
            lease: LEASE,
            deadline: DEADLINE,
            backoff: Backoff::default(),
            on_crash: OnCrash::default(),
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            schema: None,
        }
    }
}

/// The configured kinds, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kinds(BTreeMap<KindName, Kind>);

impl Kinds {
    /// A set of kinds; of two with one name the later stands.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self(
            kinds
                .into_iter()
                .map(|kind| (kind.name.clone(), kind))
                .collect(),
        )
    }

    /// The kinds there are without a settings file.
    ///
    /// # Panics
    /// Never: the builtin names are valid, as a test shows.
    #[must_use]
    #[expect(clippy::expect_used, reason = "constant names, checked by a test")]
    pub fn builtin() -> Self {
        let name = |text: &str| KindName::new(text).expect("a builtin's name is valid");
        let queue = |text: &str| QueueName::new(text).expect("a builtin's queue is valid");
        Self::new(Builtin::ALL.map(|builtin| {
            let lane = match builtin {
                Builtin::Echo => queue("default"),
                Builtin::DocumentExtract => queue("documents"),
            };
            Kind::new(name(builtin.as_str()), lane, Runner::Builtin(builtin))
        }))
    }

    /// The kind of this name.
    pub fn get(&self, name: &KindName) -> Option<&Kind> {
        self.0.get(name)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.0.values()
    }

    /// The queues that kinds wait in, each once.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueName> {
        let names: std::collections::BTreeSet<_> = self.iter().map(|kind| &kind.queue).collect();
        names.into_iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_kinds_work_without_a_file() {
        let kinds = Kinds::builtin();
        assert_eq!(kinds.iter().count(), Builtin::ALL.len());
        let queues: Vec<String> = kinds.queues().iter().map(ToString::to_string).collect();
        assert_eq!(queues, ["default", "documents"]);
    }
}
