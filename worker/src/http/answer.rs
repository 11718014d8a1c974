//! What an answer says of the call. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_core::time::Timestamp;

use crate::call::{Ended, Refused};

/// Decides by the status; `None` is success. `declined` are the statuses by
/// which this receiver says that it did nothing.
///
/// | status | means |
/// | --- | --- |
/// | 2xx | done |
/// | 301, 307, 308 | nothing was done; the URL is to be mended: for good |
/// | 408, 425, 429, 503, and those declared | nothing was done; again, not before `Retry-After` |
/// | any other 4xx | nothing was done; for good |
/// | anything else | nobody knows |
pub(super) fn judge(
    status: u16,
    declined: &BTreeSet<u16>,
    retry_after: Option<Duration>,
) -> Option<Ended> {
    let refused = |code| Refused::new(code, format!("the receiver answered {status}"));
    match status {
        200..=299 => None,
        301 | 307 | 308 => Some(Ended::Declined(
            Refused::new(
                "http_redirected",
                format!("the receiver answered {status}: redirects are not followed"),
            )
            .for_good(),
        )),
        408 | 425 | 429 | 503 => Some(Ended::Declined(Refused {
            after: retry_after,
            ..refused("http_declined")
        })),
        400..=499 => Some(Ended::Declined(refused("http_refused").for_good())),
        _ if declined.contains(&status) => Some(Ended::Declined(Refused {
            after: retry_after,
            ..refused("http_declined")
        })),
        _ => Some(Ended::Unclear(refused("http_failed"))),
    }
}

/// Reads `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
pub(super) fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Timestamp::parse_http_date(text).map(|at| at.since(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// done, declined for good, declined for now, or unclear.
    fn word(status: u16, declined: &[u16]) -> &'static str {
        match judge(status, &declined.iter().copied().collect(), None) {
            None | Some(Ended::Done(_)) => "done",
            Some(Ended::Declined(refused)) if refused.for_good => "refused",
            Some(Ended::Declined(_)) => "declined",
            Some(Ended::Unclear(_)) => "unclear",
        }
    }

    #[test]
    fn every_status_has_one_meaning() {
        for (statuses, meaning) in [
            (&[200, 201, 204, 299][..], "done"),
            (&[301, 307, 308], "refused"),
            (&[400, 401, 404, 409, 410, 422, 499], "refused"),
            (&[408, 425, 429, 503], "declined"),
            (
                &[100, 300, 302, 303, 304, 500, 502, 504, 599, 600],
                "unclear",
            ),
        ] {
            for status in statuses {
                assert_eq!(word(*status, &[]), meaning, "{status}");
            }
        }
    }

    #[test]
    fn a_receiver_may_declare_its_failures_harmless() {
        assert_eq!(word(500, &[500, 502]), "declined");
        assert_eq!(word(504, &[500, 502]), "unclear");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::parse("1994-11-06T08:49:00Z").unwrap();
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after(date, now), Some(Duration::from_secs(37)));
        let later = now.after(Duration::from_secs(60));
        assert_eq!(retry_after(date, later), Some(Duration::ZERO));
        for bad in ["", "-1", "1.5", "soon"] {
            assert_eq!(retry_after(bad, now), None, "{bad}");
        }
        let Some(Ended::Declined(refused)) =
            judge(429, &BTreeSet::new(), Some(Duration::from_secs(7)))
        else {
            panic!()
        };
        assert_eq!(refused.after, Some(Duration::from_secs(7)));
    }
}
