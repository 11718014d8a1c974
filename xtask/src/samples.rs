//! `cargo xtask samples`: how many fields of real documents are found.
//!
//! Owns the reading of a folder of documents, each with the fields that a
//! person wrote down beside it, and what counts as right. The documents stay
//! where they are; the table is for the reader and no check depends on it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fencepost_worker::document::{Field, ValidateParameters, validate};
use fencepost_worker::extract::{Extracted, Extractor};
use serde_json::Value;

/// The fields of the samples, and what they are called here.
const FIELDS: [(&str, Field); 7] = [
    ("issuer", Field::Issuer),
    ("invoice_number", Field::InvoiceNumber),
    ("date", Field::Date),
    ("amount", Field::TotalAmount),
    ("currency", Field::Currency),
    ("vat", Field::VatNumber),
    ("iban", Field::Iban),
];

/// What became of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Right,
    Wrong,
    NotFound,
}

#[derive(Debug, Default)]
struct Count {
    listed: usize,
    in_text: usize,
    right: usize,
    right_in_text: usize,
    wrong: usize,
}

/// Compares every document of a folder that has a `.json` beside it.
///
/// # Errors
/// When a file cannot be read or parsed, or there is no document.
pub(crate) async fn run(folder: &Path) -> Result<()> {
    // It is built into the same folder as this program.
    let guard = std::env::current_exe()?.with_file_name("fencepost");
    if !guard.is_file() {
        bail!(
            "{} is missing: build it with `cargo build`",
            guard.display()
        );
    }
    let extractor = Extractor::new(guard, vec!["extract-guard".to_owned()]);
    let mut count = Count::default();
    let documents = documents(folder)?;
    if documents.is_empty() {
        bail!(
            "{} holds no document with a .json beside it",
            folder.display()
        );
    }
    for document in documents {
        let bytes = fs::read(&document).with_context(|| document.display().to_string())?;
        let beside = document.with_extension("json");
        let expected = fs::read(&beside).with_context(|| beside.display().to_string())?;
        let expected: Value = serde_json::from_slice(&expected)?;
        let expected = expected.get(0).unwrap_or(&expected);
        println!("{}", document.file_name().unwrap_or_default().display());
        match extractor.extract(bytes.into()).await {
            Ok(extracted) => print!("{}", compare(&extracted, expected, &mut count)),
            Err(error) => println!("  {error}"),
        }
    }
    println!(
        "{} fields listed: {} right, {} wrong, {} not found",
        count.listed,
        count.right,
        count.wrong,
        count.listed - count.right - count.wrong
    );
    println!(
        "{} of them are in the text: {} right ({} %)",
        count.in_text,
        count.right_in_text,
        (100 * count.right_in_text)
            .checked_div(count.in_text)
            .unwrap_or(0)
    );
    Ok(())
}

fn documents(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut documents = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if !is_json && path.with_extension("json").is_file() {
            documents.push(path);
        }
    }
    documents.sort();
    Ok(documents)
}

/// Says of each listed field what became of it.
fn compare(extracted: &Extracted, expected: &Value, count: &mut Count) -> String {
    let validated = validate(
        &extracted.lines,
        extracted.lines_truncated,
        &ValidateParameters::default(),
    );
    let mut lines = String::new();
    for (name, field) in FIELDS {
        let Some(wanted) = expected.get(name).and_then(words) else {
            continue;
        };
        let found = validated.found.iter().find(|found| found.field == field);
        let value = found.map(|found| found.value.as_str());
        let outcome = outcome(field, &wanted, value);
        let is_in_text = is_in_text(field, &wanted, extracted, outcome);
        count.listed += 1;
        count.in_text += usize::from(is_in_text);
        count.right += usize::from(outcome == Outcome::Right);
        count.right_in_text += usize::from(outcome == Outcome::Right && is_in_text);
        count.wrong += usize::from(outcome == Outcome::Wrong);
        let says = match outcome {
            Outcome::Right => "found right",
            Outcome::Wrong => "found wrong",
            Outcome::NotFound => "not found",
        };
        let told = value.map_or_else(String::new, |value| format!("  found: {value}"));
        let absent = if is_in_text {
            ""
        } else {
            "  (not in the text)"
        };
        writeln!(
            lines,
            "  {name:<15} {says:<12} listed: {wanted}{told}{absent}"
        )
        .unwrap_or_default();
    }
    lines
}

fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn outcome(field: Field, wanted: &str, value: Option<&str>) -> Outcome {
    let Some(value) = value else {
        return Outcome::NotFound;
    };
    let right = match field {
        Field::Issuer => {
            let value = name_words(value);
            name_words(wanted).iter().all(|word| value.contains(word))
        }
        Field::TotalAmount | Field::NetAmount | Field::TaxAmount => {
            hundredths(value).is_some() && hundredths(value) == hundredths(wanted)
        }
        // The country may stand before the number or not.
        Field::VatNumber => squeezed(value).ends_with(&squeezed(wanted)),
        Field::InvoiceNumber
        | Field::Date
        | Field::DueDate
        | Field::Currency
        | Field::Iban
        | Field::Bic => squeezed(value) == squeezed(wanted),
    };
    if right {
        Outcome::Right
    } else {
        Outcome::Wrong
    }
}

/// Whether a reader of the text could know the value: it stands there, in
/// whatever form, or it was found.
fn is_in_text(field: Field, wanted: &str, extracted: &Extracted, outcome: Outcome) -> bool {
    if outcome == Outcome::Right {
        return true;
    }
    match field {
        Field::Issuer => {
            let text = name_words(&extracted.text);
            name_words(wanted).iter().all(|word| text.contains(word))
        }
        Field::Date | Field::DueDate => {
            // Day and year stand near each other, the month in some form.
            let mut parts = wanted.split('-');
            let (year, day) = (parts.next().unwrap_or(""), parts.next_back().unwrap_or(""));
            let day = day.trim_start_matches('0');
            extracted.text.lines().any(|line| {
                let numbers = line.split(|c: char| !c.is_ascii_digit());
                let numbers: Vec<&str> = numbers.map(|word| word.trim_start_matches('0')).collect();
                numbers.contains(&year) && numbers.contains(&day)
            })
        }
        Field::TotalAmount | Field::NetAmount | Field::TaxAmount => {
            let digits = hundredths(wanted).map(|cents| format!("{:03}", cents.unsigned_abs()));
            digits.is_some_and(|digits| digits_of(&extracted.text).contains(&digits))
        }
        // A sign says it as well as the code, where the sign is of one currency.
        Field::Currency => {
            let signs: &[&str] = match wanted {
                "EUR" => &["EUR", "€", "Euro"],
                "USD" => &["USD", "US$", "US Dollar"],
                "GBP" => &["GBP", "£"],
                "PLN" => &["PLN", "zł"],
                "INR" => &["INR", "₹", "Rs"],
                code => &[code],
            };
            signs.iter().any(|sign| extracted.text.contains(sign))
        }
        Field::InvoiceNumber | Field::VatNumber | Field::Iban | Field::Bic => {
            squeezed(&extracted.text).contains(&squeezed(wanted))
        }
    }
}

/// The digits of each word, all others left out.
fn digits_of(text: &str) -> Vec<String> {
    let words = text.split(char::is_whitespace);
    words
        .map(|word| word.chars().filter(char::is_ascii_digit).collect())
        .collect()
}

fn squeezed(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .collect::<String>()
        .to_uppercase()
}

/// The words of a name, but what form of company it is, which has many spellings.
fn name_words(name: &str) -> Vec<String> {
    let lower = name.to_lowercase().replace("spółka akcyjna", "");
    let words = lower.split_whitespace();
    let words = words.map(|word| {
        word.chars()
            .filter(|c| c.is_alphanumeric())
            .collect::<String>()
    });
    words
        .filter(|word| {
            !word.is_empty() && !["bv", "sa", "inc", "ltd", "gmbh", "sas"].contains(&word.as_str())
        })
        .collect()
}

/// A decimal in hundredths.
fn hundredths(text: &str) -> Option<i64> {
    let (units, cents) = text.split_once('.').unwrap_or((text, ""));
    let cents = format!("{cents:0<2}");
    format!("{units}{}", cents.get(..2)?).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_by_what_they_mean() {
        let right = |field, wanted, value| outcome(field, wanted, Some(value)) == Outcome::Right;
        assert!(
            right(Field::TotalAmount, "4.1", "4.10")
                && right(Field::TotalAmount, "319.0", "319.00")
        );
        assert!(!right(Field::TotalAmount, "4.11", "41.10"));
        assert!(right(
            Field::Issuer,
            "sample trading",
            "Sample Trading B.V."
        ));
        assert!(!right(Field::Issuer, "sample trading", "Sample"));
        assert!(
            right(Field::InvoiceNumber, "#A-1", "A-1") && !right(Field::InvoiceNumber, "A", "A-1")
        );
        assert!(right(Field::VatNumber, "123", "NL123") && !right(Field::VatNumber, "123", "1234"));
        assert_eq!(outcome(Field::Date, "2024-01-02", None), Outcome::NotFound);
    }
}
