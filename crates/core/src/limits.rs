//! Everything has a limit, named here with the reason for its value.
//!
//! Limits of one part alone (a relay's window, a page of a list) stand in that
//! part; these are shared by several.

use std::time::Duration;

/// Names of kinds, queues, tenants, owners and effects: long enough for dotted
/// names, short enough that `fencepost.jobs.<queue>` fits AMQP's 255 bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// Worker ids carry a host name and a random part.
pub const WORKER_ID_BYTES_MAX: usize = 200;

/// An operation key: the usual bound of idempotency keys on the web, and small
/// enough to sit in an index entry.
pub const OPERATION_KEY_BYTES_MAX: usize = 255;

/// A payload: references and parameters. What is larger is a blob, so that a
/// transaction of many submissions stays small.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Nesting of a payload or result: deeper than any hand-written document, far
/// below where recursive readers overflow their stack.
pub const JSON_DEPTH_MAX: usize = 64;

/// A blob: a scanned document of some tens of pages.
pub const BLOB_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A result: the text of a long document, still small beside a transaction's 4 MiB.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// An error message kept with a job: enough for a tail of output, small enough
/// for a list of jobs.
pub const ERROR_TEXT_BYTES_MAX: usize = 2 * 1024;

/// An effect's or step's saved outcome; it is read again by every later attempt.
pub const OUTCOME_BYTES_MAX: usize = 256 * 1024;

/// Effects and steps of one job: all are loaded with its claim.
pub const EFFECTS_PER_JOB_MAX: usize = 100;

/// Blobs that one payload may refer to.
pub const BLOBS_PER_JOB_MAX: usize = 16;

/// Attempts that a submission may ask for.
pub const ATTEMPTS_MAX: u32 = 100;

/// Snoozes of one job: a job that has put itself off this often is not waiting
/// for something, it is lost.
pub const SNOOZES_MAX: u32 = 1_000;

/// Priorities run from 0 to this; higher goes first.
pub const PRIORITY_MAX: u8 = 9;

/// The furthest a job may be scheduled or its deadline lie ahead: ten years,
/// so that arithmetic on instants cannot overflow.
pub const HORIZON: Duration = Duration::from_hours(87840);

/// The shortest lease: renewals at a third of it must survive a slow flush.
pub const LEASE_MIN: Duration = Duration::from_millis(500);

/// The longest lease: the longest a killed worker's job may stand still.
pub const LEASE_MAX: Duration = Duration::from_hours(1);

/// A W3C `traceparent` is 55 bytes; a `tracestate` of 512 is what vendors must carry.
pub const TRACE_BYTES_MAX: usize = 600;

/// Jobs that one dispatch may name; bounds what one unreadable message can hide.
pub const DISPATCH_JOBS_MAX: usize = 256;

/// A dispatch in bytes: [`DISPATCH_JOBS_MAX`] references with their traces, and headroom.
pub const DISPATCH_BYTES_MAX: usize = 512 * 1024;
