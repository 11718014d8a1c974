//! The tools' JSON Schemas (draft 2020-12): of their parameters, which refuse
//! what they do not know, and of their output.

use serde_json::{Value, json};

use super::tools::Field;
use crate::extract::{CELLS_MAX, CELLS_PER_LINE_MAX, LINES_MAX};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

fn fields() -> Value {
    Field::ALL.map(Field::name).into()
}

fn object(mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.insert("$schema".to_owned(), DRAFT.into());
    }
    schema
}

/// The parameters of `extract`.
#[must_use]
pub fn extract_parameters() -> Value {
    object(json!({
        "type": "object",
        "properties": {
            "document": {
                "type": "object",
                "properties": { "blob": { "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" } },
                "required": ["blob"],
                "additionalProperties": false
            }
        },
        "additionalProperties": false
    }))
}

/// The output of `extract`.
#[must_use]
pub fn extract_output() -> Value {
    object(json!({
        "type": "object",
        "properties": {
            "media_type": { "enum": ["application/pdf", "text/plain"] },
            "pages": { "type": "integer", "minimum": 1 },
            "truncated": { "type": "boolean" },
            "lines": {
                "type": "array",
                "maxItems": LINES_MAX,
                "description": format!("at most {CELLS_MAX} cells in all"),
                "items": {
                    "type": "object",
                    "properties": {
                        "page": { "type": "integer", "minimum": 1 },
                        "line": { "type": "integer", "minimum": 1 },
                        "y": { "type": "number" },
                        "cells": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": CELLS_PER_LINE_MAX,
                            "items": {
                                "type": "object",
                                "properties": {
                                    "x": { "type": "number" },
                                    "right": { "type": "number" },
                                    "text": { "type": "string", "minLength": 1 }
                                },
                                "required": ["x", "right", "text"],
                                "additionalProperties": false
                            }
                        }
                    },
                    "required": ["page", "line", "y", "cells"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["media_type", "pages", "lines", "truncated"],
        "additionalProperties": false
    }))
}

/// The parameters of `validate`.
#[must_use]
pub fn validate_parameters() -> Value {
    object(json!({
        "type": "object",
        "properties": {
            "required": { "type": "array", "items": { "enum": fields() }, "uniqueItems": true },
            "locale": { "type": "string", "pattern": "^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,3}$" }
        },
        "required": ["required"],
        "additionalProperties": false
    }))
}

/// The output of `validate`.
#[must_use]
pub fn validate_output() -> Value {
    let some = json!({ "type": "array", "items": { "enum": fields() }, "uniqueItems": true });
    object(json!({
        "type": "object",
        "properties": {
            "required": some,
            "missing": some,
            "truncated": { "type": "boolean" },
            "found": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "field": { "enum": fields() },
                        "value": { "type": "string", "minLength": 1 },
                        "text": { "type": "string" },
                        "place": {
                            "type": "object",
                            "properties": {
                                "page": { "type": "integer", "minimum": 1 },
                                "line": { "type": "integer", "minimum": 1 },
                                "x": { "type": "number" },
                                "y": { "type": "number" }
                            },
                            "required": ["page", "line", "x", "y"],
                            "additionalProperties": false
                        }
                    },
                    "required": ["field", "value", "text", "place"],
                    "additionalProperties": false
                }
            },
            "checks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "check": { "enum": ["iban_check_digits", "vat_check_digits", "net_plus_tax", "date_order"] },
                        "passed": { "type": "boolean" },
                        "stated": { "type": "string" },
                        "expected": { "type": "string" }
                    },
                    "required": ["check", "passed", "stated", "expected"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["required", "found", "missing", "truncated", "checks"],
        "additionalProperties": false
    }))
}

/// The parameters of `draft`: none.
#[must_use]
pub fn draft_parameters() -> Value {
    object(json!({ "type": "object", "additionalProperties": false }))
}

/// The output of `draft`.
#[must_use]
pub fn draft_output() -> Value {
    object(json!({
        "type": "object",
        "properties": { "note": { "type": "string", "minLength": 1 } },
        "required": ["note"],
        "additionalProperties": false
    }))
}
