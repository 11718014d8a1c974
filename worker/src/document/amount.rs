//! Amounts as documents print them.
//!
//! Owns the formats: `1.234,56`, `1,234.56`, `1 234,56`, `1'234.56`,
//! `1,23,456.00`; a sign before or after, brackets. An amount is an integer of
//! hundredths and never a float. What can be read in two ways (`1.234`) is read
//! by how the document writes its other amounts, or not at all.

use super::currency::{self, Mark};

/// Digits of an amount: a quadrillion, far from where an `i64` ends.
const DIGITS_MAX: usize = 15;

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount {
    /// In hundredths.
    pub(super) hundredths: i64,
    /// As printed, with a point before the decimals and no grouping.
    pub(super) text: String,
}

impl Amount {
    pub(super) fn of(hundredths: i64) -> Self {
        let sign = if hundredths < 0 { "-" } else { "" };
        let size = hundredths.unsigned_abs();
        Self {
            hundredths,
            text: format!("{sign}{}.{:02}", size / 100, size % 100),
        }
    }
}

/// The mark before decimals, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decimals {
    Point,
    Comma,
    Unknown,
}

/// A cell's text, cut into numbers and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Digits with what groups them, a sign and whether `%` follows.
    Number {
        digits: &'a str,
        negative: bool,
        percent: bool,
    },
    Word(&'a str),
}

fn is_minus(c: char) -> bool {
    matches!(c, '-' | '−' | '–')
}

/// Whether at `index` a group of three digits begins that a space may set apart.
fn group_of_three(text: &str, index: usize) -> bool {
    let mut rest = text.get(index..).unwrap_or("").chars();
    (0..3).all(|_| rest.next().is_some_and(|c| c.is_ascii_digit()))
        && !rest.next().is_some_and(|c| c.is_ascii_digit())
}

/// The end of the number that begins at `start`.
fn number_end(text: &str, start: usize) -> usize {
    let mut end = start;
    // Digits since the last mark, and whether a point or comma was met.
    let (mut run, mut marked) = (0, false);
    let mut rest = text.get(start..).unwrap_or("").char_indices().peekable();
    while let Some((offset, c)) = rest.next() {
        let next = start + offset + c.len_utf8();
        let digit_follows = rest.peek().is_some_and(|(_, c)| c.is_ascii_digit());
        let grouping = matches!(c, ' ' | '\u{a0}' | '\u{202f}' | '\u{2009}');
        if c.is_ascii_digit() {
            run += 1;
            end = next;
        } else if matches!(c, '.' | ',' | '\'' | '’') && digit_follows {
            marked |= matches!(c, '.' | ',');
            run = 0;
        } else if grouping && !marked && run <= 3 && group_of_three(text, next) {
            run = 0;
        } else {
            break;
        }
    }
    end
}

/// Cuts a text into numbers and words.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut index = 0;
    while let Some(c) = text.get(index..).and_then(|rest| rest.chars().next()) {
        if c.is_whitespace() {
            index += c.len_utf8();
        } else if c.is_ascii_digit() {
            let end = number_end(text, index);
            let digits = text.get(index..end).unwrap_or("");
            let rest = text.get(end..).unwrap_or("");
            let percent = rest.trim_start().starts_with('%');
            // "9,32-" and "12,--"; a date or a number with hyphens goes on.
            let dashes = rest.chars().take_while(|c| is_minus(*c)).count();
            let ends = !rest
                .chars()
                .nth(dashes)
                .is_some_and(|c| c.is_alphanumeric() || is_minus(c));
            pieces.push(Piece::Number {
                digits,
                negative: dashes == 1 && ends,
                percent,
            });
            index = end;
            if dashes == 1 && ends {
                index += rest.chars().next().map_or(0, char::len_utf8);
            }
        } else {
            let rest = text.get(index..).unwrap_or("");
            let end = rest
                .char_indices()
                .find(|(_, c)| c.is_whitespace() || c.is_ascii_digit())
                .map_or(rest.len(), |(end, _)| end);
            let word = rest.get(..end).unwrap_or("");
            pieces.push(Piece::Word(word));
            index += end.max(1);
        }
    }
    pieces
}

/// A cell that is one amount and says nothing else but its currency and tax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Printed<'a> {
    digits: &'a str,
    negative: bool,
    has_mark: bool,
}

/// Words that may stand with an amount.
const BESIDE: [&str; 12] = [
    "ttc", "ht", "netto", "brutto", "gross", "net", "*", "**", "=", "incl", "excl", ",",
];

/// Reads a text that is one amount and nothing else.
pub(super) fn printed(text: &str) -> Option<Printed<'_>> {
    let mut found: Option<Printed<'_>> = None;
    let mut marked = false;
    let mut negative = false;
    if has_dash(text) {
        return None;
    }
    for piece in pieces(text) {
        match piece {
            Piece::Number {
                digits,
                percent: false,
                negative: after,
            } if found.is_none() => {
                found = Some(Printed {
                    digits,
                    negative: after,
                    has_mark: false,
                });
            }
            Piece::Number { .. } => return None,
            Piece::Word(word) => {
                let (bare, minus) = signed(word, found.is_some());
                negative |= minus;
                // ",-" and ",--" after whole euros.
                let whole =
                    found.is_some() && matches!(bare, ",-" | ",--" | ",–" | ",—" | ".-" | ".--");
                if bare.is_empty() || whole {
                    continue;
                }
                let trimmed = bare.trim_matches(|c| matches!(c, '.' | ':' | '(' | ')'));
                let small = trimmed.to_lowercase();
                if currency::mark(bare).is_some() {
                    marked = true;
                } else if !trimmed.is_empty() && !BESIDE.contains(&small.as_str()) {
                    return None;
                }
            }
        }
    }
    let found = found?;
    if negative && found.negative {
        return None;
    }
    Some(Printed {
        negative: found.negative || negative,
        has_mark: marked,
        ..found
    })
}

/// A word beside an amount without its sign.
fn signed(word: &str, after: bool) -> (&str, bool) {
    if after {
        return (word, false);
    }
    let bare = word
        .strip_prefix(is_minus)
        .or_else(|| word.strip_suffix(is_minus))
        .or_else(|| word.strip_prefix('('));
    bare.map_or((word, false), |bare| (bare, true))
}

/// Whether a minus stands alone: it may be a dash.
fn has_dash(text: &str) -> bool {
    text.split_whitespace()
        .any(|word| word.chars().all(is_minus))
}

impl Printed<'_> {
    /// The amount, if there is one way to read it.
    pub(super) fn read(&self, decimals: Decimals, whole: bool) -> Option<Amount> {
        let (units, cents) = split(self.digits, decimals)?;
        if units.len() > DIGITS_MAX || (cents.is_none() && !whole && !self.has_mark) {
            return None;
        }
        let size: i64 = format!("{units}{}", cents.unwrap_or("00")).parse().ok()?;
        let hundredths = if self.negative { -size } else { size };
        let sign = if hundredths < 0 { "-" } else { "" };
        let units = units.trim_start_matches('0');
        let units = if units.is_empty() { "0" } else { units };
        let text = match cents {
            Some(cents) => format!("{sign}{units}.{cents}"),
            None => format!("{sign}{units}"),
        };
        Some(Amount { hundredths, text })
    }
}

/// The units without grouping, and the hundredths if they are printed.
fn split(digits: &str, decimals: Decimals) -> Option<(String, Option<&str>)> {
    let mark = digits.rfind(['.', ',']);
    let Some(at) = mark else {
        return Some((grouped(digits, |c| !c.is_ascii_digit())?, None));
    };
    let (head, tail) = (digits.get(..at)?, digits.get(at + 1..)?);
    let mark = digits.get(at..=at)?.chars().next()?;
    let others = head.contains(|c: char| !c.is_ascii_digit());
    let same = head.contains(mark);
    if !tail.bytes().all(|byte| byte.is_ascii_digit()) {
        // "1,234 567": a point or comma and then a space.
        return None;
    }
    match (tail.len(), same) {
        (2, false) => {
            // A space before a point may part two numbers: "1 278.61".
            if mark == '.' && head.contains(' ') {
                return None;
            }
            Some((
                grouped(head, |c| c != mark && !c.is_ascii_digit())?,
                Some(tail),
            ))
        }
        (3, _) => {
            let decides = same
                || match decimals {
                    Decimals::Point => mark == ',',
                    Decimals::Comma => mark == '.',
                    Decimals::Unknown => false,
                };
            if !decides || (others && !same) || head.starts_with('0') {
                return None;
            }
            Some((grouped(digits, |c| c == mark)?, None))
        }
        _ => None,
    }
}

/// Digits in groups of three from the right (or, as in India, of two before
/// the last three), all set apart by one and the same mark.
fn grouped(digits: &str, is_mark: impl Fn(char) -> bool) -> Option<String> {
    let mut marks = digits.chars().filter(|c| !c.is_ascii_digit());
    let first = marks.next();
    if let Some(first) = first {
        if !is_mark(first) || marks.any(|mark| mark != first) {
            return None;
        }
        let groups: Vec<&str> = digits.split(first).collect();
        let (last, before) = groups.split_last()?;
        let (lead, middle) = before.split_first()?;
        let threes = middle.iter().all(|group| group.len() == 3) && (1..=3).contains(&lead.len());
        let twos = first == ','
            && !middle.is_empty()
            && middle.iter().all(|group| group.len() == 2)
            && (1..=2).contains(&lead.len());
        if last.len() != 3 || !(threes || twos) {
            return None;
        }
    }
    let bare: String = digits.chars().filter(char::is_ascii_digit).collect();
    (!bare.is_empty()).then_some(bare)
}

/// How the document writes decimals: by the amounts that can be read in one way.
pub(super) fn decimals<'a>(texts: impl Iterator<Item = &'a str>, hint: Decimals) -> Decimals {
    let (mut points, mut commas) = (false, false);
    for text in texts {
        for piece in pieces(text) {
            if let Piece::Number {
                digits,
                percent: false,
                ..
            } = piece
                && let Some((_, Some(_))) = split(digits, Decimals::Unknown)
            {
                let point = digits.rfind('.') > digits.rfind(',');
                points |= point;
                commas |= !point;
            }
        }
    }
    match (points, commas) {
        (true, false) => Decimals::Point,
        (false, true) => Decimals::Comma,
        (true, true) | (false, false) => hint,
    }
}

/// The words of a text that are a currency's.
pub(super) fn marks(text: &str) -> Vec<(&str, Mark)> {
    let marks = pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Word(word) => {
            let bare =
                word.trim_matches(|c| is_minus(c) || matches!(c, '(' | ')' | '.' | ',' | ':'));
            currency::mark(bare).map(|mark| (bare, mark))
        }
        Piece::Number { .. } => None,
    });
    marks.collect()
}

/// Whether a text holds a number and the mark of a currency.
pub(super) fn has_mark_and_number(text: &str) -> bool {
    let number = |piece: &Piece<'_>| matches!(piece, Piece::Number { .. });
    !marks(text).is_empty() && pieces(text).iter().any(number)
}

/// Whether a text holds a number with decimals of money.
pub(super) fn has_money(text: &str) -> bool {
    pieces(text).iter().any(|piece| {
        matches!(piece, Piece::Number { digits, percent: false, .. }
            if matches!(split(digits, Decimals::Unknown), Some((_, Some(_)))))
    })
}

#[cfg(test)]
#[path = "amount_tests.rs"]
mod tests;
