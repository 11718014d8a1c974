//! The one map from outcomes to exit codes.

use std::process::ExitCode;

/// How a command ended. The numbers are those of `sysexits.h` where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, and the asked-for condition is true.
    Done,
    /// The asked-for condition is false: the job failed, a rule is broken, a part is not healthy.
    False,
    /// The command was not understood.
    Usage,
    /// The service or the database could not be reached.
    Unavailable,
    /// The credential is missing or not good enough.
    NotPermitted,
    /// A setting is bad; nothing was started.
    BadConfig,
}

/// The codes as `--help` prints them.
pub(crate) const HELP: &str = "\
Exit codes:
  0   done
  1   the asked-for condition is false (the job failed, a rule is broken, not healthy, refused)
  2   the command was not understood
  69  the service or database could not be reached
  77  the API key is missing, wrong or not good enough
  78  a setting is bad; nothing was started";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::False => 1,
            Exit::Usage => 2,
            Exit::Unavailable => 69,
            Exit::NotPermitted => 77,
            Exit::BadConfig => 78,
        })
    }
}

/// An error that already knows its exit code.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failed {}
