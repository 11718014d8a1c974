//! What a worker and the guard of a command say to each other: lines of JSON,
//! on the guard's standard input and output.

use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::call::Output;

/// The worker's first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) user: Option<(u32, u32)>,
    pub(super) env: Vec<(String, String)>,
    /// What the command reads.
    pub(super) input: String,
    /// Bytes of its output that are kept.
    pub(super) output_max: usize,
    /// When the claim ends, on the host's monotonic clock.
    pub(super) until: MonotonicNanos,
}

/// Any later line of the worker.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// The claim was renewed.
    Until(MonotonicNanos),
    /// End the command; kill it if it has not ended by then.
    Stop(MonotonicNanos),
    /// Kill it now.
    Kill,
}

/// A line of the guard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs, in the process group of this id.
    Started(i32),
    /// It has ended, and so has everything it started.
    Ended(End),
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) how: How,
    pub(super) output: Output,
    /// The tail of what it wrote to its standard error.
    pub(super) errors: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// It could not be started.
    NotStarted(String),
    Exited(u8),
    /// By a signal, whoever sent it.
    Signalled(i32),
}

/// An instant on the clock that all processes of a host share and nobody sets.
///
/// An instant and not a time left: a worker that freezes between reading its
/// clock and writing the line grants nothing by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct MonotonicNanos(pub(super) u64);

impl MonotonicNanos {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    pub(super) fn after(self, duration: std::time::Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    pub(super) fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
