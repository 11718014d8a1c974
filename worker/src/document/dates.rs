//! The invoice's date and its due date: labelled dates.

use jiff::civil::Date;

use super::date::{self, Order, Printed};
use super::labels::{Label, Tongue};
use super::number;
use super::sheet::{At, Cell, Hit, Sheet};
use super::validate::Candidate;

/// What the document's dates are.
#[derive(Debug, Default)]
pub(super) struct Dates {
    pub(super) date: Option<Candidate<Date>>,
    pub(super) due: Option<Candidate<Date>>,
}

pub(super) fn find(sheet: &Sheet<'_>, hint: Order) -> Dates {
    let mut printed: Vec<(Label, Candidate<Printed>)> = Vec::new();
    for (at, cell, hit) in sheet.labels() {
        let wanted = matches!(hit.label, Label::Date | Label::Due)
            || (hit.label == Label::AnyDate && hit.leads);
        if wanted {
            printed.extend(beside(sheet, at, cell, hit).map(|found| (hit.label, found)));
        } else if hit.label == Label::Number {
            // "Facture n° 17 du 3 avril 2024"
            let rest = cell.after(hit);
            let tail = number::leading(rest).and_then(|(_, end)| rest.get(end..));
            let dated = tail.and_then(|tail| Some((date::leading(tail)?, tail)));
            if let Some(((value, end), tail)) = dated {
                let text = tail.get(..end).unwrap_or(tail).trim().to_owned();
                printed.push((Label::Date, Candidate { value, text, at }));
            }
        }
    }
    let order = order(sheet, &printed, hint);
    let of = |wanted: Label| {
        let candidates = printed.iter().filter(|(label, _)| *label == wanted);
        let read: Option<Vec<Candidate<Date>>> = candidates
            .map(|(_, candidate)| {
                Some(Candidate {
                    value: candidate.value.read(order)?,
                    text: candidate.text.clone(),
                    at: candidate.at,
                })
            })
            .collect();
        read.unwrap_or_default()
    };
    let named = printed.iter().any(|(label, _)| *label == Label::Date);
    Dates {
        date: Candidate::agreed(of(if named { Label::Date } else { Label::AnyDate })),
        due: Candidate::agreed(of(Label::Due)),
    }
}

/// The date that a label announces.
fn beside(sheet: &Sheet<'_>, at: At, cell: &Cell<'_>, hit: Hit) -> Option<Candidate<Printed>> {
    let rest = cell.after(hit);
    if !rest.is_empty() {
        let (value, end) = date::leading(rest)?;
        let text = rest.get(..end)?.to_owned();
        return Some(Candidate { value, text, at });
    }
    let take = |at: At, cell: &Cell<'_>| {
        let value = date::exact(cell.text)?;
        let text = cell.text.to_owned();
        Some(Candidate { value, text, at })
    };
    let right = sheet.right(at).and_then(|(at, cell)| take(at, cell));
    right.or_else(|| {
        let only = cell.is_only(hit).then_some(at)?;
        sheet.alone_below(only, take)
    })
}

/// Which of day and month stands first: by dates that have one reading, or
/// else by the language of the labels, or else by the hint.
fn order(sheet: &Sheet<'_>, labelled: &[(Label, Candidate<Printed>)], hint: Order) -> Order {
    let (mut day, mut month) = (false, false);
    let whole = sheet.cells().filter_map(|(_, cell)| date::exact(cell.text));
    for printed in labelled
        .iter()
        .map(|(_, candidate)| candidate.value)
        .chain(whole)
    {
        match printed.tells() {
            Order::DayFirst => day = true,
            Order::MonthFirst => month = true,
            Order::Unknown => {}
        }
    }
    match (day, month) {
        (true, false) => return Order::DayFirst,
        (false, true) => return Order::MonthFirst,
        (true, true) => return Order::Unknown,
        (false, false) => {}
    }
    let says = |tongue| sheet.labels().any(|(.., hit)| hit.tongue == tongue);
    if says(Tongue::DayFirst) && !says(Tongue::English) {
        Order::DayFirst
    } else {
        hint
    }
}
