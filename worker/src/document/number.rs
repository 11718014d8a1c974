//! The invoice's number: what follows its label and has a digit.

use super::amount;
use super::bank;
use super::date;
use super::labels::Label;
use super::sheet::{At, Cell, Hit, Sheet};
use super::validate::Candidate;

/// Characters of a number.
const LENGTH_MAX: usize = 40;

pub(super) fn find(sheet: &Sheet<'_>) -> Option<Candidate<String>> {
    let of = |wanted: Label,
              read: fn(&Sheet<'_>, At, &Cell<'_>, Hit) -> Option<Candidate<String>>| {
        let hits = sheet.labels().filter(move |(.., hit)| hit.label == wanted);
        let found: Vec<_> = hits
            .filter_map(|(at, cell, hit)| read(sheet, at, cell, hit))
            .collect();
        found
    };
    let labelled = of(Label::Number, labelled);
    if labelled.is_empty() {
        Candidate::agreed(of(Label::Title, titled))
    } else {
        Candidate::agreed(labelled)
    }
}

fn labelled(sheet: &Sheet<'_>, at: At, cell: &Cell<'_>, hit: Hit) -> Option<Candidate<String>> {
    let rest = cell.after(hit);
    if !rest.is_empty() {
        let (value, end) = leading(rest)?;
        let text = rest.get(..end)?.to_owned();
        return Some(Candidate { value, text, at });
    }
    let right = sheet.right(at).and_then(|(at, cell)| take(at, cell));
    right.or_else(|| {
        let only = cell.is_only(hit).then_some(at)?;
        sheet.alone_below(only, take)
    })
}

/// A title has its number after it and nothing more, or below it when that is
/// marked as a number or the title is the head of a column.
fn titled(sheet: &Sheet<'_>, at: At, cell: &Cell<'_>, hit: Hit) -> Option<Candidate<String>> {
    if !hit.leads || cell.hits.len() > 1 {
        return None;
    }
    let rest = cell.after(hit);
    let is_year =
        |value: &str| value.len() == 4 && (value.starts_with("19") || value.starts_with("20"));
    let fits =
        |candidate: &Candidate<String>| candidate.value.len() >= 3 && !is_year(&candidate.value);
    if !rest.is_empty() {
        let value = exact(rest)?;
        let text = rest.to_owned();
        return Some(Candidate { value, text, at }).filter(fits);
    }
    let heads = sheet.rows.get(at.row)?.cells.iter();
    let heads = heads
        .filter(|cell| cell.hits.iter().any(|hit| cell.is_only(*hit)))
        .count();
    if let Some(right) = sheet.right(at).and_then(|(at, cell)| take(at, cell)) {
        return Some(right).filter(fits);
    }
    let (_, value) = sheet.below(at)?;
    let marked = value.text.trim_start().starts_with('#');
    if !marked && heads < 3 {
        return None;
    }
    sheet.alone_below(at, take).filter(fits)
}

fn take(at: At, cell: &Cell<'_>) -> Option<Candidate<String>> {
    let value = exact(cell.text)?;
    let text = cell.text.to_owned();
    Some(Candidate { value, text, at })
}

/// A text that is a number and nothing else.
fn exact(text: &str) -> Option<String> {
    let (value, end) = leading(text)?;
    text.get(end..)?.trim().is_empty().then_some(value)
}

/// The number with which a text begins, and where it ends.
pub(super) fn leading(text: &str) -> Option<(String, usize)> {
    if date::leading(text).is_some() || amount::has_mark_and_number(text) || bank::is_iban(text) {
        return None;
    }
    let start = text.find(|c: char| !c.is_whitespace() && !matches!(c, '#' | ':' | '°' | 'º'))?;
    let mut words = Vec::new();
    for word in text
        .get(start..)?
        .split_inclusive(char::is_whitespace)
        .take(2)
    {
        words.push(word);
    }
    let first = words.first()?.trim_end();
    if let Some(number) = shaped(first) {
        return Some((number.to_owned(), start + number.len()));
    }
    // A short series in capitals stands apart: "F 1234/12".
    let series =
        (1..=4).contains(&first.len()) && first.bytes().all(|byte| byte.is_ascii_uppercase());
    let lead = words.first()?.len();
    let number = shaped(words.get(1)?.trim_end()).filter(|_| series)?;
    Some((format!("{first} {number}"), start + lead + number.len()))
}

/// Letters, digits and what parts them, with a digit; no amount.
fn shaped(word: &str) -> Option<&str> {
    let word = word.trim_end_matches(['.', ',', ';', ':', ')']);
    let fits = word.len() <= LENGTH_MAX
        && word.starts_with(char::is_alphanumeric)
        && word.contains(|c: char| c.is_ascii_digit())
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '/' | '_' | '.' | '#' | '\\'))
        && !amount::has_money(word);
    fits.then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_digit_and_is_nothing_else() {
        let read = |text: &str| leading(text).map(|(value, _)| value);
        for (text, value) in [
            ("4711", "4711"),
            ("# INV-2024/17", "INV-2024/17"),
            ("INV/2023/03/0008", "INV/2023/03/0008"),
            ("F 1234K20/12/7", "F 1234K20/12/7"),
            ("17 du 3 avril 2024", "17"),
            ("2024-17, page 1", "2024-17"),
            ("a_1", "a_1"),
        ] {
            assert_eq!(read(text).as_deref(), Some(value), "{text}");
        }
        for text in [
            "",
            "must be quoted",
            "12.50",
            "2024-04-03",
            "€ 5",
            "12,50 EUR",
            "NL91 ABNA 0417 1643 00",
            "x@y1.com",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
