//! The tools together, on invented documents.

mod hostile;
mod invoices;
mod outputs;
mod traps;

use super::{Field, ValidateParameters, validate};
use crate::extract::lines_of;

/// What is found in a text, by the names of the fields.
fn found(text: &str) -> Vec<(String, String)> {
    found_with(text, None)
}

fn found_with(text: &str, locale: Option<&str>) -> Vec<(String, String)> {
    let parameters = ValidateParameters {
        required: Field::ALL.to_vec(),
        locale: locale.map(str::to_owned),
    };
    let validated = validate(&lines_of(text), false, &parameters);
    let found = validated.found.into_iter();
    found
        .map(|found| (found.field.to_string(), found.value))
        .collect()
}

/// The value of one field.
fn value(text: &str, field: Field) -> Option<String> {
    let found = found(text).into_iter();
    found
        .filter(|(name, _)| name == field.name())
        .map(|(_, value)| value)
        .next()
}

#[track_caller]
fn assert_found(text: &str, expected: &[(&str, &str)]) {
    let found = found(text);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(field, value)| (field.as_str(), value.as_str()))
        .collect();
    assert_eq!(found, expected);
}
