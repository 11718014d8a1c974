//! Error texts that any database can hold and any page can show.
//!
//! Made where the text is written, so that no reader has to clean it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::ERROR_TEXT_BYTES_MAX;

/// What ends a text that was cut.
pub const CUT_MARK: &str = " … (cut)";

/// A bounded error message without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorText(String);

impl ErrorText {
    /// Replaces the passwords and queries of URLs by `redacted` and what cannot be
    /// stored or shown (U+0000 and other control characters but newline and tab) by
    /// U+FFFD, and cuts at [`ERROR_TEXT_BYTES_MAX`] with [`CUT_MARK`].
    #[must_use]
    pub fn new(text: &str) -> Self {
        // No more is looked at than can be kept, many times over.
        let text = text
            .get(..text.floor_char_boundary(LOOKED_AT_MAX))
            .unwrap_or(text);
        let text = without_secrets(text);
        let room = ERROR_TEXT_BYTES_MAX - CUT_MARK.len();
        let mut kept = String::with_capacity(text.len().min(ERROR_TEXT_BYTES_MAX));
        for character in text.chars() {
            let shown = match character {
                '\n' | '\t' => character,
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            };
            if kept.len() + shown.len_utf8() > room {
                kept.push_str(CUT_MARK);
                break;
            }
            kept.push(shown);
        }
        Self(kept)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Bytes of a text that are looked at; the rest would be cut anyway.
const LOOKED_AT_MAX: usize = 16 * ERROR_TEXT_BYTES_MAX;

/// What stands for a password or a query.
const REDACTED: &str = "redacted";

/// The text with the credential and the query of every URL in it replaced.
///
/// HTTP clients put the whole URL in their errors, and with it whatever token its
/// query carries. A URL ends at white space, a quote or a closing bracket.
fn without_secrets(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find("://") {
        let (before, after) = rest.split_at(place + 3);
        told.push_str(before);
        let ends = |c: char| {
            c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}')
        };
        let (url, behind) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let (place, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
        // A password may hold a slash that should have been escaped: what stands
        // before the last `@` is the credential, if it looks like one.
        match place.rsplit_once('@') {
            Some((credential, host)) if credential.contains(':') => {
                let user = credential.split(':').next().unwrap_or_default();
                told.push_str(user);
                told.push(':');
                told.push_str(REDACTED);
                told.push('@');
                told.push_str(host);
            }
            Some(_) | None => told.push_str(place),
        }
        if let Some(mark) = query.chars().next() {
            told.push(mark);
            told.push_str(REDACTED);
        }
        rest = behind;
    }
    told.push_str(rest);
    told
}

impl From<&str> for ErrorText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ErrorText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_replaced_and_lines_are_kept() {
        assert_eq!(
            ErrorText::new("a\0b\r\n\tc").as_str(),
            "a\u{fffd}b\u{fffd}\n\tc"
        );
    }

    #[test]
    fn passwords_and_queries_of_urls_are_not_kept() {
        for (text, kept) in [
            (
                "GET http://host/x?token=C3 failed",
                "GET http://host/x?redacted failed",
            ),
            (
                "(https://u:hun/ter2@h:1/v#x)",
                "(https://u:redacted@h:1/v#redacted)",
            ),
            (
                "two: a://b?c d://e:f@g",
                "two: a://b?redacted d://e:redacted@g",
            ),
            (
                "see https://example.org/@ann/1",
                "see https://example.org/@ann/1",
            ),
            ("10:15://", "10:15://"),
            ("no URL: a?b=c", "no URL: a?b=c"),
            ("x://?ü", "x://?redacted"),
        ] {
            assert_eq!(ErrorText::new(text).as_str(), kept);
        }
    }

    #[test]
    fn a_long_text_is_cut_with_a_mark_and_on_a_character() {
        let text = ErrorText::new(&"é".repeat(5 * 1024 * 1024));
        assert!(text.as_str().len() <= ERROR_TEXT_BYTES_MAX);
        assert!(text.as_str().ends_with(CUT_MARK));
    }
}
