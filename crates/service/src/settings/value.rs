//! From the text of a setting to its value.

use std::time::Duration;

/// A duration as people write it: a whole number and `ms`, `s`, `m`, `h` or `d`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => return Some(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// A size as people write it: a whole number of bytes, or with `KiB` or `MiB`.
pub(crate) fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = [("KiB", 1 << 10), ("MiB", 1 << 20), ("", 1)]
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    number.trim().parse::<usize>().ok()?.checked_mul(unit)
}

/// A URL with its password and its query replaced.
///
/// Whatever stands between the scheme and the last `@` is the credential, even
/// if it holds characters that should have been escaped.
pub(crate) fn redacted(url: &str) -> String {
    let (place, query) = match url.split_once('?') {
        Some((place, _)) => (place, "?redacted"),
        None => (url, ""),
    };
    let Some((scheme, rest)) = place.split_once("://") else {
        return format!("{place}{query}");
    };
    match rest.rsplit_once('@') {
        Some((credential, host)) => {
            let user = credential.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:redacted@{host}{query}")
        }
        None => format!("{place}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_need_their_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2h"), Some(Duration::from_secs(7_200)));
        for bad in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "99999999999999999999s",
            "99999999999999999d",
            "é",
        ] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(bytes("64KiB"), Some(65_536));
        assert_eq!(bytes("10"), Some(10));
        assert_eq!(bytes("10MB"), None);
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(redacted("amqp://u:p@h:1/v"), "amqp://u:redacted@h:1/v");
        assert_eq!(redacted("amqp://u:p@ss@h"), "amqp://u:redacted@h");
        assert_eq!(redacted("amqp://u:hun/ter2@h/v"), "amqp://u:redacted@h/v");
        assert_eq!(
            redacted("postgres://h/db?password=p"),
            "postgres://h/db?redacted"
        );
        assert_eq!(redacted("sqlite:/x"), "sqlite:/x");
    }
}
