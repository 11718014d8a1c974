//! What a client sent, read into a [`Submit`] or refused. Pure.
//!
//! The payload stays the text that was sent: it is checked, fingerprinted by
//! its canonical form and stored digit for digit. Every refusal names its field.

use std::time::Duration;

use fencepost_core::fingerprint::{Fingerprint, Moment, Options};
use fencepost_core::id::{OperationKey, Owner, Tenant};
use fencepost_core::json::canonical;
use fencepost_core::limits::{ATTEMPTS_MAX, BLOBS_PER_JOB_MAX, HORIZON, PRIORITY_MAX};
use fencepost_core::time::{Timestamp, millis};
use fencepost_store::{BlobHash, Submit};

use crate::catalogue::{Catalogue, Entry};
use crate::fields::Fields;
use crate::problem::{ApiError, Code};

/// The priority of a submission that names none: the lowest, so that every
/// other one is a choice.
const PRIORITY_DEFAULT: u8 = 0;

/// What a submission is read against.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) catalogue: &'a Catalogue,
    /// From the verified identity.
    pub(crate) tenant: &'a Tenant,
    /// From the verified identity.
    pub(crate) owner: &'a Owner,
    /// The present, for the horizon only.
    pub(crate) now: Timestamp,
    /// W3C trace context of the request.
    pub(crate) trace: Option<&'a str>,
}

impl Reading<'_> {
    /// A submission whose key came beside it.
    pub(crate) fn one(&self, text: &str, key: OperationKey) -> Result<Submit, ApiError> {
        self.submit(Fields::read("the body", text)?, key)
    }

    /// A submission of a batch, with its key as a field.
    pub(crate) fn item(&self, text: &str) -> Result<Submit, ApiError> {
        let mut fields = Fields::read("the item", text)?;
        let key = fields
            .text("key")?
            .ok_or_else(|| ApiError::invalid("`key` is missing: each item has its own"))?;
        self.submit(fields, operation_key("`key`", &key)?)
    }

    fn submit(&self, mut fields: Fields<'_>, key: OperationKey) -> Result<Submit, ApiError> {
        let kind = fields
            .text("kind")?
            .ok_or_else(|| ApiError::invalid("`kind` is missing"))?;
        let entry = self.catalogue.get(&kind)?;
        let Entry { kind, .. } = entry;
        let payload = fields
            .raw("payload")
            .ok_or_else(|| ApiError::invalid("`payload` is missing: send at least `null`"))?
            .get();
        let options = self.options(&mut fields)?;
        fields.finish()?;

        if payload.len() > kind.payload_bytes_max {
            let (name, most) = (&kind.name, kind.payload_bytes_max);
            return Err(ApiError::too_large(format!(
                "`payload`: kind `{name}` takes at most {most} bytes; put what is larger as a blob and refer to it"
            )));
        }
        let canonical =
            canonical(payload).map_err(|fault| ApiError::invalid(format!("`payload` {fault}")))?;
        let blobs = blobs(&canonical)?;
        entry.check(payload)?;

        Ok(Submit {
            tenant: self.tenant.clone(),
            owner: self.owner.clone(),
            key,
            fingerprint: Fingerprint::of(&kind.name, &canonical, &options),
            kind: kind.name.clone(),
            queue: kind.queue.clone(),
            priority: options.priority.unwrap_or(PRIORITY_DEFAULT),
            payload: payload.to_owned(),
            max_attempts: options.max_attempts.unwrap_or(kind.max_attempts),
            run: options.run,
            deadline: options.deadline.unwrap_or(Moment::After(kind.deadline)),
            timeout: kind.deadline,
            backoff: kind.backoff,
            on_crash: kind.on_crash,
            trace: self.trace.map(str::to_owned),
            blobs,
        })
    }

    fn options(&self, fields: &mut Fields<'_>) -> Result<Options, ApiError> {
        let priority = fields.number("priority", 0, PRIORITY_MAX.into())?;
        let max_attempts = fields.number("max_attempts", 1, ATTEMPTS_MAX.into())?;
        Ok(Options {
            run: moment(fields, ("run_at", "delay_ms"), 0, self.now)?,
            deadline: deadline(fields, self.now)?,
            // Within bounds: both fit.
            priority: priority.and_then(|priority| u8::try_from(priority).ok()),
            max_attempts: max_attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        })
    }
}

/// A deadline: an instant, or so long from acceptance.
pub(crate) fn deadline(
    fields: &mut Fields<'_>,
    now: Timestamp,
) -> Result<Option<Moment>, ApiError> {
    moment(fields, ("deadline_at", "timeout_ms"), 1, now)
}

fn moment(
    fields: &mut Fields<'_>,
    (at, after): (&'static str, &'static str),
    least: u64,
    now: Timestamp,
) -> Result<Option<Moment>, ApiError> {
    let most = u64::try_from(millis(HORIZON)).unwrap_or(u64::MAX);
    match (fields.time(at)?, fields.number(after, least, most)?) {
        (None, None) => Ok(None),
        (None, Some(delay)) => Ok(Some(Moment::After(Duration::from_millis(delay)))),
        (Some(instant), None) if instant <= now.after(HORIZON) => Ok(Some(Moment::At(instant))),
        (Some(_), None) => Err(ApiError::invalid(format!(
            "`{at}` lies more than ten years ahead"
        ))),
        (Some(_), Some(_)) => Err(ApiError::invalid(format!(
            "`{at}` and `{after}` say the same: send one of them"
        ))),
    }
}

/// An operation key; the refusal names where it stood.
pub(crate) fn operation_key(place: &str, text: &str) -> Result<OperationKey, ApiError> {
    OperationKey::new(text).map_err(|error| ApiError::invalid(format!("{place}: {error}")))
}

/// The blobs that a canonical payload refers to: its objects of exactly the
/// shape `{"blob":"sha256:…"}`, each hash once.
///
/// A search of the text is enough: in the canonical form a quote that follows
/// a brace directly opens a member's name, since inside a string it would
/// follow a backslash.
fn blobs(canonical: &str) -> Result<Vec<BlobHash>, ApiError> {
    let mut hashes = Vec::new();
    for rest in canonical.split(r#"{"blob":""#).skip(1) {
        let Some((text, after)) = rest.split_once('"') else {
            continue;
        };
        if !after.starts_with('}') || !text.starts_with("sha256:") {
            continue;
        }
        let hash = text
            .parse()
            .map_err(|error| ApiError::invalid(format!("`payload`: {error}")))?;
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
        if hashes.len() > BLOBS_PER_JOB_MAX {
            return Err(ApiError::invalid(format!(
                "`payload` refers to more than {BLOBS_PER_JOB_MAX} blobs"
            )));
        }
    }
    Ok(hashes)
}

/// Refuses a deadline that the store found unusable.
pub(crate) fn deadline_unusable() -> ApiError {
    ApiError::new(
        Code::InvalidInput,
        "`deadline_at` or `timeout_ms`: the deadline is not after both the present and `run_at`",
    )
}

#[cfg(test)]
#[path = "submission_tests.rs"]
mod tests;
