//! What may be run: kinds, where they run, how often and for how long.
//!
//! Owns the settled value; reading it from a file is the business of the
//! settings, running it that of the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// A handler that ships with Fencepost.
    Builtin(Builtin),
    /// A program.
    Command(Command),
    /// A request to another service.
    Http(Http),
    /// A Rust handler registered by a worker binary of the user's own.
    Registered,
}

/// A program that runs the jobs of a kind.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments; never empty. A program with a slash is
    /// found from `directory`, one without in the `PATH`.
    pub program: Vec<String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// As whom it runs: user and group id; `None` is the worker's own.
    pub user: Option<(u32, u32)>,
    /// Its environment, beside what every command is given.
    pub env: BTreeMap<String, String>,
    /// Variables of the worker that it is given too.
    pub inherit_env: Vec<String>,
    /// How long it may take to end once it is asked to.
    pub stop_grace: Duration,
    /// Exit codes that say: nothing was done, try again.
    pub declined: BTreeSet<u8>,
    /// Exit codes that say: nothing was done, and it would fail again.
    pub dead: BTreeSet<u8>,
    /// What any other code but 0 says.
    pub other: OtherExit,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and the values of variables may be secrets.
        f.debug_struct("Command")
            .field("program", &self.program.first())
            .field("directory", &self.directory)
            .field("user", &self.user)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

/// The exit code of a command that did nothing and should be tried again:
/// `EX_TEMPFAIL` of sysexits.h.
pub const EXIT_DECLINED: u8 = 75;

/// How long a command may take to end once it is asked to, by default.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// What an exit code says that is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherExit {
    /// The effect may have happened: the job becomes unknown. For kinds that
    /// are not safe to repeat.
    Unknown,
    /// Nothing was done, or it is safe to repeat: try again.
    Retry,
    /// Nothing was done, and it would fail again.
    Dead,
}

/// A service that is called for the jobs of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Where the payload is posted; from the operator's configuration only.
    pub url: String,
    /// A file with the secret that requests are signed with; read by the worker alone.
    pub secret_file: Option<PathBuf>,
    /// How long a call may take, the connection included.
    pub timeout: Duration,
    /// Statuses from 500 to 599 by which this receiver says that nothing was
    /// done; 503 is one by its meaning.
    pub declined: BTreeSet<u16>,
}

/// What asks the outside system whether an effect of a kind happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What asks.
    pub asks: Asks,
    /// How long one question may take.
    pub timeout: Duration,
    /// How often it asks by itself, beginning so long after a job became unknown;
    /// `None` is by hand only.
    pub every: Option<Duration>,
}

/// What runs a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// A program.
    Command(Command),
    /// A request.
    Http(Http),
}

/// A model that plans, behind an OpenAI-compatible endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAi {
    /// Where the endpoint is, up to and without `/chat/completions`; from the
    /// operator's configuration only.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// A file with the key that is sent; read by the worker alone.
    pub key_file: Option<PathBuf>,
    /// How long one question may take, the connection included.
    pub timeout: Duration,
}

/// How long a planner's question may take by default: models that think first
/// take some tens of seconds.
pub const PLANNER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a probe's question may take by default.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an HTTP call may take by default.
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// The handlers that ship with Fencepost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Builtin {
    /// Answers its payload.
    #[serde(rename = "echo")]
    Echo,
    /// Text and page count of a document.
    #[serde(rename = "document.extract")]
    DocumentExtract,
    /// A note about a supplier's document.
    #[serde(rename = "document.prepare")]
    DocumentPrepare,
}

impl Builtin {
    /// Every builtin.
    pub const ALL: [Self; 3] = [Self::Echo, Self::DocumentExtract, Self::DocumentPrepare];

    /// The name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::DocumentExtract => "document.extract",
            Self::DocumentPrepare => "document.prepare",
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
    /// A command or call that may be made again after it broke off: it is not
    /// an effect, and no attempt of it leaves the job unknown.
    pub safe_to_repeat: bool,
    /// What asks whether an effect of it happened.
    pub probe: Option<Probe>,
    /// The model that plans its steps; `None` is the deterministic planner. For
    /// [`Builtin::DocumentPrepare`] only.
    pub planner: Option<OpenAi>,
    /// Jobs of this kind that one worker runs at once; `None` leaves it to the worker's slots.
    pub concurrency: Option<u32>,
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
            safe_to_repeat: false,
            probe: None,
            planner: None,
            concurrency: None,
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
                Builtin::DocumentExtract | Builtin::DocumentPrepare => queue("documents"),
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
        let names: BTreeSet<_> = self.iter().map(|kind| &kind.queue).collect();
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
