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
    /// Replaces what cannot be stored or shown (U+0000 and other control
    /// characters but newline and tab) by U+FFFD, and cuts at
    /// [`ERROR_TEXT_BYTES_MAX`] with [`CUT_MARK`].
    #[must_use]
    pub fn new(text: &str) -> Self {
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
    fn a_long_text_is_cut_with_a_mark_and_on_a_character() {
        let text = ErrorText::new(&"é".repeat(5 * 1024 * 1024));
        assert!(text.as_str().len() <= ERROR_TEXT_BYTES_MAX);
        assert!(text.as_str().ends_with(CUT_MARK));
    }
}
