//! `draft`: a note for the clerk, who reads it, edits it and sends it herself.
//!
//! The same fields give the same note. It holds no text of the document beyond
//! the values that were found.

use std::fmt::Write as _;

use super::tools::{Check, CheckName, DraftOutput, Field, ValidateOutput};

/// Writes the note of what was validated.
#[must_use]
pub fn draft(validated: &ValidateOutput) -> DraftOutput {
    let failed: Vec<&Check> = validated
        .checks
        .iter()
        .filter(|check| !check.passed)
        .collect();
    let mut sections = Vec::new();
    let found = validated.required.iter().filter_map(|field| {
        let found = validated.found.iter().find(|found| found.field == *field)?;
        Some(format!("{}: {}", field.words(), found.value))
    });
    sections.push(("Found in the document", found.collect::<Vec<_>>()));
    let missing = validated
        .missing
        .iter()
        .map(|field| field.words().to_owned());
    sections.push(("Not found", missing.collect()));
    sections.push((
        "Checks that failed",
        failed.iter().map(|check| failure(check)).collect(),
    ));
    let questions = validated.missing.iter().map(|field| question(*field));
    let questions = questions.chain(failed.iter().map(|check| doubt(check)));
    sections.push(("Questions to the supplier", questions.collect()));

    let mut note = "Review of a supplier's document\n".to_owned();
    for (title, lines) in &sections {
        if lines.is_empty() {
            continue;
        }
        line(&mut note, &format!("\n{title}:"));
        for text in lines {
            line(&mut note, &format!("- {text}"));
        }
    }
    if validated.truncated {
        line(
            &mut note,
            "\nThe document is longer than what was read; its last pages were not looked at.",
        );
    }
    if validated.missing.is_empty() && failed.is_empty() {
        line(&mut note, "\nNothing is missing and no check failed.");
    }
    DraftOutput { note }
}

fn line(note: &mut String, text: &str) {
    writeln!(note, "{text}").unwrap_or_default();
}

fn failure(check: &Check) -> String {
    let (stated, expected) = (&check.stated, &check.expected);
    match check.check {
        CheckName::IbanCheckDigits => {
            format!("IBAN: its check digits are {stated}, they would have to be {expected}")
        }
        CheckName::VatCheckDigits => {
            format!("VAT number: its check digits are {stated}, they would have to be {expected}")
        }
        CheckName::NetPlusTax => {
            format!("total amount: it is {stated}, net amount and tax amount make {expected}")
        }
        CheckName::DateOrder => {
            format!("due date: it is {stated}, before the invoice date {expected}")
        }
    }
}

fn question(field: Field) -> String {
    match field {
        Field::Issuer => "Which company issues this document?".to_owned(),
        Field::Currency => "Which currency are the amounts in?".to_owned(),
        Field::InvoiceNumber
        | Field::Date
        | Field::DueDate
        | Field::NetAmount
        | Field::TaxAmount
        | Field::TotalAmount
        | Field::VatNumber
        | Field::Iban
        | Field::Bic => format!("What is the {} of this document?", field.words()),
    }
}

fn doubt(check: &Check) -> String {
    match check.check {
        CheckName::IbanCheckDigits => {
            "Please confirm the IBAN: its check digits are not right.".to_owned()
        }
        CheckName::VatCheckDigits => {
            "Please confirm the VAT number: its check digits are not right.".to_owned()
        }
        CheckName::NetPlusTax => format!(
            "Please explain the total of {}: net amount and tax amount make {}.",
            check.stated, check.expected
        ),
        CheckName::DateOrder => format!(
            "Please confirm the due date {}: it is before the invoice date {}.",
            check.stated, check.expected
        ),
    }
}
