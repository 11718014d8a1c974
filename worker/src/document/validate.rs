//! `validate`: the fields of a document and whether they agree.

use jiff::civil::Date;

use crate::extract::Line;

use super::amount::{Amount, Decimals};
use super::amounts::Amounts;
use super::date::Order;
use super::sheet::{At, Sheet};
use super::tools::{Check, CheckName, Field, FieldFound, ValidateOutput, ValidateParameters};
use super::{amounts, bank, currency, dates, issuer, number, vat};

/// Characters of a field's text that are kept: a line of a page.
const TEXT_MAX: usize = 120;

/// A value that the document may mean, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate<T> {
    pub(super) value: T,
    pub(super) text: String,
    pub(super) at: At,
}

impl<T: PartialEq> Candidate<T> {
    /// The first of candidates that say the same; none when they do not.
    pub(super) fn agreed(candidates: Vec<Self>) -> Option<Self> {
        let mut candidates = candidates.into_iter();
        let first = candidates.next()?;
        candidates
            .all(|other| other.value == first.value)
            .then_some(first)
    }
}

/// Finds the fields of a document's lines and checks them. Pure; never fails:
/// what is not there, or is ambiguous, is missing. `truncated` says that the
/// document has more lines than these.
#[must_use]
pub fn validate(
    lines: &[Line],
    truncated: bool,
    parameters: &ValidateParameters,
) -> ValidateOutput {
    let sheet = Sheet::new(lines);
    let (order, decimals) = habits(parameters.locale.as_deref());
    let amounts = if truncated {
        Amounts::default()
    } else {
        amounts::find(&sheet, decimals)
    };
    let dates = dates::find(&sheet, order);
    let vat = vat::find(&sheet);
    let iban = bank::find_iban(&sheet);
    let currency = currency::find(&sheet, amounts.total.as_ref().map(|total| total.at));

    let mut checks = Vec::new();
    checks.extend(iban.as_ref().and_then(|iban| bank::check_iban(&iban.value)));
    checks.extend(vat.as_ref().and_then(|vat| vat::check(&vat.value)));
    checks.extend(check_sum(&amounts));
    checks.extend(check_order(&dates));

    let found = |field: Field| -> Option<FieldFound> {
        let amount = |candidate: Option<&Candidate<Amount>>| {
            text(&sheet, field, candidate, |amount| amount.text.clone())
        };
        let date =
            |candidate: Option<&Candidate<Date>>| text(&sheet, field, candidate, Date::to_string);
        let words =
            |candidate: Option<&Candidate<String>>| text(&sheet, field, candidate, String::clone);
        match field {
            Field::Issuer => words(issuer::find(&sheet).as_ref()),
            Field::InvoiceNumber => words(number::find(&sheet).as_ref()),
            Field::Date => date(dates.date.as_ref()),
            Field::DueDate => date(dates.due.as_ref()),
            Field::Currency => text(&sheet, field, currency.as_ref(), |code| (*code).to_owned()),
            Field::NetAmount => amount(amounts.net.as_ref()),
            Field::TaxAmount => amount(amounts.tax.as_ref()),
            Field::TotalAmount => amount(amounts.total.as_ref()),
            Field::VatNumber => text(&sheet, field, vat.as_ref(), |vat| vat.value.clone()),
            Field::Iban => words(iban.as_ref()),
            Field::Bic => words(bank::find_bic(&sheet).as_ref()),
        }
    };
    let found: Vec<FieldFound> = Field::ALL.into_iter().filter_map(found).collect();
    let required = in_order(&parameters.required);
    let is_found = |field: &Field| found.iter().any(|found| found.field == *field);
    ValidateOutput {
        missing: required
            .iter()
            .copied()
            .filter(|field| !is_found(field))
            .collect(),
        required,
        found,
        truncated,
        checks,
    }
}

/// The fields once each, in the order of [`Field::ALL`].
fn in_order(fields: &[Field]) -> Vec<Field> {
    Field::ALL
        .into_iter()
        .filter(|field| fields.contains(field))
        .collect()
}

fn text<T>(
    sheet: &Sheet<'_>,
    field: Field,
    candidate: Option<&Candidate<T>>,
    value: impl Fn(&T) -> String,
) -> Option<FieldFound> {
    let candidate = candidate?;
    Some(FieldFound {
        field,
        value: value(&candidate.value),
        text: candidate.text.chars().take(TEXT_MAX).collect(),
        place: sheet.place(candidate.at)?,
    })
}

/// How the people of a place write dates and decimals, as far as it is known.
fn habits(locale: Option<&str>) -> (Order, Decimals) {
    let Some(locale) = locale else {
        return (Order::Unknown, Decimals::Unknown);
    };
    let mut parts = locale.split(['-', '_']);
    let language = parts.next().unwrap_or("").to_ascii_lowercase();
    let region = parts.next_back().unwrap_or("").to_ascii_uppercase();
    match (language.as_str(), region.as_str()) {
        ("en", "US") => (Order::MonthFirst, Decimals::Point),
        ("en", "GB" | "IE" | "AU" | "NZ" | "IN" | "ZA") => (Order::DayFirst, Decimals::Point),
        ("en", _) => (Order::Unknown, Decimals::Point),
        ("de" | "fr" | "it", "CH" | "LI") | ("es", "MX" | "US" | "PR") => {
            (Order::DayFirst, Decimals::Point)
        }
        (
            "de" | "fr" | "nl" | "it" | "es" | "pl" | "pt" | "da" | "nb" | "no" | "fi" | "cs"
            | "sk" | "sl" | "hr" | "ro" | "el",
            _,
        ) => (Order::DayFirst, Decimals::Comma),
        _ => (Order::Unknown, Decimals::Unknown),
    }
}

fn check_sum(amounts: &Amounts) -> Option<Check> {
    let (net, tax, total) = (
        amounts.net.as_ref()?,
        amounts.tax.as_ref()?,
        amounts.total.as_ref()?,
    );
    let sum = net.value.hundredths.checked_add(tax.value.hundredths)?;
    Some(Check {
        check: CheckName::NetPlusTax,
        passed: sum == total.value.hundredths,
        stated: total.value.text.clone(),
        expected: Amount::of(sum).text,
    })
}

fn check_order(dates: &dates::Dates) -> Option<Check> {
    let (date, due) = (dates.date.as_ref()?.value, dates.due.as_ref()?.value);
    Some(Check {
        check: CheckName::DateOrder,
        passed: date <= due,
        stated: due.to_string(),
        expected: date.to_string(),
    })
}
