//! The settings file: from its text to values by their keys.

use std::collections::BTreeMap;
use std::path::Path;

use super::table::{TABLE, find};
use super::{SettingsError, kinds};

/// The settings file, flattened.
pub(super) struct File {
    pub(super) values: BTreeMap<String, String>,
    pub(super) defaults: kinds::Policy,
    pub(super) kinds: BTreeMap<String, kinds::KindText>,
}

impl File {
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, SettingsError> {
        // The first line of the parser's text says where; the rest repeats the
        // file, which may hold a secret.
        let malformed = |error: toml::de::Error| {
            let line = error.span().map(|span| {
                let before = text.get(..span.start).unwrap_or_default();
                before.matches('\n').count() + 1
            });
            let place = line
                .map(|line| format!("line {line}: "))
                .unwrap_or_default();
            SettingsError::File {
                path: path.to_owned(),
                reason: format!("{place}{}", error.message()),
            }
        };
        let mut table: toml::Table = toml::from_str(text).map_err(malformed)?;
        let mut section = |name: &str| {
            table
                .remove(name)
                .unwrap_or_else(|| toml::Table::new().into())
        };
        let defaults = fitting("defaults", section("defaults"), path)?;
        let kinds = fitting("kinds", section("kinds"), path)?;
        let mut values = BTreeMap::new();
        flatten("", table, &mut values);
        for key in values.keys() {
            if find(key).is_none() {
                let hint = nearest(key)
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                return Err(SettingsError::Unknown {
                    path: path.to_owned(),
                    key: key.clone(),
                    hint,
                });
            }
        }
        Ok(Self {
            values,
            defaults,
            kinds,
        })
    }
}

/// Reads a table into its shape; what does not fit is named by its place.
fn fitting<T: serde::de::DeserializeOwned>(
    name: &str,
    table: toml::Value,
    path: &Path,
) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(table).map_err(|error| {
        let place = match error.path().to_string().as_str() {
            "." => name.to_owned(),
            within => format!("{name}.{within}"),
        };
        SettingsError::Bad {
            key: place,
            given_by: path.display().to_string(),
            found: "what does not fit".to_owned(),
            expected: error.inner().message().to_owned(),
        }
    })
}

fn flatten(prefix: &str, table: toml::Table, values: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match &value {
            toml::Value::Table(inner) => flatten(&format!("{key}."), inner.clone(), values),
            toml::Value::String(text) => drop(values.insert(key, text.clone())),
            toml::Value::Array(items) => {
                let words = items.iter().map(|item| {
                    item.as_str()
                        .map_or_else(|| item.to_string(), str::to_owned)
                });
                values.insert(key, words.collect::<Vec<_>>().join(","));
            }
            toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_) => {
                values.insert(key, value.to_string());
            }
        }
    }
}

/// The known key that shares the longest beginning, when it is most of it.
fn nearest(key: &str) -> Option<&'static str> {
    let shared = |known: &str| {
        known
            .bytes()
            .zip(key.bytes())
            .take_while(|(a, b)| a == b)
            .count()
    };
    TABLE
        .iter()
        .map(|definition| definition.key)
        .max_by_key(|known| shared(known))
        .filter(|known| shared(known) * 2 > known.len())
}
