//! What the tools give fits their schemas, and the note.

use serde_json::{Value, json};

use crate::document::{
    DraftParameters, ExtractOutput, ExtractParameters, Field, ValidateOutput, ValidateParameters,
    draft, schema, validate,
};
use crate::extract::{Extracted, lines_of};

const TEXT: &str = "Sold by: Sample Trading Ltd\nInvoice no. A-17   Date: 2024-04-03\nNet amount   100.00\nVAT   20.00\n\
                    Grand total   €121.00";

fn fits(schema: &Value, value: &Value) -> bool {
    let validator = jsonschema::draft202012::new(schema).expect("the schema is one");
    validator.is_valid(value)
}

fn validated(required: &[Field]) -> ValidateOutput {
    let parameters = ValidateParameters {
        required: required.to_vec(),
        locale: None,
    };
    validate(&lines_of(TEXT), false, &parameters)
}

#[test]
fn real_outputs_fit_their_schemas() {
    let extracted = ExtractOutput::from(Extracted {
        text: TEXT.to_owned(),
        pages: 1,
        media_type: "text/plain".to_owned(),
        truncated: false,
        lines: lines_of(TEXT),
        lines_truncated: false,
    });
    let validated = validated(&Field::ALL);
    let note = draft(&validated);
    for (schema, output) in [
        (schema::extract_output(), json!(extracted)),
        (schema::validate_output(), json!(validated)),
        (schema::draft_output(), json!(note)),
    ] {
        assert!(jsonschema::meta::is_valid(&schema));
        assert!(fits(&schema, &output), "{output}");
        let mut more = output.clone();
        more["more"] = json!(1);
        assert!(!fits(&schema, &more));
    }
}

#[test]
fn parameters_are_read_as_their_schemas_say() {
    let hash = format!("sha256:{}", "0a".repeat(32));
    let extract = schema::extract_parameters();
    let validate = schema::validate_parameters();
    let draft = schema::draft_parameters();
    let read = |schema: &Value, value: &Value| -> bool {
        let value = value.clone();
        if schema == &extract {
            serde_json::from_value::<ExtractParameters>(value).is_ok()
        } else if schema == &validate {
            serde_json::from_value::<ValidateParameters>(value).is_ok()
        } else {
            serde_json::from_value::<DraftParameters>(value).is_ok()
        }
    };
    for (schema, value, good) in [
        (&extract, json!({"document": {"blob": hash}}), true),
        (&extract, json!({}), true),
        (&extract, json!({"text": "x"}), false),
        (
            &extract,
            json!({"text": "x", "document": {"blob": hash}}),
            false,
        ),
        (
            &extract,
            json!({"text": "x", "send_to": "a@b.example"}),
            false,
        ),
        (
            &extract,
            json!({"document": {"blob": hash, "path": "/etc"}}),
            false,
        ),
        (
            &validate,
            json!({"required": ["iban", "total_amount"], "locale": "de-DE"}),
            true,
        ),
        (&validate, json!({"required": []}), true),
        (&validate, json!({"required": ["password"]}), false),
        (&validate, json!({"locale": "de-DE"}), false),
        (&validate, json!({"required": [], "url": "x"}), false),
        (&draft, json!({}), true),
        (&draft, json!({"to": "a@b.example"}), false),
    ] {
        assert_eq!(fits(schema, &value), good, "{value}");
        assert_eq!(read(schema, &value), good, "{value}");
    }
    // What only the schema refuses.
    assert!(!fits(&extract, &json!({"document": {"blob": "sha256:0a"}})));
    assert!(!fits(&validate, &json!({"required": [], "locale": "x"})));
}

#[test]
fn a_note_tells_what_is_found_missing_and_wrong_and_asks() {
    let required = [
        Field::TotalAmount,
        Field::Iban,
        Field::InvoiceNumber,
        Field::Iban,
    ];
    let note = draft(&validated(&required)).note;
    assert_eq!(
        note,
        "Review of a supplier's document\n\
         \n\
         Found in the document:\n\
         - invoice number: A-17\n\
         - total amount: 121.00\n\
         \n\
         Not found:\n\
         - IBAN\n\
         \n\
         Checks that failed:\n\
         - total amount: it is 121.00, net amount and tax amount make 120.00\n\
         \n\
         Questions to the supplier:\n\
         - What is the IBAN of this document?\n\
         - Please explain the total of 121.00: net amount and tax amount make 120.00.\n"
    );
    assert_eq!(draft(&validated(&required)).note, note);
}

#[test]
fn a_note_without_findings_says_so() {
    let text = "Invoice no. A-17";
    let parameters = ValidateParameters {
        required: vec![Field::InvoiceNumber],
        locale: None,
    };
    let note = draft(&validate(&lines_of(text), false, &parameters)).note;
    assert!(
        note.ends_with("\nNothing is missing and no check failed.\n"),
        "{note}"
    );
}
