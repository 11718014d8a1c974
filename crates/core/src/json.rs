//! Is this text a JSON value that Fencepost accepts, and what is its canonical form?
//!
//! Owns the rules beyond the grammar: bounded depth, no duplicate keys, no
//! U+0000. Values are never turned into numbers of a fixed width: a number is
//! its text, so that every digit survives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits::JSON_DEPTH_MAX;

/// Why a JSON text is not accepted. The text itself is never repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// Not JSON, or a string that no UTF-8 text can hold (a lone surrogate).
    #[error("is not valid JSON (or holds a lone surrogate)")]
    Malformed,
    /// Nested too deeply.
    #[error("is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    /// The same key twice in one object: readers disagree which one counts.
    #[error("has a duplicate key in one of its objects")]
    DuplicateKey,
    /// U+0000, which not every database can hold.
    #[error("holds the character U+0000")]
    Nul,
}

/// The canonical form: object keys sorted, strings in their shortest escape,
/// numbers by their text, no spaces.
///
/// # Errors
/// [`JsonFault`].
pub fn canonical(text: &str) -> Result<String, JsonFault> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| JsonFault::Malformed)?;
    let mut out = String::with_capacity(text.len());
    write_canonical(raw, 1, &mut out)?;
    Ok(out)
}

fn write_canonical(raw: &RawValue, depth: usize, out: &mut String) -> Result<(), JsonFault> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = parse(text)?;
            let mut sorted = BTreeMap::new();
            for (key, value) in &members {
                if key.contains('\0') {
                    return Err(JsonFault::Nul);
                }
                if sorted.insert(key.as_ref(), *value).is_some() {
                    return Err(JsonFault::DuplicateKey);
                }
            }
            deeper(depth)?;
            out.push('{');
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key, out)?;
                out.push(':');
                write_canonical(value, depth + 1, out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let Items(items) = parse(text)?;
            deeper(depth)?;
            out.push('[');
            for (index, value) in items.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(value, depth + 1, out)?;
            }
            out.push(']');
        }
        Some(b'"') => {
            let string: Cow<'_, str> = parse::<Text<'_>>(text)?.0;
            if string.contains('\0') {
                return Err(JsonFault::Nul);
            }
            write_string(&string, out)?;
        }
        // A number or a word: its own text is its canonical form.
        _ => out.push_str(text),
    }
    Ok(())
}

fn deeper(depth: usize) -> Result<(), JsonFault> {
    if depth > JSON_DEPTH_MAX {
        return Err(JsonFault::TooDeep);
    }
    Ok(())
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, JsonFault> {
    serde_json::from_str(text).map_err(|_| JsonFault::Malformed)
}

fn write_string(string: &str, out: &mut String) -> Result<(), JsonFault> {
    let quoted = serde_json::to_string(string).map_err(|_| JsonFault::Malformed)?;
    out.push_str(&quoted);
    Ok(())
}

#[derive(Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object's members in order, duplicates kept.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(key), value)) = map.next_entry::<Text<'de>, &RawValue>()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

struct Items<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<&RawValue>()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_spaces_and_escapes_do_not_matter() {
        let one = canonical(r#"{"b": [1, 2], "a": "\u0041\/"}"#).unwrap();
        assert_eq!(one, r#"{"a":"A/","b":[1,2]}"#);
        assert_eq!(canonical(r#"{"a":"A/","b":[1,2]}"#).unwrap(), one);
    }

    #[test]
    fn numbers_keep_every_digit() {
        for number in [
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "123456789012345678901234567890",
            "-9223372036854775809",
            "0.1",
            "1e2",
            "1.0",
            "-0",
            "1e308",
            "1e309",
            "1e-400",
        ] {
            assert_eq!(canonical(number).unwrap(), number);
            assert_eq!(
                canonical(&format!("{{\"n\":{number}}}")).unwrap(),
                format!("{{\"n\":{number}}}")
            );
        }
        assert_ne!(canonical("1"), canonical("1.0"));
    }

    #[test]
    fn what_readers_disagree_about_is_refused() {
        assert_eq!(
            canonical(r#"{"a":1,"\u0061":2}"#),
            Err(JsonFault::DuplicateKey)
        );
        assert_eq!(canonical(r#"["a\u0000b"]"#), Err(JsonFault::Nul));
        assert_eq!(canonical(r#"{"\u0000":1}"#), Err(JsonFault::Nul));
        assert_eq!(canonical(r#""\ud800""#), Err(JsonFault::Malformed));
        for text in ["", "{", "01", "1 2", "NaN", "{a:1}", "[1,]", "\u{feff}1"] {
            assert_eq!(canonical(text), Err(JsonFault::Malformed), "{text:?}");
        }
    }

    #[test]
    fn depth_is_bounded_without_recursion_beyond_it() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(canonical(&nested(JSON_DEPTH_MAX)).is_ok());
        assert_eq!(
            canonical(&nested(JSON_DEPTH_MAX + 1)),
            Err(JsonFault::TooDeep)
        );
        assert_eq!(canonical(&nested(1_000_000)), Err(JsonFault::TooDeep));
    }
}
