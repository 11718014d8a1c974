//! Acceptance: a job, its outbox entry and its first event in one transaction.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fencepost_core::fingerprint::{Fingerprint, Moment};
use fencepost_core::id::{InvalidName, JobId, KindName, OperationKey, Owner, QueueName, Tenant};
use fencepost_core::kind::OnCrash;
use fencepost_core::retry::Backoff;

use super::JobView;

/// Accepts a job.
///
/// The policies of its kind (attempts, backoff, deadline, `on_crash`) are
/// written to its row, so that the relay and the reaper need no settings.
#[derive(Debug, Clone)]
pub struct Submit {
    /// From the verified identity.
    pub tenant: Tenant,
    /// From the verified identity.
    pub owner: Owner,
    /// The client's idempotency key.
    pub key: OperationKey,
    /// What the client sent, condensed.
    pub fingerprint: Fingerprint,
    /// What is to be run.
    pub kind: KindName,
    /// The lane of the kind.
    pub queue: QueueName,
    /// 0 to 9; higher goes first.
    pub priority: u8,
    /// JSON text as sent.
    pub payload: String,
    /// The attempt budget.
    pub max_attempts: u32,
    /// When it may run; `None` is at once.
    pub run: Option<Moment>,
    /// When it is given up.
    pub deadline: Moment,
    /// The kind's time from acceptance to deadline, for a later retry.
    pub timeout: Duration,
    /// The kind's pauses between attempts.
    pub backoff: Backoff,
    /// What becomes of the job when its worker is lost.
    pub on_crash: OnCrash,
    /// W3C trace context of the request.
    pub trace: Option<String>,
    /// Blobs that the payload refers to.
    pub blobs: Vec<BlobHash>,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Submitted {
    /// This request made the job. Exactly one request per operation key is told so.
    Created(Box<JobView>),
    /// The job was made before, by the same content under the same key.
    Replayed(Box<JobView>),
    /// The key belongs to a submission with other content.
    KeyConflict,
    /// The key's job has ended and been pruned.
    Gone(JobId),
    /// The payload refers to a blob that was never put, or was collected since.
    BlobMissing(BlobHash),
    /// The deadline is not after both the present and `run_at`.
    DeadlineUnusable,
}

/// Bytes in hexadecimal, lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| {
        DIGITS
            .get(usize::from(nibble))
            .map_or('0', |digit| char::from(*digit))
    };
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// The SHA-256 of a blob's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobHash(pub [u8; 32]);

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BlobHash {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = InvalidName {
            what: "a blob reference",
            expected: "`sha256:` and 64 hexadecimal digits in lower case",
        };
        let digits = text
            .strip_prefix("sha256:")
            .ok_or_else(|| invalid.clone())?;
        let lower = digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if digits.len() != 64 || !lower {
            return Err(invalid);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| invalid.clone())?;
        }
        Ok(Self(hash))
    }
}

/// Records that a blob's content is durable, so that submissions may refer to it.
#[derive(Debug, Clone)]
pub struct RecordBlob {
    /// Blobs are known within their tenant.
    pub tenant: Tenant,
    /// The content's hash.
    pub hash: BlobHash,
    /// Its length in bytes.
    pub size: u64,
    /// The object that holds it, of which there is no other of that name.
    pub object: String,
}

/// Whether a blob was known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKnown {
    /// It is new to this tenant.
    New,
    /// It was put before, and that content stands: the object of this request is not
    /// referred to. Its time without a reference begins anew.
    Before,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_reference_has_one_spelling() {
        let text = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(text.parse::<BlobHash>().unwrap().to_string(), text);
        for bad in [
            text.to_uppercase(),
            text.replace("sha256:", ""),
            text.replace("0f", "0F"),
            format!("{text}0"),
            "sha256:".into(),
        ] {
            assert!(bad.parse::<BlobHash>().is_err(), "{bad}");
        }
    }
}
