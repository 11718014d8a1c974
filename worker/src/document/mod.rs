//! What a clerk's work on a supplier's document is made of: `extract` its
//! lines, [`validate()`] the fields that are required, [`draft()`] a note.
//!
//! Three tools, each with typed parameters and output and their JSON Schemas
//! ([`schema`]). `extract` parses in the guard (see [`crate::extract`]); the
//! other two are pure functions. Owns how a field is recognised: by its label,
//! its form, its check digits and where it stands, never by who sent it. It
//! keeps one rule above all: a wrong value is worse than none, so what is
//! ambiguous is not found. No text of a document occurs in an error or a log.

mod amount;
mod amounts;
mod bank;
mod currency;
mod date;
mod dates;
mod draft;
mod input;
mod issuer;
mod labels;
mod number;
mod party;
pub mod plan;
pub mod schema;
mod sheet;
mod tools;
mod validate;
mod vat;

pub use draft::draft;
pub(crate) use input::Input;
pub use tools::{
    BlobRef, Check, CheckName, DraftOutput, DraftParameters, ExtractOutput, ExtractParameters,
    Field, FieldFound, Place, ValidateOutput, ValidateParameters,
};
pub use validate::validate;

#[cfg(test)]
mod tests;
