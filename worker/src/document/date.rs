//! Dates as documents print them.
//!
//! Owns the formats and the names of months. A date that can be read in two
//! ways (`03/04/2024`) is read by the order that its document is known to
//! keep, or not at all.

use jiff::civil::Date;

use super::sheet::{Word, fold};

/// Years of an invoice that somebody works on.
const YEARS: std::ops::RangeInclusive<i16> = 1990..=2099;

/// Words that may stand before a date.
const BEFORE: [&str; 16] = [
    "le", "on", "am", "op", "il", "el", "den", "du", "del", "vom", "van", "of", "dnia", "z", "the",
    "by",
];

/// Which of day and month stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    DayFirst,
    MonthFirst,
    Unknown,
}

/// A date as printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// In one way only.
    Clear(Date),
    /// Two numbers and a year: which is the month is told by the order.
    Numbers { first: i8, second: i8, year: i16 },
}

impl Printed {
    pub(super) fn read(self, order: Order) -> Option<Date> {
        match self {
            Self::Clear(date) => Some(date),
            Self::Numbers {
                first,
                second,
                year,
            } => {
                let day_first = date(year, second, first);
                let month_first = date(year, first, second);
                match (day_first, month_first) {
                    (Some(one), Some(other)) if one == other => Some(one),
                    (Some(_), Some(_)) => match order {
                        Order::DayFirst => day_first,
                        Order::MonthFirst => month_first,
                        Order::Unknown => None,
                    },
                    (one, other) => one.or(other),
                }
            }
        }
    }

    /// What it tells of the order that its document keeps.
    pub(super) fn tells(self) -> Order {
        match self {
            Self::Numbers {
                first,
                second,
                year,
            } => match (date(year, second, first), date(year, first, second)) {
                (Some(_), None) => Order::DayFirst,
                (None, Some(_)) => Order::MonthFirst,
                (Some(_), Some(_)) | (None, None) => Order::Unknown,
            },
            Self::Clear(_) => Order::Unknown,
        }
    }
}

fn date(year: i16, month: i8, day: i8) -> Option<Date> {
    if YEARS.contains(&year) {
        Date::new(year, month, day).ok()
    } else {
        None
    }
}

/// The month of a name or its short form, folded.
fn month(word: &str) -> Option<i8> {
    #[rustfmt::skip]
    const MONTHS: [&[&str]; 12] = [
        &["january", "jan", "januar", "janvier", "janv", "januari", "gennaio", "gen", "enero", "ene", "stycznia", "styczen", "sty",
          "janeiro", "janner"],
        &["february", "feb", "februar", "fevrier", "fevr", "fev", "februari", "febbraio", "febrero", "lutego", "luty", "lut", "fevereiro"],
        &["march", "mar", "marz", "maerz", "mrz", "mars", "maart", "mrt", "marzo", "marca", "marzec", "marco"],
        &["april", "apr", "avril", "avr", "aprile", "abril", "abr", "kwietnia", "kwiecien", "kwi"],
        &["may", "mai", "mei", "maggio", "mag", "mayo", "maja", "maj", "maio"],
        &["june", "jun", "juni", "juin", "giugno", "giu", "junio", "czerwca", "czerwiec", "cze", "junho"],
        &["july", "jul", "juli", "juillet", "juil", "luglio", "lug", "julio", "lipca", "lipiec", "lip", "julho"],
        &["august", "aug", "aout", "augustus", "agosto", "ago", "sierpnia", "sierpien", "sie"],
        &["september", "sep", "sept", "septembre", "settembre", "set", "septiembre", "wrzesnia", "wrzesien", "wrz", "setembro"],
        &["october", "oct", "oktober", "okt", "octobre", "ottobre", "ott", "octubre", "pazdziernika", "pazdziernik", "paz", "outubro"],
        &["november", "nov", "novembre", "noviembre", "listopada", "listopad", "lis", "novembro"],
        &["december", "dec", "dezember", "dez", "decembre", "dicembre", "dic", "diciembre", "grudnia", "grudzien", "gru", "dezembro"],
    ];
    let found = (1_i8..)
        .zip(MONTHS)
        .find(|(_, names)| names.contains(&word));
    found.map(|(month, _)| month)
}

/// Whether a folded word is the name of a month.
pub(super) fn is_month(word: &str) -> bool {
    month(word).is_some()
}

fn number(word: &str) -> Option<i16> {
    let bare = word
        .strip_suffix("st")
        .or_else(|| word.strip_suffix("nd"))
        .or_else(|| word.strip_suffix("rd"))
        .or_else(|| word.strip_suffix("th"))
        .or_else(|| word.strip_suffix("er"))
        .or_else(|| word.strip_suffix('o'))
        .unwrap_or(word);
    let digits = (1..=4).contains(&bare.len()) && bare.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| bare.parse().ok()).flatten()
}

/// The date with which a text begins, past a word such as "on", and where it ends.
pub(super) fn leading(text: &str) -> Option<(Printed, usize)> {
    // Five words hold any date; the rest of a long line is not looked at.
    let head = text
        .char_indices()
        .nth(60)
        .map_or(text.len(), |(end, _)| end);
    let words = fold(text.get(..head)?);
    let skipped = words
        .iter()
        .take(2)
        .take_while(|word| BEFORE.contains(&word.folded.as_str()))
        .count();
    at(text, words.get(skipped..)?)
}

/// A text that is a date and nothing else.
pub(super) fn exact(text: &str) -> Option<Printed> {
    let (date, end) = leading(text)?;
    let rest = text.get(end..)?;
    // A time of day may follow.
    let clock = rest.contains(':')
        && rest
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, ':' | ' '));
    (clock || !rest.contains(char::is_alphanumeric)).then_some(date)
}

fn at(text: &str, words: &[Word]) -> Option<(Printed, usize)> {
    let [one, two, three, rest @ ..] = words else {
        return None;
    };
    // Spanish and Portuguese: 1 de enero de 2022.
    if two.folded == "de" {
        let [of, year, ..] = rest else { return None };
        let (day, month) = (number(&one.folded)?, month(&three.folded)?);
        let of_year =
            matches!(of.folded.as_str(), "de" | "del").then_some(number(&year.folded)?)?;
        return Some((clear(of_year, month, day)?, year.end));
    }
    if let Some(month) = month(&two.folded) {
        let (one, three_number) = (number(&one.folded)?, number(&three.folded)?);
        let printed = if one > 31 {
            clear(one, month, three_number)
        } else {
            clear(full(&three.folded, three_number)?, month, one)
        };
        return Some((printed?, three.end));
    }
    if let Some(month) = month(&one.folded) {
        let (day, year) = (number(&two.folded)?, number(&three.folded)?);
        return Some((clear(full(&three.folded, year)?, month, day)?, three.end));
    }
    let between = |a: &Word, b: &Word| text.get(a.end..b.start).map(str::trim);
    let (mark, other) = (between(one, two)?, between(two, three)?);
    if mark != other
        || !matches!(mark, "." | "/" | "-")
        || [one, two].iter().any(|w| w.folded.len() > 4)
    {
        return None;
    }
    // More of the same goes on after it: a version, an address, a number.
    let follows = text.get(three.end..).and_then(|rest| rest.chars().next());
    let goes_on = rest
        .first()
        .is_some_and(|next| between(three, next) == Some(mark));
    if goes_on || follows.is_some_and(|c| c == '/') {
        return None;
    }
    let (a, b, c) = (
        digits(&one.folded)?,
        digits(&two.folded)?,
        digits(&three.folded)?,
    );
    let printed = if one.folded.len() == 4 {
        clear(a, i8::try_from(b).ok()?, c)?
    } else if three.folded.len() == 4 || (three.folded.len() == 2 && mark != "-") {
        let year = full(&three.folded, c)?;
        let (first, second) = (i8::try_from(a).ok()?, i8::try_from(b).ok()?);
        // Where a point parts the numbers the day is first.
        let printed = if mark == "." {
            clear(year, second, a)?
        } else {
            Printed::Numbers {
                first,
                second,
                year,
            }
        };
        let day_first = date(year, second, first);
        day_first
            .or_else(|| date(year, first, second))
            .map(|_| printed)?
    } else {
        return None;
    };
    Some((printed, three.end))
}

fn digits(word: &str) -> Option<i16> {
    word.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| number(word))
        .flatten()
}

/// A year of four digits, or of two in this century.
fn full(word: &str, year: i16) -> Option<i16> {
    match word.len() {
        4 => Some(year),
        2 => Some(2000 + year),
        _ => None,
    }
}

fn clear(year: i16, month: i8, day: i16) -> Option<Printed> {
    date(year, month, i8::try_from(day).ok()?).map(Printed::Clear)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, order: Order) -> Option<String> {
        Some(exact(text)?.read(order)?.to_string())
    }

    #[test]
    fn dates_are_read_in_the_languages_of_documents() {
        for text in [
            "2024-04-03",
            "2024/04/03",
            "3 April 2024",
            "April 3, 2024",
            "Apr 3 , 2024",
            "3rd April 2024",
            "3. April 2024",
            "3 avril 2024",
            "le 3 avril 2024",
            "3 april 2024",
            "03.04.2024",
            "03.04.24",
            "3 aprile 2024",
            "3 de abril de 2024",
            "3 kwietnia 2024",
            "3-Apr-2024",
            "3 abr 2024",
            "2024-04-03 12:30",
            "03. 04. 2024",
            "2024 April 3",
        ] {
            assert_eq!(
                read(text, Order::Unknown).as_deref(),
                Some("2024-04-03"),
                "{text}"
            );
        }
        assert_eq!(
            read("1er août 2024", Order::Unknown).as_deref(),
            Some("2024-08-01")
        );
        assert_eq!(
            read("1. März 2024", Order::Unknown).as_deref(),
            Some("2024-03-01")
        );
    }

    #[test]
    fn day_and_month_are_told_apart_or_not_at_all() {
        assert_eq!(read("03/04/2024", Order::Unknown), None);
        assert_eq!(
            read("03/04/2024", Order::DayFirst).as_deref(),
            Some("2024-04-03")
        );
        assert_eq!(
            read("03/04/2024", Order::MonthFirst).as_deref(),
            Some("2024-03-04")
        );
        assert_eq!(
            read("20/04/2024", Order::MonthFirst).as_deref(),
            Some("2024-04-20")
        );
        assert_eq!(
            read("04/20/2024", Order::Unknown).as_deref(),
            Some("2024-04-20")
        );
        assert_eq!(
            read("04/04/2024", Order::Unknown).as_deref(),
            Some("2024-04-04")
        );
        assert_eq!(exact("20/04/2024").unwrap().tells(), Order::DayFirst);
        assert_eq!(exact("04/20/2024").unwrap().tells(), Order::MonthFirst);
        assert_eq!(exact("04/03/2024").unwrap().tells(), Order::Unknown);
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "30 days",
            "31/02/2024",
            "2024",
            "13/13/2024",
            "1.2.3.4",
            "192.168.2024.1",
            "01-02-03",
            "32 April 2024",
            "3 April 1850",
            "May",
            "12.50",
            "2024-04-03-17",
            "3/4/2024/5",
            "1/2",
            "date",
            "99999999999999999999/1/2024",
        ] {
            assert_eq!(read(text, Order::DayFirst), None, "{text}");
        }
    }
}
