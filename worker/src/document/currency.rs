//! Which currency a document is in.
//!
//! A code or a sign of one currency is evidence; a sign that several share
//! (the dollar, the crown) is one only beside a country that the text names.

use std::collections::BTreeSet;

use super::amount;
use super::labels::Label;
use super::sheet::{At, Sheet};
use super::validate::Candidate;

/// What a word says of a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Code(&'static str),
    Shared(&'static str),
}

/// Codes that are no common words in capitals.
const CODES: [&str; 34] = [
    "AED", "AUD", "BGN", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF",
    "IDR", "ILS", "INR", "ISK", "JPY", "KRW", "MXN", "MYR", "NOK", "NZD", "PHP", "PLN", "RON",
    "RSD", "RUB", "SAR", "SEK", "SGD", "THB", "USD", "ZAR",
];

const SIGNS: [(&str, Mark); 27] = [
    ("€", Mark::Code("EUR")),
    ("euro", Mark::Code("EUR")),
    ("euros", Mark::Code("EUR")),
    ("£", Mark::Code("GBP")),
    ("zł", Mark::Code("PLN")),
    ("zl", Mark::Code("PLN")),
    ("kč", Mark::Code("CZK")),
    ("₹", Mark::Code("INR")),
    ("₽", Mark::Code("RUB")),
    ("₩", Mark::Code("KRW")),
    ("₪", Mark::Code("ILS")),
    ("us$", Mark::Code("USD")),
    ("$us", Mark::Code("USD")),
    ("ca$", Mark::Code("CAD")),
    ("c$", Mark::Code("CAD")),
    ("a$", Mark::Code("AUD")),
    ("au$", Mark::Code("AUD")),
    ("nz$", Mark::Code("NZD")),
    ("s$", Mark::Code("SGD")),
    ("hk$", Mark::Code("HKD")),
    ("r$", Mark::Code("BRL")),
    ("sfr", Mark::Code("CHF")),
    ("$", Mark::Shared("$")),
    ("¥", Mark::Shared("¥")),
    ("kr", Mark::Shared("kr")),
    ("rs", Mark::Shared("rs")),
    ("fr", Mark::Shared("fr")),
];

/// A shared sign, the country beside which it is of one currency, as folded
/// words, and that currency.
const COUNTRIES: [(&str, &str, &str); 24] = [
    ("$", "united states", "USD"),
    ("$", "usa", "USD"),
    ("$", "us dollars", "USD"),
    ("$", "us dollar", "USD"),
    ("$", "canada", "CAD"),
    ("$", "australia", "AUD"),
    ("$", "new zealand", "NZD"),
    ("$", "singapore", "SGD"),
    ("$", "hong kong", "HKD"),
    ("$", "mexico", "MXN"),
    ("¥", "japan", "JPY"),
    ("¥", "china", "CNY"),
    ("kr", "sweden", "SEK"),
    ("kr", "sverige", "SEK"),
    ("kr", "norway", "NOK"),
    ("kr", "norge", "NOK"),
    ("kr", "denmark", "DKK"),
    ("kr", "danmark", "DKK"),
    ("rs", "india", "INR"),
    ("rs", "pakistan", "PKR"),
    ("rs", "sri lanka", "LKR"),
    ("rs", "nepal", "NPR"),
    ("fr", "schweiz", "CHF"),
    ("fr", "switzerland", "CHF"),
];

/// Reads a word as a currency's.
pub(super) fn mark(word: &str) -> Option<Mark> {
    let word = word.trim_matches(|c: char| matches!(c, '.' | ',' | ':' | ';' | '(' | ')' | '*'));
    if let Some(code) = CODES.iter().find(|code| **code == word) {
        return Some(Mark::Code(code));
    }
    let small = word.to_lowercase();
    let found = SIGNS.iter().find(|(sign, _)| *sign == small);
    found.map(|(_, mark)| *mark)
}

/// The currency: what it is labelled with, or else the only one there is, or
/// else the one of the total.
pub(super) fn find(sheet: &Sheet<'_>, total: Option<At>) -> Option<Candidate<&'static str>> {
    let countries = countries(sheet);
    let mut labelled: Vec<Candidate<&'static str>> = Vec::new();
    for (at, cell, hit) in sheet
        .labels()
        .filter(|(.., hit)| hit.label == Label::Currency)
    {
        let rest = cell.after(hit);
        let near = if rest.is_empty() {
            let right = sheet.right(at).filter(|(_, cell)| cell.hits.is_empty());
            right.or_else(|| sheet.below(at).filter(|_| cell.is_only(hit)))
        } else {
            None
        };
        let (at, text) = near.map_or((at, rest), |(at, cell)| (at, cell.text));
        if let Some(value) = mark(text).and_then(|mark| resolved(mark, &countries)) {
            labelled.push(Candidate {
                value,
                text: text.to_owned(),
                at,
            });
        }
    }
    if let Some(only) = Candidate::agreed(labelled) {
        return Some(only);
    }
    let mut seen: Vec<Candidate<&'static str>> = Vec::new();
    for (at, cell) in sheet.cells() {
        for (text, mark) in amount::marks(cell.text) {
            match resolved(mark, &countries) {
                Some(value) => seen.push(Candidate {
                    value,
                    text: text.to_owned(),
                    at,
                }),
                // A sign of who knows which currency, beside an amount.
                None if amount::has_money(cell.text) => {
                    seen.push(Candidate {
                        value: "",
                        text: text.to_owned(),
                        at,
                    });
                }
                None => {}
            }
        }
    }
    let of_total = seen
        .iter()
        .find(|candidate| Some(candidate.at) == total)
        .cloned();
    Candidate::agreed(seen)
        .or(of_total)
        .filter(|candidate| !candidate.value.is_empty())
}

fn resolved(
    mark: Mark,
    countries: &BTreeSet<(&'static str, &'static str)>,
) -> Option<&'static str> {
    match mark {
        Mark::Code(code) => Some(code),
        Mark::Shared(sign) => {
            let mut of_sign = countries.iter().filter(|(shared, _)| *shared == sign);
            let (_, code) = of_sign.next()?;
            of_sign.next().is_none().then_some(*code)
        }
    }
}

/// For each shared sign the currencies that the text speaks for.
fn countries(sheet: &Sheet<'_>) -> BTreeSet<(&'static str, &'static str)> {
    let mut found = BTreeSet::new();
    for (_, cell) in sheet.cells() {
        let words = cell.words.iter().map(|word| word.folded.as_str());
        let singles = words.clone().map(str::to_owned);
        let pairs = words
            .clone()
            .zip(words.skip(1))
            .map(|(a, b)| format!("{a} {b}"));
        for phrase in singles.chain(pairs) {
            for (sign, country, code) in COUNTRIES {
                if phrase == country {
                    found.insert((sign, code));
                }
            }
        }
        for (_, mark) in amount::marks(cell.text) {
            if let Mark::Code(code) = mark {
                for (sign, _, of_sign) in COUNTRIES {
                    if of_sign == code {
                        found.insert((sign, of_sign));
                    }
                }
            }
        }
    }
    found
}
