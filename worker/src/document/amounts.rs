//! The net amount, the tax and the total: labelled amounts that agree.
//!
//! A row with a label gives one amount, or three of which the first two make
//! the third. A table with heads for net, tax and total gives its last row.
//! Where labels leave a choice, sums decide; where they do not, nothing is found.

use std::collections::BTreeMap;

use super::amount::{self, Amount, Decimals, Piece};
use super::currency;
use super::date;
use super::labels::Label;
use super::sheet::{At, Cell, Hit, Row, Sheet, fold, overlap};
use super::validate::Candidate;

/// Different amounts of one kind that are tried against each other.
const DIFFERENT_MAX: usize = 32;

/// Rows of a table of taxes: every rate there is, and the sums.
const TABLE_ROWS_MAX: usize = 12;

/// Rows below a total in which a tax says that the total was without it.
const TAX_BELOW: usize = 3;

/// What the document comes to.
#[derive(Debug, Default)]
pub(super) struct Amounts {
    pub(super) net: Option<Candidate<Amount>>,
    pub(super) tax: Option<Candidate<Amount>>,
    pub(super) total: Option<Candidate<Amount>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Net,
    Tax,
    Total,
}

/// How surely a label says what an amount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Likely,
    Sure,
}

#[derive(Debug)]
struct Labelled {
    kind: Kind,
    strength: Strength,
    candidate: Candidate<Amount>,
}

fn kind(label: Label) -> Option<(Kind, Strength)> {
    match label {
        Label::Total => Some((Kind::Total, Strength::Sure)),
        Label::AnyTotal => Some((Kind::Total, Strength::Likely)),
        Label::Net => Some((Kind::Net, Strength::Sure)),
        Label::AnyNet => Some((Kind::Net, Strength::Likely)),
        Label::Tax => Some((Kind::Tax, Strength::Sure)),
        Label::Number
        | Label::Title
        | Label::Date
        | Label::AnyDate
        | Label::Due
        | Label::Vat(_)
        | Label::BuyerVat
        | Label::Iban
        | Label::Bic
        | Label::Currency
        | Label::Seller
        | Label::Buyer
        | Label::Register
        | Label::Other => None,
    }
}

pub(super) fn find(sheet: &Sheet<'_>, hint: Decimals) -> Amounts {
    let decimals = amount::decimals(sheet.cells().map(|(_, cell)| cell.text), hint);
    let mut found = Vec::new();
    for (at, cell, hit) in sheet.labels() {
        if let Some((kind, strength)) = kind(hit.label).filter(|_| hit.leads) {
            row(sheet, at, cell, hit, decimals, &mut |of, candidate| {
                // Three amounts that make a sum are what they are.
                let (kind, strength) = of.map_or((kind, strength), |kind| (kind, Strength::Sure));
                found.push(Labelled {
                    kind,
                    strength,
                    candidate,
                });
            });
        }
    }
    for index in 0..sheet.rows.len() {
        let sums = table(sheet, index, decimals).into_iter().flatten();
        for (kind, candidate) in [Kind::Net, Kind::Tax, Kind::Total].into_iter().zip(sums) {
            found.push(Labelled {
                kind,
                strength: Strength::Likely,
                candidate,
            });
        }
    }
    resolve(&found)
}

/// Tells of each amount that a label announces in its row, and what it is if
/// that is not what the label says.
fn row(
    sheet: &Sheet<'_>,
    at: At,
    cell: &Cell<'_>,
    hit: Hit,
    decimals: Decimals,
    tell: &mut dyn FnMut(Option<Kind>, Candidate<Amount>),
) {
    let rest = past_rate(cell.after(hit));
    if let Some(value) = amount::printed(rest).and_then(|printed| printed.read(decimals, false)) {
        let text = rest.to_owned();
        return tell(None, Candidate { value, text, at });
    }
    let is_last = cell
        .hits
        .iter()
        .all(|other| other.start <= hit.start || is_skipped(other.label));
    if !is_last || !is_passed(rest, hit.label) {
        return;
    }
    let whole = !amount::marks(cell.text).is_empty();
    let mut amounts: Vec<Candidate<Amount>> = Vec::new();
    let mut next = at;
    while let Some((at, cell)) = sheet.right(next) {
        next = at;
        let Some(printed) = amount::printed(cell.text) else {
            if is_rate(cell.text) || (amounts.is_empty() && currency::mark(cell.text).is_some()) {
                continue;
            }
            break;
        };
        // Numbers of things stand in such rows too.
        if let Some(value) = printed.read(decimals, whole) {
            let text = cell.text.to_owned();
            amounts.push(Candidate { value, text, at });
        }
    }
    match amounts.as_slice() {
        [only] => tell(None, only.clone()),
        [net, tax, total] if is_sum(net, tax, total) => {
            tell(Some(Kind::Net), net.clone());
            tell(Some(Kind::Tax), tax.clone());
            tell(Some(Kind::Total), total.clone());
        }
        _ => {}
    }
}

/// What follows the rate of a tax: "(20%): 64.00".
fn past_rate(text: &str) -> &str {
    let past = text.split_once('%').filter(|(rate, _)| {
        rate.chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '(' | ' ' | '.' | ','))
    });
    past.map_or(text, |(_, rest)| {
        rest.trim_start_matches([')', ':', ' ', '='])
    })
}

/// Labels that may follow in a cell without ending what it announces:
/// "Total due (incl. VAT)", "Total EUR".
fn is_skipped(label: Label) -> bool {
    matches!(label, Label::Tax | Label::Currency)
}

fn is_rate(text: &str) -> bool {
    matches!(
        amount::pieces(text).as_slice(),
        [Piece::Number { percent: true, .. }]
            | [Piece::Number { percent: true, .. }, Piece::Word("%")]
    )
}

/// Whether what stands between a label and its amount says nothing that would
/// make it the amount of something else ("Total hours").
fn is_passed(rest: &str, label: Label) -> bool {
    #[rustfmt::skip]
    const PASSED: [&str; 52] = [
        "incl", "including", "inclusive", "inc", "excl", "excluding", "exclusive", "ex", "of", "vat", "tax", "gst", "in", "the", "this",
        "invoice", "on", "at", "from", "inkl", "einschl", "mwst", "ust", "von", "aus", "auf", "exkl", "zzgl", "inclusief", "exclusief",
        "btw", "over", "van", "op", "tva", "de", "sur", "a", "comprise", "iva", "su", "del", "incluido", "inclusa", "od", "z", "w", "due",
        "by", "eur", "rate", "taux",
    ];
    let date = date::leading(rest.trim_start_matches(|c: char| !c.is_alphanumeric()));
    if date.is_some_and(|(_, end)| {
        !rest
            .get(end..)
            .unwrap_or("")
            .contains(char::is_alphanumeric)
    }) {
        return true;
    }
    let tax = label == Label::Tax;
    amount::pieces(rest).iter().all(|piece| match piece {
        Piece::Number { percent, .. } => *percent || tax,
        Piece::Word(word) => {
            currency::mark(word).is_some()
                || fold(word).iter().all(|word| {
                    PASSED.contains(&word.folded.as_str()) || date::is_month(&word.folded)
                })
        }
    })
}

type Sums = [Candidate<Amount>; 3];

/// The heads of a table of taxes: for net, tax and total.
fn heads<'s, 'a>(row: &'s Row<'a>) -> Option<[&'s Cell<'a>; 3]> {
    // A table of things sold has others too.
    let others = |cell: &Cell<'_>| cell.has(|label| label == Label::Other);
    if row.cells.iter().any(others) {
        return None;
    }
    let head = |wanted: Kind| {
        let mut of_kind = row.cells.iter().filter(|cell| {
            let mut leading = cell.hits.iter().filter(|hit| hit.leads);
            let first = leading.find_map(|hit| kind(hit.label));
            first.is_some_and(|(kind, _)| kind == wanted)
                && !amount::has_money(cell.text)
                && !cell.text.contains('%')
        });
        let first = of_kind.next()?;
        of_kind.next().is_none().then_some(first)
    };
    Some([head(Kind::Net)?, head(Kind::Tax)?, head(Kind::Total)?])
}

/// The amount below a head, if there is one.
fn under(
    row: &Row<'_>,
    index: usize,
    head: &Cell<'_>,
    decimals: Decimals,
) -> Option<Candidate<Amount>> {
    let cells = row.cells.iter().enumerate();
    let mut cells = cells.filter(|(_, cell)| overlap(head, cell) > 0.0);
    let (cell, found) = cells.next()?;
    let value = amount::printed(found.text)?.read(decimals, false)?;
    cells.next().is_none().then(|| Candidate {
        value,
        text: found.text.to_owned(),
        at: At { row: index, cell },
    })
}

/// The sums of a table of taxes: its only row, or its last one if that is the
/// sum of the others.
fn table(sheet: &Sheet<'_>, index: usize, decimals: Decimals) -> Option<Sums> {
    let top = sheet.rows.get(index)?;
    let heads = heads(top)?;
    let mut rows: Vec<Sums> = Vec::new();
    let below = sheet.rows.iter().enumerate().skip(index + 1);
    for (index, row) in below
        .take(TABLE_ROWS_MAX)
        .take_while(|(_, row)| row.page == top.page)
    {
        let [net, tax, total] = heads.map(|head| under(row, index, head, decimals));
        let is_amount = |cell: &&Cell<'_>| {
            amount::printed(cell.text)
                .is_some_and(|printed| printed.read(decimals, false).is_some())
        };
        if let (Some(net), Some(tax), Some(total)) = (net, tax, total)
            && is_sum(&net, &tax, &total)
        {
            rows.push([net, tax, total]);
        } else if row.cells.iter().filter(is_amount).count() > 1 {
            // A row that is not understood: perhaps the sums are there.
            return None;
        }
    }
    let (last, before) = rows.split_last()?;
    let adds = |column: usize| {
        let of = |row: &Sums| row.get(column).map(|candidate| candidate.value.hundredths);
        let sum = before
            .iter()
            .try_fold(0_i64, |sum, row| sum.checked_add(of(row)?));
        sum.is_some() && sum == of(last)
    };
    (before.is_empty() || (0..3).all(adds)).then(|| last.clone())
}

fn is_sum(net: &Candidate<Amount>, tax: &Candidate<Amount>, total: &Candidate<Amount>) -> bool {
    net.value.hundredths.checked_add(tax.value.hundredths) == Some(total.value.hundredths)
}

type ByValue<'a> = BTreeMap<i64, (Strength, &'a Candidate<Amount>)>;

/// Chooses among what labels say.
fn resolve(found: &[Labelled]) -> Amounts {
    let of = |kind: Kind| {
        let mut values: ByValue<'_> = BTreeMap::new();
        for labelled in found.iter().filter(|labelled| labelled.kind == kind) {
            let value = labelled.candidate.value.hundredths;
            let new = (labelled.strength, &labelled.candidate);
            let entry = values.entry(value).or_insert(new);
            if labelled.strength > entry.0 {
                *entry = new;
            }
            if values.len() > DIFFERENT_MAX {
                return BTreeMap::new();
            }
        }
        values
    };
    let (nets, taxes, totals) = (of(Kind::Net), of(Kind::Tax), of(Kind::Total));
    let mut sums = Vec::new();
    // Without a label for the net amount it may be a "total" before the tax.
    let before_tax = if nets.is_empty() { &totals } else { &nets };
    for (net, (_, of_net)) in before_tax {
        for (tax, (_, of_tax)) in taxes
            .iter()
            .filter(|(tax, _)| **tax != 0 || !nets.is_empty())
        {
            let total = net.checked_add(*tax).and_then(|sum| totals.get(&sum));
            sums.extend(total.map(|(_, of_total)| [*of_net, *of_tax, *of_total]));
        }
    }
    let sum = match sums.as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let choose = |values: &ByValue<'_>, column: usize| {
        let summed = sum.and_then(|sum| sum.get(column).copied());
        match (alone(values), summed) {
            // A sure label is believed, a likely one only if no sum says otherwise.
            (Some((Strength::Likely, _)) | None, Some(summed)) => Some(summed.clone()),
            (only, _) => only.map(|(_, one)| one.clone()),
        }
    };
    let mut amounts = Amounts {
        net: choose(&nets, 0),
        tax: choose(&taxes, 1),
        total: choose(&totals, 2),
    };
    if sum.is_none() && is_without_tax(amounts.total.as_ref(), &totals, &taxes) {
        amounts.total = None;
    }
    amounts
}

/// The only value of the greatest strength.
fn alone<'a>(values: &ByValue<'a>) -> Option<(Strength, &'a Candidate<Amount>)> {
    let most = values.values().map(|(strength, _)| *strength).max()?;
    let mut of_most = values.values().filter(|(strength, _)| *strength == most);
    let (strength, candidate) = of_most.next()?;
    of_most.next().is_none().then_some((*strength, *candidate))
}

/// Whether a likely total is followed by a tax: then it was the sum before it.
fn is_without_tax(
    total: Option<&Candidate<Amount>>,
    totals: &ByValue<'_>,
    taxes: &ByValue<'_>,
) -> bool {
    let Some(total) = total else { return false };
    let likely = totals
        .get(&total.value.hundredths)
        .is_some_and(|(strength, _)| *strength == Strength::Likely);
    likely
        && taxes.iter().any(|(tax, (_, candidate))| {
            *tax != 0 && (1..=TAX_BELOW).contains(&candidate.at.row.saturating_sub(total.at.row))
        })
}
