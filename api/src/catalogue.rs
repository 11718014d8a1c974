//! The kinds that are accepted, with their schemas compiled once at the start.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::id::{KindName, QueueName};
use fencepost_core::kind::{Kind, Kinds};
use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::LocationSegment;
use serde_json::Value;

use crate::problem::{ApiError, shown};
use crate::state::StartError;

/// The kinds by name.
#[derive(Debug)]
pub(crate) struct Catalogue(BTreeMap<KindName, Entry>);

/// A kind and the schema of its payloads.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    schema: Option<Validator>,
}

impl Catalogue {
    /// Compiles every schema. Nothing is fetched: the JSON Schema library is
    /// built without its resolvers, so a reference to elsewhere is an error here.
    pub(crate) fn compile(kinds: &Kinds) -> Result<Self, StartError> {
        let entry = |kind: &Kind| {
            let compile = |schema| {
                jsonschema::validator_for(schema).map_err(|error| StartError::Schema {
                    kind: kind.name.clone(),
                    reason: error.to_string(),
                })
            };
            let schema = kind.schema.as_ref().map(compile).transpose()?;
            Ok((
                kind.name.clone(),
                Entry {
                    kind: kind.clone(),
                    schema,
                },
            ))
        };
        kinds.iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// The queues that kinds wait in.
    pub(crate) fn queues(&self) -> BTreeSet<QueueName> {
        self.0
            .values()
            .map(|entry| entry.kind.queue.clone())
            .collect()
    }

    /// The kind of this name.
    pub(crate) fn get(&self, name: &str) -> Result<&Entry, ApiError> {
        let found = KindName::new(name).ok().and_then(|name| self.0.get(&name));
        found.ok_or_else(|| {
            ApiError::invalid(format!("`kind`: `{}` is not configured here", shown(name)))
        })
    }
}

impl Entry {
    /// Checks a payload against the schema. The refusal names the place and the
    /// rule, and never repeats the value.
    pub(crate) fn check(&self, payload: &str) -> Result<(), ApiError> {
        let Some(schema) = &self.schema else {
            return Ok(());
        };
        // A schema reads numbers as doubles; what none can hold is refused
        // rather than checked as something else.
        let mut reader = serde_json::Deserializer::from_str(payload);
        let value: Value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let place = match error.path().to_string().as_str() {
                "." => "payload".to_owned(),
                path => format!("payload.{}", shown(path)),
            };
            ApiError::invalid(format!(
                "{place} is beyond the numbers that the schema of its kind can check"
            ))
        })?;
        schema.validate(&value).map_err(|error| {
            let mut place = "payload".to_owned();
            for segment in error.instance_path() {
                match segment {
                    LocationSegment::Property(name) => {
                        place.push('.');
                        place.push_str(&name);
                    }
                    LocationSegment::Index(index) => place = format!("{place}[{index}]"),
                }
            }
            let place = shown(&place);
            let rule = error.schema_path();
            let name = &self.kind.name;
            // The name of a missing property is the schema's, not the client's.
            let missing = if let ValidationErrorKind::Required { property } = error.kind() {
                format!(" {property} is missing;")
            } else {
                String::new()
            };
            ApiError::invalid(format!(
                "{place}:{missing} does not fit the schema of kind `{name}` at {rule}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::kind::Runner;
    use serde_json::json;

    fn kinds(schema: Value) -> Kinds {
        let mut kind = Kind::new(
            KindName::new("order").unwrap(),
            QueueName::new("default").unwrap(),
            Runner::Registered,
        );
        kind.schema = Some(schema);
        Kinds::new([kind])
    }

    /// What is said of a payload; nothing when it fits.
    fn check(schema: Value, payload: &str) -> String {
        let catalogue = Catalogue::compile(&kinds(schema)).unwrap();
        let entry = catalogue.get("order").unwrap();
        let refused = entry.check(payload).err();
        refused.map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_bad_schema_is_an_error_that_names_its_kind() {
        for bad in [
            json!({"type": "no such type"}),
            json!({"$ref": "https://example.com/schema.json"}),
            json!({"$ref": "file:///etc/passwd"}),
        ] {
            let error = Catalogue::compile(&kinds(bad)).unwrap_err().to_string();
            assert!(error.contains("`order`"), "{error}");
        }
    }

    #[test]
    fn a_violation_names_the_place_and_never_the_value() {
        let schema = json!({
            "type": "object", "required": ["n"],
            "properties": {"n": {"type": "integer"}, "list": {"items": {"maxLength": 3}}},
        });
        for (payload, place) in [
            (r#"{"n":"hunter2"}"#, "payload.n:"),
            (r#"{"n":1,"list":["a","hunter2"]}"#, "payload.list[1]:"),
            (r#"{"hunter2":1}"#, "payload: \"n\" is missing"),
            (r#""hunter2""#, "payload:"),
        ] {
            let error = check(schema.clone(), payload);
            assert!(error.contains(place), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert_eq!(check(schema, r#"{"n":9007199254740993}"#), "");
    }

    #[test]
    fn a_number_that_a_schema_cannot_check_is_refused_by_its_place() {
        let error = check(json!({}), r#"{"a":{"n":[1,1e309]}}"#);
        assert!(error.contains("payload.a.n[1] is beyond"), "{error}");
        let error = check(json!({}), "1e309");
        assert!(error.contains("payload is beyond"), "{error}");
    }
}
