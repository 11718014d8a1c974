//! Where a page starts: opaque to clients, versioned, nothing secret in it.
//!
//! A cursor says only "after this one". Whose rows are read is decided by the
//! caller's scope in every query, so a cursor made by another tenant shows
//! nothing of theirs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fencepost_core::id::JobId;

use crate::problem::ApiError;

/// The first byte: what the rest means.
const AFTER_JOB: u8 = 1;
const AFTER_EVENT: u8 = 2;

/// After a job, in a list of jobs.
pub(crate) fn after_job(job: JobId) -> String {
    write(AFTER_JOB, job.to_string().as_bytes())
}

/// After an event, in a history.
pub(crate) fn after_event(event: i64) -> String {
    write(AFTER_EVENT, &event.to_be_bytes())
}

/// Reads [`after_job`].
pub(crate) fn read_after_job(cursor: &str) -> Result<JobId, ApiError> {
    let place = read(AFTER_JOB, cursor)?;
    let text = String::from_utf8(place).map_err(|_| bad())?;
    text.parse().map_err(|_| bad())
}

/// Reads [`after_event`].
pub(crate) fn read_after_event(cursor: &str) -> Result<i64, ApiError> {
    let place: [u8; 8] = read(AFTER_EVENT, cursor)?.try_into().map_err(|_| bad())?;
    Ok(i64::from_be_bytes(place))
}

fn write(kind: u8, place: &[u8]) -> String {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(place);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read(kind: u8, cursor: &str) -> Result<Vec<u8>, ApiError> {
    let mut bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
    if bytes.first() != Some(&kind) {
        return Err(bad());
    }
    bytes.remove(0);
    Ok(bytes)
}

fn bad() -> ApiError {
    ApiError::invalid("`cursor` is not one that this list gave out: start without it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let job: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
        assert_eq!(read_after_job(&after_job(job)).unwrap(), job);
        for event in [0, 7, i64::MAX] {
            assert_eq!(read_after_event(&after_event(event)).unwrap(), event);
        }
    }

    #[test]
    fn a_cursor_of_another_list_or_form_is_refused() {
        let job: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
        for bad in [
            after_event(7),
            String::new(),
            "!".into(),
            after_job(job) + "x",
        ] {
            assert!(read_after_job(&bad).is_err(), "{bad}");
        }
        for bad in [after_job(job), String::new(), "AgA".into()] {
            assert!(read_after_event(&bad).is_err(), "{bad}");
        }
    }
}
