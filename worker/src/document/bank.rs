//! Where to pay: IBAN and BIC.
//!
//! The form of an IBAN by its country is the `iban_validate` crate's; one whose
//! check digits alone are wrong is still what the document says, when it is
//! labelled, and the check says so.

use iban::{Iban, IbanLike as _};

use super::labels::Label;
use super::sheet::{At, Cell, Sheet};
use super::tools::{Check, CheckName};
use super::validate::Candidate;

/// Characters of the longest IBAN.
const IBAN_MAX: usize = 34;

/// The account: of two nobody knows which is meant.
pub(super) fn find_iban(sheet: &Sheet<'_>) -> Option<Candidate<String>> {
    let mut good = Vec::new();
    let mut wrong = Vec::new();
    for (at, cell) in sheet.cells() {
        // Printed in groups it may stand in several cells.
        let mut text = cell.text.to_owned();
        let labelled = cell.has(|label| label == Label::Iban)
            || at.cell.checked_sub(1).is_some_and(|left| {
                let left = At {
                    row: at.row,
                    cell: left,
                };
                sheet
                    .cell(left)
                    .is_some_and(|cell| cell.has(|label| label == Label::Iban))
            });
        if labelled {
            for next in sheet
                .rows
                .get(at.row)
                .into_iter()
                .flat_map(|row| row.cells.iter().skip(at.cell + 1))
                .take(9)
            {
                text.push(' ');
                text.push_str(next.text);
            }
        }
        if is_debited(sheet, at) {
            continue;
        }
        for (value, text, passed) in ibans(&text) {
            let list = if passed { &mut good } else { &mut wrong };
            if passed || labelled {
                list.push(Candidate { value, text, at });
            }
        }
    }
    if good.is_empty() {
        Candidate::agreed(wrong)
    } else {
        Candidate::agreed(good)
    }
}

/// Whether the words around say that the account is the reader's, from which
/// somebody takes the money.
fn is_debited(sheet: &Sheet<'_>, at: At) -> bool {
    #[rustfmt::skip]
    const WORDS: [&str; 33] = [
        "your", "debit", "debited", "mandate", "ihr", "ihre", "ihrem", "ihres", "lastschrift", "abgebucht", "eingezogen", "abbuchung",
        "einzug", "lastschriftverfahren", "mandat", "votre", "prelevement", "preleve", "prelevee", "preleves", "uw",
        "incasso", "afgeschreven", "mandaat", "vostro", "addebito", "addebitato", "su", "adeudo", "domiciliacion", "cargo", "polecenie",
        "pobrane",
    ];
    let from = at.row.saturating_sub(1);
    let rows = sheet.rows.iter().skip(from).take(at.row - from + 1);
    rows.flat_map(|row| &row.cells)
        .flat_map(|cell| &cell.words)
        .any(|word| WORDS.contains(&word.folded.as_str()))
}

/// The IBANs of a text, each with whether its check digits are right.
fn ibans(text: &str) -> Vec<(String, String, bool)> {
    let mut found = Vec::new();
    let mut boundary = true;
    let mut until = 0;
    for (start, c) in text.char_indices() {
        if boundary
            && start >= until
            && c.is_ascii_uppercase()
            && let Some((value, end, passed)) = text.get(start..).and_then(iban_at)
        {
            found.push((
                value,
                text.get(start..start + end).unwrap_or("").to_owned(),
                passed,
            ));
            until = start + end;
        }
        boundary = !c.is_alphanumeric();
    }
    found
}

/// The IBAN with which a text begins.
fn iban_at(text: &str) -> Option<(String, usize, bool)> {
    let mut bare = String::new();
    let mut found = None;
    let mut gap = 0;
    for (index, c) in text.char_indices() {
        if c == ' ' || c == '\u{a0}' || c == '-' || c == '.' {
            gap += 1;
            if gap > 2 {
                break;
            }
            continue;
        }
        if !c.is_ascii_alphanumeric() || bare.len() == IBAN_MAX {
            break;
        }
        gap = 0;
        bare.push(c.to_ascii_uppercase());
        let digits = bare.len() != 4 || bare.bytes().skip(2).all(|byte| byte.is_ascii_digit());
        if !digits {
            return None;
        }
        let end = index + 1;
        let ends = !text.get(end..)?.starts_with(|c: char| c.is_alphanumeric());
        if bare.len() >= 15 && ends {
            let right = computed(&bare)?;
            let of_form = bare.get(..2)?.to_owned() + &right + bare.get(4..)?;
            if of_form.parse::<Iban>().is_ok() {
                found = Some((bare.clone(), end, of_form == bare));
            }
        }
    }
    found
}

/// The check digits that an IBAN must have (ISO 7064, modulus 97).
fn computed(iban: &str) -> Option<String> {
    let moved = iban
        .get(4..)?
        .chars()
        .chain(iban.get(..2)?.chars())
        .chain("00".chars());
    let remainder = moved.fold(0, |remainder, c| {
        let value = c.to_digit(36).unwrap_or(0);
        let shift = if value > 9 { 100 } else { 10 };
        (remainder * shift + value) % 97
    });
    Some(format!("{:02}", 98 - remainder))
}

pub(super) fn is_iban(text: &str) -> bool {
    iban_at(text.trim_start()).is_some()
}

pub(super) fn check_iban(value: &str) -> Option<Check> {
    let stated = value.get(2..4)?.to_owned();
    let expected = computed(value)?;
    let passed = value
        .parse::<Iban>()
        .is_ok_and(|iban| iban.electronic_str() == value);
    Some(Check {
        check: CheckName::IbanCheckDigits,
        passed,
        stated,
        expected,
    })
}

/// The bank's code, where it is labelled.
pub(super) fn find_bic(sheet: &Sheet<'_>) -> Option<Candidate<String>> {
    let mut found = Vec::new();
    for (at, cell, hit) in sheet.labels().filter(|(.., hit)| hit.label == Label::Bic) {
        let rest = cell.after(hit);
        let mut take = |at: At, text: &str| {
            let word = text.split_whitespace().next().unwrap_or("");
            let word = word.trim_end_matches([',', ';', '.', ')']);
            let value = bic(word);
            found.extend(value.map(|value| Candidate {
                value,
                text: word.to_owned(),
                at,
            }));
        };
        if !rest.is_empty() {
            take(at, rest);
            continue;
        }
        let single = |(_, cell): &(At, &Cell<'_>)| cell.hits.is_empty() && !cell.text.contains(' ');
        let right = sheet.right(at).filter(single);
        let below = || sheet.below(at).filter(|_| cell.is_only(hit)).filter(single);
        if let Some((at, cell)) = right.or_else(below) {
            take(at, cell.text);
        }
    }
    Candidate::agreed(found)
}

/// ISO 9362: bank, country, place, and a branch or none.
fn bic(word: &str) -> Option<String> {
    let fits = matches!(word.len(), 8 | 11)
        && word.bytes().enumerate().all(|(index, byte)| {
            byte.is_ascii_uppercase() || (byte.is_ascii_digit() && index >= 6)
        });
    let country = word.get(4..6)?;
    (fits && COUNTRIES.contains(&country)).then(|| word.to_owned())
}

/// Countries whose banks send invoices' payments; a word in capitals seldom has one here.
const COUNTRIES: [&str; 62] = [
    "AD", "AE", "AL", "AT", "AU", "BA", "BE", "BG", "BR", "CA", "CH", "CN", "CY", "CZ", "DE", "DK",
    "EE", "ES", "FI", "FR", "GB", "GI", "GR", "HK", "HR", "HU", "IE", "IL", "IN", "IS", "IT", "JP",
    "KR", "LI", "LT", "LU", "LV", "MC", "MD", "ME", "MK", "MT", "MX", "NL", "NO", "NZ", "PL", "PT",
    "RO", "RS", "SA", "SE", "SG", "SI", "SK", "SM", "TR", "UA", "US", "VA", "XK", "ZA",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iban_is_found_in_groups_and_in_text() {
        // From the examples of ISO 13616's registry.
        for text in [
            "NL91ABNA0417164300",
            "IBAN: NL91 ABNA 0417 1643 00.",
            "to NL91-ABNA-0417-1643-00 please",
        ] {
            let found = ibans(text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(
                (found[0].0.as_str(), found[0].2),
                ("NL91ABNA0417164300", true)
            );
        }
        let two = ibans("DE89 3704 0044 0532 0130 00 or FR1420041010050500013M02606");
        assert_eq!(two.len(), 2);
    }

    #[test]
    fn wrong_check_digits_are_told_with_the_right_ones() {
        let found = ibans("NL19ABNA0417164300");
        assert_eq!((found.len(), found[0].2), (1, false));
        let check = check_iban("NL19ABNA0417164300").unwrap();
        assert_eq!(
            (check.passed, check.stated.as_str(), check.expected.as_str()),
            (false, "19", "91")
        );
        assert!(check_iban("NL91ABNA0417164300").unwrap().passed);
    }

    #[test]
    fn what_has_not_the_form_of_its_country_is_no_iban() {
        for text in [
            "US1234567890",
            "FR76 ****",
            "INV2024000000000017",
            "NL91ABNA041716430",
            "NL91ABNA04171643001",
            "DE00",
        ] {
            assert_eq!(ibans(text), [], "{text}");
        }
        let long = "DE89 ".repeat(10_000);
        assert_eq!(ibans(&long), []);
    }

    #[test]
    fn a_bic_names_a_country() {
        assert_eq!(bic("ABNANL2A").as_deref(), Some("ABNANL2A"));
        assert_eq!(bic("DEUTDEFF500").as_deref(), Some("DEUTDEFF500"));
        for word in ["DEUTSCHE", "ABNANL2", "abnanl2a", "ABNAXX2A", "IBAN", ""] {
            assert_eq!(bic(word), None, "{word}");
        }
    }
}
