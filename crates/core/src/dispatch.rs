//! What a broker message says: references to jobs of one queue, never payloads.
//!
//! The envelope is versioned and holds a list. A worker refuses a version it
//! does not know; within a version, unknown fields are skipped, so that a
//! newer relay may add some.

use serde::{Deserialize, Serialize};

use crate::id::{JobId, KindName};
use crate::limits::{DISPATCH_BYTES_MAX, DISPATCH_JOBS_MAX};

/// The version this build writes.
pub const VERSION: u32 = 1;

/// A reference to a job to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// The job.
    pub id: JobId,
    /// Its kind, so that a worker without it can put the entry back unread.
    pub kind: KindName,
    /// W3C trace context of the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    v: u32,
    jobs: Vec<JobRef>,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// A message that no worker of this version can read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Longer than any envelope we write.
    #[error("the message has {0} bytes; an envelope has at most {DISPATCH_BYTES_MAX}")]
    TooLong(usize),
    /// Not an envelope.
    #[error("the message is not a dispatch envelope")]
    Malformed,
    /// Written by a newer relay.
    #[error("the envelope has version {0}; this worker reads {VERSION}")]
    Version(u32),
    /// No job at all, or more than an envelope holds.
    #[error("the envelope names {0} jobs; it must name 1 to {DISPATCH_JOBS_MAX}")]
    Count(usize),
}

/// Writes an envelope.
#[must_use]
pub fn encode(jobs: Vec<JobRef>) -> Vec<u8> {
    // Strings and numbers only: serialising cannot fail.
    serde_json::to_vec(&Envelope { v: VERSION, jobs }).unwrap_or_default()
}

/// Reads an envelope.
///
/// # Errors
/// [`EnvelopeError`]; such a message is rejected to the dead-letter queue at
/// its first delivery.
pub fn decode(body: &[u8]) -> Result<Vec<JobRef>, EnvelopeError> {
    if body.len() > DISPATCH_BYTES_MAX {
        return Err(EnvelopeError::TooLong(body.len()));
    }
    // The version first: a future envelope may have any other shape.
    let VersionOnly { v } = serde_json::from_slice(body).map_err(|_| EnvelopeError::Malformed)?;
    if v != VERSION {
        return Err(EnvelopeError::Version(v));
    }
    let envelope: Envelope = serde_json::from_slice(body).map_err(|_| EnvelopeError::Malformed)?;
    match envelope.jobs.len() {
        1..=DISPATCH_JOBS_MAX => Ok(envelope.jobs),
        count => Err(EnvelopeError::Count(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobRef {
        JobRef {
            id: "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap(),
            kind: KindName::new("echo").unwrap(),
            trace: None,
        }
    }

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        let traced = JobRef {
            trace: Some("00-a-b-01".into()),
            ..job()
        };
        assert_eq!(
            decode(&encode(vec![job(), traced.clone()])),
            Ok(vec![job(), traced])
        );
    }

    #[test]
    fn the_wire_form_is_fixed() {
        assert_eq!(
            String::from_utf8(encode(vec![job()])).unwrap(),
            r#"{"v":1,"jobs":[{"id":"018f0d5e-7a31-7c3a-9a39-0242ac120002","kind":"echo"}]}"#
        );
    }

    #[test]
    fn unreadable_messages_say_why() {
        let zeros = vec![0; 3 * 1024 * 1024];
        assert_eq!(decode(b"{"), Err(EnvelopeError::Malformed));
        assert_eq!(decode(b""), Err(EnvelopeError::Malformed));
        assert_eq!(decode(&zeros), Err(EnvelopeError::TooLong(zeros.len())));
        assert_eq!(
            decode(br#"{"v":2,"work":7}"#),
            Err(EnvelopeError::Version(2))
        );
        assert_eq!(
            decode(br#"{"v":1,"jobs":[]}"#),
            Err(EnvelopeError::Count(0))
        );
        assert_eq!(
            decode(br#"{"v":1,"jobs":[{"id":"x"}]}"#),
            Err(EnvelopeError::Malformed)
        );
    }

    #[test]
    fn the_largest_envelope_fits_its_limit() {
        let job = JobRef {
            kind: KindName::new("k".repeat(crate::limits::NAME_BYTES_MAX)).unwrap(),
            trace: Some("t".repeat(crate::limits::TRACE_BYTES_MAX)),
            ..job()
        };
        let bytes = encode(vec![job; DISPATCH_JOBS_MAX]);
        assert!(decode(&bytes).is_ok(), "{} bytes", bytes.len());
    }
}
