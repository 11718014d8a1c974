//! What can go wrong at the store's boundary.

use std::path::PathBuf;
use std::time::Duration;

/// How a caller should take an error, decided here and never by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// It may go away: try again with backoff.
    Transient,
    /// The request contradicts what is stored.
    Conflict,
    /// It will not go away by itself: someone has to act.
    Permanent,
    /// What is stored makes no sense.
    Corrupt,
}

/// An operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The writer did not get to the request in its time. Nothing was written.
    #[error("the database was busy for {waited:?}; nothing was written")]
    Busy {
        /// How long the request waited.
        waited: Duration,
    },
    /// More requests wait than the writer holds. Nothing was written.
    #[error("too many writes are waiting for the database; nothing was written")]
    Overloaded,
    /// The request reached the database and its answer did not come back in
    /// time: it may or may not have been written.
    #[error("the database did not answer in time; the write may or may not have happened")]
    OutcomeUnknown,
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
    /// The database refused or failed.
    #[error("{doing} failed: {reason}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the database said; never contains values.
        reason: String,
        /// How to take it.
        class: ErrorClass,
    },
    /// The file was written by a newer Fencepost.
    #[error(
        "{path} has schema version {found}, this fencepost knows {known}: run a newer fencepost"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version of this build.
        known: i64,
    },
    /// The file is some other program's.
    #[error("{path} is an SQLite database, but not one of fencepost's: choose another file")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file lies where SQLite cannot keep it safe.
    #[error(
        "{path} lies on {filesystem}, where SQLite's locks and shared memory are not reliable: \
         use a local disk, or set allow_network_filesystem if you know better"
    )]
    NetworkFilesystem {
        /// The file.
        path: PathBuf,
        /// The mount's type.
        filesystem: &'static str,
    },
    /// A file or directory could not be used.
    #[error("{path}: {doing}")]
    File {
        /// The path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A stored value is not what it must be.
    #[error("stored data is invalid: {what}")]
    Corrupt {
        /// Which value.
        what: String,
    },
}

impl StoreError {
    /// How a caller should take this.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Busy { .. } | Self::Overloaded | Self::OutcomeUnknown | Self::Closed => {
                ErrorClass::Transient
            }
            Self::Database { class, .. } => *class,
            Self::Newer { .. } | Self::Foreign { .. } | Self::NetworkFilesystem { .. } => {
                ErrorClass::Permanent
            }
            Self::File { .. } => ErrorClass::Permanent,
            Self::Corrupt { .. } => ErrorClass::Corrupt,
        }
    }

    /// The same error for another request of the same transaction.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Database {
                doing,
                reason,
                class,
            } => Self::Database {
                doing,
                reason: reason.clone(),
                class: *class,
            },
            Self::Busy { waited } => Self::Busy { waited: *waited },
            // Whether it was written is as unknown to each of them.
            Self::OutcomeUnknown => Self::OutcomeUnknown,
            Self::Overloaded
            | Self::Closed
            | Self::Newer { .. }
            | Self::Foreign { .. }
            | Self::NetworkFilesystem { .. }
            | Self::File { .. }
            | Self::Corrupt { .. } => Self::Database {
                doing: "the transaction of several requests",
                reason: self.to_string(),
                class: self.class(),
            },
        }
    }
}
