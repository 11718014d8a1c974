//! The issuer's VAT number.
//!
//! Owns the forms by country (European Commission, VIES) and the check digits
//! of those whose rule is published and short. A number of no known form is
//! not found.

use super::labels::Label;
use super::party::Party;
use super::sheet::{At, Cell, Hit, Sheet};
use super::tools::{Check, CheckName};
use super::validate::Candidate;

/// Country and form: `9` a digit, `A` a letter, `*` either, others themselves.
const FORMS: [(&str, &str); 45] = [
    ("AT", "U99999999"),
    ("BE", "9999999999"),
    ("BG", "9999999999"),
    ("BG", "999999999"),
    ("CHE", "999999999"),
    ("CY", "99999999A"),
    ("CZ", "9999999999"),
    ("CZ", "999999999"),
    ("CZ", "99999999"),
    ("DE", "999999999"),
    ("DK", "99999999"),
    ("EE", "999999999"),
    ("EL", "999999999"),
    ("ES", "A99999999"),
    ("ES", "A9999999A"),
    ("ES", "99999999A"),
    ("FI", "99999999"),
    ("FR", "**999999999"),
    ("GB", "999999999999"),
    ("GB", "999999999"),
    ("HR", "99999999999"),
    ("HU", "99999999"),
    ("IE", "9999999AA"),
    ("IE", "9*99999A"),
    ("IT", "99999999999"),
    ("LT", "999999999999"),
    ("LT", "999999999"),
    ("LU", "99999999"),
    ("LV", "99999999999"),
    ("MT", "99999999"),
    ("NL", "999999999B99"),
    ("NO", "999999999MVA"),
    ("PL", "9999999999"),
    ("PT", "999999999"),
    ("RO", "9999999999"),
    ("RO", "999999999"),
    ("RO", "99999999"),
    ("RO", "9999999"),
    ("RO", "999999"),
    ("SE", "999999999999"),
    ("SI", "99999999"),
    ("SK", "9999999999"),
    ("XI", "999999999999"),
    ("XI", "999999999"),
    ("NO", "999999999"),
];

/// A VAT number, its country if that is only known from the label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VatNumber {
    pub(super) value: String,
    country: &'static str,
    /// Without the prefix of its country.
    body: String,
}

pub(super) fn find(sheet: &Sheet<'_>) -> Option<Candidate<VatNumber>> {
    let mut sellers = Vec::new();
    let mut others = Vec::new();
    for (at, cell, hit) in sheet.labels() {
        let country = match hit.label {
            Label::Tax => None,
            Label::Vat(country) => country,
            Label::Number
            | Label::Title
            | Label::Date
            | Label::AnyDate
            | Label::Due
            | Label::Total
            | Label::AnyTotal
            | Label::Net
            | Label::AnyNet
            | Label::BuyerVat
            | Label::Iban
            | Label::Bic
            | Label::Currency
            | Label::Seller
            | Label::Buyer
            | Label::Register
            | Label::Other => continue,
        };
        let found = beside(sheet, at, cell, hit, country);
        match cell.party {
            Some(Party::Buyer) => {}
            Some(Party::Seller) => sellers.extend(found),
            None => others.extend(found),
        }
    }
    if sellers.is_empty() {
        Candidate::agreed(others)
    } else {
        Candidate::agreed(sellers)
    }
}

fn beside(
    sheet: &Sheet<'_>,
    at: At,
    cell: &Cell<'_>,
    hit: Hit,
    country: Option<&'static str>,
) -> Option<Candidate<VatNumber>> {
    let take = |at: At, text: &str| {
        let (value, end) = read(text, country)?;
        let text = text.get(..end)?.to_owned();
        Some(Candidate { value, text, at })
    };
    // A label may begin in the middle of its name: "VAT (EU) no".
    let rest = cell.after(hit);
    if !rest.is_empty() {
        return take(at, rest.trim_start_matches(|c: char| !c.is_alphanumeric()));
    }
    if cell.hits.iter().any(|other| other.start >= hit.end) {
        return None;
    }
    let right = sheet.right(at).filter(|(_, cell)| cell.hits.is_empty());
    right
        .and_then(|(at, cell)| take(at, cell.text))
        .or_else(|| {
            let below = sheet.below(at).filter(|_| cell.is_only(hit));
            below.and_then(|(at, cell)| take(at, cell.text))
        })
}

/// The VAT number with which a text begins, and where it ends.
fn read(text: &str, country: Option<&'static str>) -> Option<(VatNumber, usize)> {
    for (of, form) in FORMS {
        if let Some((all, end)) = matched(text, of, form) {
            let body = all.get(of.len()..)?.to_owned();
            return Some((
                VatNumber {
                    value: all,
                    country: of,
                    body,
                },
                end,
            ));
        }
    }
    FORMS
        .iter()
        .filter(|(of, _)| Some(*of) == country)
        .find_map(|(of, form)| {
            let (body, end) = matched(text, "", form)?;
            Some((
                VatNumber {
                    value: body.clone(),
                    country: of,
                    body,
                },
                end,
            ))
        })
}

/// Matches a form, with single spaces, points or hyphens anywhere in it.
fn matched(text: &str, prefix: &str, form: &str) -> Option<(String, usize)> {
    let mut bare = String::new();
    let mut rest = text.char_indices().peekable();
    let mut end = 0;
    for wanted in prefix.chars().chain(form.chars()) {
        let mut gaps = 0;
        while !bare.is_empty()
            && gaps < 3
            && rest
                .next_if(|(_, c)| matches!(c, ' ' | '.' | '-' | '\u{a0}'))
                .is_some()
        {
            gaps += 1;
        }
        let (index, c) = rest.next()?;
        // Letters of the form come after those of the prefix.
        let literal = bare.len() < prefix.len();
        let fits = match wanted {
            '9' if !literal => c.is_ascii_digit(),
            'A' if !literal => c.is_ascii_uppercase(),
            '*' if !literal => c.is_ascii_digit() || c.is_ascii_uppercase(),
            wanted => c == wanted,
        };
        if !fits {
            return None;
        }
        bare.push(c);
        end = index + 1;
    }
    let ends = !text.get(end..)?.starts_with(|c: char| c.is_alphanumeric());
    ends.then_some((bare, end))
}

/// The check digits, where the rule of the country is known.
pub(super) fn check(number: &VatNumber) -> Option<Check> {
    let (stated, expected) = digits(number.country, &number.body)?;
    let mut passed = stated == expected;
    if number.country == "NL" {
        // Since 2020 also ISO 7064, modulus 97, over the whole number.
        passed |= modulus_97(&format!("NL{}", number.body)) == 1;
    }
    Some(Check {
        check: CheckName::VatCheckDigits,
        passed,
        stated,
        expected,
    })
}

fn modulus_97(text: &str) -> u32 {
    text.chars().fold(0, |remainder, c| {
        let value = c.to_digit(36).unwrap_or(0);
        (remainder * if value > 9 { 100 } else { 10 } + value) % 97
    })
}

/// The check digits as they are and as they should be.
fn digits(country: &str, body: &str) -> Option<(String, String)> {
    let of = |from: usize, to: usize| -> Option<Vec<u64>> {
        let part = body.get(from..to)?.chars();
        part.map(|c| c.to_digit(10).map(u64::from)).collect()
    };
    let number = |from: usize, to: usize| body.get(from..to)?.parse::<u64>().ok();
    let one = |at: usize, expected: Option<u64>| {
        let stated = body.get(at..=at)?.to_owned();
        // No digit would do: then any other number would have been given out.
        let expected = expected.map_or_else(|| "none".to_owned(), |digit| digit.to_string());
        Some((stated, expected))
    };
    let two = |from: usize, expected: u64| {
        let stated = body.get(from..from + 2)?.to_owned();
        Some((stated, format!("{expected:02}")))
    };
    match country {
        "AT" => one(8, Some((10 - (double(&of(1, 8)?, 1) + 4) % 10) % 10)),
        "BE" => two(8, 97 - number(0, 8)? % 97),
        "DE" => {
            let product = of(0, 8)?.iter().fold(10, |product, digit| {
                let sum = (digit + product) % 10;
                2 * (if sum == 0 { 10 } else { sum }) % 11
            });
            one(8, Some((11 - product) % 10))
        }
        "FI" => one(
            7,
            eleven(weighted(&of(0, 7)?, &[7, 9, 10, 5, 8, 4, 2]), true),
        ),
        "FR" => {
            // Keys with letters follow another rule.
            number(0, 2)?;
            two(0, (12 + 3 * (number(2, 11)? % 97)) % 97)
        }
        "IT" => one(10, Some((10 - double(&of(0, 10)?, 1) % 10) % 10)),
        "LU" => two(6, number(0, 6)? % 89),
        "NL" => {
            let rest = weighted(&of(0, 8)?, &[9, 8, 7, 6, 5, 4, 3, 2]) % 11;
            one(8, (rest < 10).then_some(rest))
        }
        "PL" => {
            let rest = weighted(&of(0, 9)?, &[6, 5, 7, 2, 3, 4, 5, 6, 7]) % 11;
            one(9, (rest < 10).then_some(rest))
        }
        "PT" => one(
            8,
            eleven(weighted(&of(0, 8)?, &[9, 8, 7, 6, 5, 4, 3, 2]), false),
        ),
        "SE" => one(9, Some((10 - double(&of(0, 9)?, 0) % 10) % 10)),
        _ => None,
    }
}

fn weighted(digits: &[u64], weights: &[u64]) -> u64 {
    digits
        .iter()
        .zip(weights)
        .map(|(digit, weight)| digit * weight)
        .sum()
}

/// Eleven less the rest; a rest of one has no digit, or zero.
fn eleven(sum: u64, refuses_ten: bool) -> Option<u64> {
    match sum % 11 {
        1 if refuses_ten => None,
        0 | 1 => Some(0),
        rest => Some(11 - rest),
    }
}

/// The sum of digits, every second doubled (Luhn), from the one of this parity.
fn double(digits: &[u64], parity: usize) -> u64 {
    let doubled = digits.iter().enumerate().map(|(index, digit)| {
        let value = if index % 2 == parity {
            2 * digit
        } else {
            *digit
        };
        value / 10 + value % 10
    });
    doubled.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_digits_agree_with_numbers_that_are_published() {
        for number in [
            "ATU13585627",
            "BE0428759497",
            "DE136695976",
            "FI20774740",
            "FR40303265045",
            "IT00743110157",
            "LU15027442",
            "NL004495445B01",
            "PL8567346215",
            "PT501964843",
            "SE556188840401",
        ] {
            let (read, end) = read(number, None).unwrap();
            assert_eq!((read.value.as_str(), end), (number, number.len()));
            let check = check(&read).unwrap();
            assert!(check.passed, "{number}: {check:?}");
        }
    }

    #[test]
    fn one_wrong_digit_is_noticed() {
        for number in [
            "ATU13585628",
            "BE0428759498",
            "DE136695978",
            "FI20774741",
            "FR41303265045",
            "IT00743110158",
            "LU15027443",
            "NL004495446B01",
            "PL8567346216",
            "PT501964844",
            "SE556188840501",
        ] {
            let (read, _) = read(number, None).unwrap();
            let check = check(&read).unwrap();
            assert!(
                !check.passed && check.stated != check.expected,
                "{number}: {check:?}"
            );
        }
    }

    #[test]
    fn spaces_are_left_out_and_other_forms_are_none() {
        let value = |text: &str, country| read(text, country).map(|(number, _)| number.value);
        assert_eq!(
            value("DE 136 695 976", None).as_deref(),
            Some("DE136695976")
        );
        assert_eq!(
            value("BE 0428.759.497 RPR", None).as_deref(),
            Some("BE0428759497")
        );
        assert_eq!(
            value("774-00-01-454", Some("PL")).as_deref(),
            Some("7740001454")
        );
        assert_eq!(
            value("CHE-123.456.788 MWST", None).as_deref(),
            Some("CHE123456788")
        );
        for text in [
            "21% of 100.00",
            "NL00333599698",
            "123456789",
            "DE1366959761",
            "de136695976",
            "XX123456789",
            "",
        ] {
            assert_eq!(value(text, None), None, "{text}");
        }
    }
}
