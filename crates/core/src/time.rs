//! Instants: milliseconds since the Unix epoch, UTC, as integers.
//!
//! Owns reading and writing them as text. Times are never compared as text
//! and never kept with a zone. Reads no clock: [`Clock`] is injected.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The one clock that rules leases, deadlines and due times.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// An instant in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// A text that is not an instant as RFC 3339 writes it, with an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a time must be RFC 3339 with an offset, such as 2026-12-01T09:30:00Z, between 1970 and 9998"
)]
pub struct InvalidTimestamp;

impl Timestamp {
    /// The last millisecond of 9998: a round bound inside what every calendar
    /// library can hold.
    pub const MAX: Self = Self(253_370_764_799_999);

    /// From milliseconds since the Unix epoch, held between 1970 and 9998.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(0, Self::MAX.0))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant and a duration, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(duration)))
    }

    /// The time from an earlier instant to this one; zero when it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads RFC 3339. Fractions beyond the millisecond are cut off.
    ///
    /// # Errors
    /// [`InvalidTimestamp`] for any other form, above all one without an offset.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        let bytes = text.as_bytes();
        let separated = matches!(bytes.get(10), Some(b'T' | b't'));
        let ascii = bytes
            .iter()
            .all(|b| b.is_ascii_digit() || b"TtZz:.+-".contains(b));
        if !separated || !ascii {
            return Err(InvalidTimestamp);
        }
        let instant: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp)?;
        let millis = instant.as_millisecond();
        if (0..=Self::MAX.0).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(InvalidTimestamp)
        }
    }
}

impl Timestamp {
    /// Reads the date of an HTTP header, such as `Sun, 06 Nov 1994 08:49:37 GMT`
    /// (RFC 9110, section 5.6.7; the two obsolete forms are not read).
    pub fn parse_http_date(text: &str) -> Option<Self> {
        let instant = jiff::fmt::rfc2822::parse(text).ok()?;
        Some(Self::from_millis(instant.timestamp().as_millisecond()))
    }
}

/// Whole milliseconds of a duration, at most `i64::MAX`.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{instant:.3}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_http_header_is_read() {
        let read = |text| Timestamp::parse_http_date(text).map(Timestamp::as_millis);
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn the_same_instant_in_any_offset_and_precision_is_the_same_number() {
        let expected = Timestamp::parse("2026-12-01T09:30:00Z").unwrap();
        for text in [
            "2026-12-01T09:30:00z",
            "2026-12-01t09:30:00Z",
            "2026-12-01T15:00:00+05:30",
            "2026-11-30T22:30:00-11:00",
            "2026-12-01T09:30:00.0Z",
            "2026-12-01T09:30:00.000Z",
            "2026-12-01T09:30:00.000000Z",
            "2026-12-01T09:30:00.000000999Z",
        ] {
            assert_eq!(Timestamp::parse(text), Ok(expected), "{text}");
        }
        assert_eq!(expected.to_string(), "2026-12-01T09:30:00.000Z");
    }

    #[test]
    fn a_time_without_an_offset_or_out_of_range_is_refused() {
        for text in [
            "2026-12-01T09:30:00",
            "2026-12-01 09:30:00Z",
            "2026-12-01",
            "1969-12-31T23:59:59Z",
            "2026-12-01T09:30:00Z[UTC]",
            "2026-13-01T09:30:00Z",
            "",
            "1764581400000",
        ] {
            assert_eq!(Timestamp::parse(text), Err(InvalidTimestamp), "{text}");
        }
    }

    #[test]
    fn milliseconds_are_always_written_with_three_digits() {
        assert_eq!(
            Timestamp::from_millis(5).to_string(),
            "1970-01-01T00:00:00.005Z"
        );
        assert_eq!(Timestamp::MAX.to_string(), "9998-12-31T23:59:59.999Z");
    }
}
