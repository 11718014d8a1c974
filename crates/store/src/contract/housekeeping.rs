//! What keeps a store from growing for ever, and what an operator does by hand.

use std::time::Duration;

use fencepost_core::id::{JobId, KindName, QueueName, Tenant};
use fencepost_core::time::Timestamp;

use super::BlobHash;

/// Removes jobs that ended long ago; queued, leased and unknown ones never.
///
/// Their events, effects and blob references go with them. The operation key of
/// each is kept, so that a repeat is told that its job is gone.
#[derive(Debug, Clone, Copy)]
pub struct Prune {
    /// Jobs that ended at least this long ago.
    pub finished_for: Duration,
    /// How long their keys are kept from now on.
    pub keep_keys: Duration,
    /// At most so many jobs, and so many keys whose time is over.
    pub limit: u32,
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs.
    pub jobs: u64,
    /// Operation keys whose time was over.
    pub keys: u64,
}

/// Says that a blob is wanted: its time without a reference begins anew.
/// Answers false when there is no such blob, and its content has to be stored.
#[derive(Debug, Clone)]
pub struct TouchBlob {
    /// Blobs are known within their tenant.
    pub tenant: Tenant,
    /// The content's hash.
    pub hash: BlobHash,
}

/// Forgets blobs that no job refers to and that were not put for a while.
/// Their content is the caller's to delete.
#[derive(Debug, Clone, Copy)]
pub struct CollectBlobs {
    /// Put at least this long ago for the last time.
    pub unused_for: Duration,
    /// At most so many.
    pub limit: u32,
}

/// Where a blob's content lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPlace {
    /// Whose it is.
    pub tenant: Tenant,
    /// The content's hash.
    pub hash: BlobHash,
    /// The object's name; none for content stored before names were given.
    pub object: Option<String>,
}

/// Releases parked entries: they are due at once, their failures forgotten.
/// Answers of which jobs.
#[derive(Debug, Clone)]
pub struct Unpark {
    /// Only those of these jobs; `None` is all.
    pub jobs: Option<Vec<JobId>>,
    /// Only those of this queue.
    pub queue: Option<QueueName>,
    /// At most so many.
    pub limit: u32,
    /// Who asks, for the history.
    pub actor: String,
}

/// An entry that failed alone too often and is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedEntry {
    /// Its job.
    pub job: JobId,
    /// What is to be run.
    pub kind: KindName,
    /// Its lane.
    pub queue: QueueName,
    /// Publications that failed alone.
    pub failures: u32,
    /// What the broker said last.
    pub error: Option<String>,
    /// When it was parked.
    pub parked_at: Timestamp,
    /// Its place, to page by.
    pub seq: i64,
}

/// How many entries of a queue are at a stage of their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageCount {
    /// The queue.
    pub queue: QueueName,
    /// `waiting`, `ready`, `taken`, `published` or `parked`.
    pub stage: String,
    /// How many.
    pub entries: u64,
}
