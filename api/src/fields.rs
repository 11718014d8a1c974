//! The members of a JSON object, read one by one and by name.
//!
//! Values stay the text that was sent until someone asks for them as
//! something, so every refusal can name its field and no number passes through
//! a double. A member sent as `null` counts as not sent. What nobody asked for
//! is refused at the end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use fencepost_core::time::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::{ApiError, Code, shown};

/// An object's members by name.
#[derive(Debug)]
pub(crate) struct Fields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Reads an object; `what` names it in refusals.
    pub(crate) fn read(what: &str, text: &'a str) -> Result<Self, ApiError> {
        let malformed = || ApiError::invalid(format!("{what} is not valid JSON"));
        let value: &RawValue = serde_json::from_str(text).map_err(|_| malformed())?;
        if !value.get().starts_with('{') {
            return Err(ApiError::invalid(format!("{what} must be a JSON object")));
        }
        let Members(members) = serde_json::from_str(value.get()).map_err(|_| malformed())?;
        let mut fields = BTreeMap::new();
        for (name, value) in members {
            if let Some(_first) = fields.insert(name.clone(), value) {
                let name = shown(&name);
                return Err(ApiError::invalid(format!("`{name}` is there twice")));
            }
        }
        Ok(Self(fields))
    }

    /// A member as sent, `null` too.
    pub(crate) fn raw(&mut self, name: &'static str) -> Option<&'a RawValue> {
        self.0.remove(name)
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, ApiError> {
        self.typed(name, "a text")
    }

    /// A truth value.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "true or false")
    }

    /// A whole number within bounds, both included.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, ApiError> {
        let refused = || {
            ApiError::invalid(format!(
                "`{name}` must be a whole number from {least} to {most}"
            ))
        };
        let Some(value) = self.sent(name) else {
            return Ok(None);
        };
        let number: u64 = serde_json::from_str(value.get()).map_err(|_| refused())?;
        if !(least..=most).contains(&number) {
            return Err(refused());
        }
        Ok(Some(number))
    }

    /// An instant.
    pub(crate) fn time(&mut self, name: &'static str) -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        Timestamp::parse(&text)
            .map(Some)
            .map_err(|error| ApiError::invalid(format!("`{name}`: {error}")))
    }

    /// Refuses what nobody asked for.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        let Some(name) = self.0.into_keys().next() else {
            return Ok(());
        };
        Err(refuse_unknown("field", &name))
    }

    fn sent(&mut self, name: &'static str) -> Option<&'a RawValue> {
        self.raw(name).filter(|value| value.get() != "null")
    }

    fn typed<T: Deserialize<'a>>(
        &mut self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.sent(name) else {
            return Ok(None);
        };
        serde_json::from_str(value.get())
            .map(Some)
            .map_err(|_| ApiError::invalid(format!("`{name}` must be {expected}")))
    }
}

/// Refuses a field or parameter that there is not. Tenant and owner are never
/// taken from a request: to name them is to ask for what only a credential gives.
pub(crate) fn refuse_unknown(what: &str, name: &str) -> ApiError {
    if matches!(name, "tenant" | "owner") {
        return ApiError::new(
            Code::Forbidden,
            format!(
                "`{name}` comes from the credential and is never read from a request: leave it out"
            ),
        );
    }
    ApiError::invalid(format!("there is no {what} `{}`", shown(name)))
}

/// An object's members in order, repeated names kept.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

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
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_twice_is_refused_however_it_is_spelt() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#] {
            let error = format!("{:?}", Fields::read("the body", text).unwrap_err());
            assert!(error.contains("`a` is there twice"), "{error}");
        }
    }

    #[test]
    fn null_counts_as_not_sent_and_wrong_types_name_their_field() {
        let mut fields = Fields::read("the body", r#"{"a":null,"b":"x","c":1.0,"d":-1}"#).unwrap();
        assert_eq!(fields.number("a", 0, 9).unwrap(), None);
        assert!(format!("{:?}", fields.flag("b").unwrap_err()).contains("`b`"));
        for name in ["c", "d"] {
            let error = format!("{:?}", fields.number(name, 0, 9).unwrap_err());
            assert!(error.contains(name), "{error}");
        }
        fields.finish().unwrap();
    }

    #[test]
    fn only_a_json_object_is_one() {
        for text in [
            "",
            "[]",
            "\"a\"",
            "1",
            "null",
            "{",
            "{}}",
            "{\"\\ud800\":1}",
        ] {
            assert!(Fields::read("the body", text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_nobody_asked_for_is_refused() {
        let unknown = Fields::read("the body", r#"{"colour":1}"#).unwrap();
        assert!(format!("{:?}", unknown.finish().unwrap_err()).contains("`colour`"));
        let foreign = Fields::read("the body", r#"{"tenant":"b"}"#).unwrap();
        let refused = foreign.finish().unwrap_err();
        assert_eq!(refused.status(), 403);
    }
}
