//! Who sells: what is labelled so; or the one company that says of itself what
//! only a seller prints (its register, its account, its site); or the name that
//! the document's own site has.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::Label;
use super::party::Party;
use super::sheet::{At, Cell, Hit, Sheet, Word, fold};
use super::validate::Candidate;

/// Characters and words of a name.
const NAME_MAX: usize = 80;
const WORDS_MAX: usize = 10;

/// Rows around a name in which a company tells of itself, before and after it.
const AROUND: (usize, usize) = (3, 10);

/// Rows of the head of a page.
const HEAD_ROWS: usize = 15;

/// Forms of companies, folded.
const FORMS: [&str; 52] = [
    "gmbh co kg",
    "gmbh",
    "ug",
    "ag",
    "kg",
    "ohg",
    "e k",
    "se",
    "b v",
    "bv",
    "n v",
    "nv",
    "v o f",
    "vof",
    "s a s",
    "sas",
    "sasu",
    "s a r l",
    "sarl",
    "eurl",
    "s a",
    "sa",
    "inc",
    "llc",
    "pvt ltd",
    "private limited",
    "pty ltd",
    "ltd",
    "limited",
    "plc",
    "llp",
    "corp",
    "corporation",
    "s r l",
    "srl",
    "s p a",
    "spa",
    "s l u",
    "slu",
    "s l",
    "sl",
    "sp z o o",
    "spolka akcyjna",
    "sp k",
    "oy",
    "ab",
    "aps",
    "as",
    "lda",
    "kft",
    "s r o",
    "sro",
];

/// Sites that give addresses to everybody.
const MAIL: [&str; 14] = [
    "gmail",
    "googlemail",
    "outlook",
    "hotmail",
    "yahoo",
    "live",
    "icloud",
    "gmx",
    "web",
    "aol",
    "orange",
    "wanadoo",
    "proton",
    "example",
];

pub(super) fn find(sheet: &Sheet<'_>) -> Option<Candidate<String>> {
    let labelled: Vec<_> = sheet
        .labels()
        .filter(|(_, cell, hit)| hit.label == Label::Seller && cell.party != Some(Party::Buyer))
        .filter_map(|(at, cell, hit)| labelled(sheet, at, cell, hit))
        .collect();
    if !labelled.is_empty() {
        return agreed(labelled);
    }
    let sites = sites(sheet);
    let companies: Vec<_> = sheet
        .cells()
        .filter(|(_, cell)| cell.party != Some(Party::Buyer))
        .filter_map(|(at, cell)| {
            let name = company(cell, 0)?;
            let key = key(&name);
            let first = key.split(' ').next().unwrap_or("");
            let of_site = sites.contains(&key.replace(' ', ""))
                || (first.len() >= 4 && sites.contains(first));
            let is_bank = fold(&name).iter().any(|word| {
                [
                    "bank",
                    "sparkasse",
                    "volksbank",
                    "banque",
                    "banco",
                    "banca",
                    "caixa",
                    "bankasi",
                ]
                .contains(&word.folded.as_str())
            });
            (!is_bank && (of_site || tells_of_itself(sheet, at))).then_some(Candidate {
                value: name.clone(),
                text: name,
                at,
            })
        })
        .collect();
    if !companies.is_empty() {
        return agreed(companies);
    }
    let named = sheet.cells().filter(|(at, cell)| {
        let squeezed: String = cell.words.iter().map(|word| word.folded.as_str()).collect();
        at.row < HEAD_ROWS
            && cell.party != Some(Party::Buyer)
            && cell.words.len() <= WORDS_MAX
            && squeezed.len() >= 4
            && !cell.text.contains(['@', '.', '/'])
            && sites.contains(&squeezed)
    });
    let named = named.map(|(at, cell)| Candidate {
        value: cell.text.to_owned(),
        text: cell.text.to_owned(),
        at,
    });
    agreed(named.collect())
}

/// The first of names that are one: in other letters, with another form.
fn agreed(names: Vec<Candidate<String>>) -> Option<Candidate<String>> {
    let keys: BTreeSet<String> = names.iter().map(|name| key(&name.value)).collect();
    (keys.len() == 1)
        .then(|| names.into_iter().next())
        .flatten()
}

/// What is equal in names of the same company: no form, no capitals.
fn key(name: &str) -> String {
    let words = fold(name);
    let end = form(name, &words, 0).map_or(words.len(), |(first, _)| first);
    let words = words.iter().take(end).map(|word| word.folded.as_str());
    words.collect::<Vec<_>>().join(" ")
}

fn labelled(sheet: &Sheet<'_>, at: At, cell: &Cell<'_>, hit: Hit) -> Option<Candidate<String>> {
    let rest = cell.after(hit);
    if !rest.is_empty() {
        let colon = cell.text.get(hit.end..)?.trim_start().starts_with(':');
        let with_form = company(cell, hit.end);
        // "From: Berlin" may be anything.
        let from = cell
            .text
            .get(hit.start..hit.end)?
            .eq_ignore_ascii_case("from");
        let value = if hit.leads && colon && !from {
            with_form.or_else(|| name(rest))
        } else {
            with_form
        }?;
        return Some(Candidate {
            text: value.clone(),
            value,
            at,
        });
    }
    if !hit.leads {
        return None;
    }
    let take = |(at, cell): (At, &Cell<'_>)| {
        let value = company(cell, 0).or_else(|| name(cell.text))?;
        (cell.hits.is_empty() || cell.hits.iter().all(|hit| hit.start > 0)).then(|| Candidate {
            text: value.clone(),
            value,
            at,
        })
    };
    if let Some(right) = sheet.right(at) {
        let own = right
            .1
            .hits
            .first()
            .is_none_or(|hit| !hit.leads || hit.start > 0);
        if let Some(found) = take(right).filter(|_| own) {
            return Some(found);
        }
    }
    let below = sheet.below(at)?;
    // A remark in brackets may come between.
    let below = if below.1.text.starts_with('(') {
        sheet.below(below.0)?
    } else {
        below
    };
    take(below)
}

/// A text that can be a name: letters, no address of a site, few digits.
fn name(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches([',', ';', ':']);
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let fits = letters >= 3
        && digits * 4 <= letters
        && text.chars().count() <= NAME_MAX
        && text.split_whitespace().count() <= WORDS_MAX
        && text.starts_with(|c: char| c.is_alphanumeric())
        && !text.contains(['@', ':', '|']);
    fits.then(|| text.to_owned())
}

/// The company's name that a cell begins with, from a byte on, with its form.
fn company(cell: &Cell<'_>, from: usize) -> Option<String> {
    let (_, last) = form(cell.text, &cell.words, from)?;
    let end = cell.words.get(last)?.end;
    // A form is often closed by a point.
    let dot = cell
        .text
        .get(end..)
        .is_some_and(|rest| rest.starts_with('.'));
    let dotted = cell
        .text
        .get(..end)
        .is_some_and(|text| text.ends_with(|c: char| c.is_alphabetic()));
    let text = cell
        .text
        .get(from..if dot && dotted { end + 1 } else { end })?;
    // "Registered office: Name Ltd" names it after the colon.
    let text = text
        .rsplit(':')
        .next()?
        .trim_start_matches(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = text.split_whitespace().collect();
    let capitals = words
        .iter()
        .filter(|word| word.starts_with(|c: char| c.is_uppercase() || c.is_numeric()))
        .count();
    let fits = (2..=WORDS_MAX).contains(&words.len())
        && words.first()?.chars().next()?.is_alphanumeric()
        && text.chars().count() <= NAME_MAX
        && capitals * 2 >= words.len()
        && key(text).chars().filter(|c| c.is_alphabetic()).count() >= 2;
    fits.then(|| text.to_owned())
}

/// The first form of a company after a byte: its first and its last word.
fn form(text: &str, words: &[Word], from: usize) -> Option<(usize, usize)> {
    for (first, word) in words.iter().enumerate() {
        if word.start < from {
            continue;
        }
        for form in FORMS {
            let count = form.split(' ').count();
            let Some(of_form) = words.get(first..first + count) else {
                continue;
            };
            if !of_form
                .iter()
                .map(|word| word.folded.as_str())
                .eq(form.split(' '))
            {
                continue;
            }
            let last = first + count - 1;
            let printed = text.get(word.start..words.get(last)?.end)?;
            // Short ones are also words ("as", "sa", "se") and units ("kg").
            let short = printed.chars().filter(|c| c.is_alphabetic()).count() <= 3;
            let ltd = [
                "inc", "ltd", "llc", "plc", "aps", "sp k", "lda", "kft", "s r o",
            ]
            .contains(&form);
            let capital = printed.starts_with(char::is_uppercase);
            let capitals = printed.chars().all(|c| !c.is_lowercase());
            let fits = match (short, ltd) {
                (true, false) => capitals && ends_name(text.get(words.get(last)?.end..)?),
                (_, true) => capital || form == "s r o" || form == "sp k",
                (false, false) => capital || form.contains(' ') || form.contains("spolka"),
            };
            if fits {
                return Some((first, last));
            }
        }
    }
    None
}

/// Whether a name ends before this: no other name or word in capitals goes on.
fn ends_name(rest: &str) -> bool {
    let next = rest.trim_start_matches(['.', ' ']).chars().next();
    next.is_none_or(|c| !c.is_uppercase())
}

/// Whether near a name, in its row or its column, stand a register, a capital
/// or an account.
fn tells_of_itself(sheet: &Sheet<'_>, at: At) -> bool {
    let own = |label| matches!(label, Label::Register | Label::Iban | Label::Bic);
    let (Some(row), Some(cell)) = (sheet.rows.get(at.row), sheet.cell(at)) else {
        return false;
    };
    let off = if sheet.plain { 2.0 } else { 6.0 };
    let from = at.row.saturating_sub(AROUND.0);
    let near = sheet
        .rows
        .iter()
        .enumerate()
        .skip(from)
        .take(AROUND.0 + AROUND.1 + 1);
    near.filter(|(_, near)| near.page == row.page)
        .any(|(index, near)| {
            let column = near
                .cells
                .iter()
                .filter(|other| index == at.row || (other.x - cell.x).abs() <= off);
            column
                .filter(|cell| cell.party != Some(Party::Buyer))
                .any(|cell| cell.has(own))
        })
}

/// The names of the sites and the addresses that the document gives, but the buyer's.
fn sites(sheet: &Sheet<'_>) -> BTreeSet<String> {
    let mut sites = BTreeMap::new();
    for (_, cell) in sheet
        .cells()
        .filter(|(_, cell)| cell.party != Some(Party::Buyer))
    {
        for word in cell.text.split_whitespace() {
            if let Some(site) = site(word) {
                *sites.entry(site).or_insert(0) += 1;
            }
        }
    }
    sites
        .into_keys()
        .filter(|site| !MAIL.contains(&site.as_str()))
        .collect()
}

/// `shop` of `https://www.shop.co.uk/x`, `mail@shop.com` and `shop.com`.
fn site(word: &str) -> Option<String> {
    let word = word
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    let bare = word
        .strip_prefix("https://")
        .or_else(|| word.strip_prefix("http://"));
    let bare = bare.unwrap_or(&word);
    let host = bare.rsplit('@').next()?.split(['/', '?', ':']).next()?;
    let labels: Vec<&str> = host.split('.').collect();
    let (top, rest) = labels.split_last()?;
    let is_host = (2..=6).contains(&top.len())
        && top.bytes().all(|byte| byte.is_ascii_lowercase())
        && rest.iter().all(|label| {
            !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-')
        });
    if !is_host {
        return None;
    }
    let (name, before) = rest.split_last()?;
    let name = match before.last() {
        Some(before) if ["co", "com", "org", "net", "gov", "ac"].contains(name) => before,
        Some(_) | None => name,
    };
    let squeezed: String = fold(name).into_iter().map(|word| word.folded).collect();
    (squeezed.len() >= 3).then_some(squeezed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_named_by_what_stands_before_its_top() {
        for text in [
            "www.muster-handel.de",
            "mail@muster-handel.de,",
            "https://shop.muster-handel.co.uk/x?y",
            "(muster-handel.com)",
        ] {
            assert_eq!(site(text).as_deref(), Some("musterhandel"), "{text}");
        }
        for text in ["12.50", "e.V.", "Nr.", "1.234.567", "", "B.V", "@"] {
            assert_eq!(site(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_one_whatever_their_form_and_capitals() {
        assert_eq!(key("Muster Handel GmbH & Co. KG"), key("MUSTER HANDEL"));
        assert_eq!(key("Exemple S.A.S."), "exemple");
        assert_eq!(key("Sample Pvt. Ltd."), key("Sample Private Limited"));
    }
}
