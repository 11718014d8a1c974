//! A document's lines as the rules read them: cells with their words, and what
//! the words announce.
//!
//! Owns folding, the finding of labels and the look to the right and below.
//! Everything is linear in the document: a phrase has few words, a line few
//! cells, and a look below goes a few rows.

use crate::extract::Line;

use super::labels::{self, Label, PHRASE_WORDS_MAX, Tongue};
use super::party::{self, Party};
use super::tools::Place;

/// How far below a label its value may stand: two rows of a table, in points.
const BELOW_POINTS: f64 = 40.0;

/// The same in lines of plain text.
const BELOW_LINES: f64 = 2.0;

/// A word, folded, and where it lies in the text of its cell.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) folded: String,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A label in a cell, by bytes of its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) label: Label,
    pub(super) tongue: Tongue,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether it begins the cell, or follows a number or a colon and the like.
    pub(super) leads: bool,
}

#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) text: &'a str,
    pub(super) x: f64,
    pub(super) right: f64,
    pub(super) words: Vec<Word>,
    pub(super) hits: Vec<Hit>,
    pub(super) party: Option<Party>,
}

#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) page: u32,
    pub(super) line: u32,
    pub(super) y: f64,
    pub(super) cells: Vec<Cell<'a>>,
}

/// A cell by its row and its place in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) row: usize,
    pub(super) cell: usize,
}

#[derive(Debug)]
pub(super) struct Sheet<'a> {
    pub(super) rows: Vec<Row<'a>>,
    /// Whether places are characters and lines.
    pub(super) plain: bool,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(lines: &'a [Line]) -> Self {
        let rows = lines
            .iter()
            .map(|line| Row {
                page: line.page,
                line: line.line,
                y: line.y,
                cells: line
                    .cells
                    .iter()
                    .map(|cell| {
                        let words = fold(&cell.text);
                        let hits = hits(&cell.text, &words);
                        Cell {
                            text: &cell.text,
                            x: cell.x,
                            right: cell.right,
                            words,
                            hits,
                            party: None,
                        }
                    })
                    .collect(),
            })
            .collect();
        let mut sheet = Self {
            rows,
            plain: lines
                .iter()
                .all(|line| (line.y - f64::from(line.line)).abs() < 0.05),
        };
        party::mark(&mut sheet);
        sheet
    }

    pub(super) fn cell(&self, at: At) -> Option<&Cell<'a>> {
        self.rows.get(at.row)?.cells.get(at.cell)
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = (At, &Cell<'a>)> {
        self.rows.iter().enumerate().flat_map(|(row, line)| {
            let cells = line.cells.iter().enumerate();
            cells.map(move |(cell, value)| (At { row, cell }, value))
        })
    }

    pub(super) fn place(&self, at: At) -> Option<Place> {
        let row = self.rows.get(at.row)?;
        Some(Place {
            page: row.page,
            line: row.line,
            x: row.cells.get(at.cell)?.x,
            y: row.y,
        })
    }

    /// Every label, with its cell.
    pub(super) fn labels(&self) -> impl Iterator<Item = (At, &Cell<'a>, Hit)> {
        self.cells()
            .flat_map(|(at, cell)| cell.hits.iter().map(move |hit| (at, cell, *hit)))
    }

    /// The cell to the right.
    pub(super) fn right(&self, at: At) -> Option<(At, &Cell<'a>)> {
        let at = At {
            row: at.row,
            cell: at.cell + 1,
        };
        Some((at, self.cell(at)?))
    }

    /// The cell below, in the column of this one and of no other of its row.
    pub(super) fn below(&self, at: At) -> Option<(At, &Cell<'a>)> {
        let head = self.cell(at)?;
        let row = self.rows.get(at.row)?;
        for (index, lower) in self.rows.iter().enumerate().skip(at.row + 1).take(3) {
            let reach = if self.plain {
                BELOW_LINES
            } else {
                BELOW_POINTS
            };
            if lower.page != row.page || lower.y - row.y > reach || lower.y <= row.y {
                return None;
            }
            let mut under = lower
                .cells
                .iter()
                .enumerate()
                .filter(|(_, cell)| overlap(head, cell) > 0.0);
            let Some((cell, found)) = under.next() else {
                continue;
            };
            let owned = row
                .cells
                .iter()
                .all(|other| overlap(other, found) <= overlap(head, found));
            let alone = under.next().is_none();
            return (owned && alone).then_some((At { row: index, cell }, found));
        }
        None
    }
}

impl Sheet<'_> {
    /// What stands alone below a label; in a column of several it is not known
    /// which is meant.
    pub(super) fn alone_below<T>(
        &self,
        at: At,
        take: impl Fn(At, &Cell<'_>) -> Option<T>,
    ) -> Option<T> {
        let (below, cell) = self.below(at)?;
        let found = take(below, cell)?;
        let next = self.below(below).and_then(|(at, cell)| take(at, cell));
        next.is_none().then_some(found)
    }
}

/// The width that two cells share.
pub(super) fn overlap(one: &Cell<'_>, other: &Cell<'_>) -> f64 {
    one.right.min(other.right) - one.x.max(other.x)
}

impl<'a> Cell<'a> {
    /// What follows a label up to the next one, without colons and the like.
    pub(super) fn after(&self, hit: Hit) -> &'a str {
        let next = self.hits.iter().map(|hit| hit.start);
        let end = next.filter(|start| *start >= hit.end).min();
        let text: &'a str = self.text;
        let rest = text.get(hit.end..end.unwrap_or(text.len())).unwrap_or("");
        rest.trim_start_matches(|c: char| {
            c.is_whitespace()
                || matches!(c, ':' | '.' | '°' | 'º' | ')' | '*' | ';' | '/' | '=' | '|')
        })
        .trim_end()
    }

    /// Whether the cell is this label and nothing else.
    pub(super) fn is_only(&self, hit: Hit) -> bool {
        self.hits.len() == 1 && hit.leads && self.after(hit).is_empty()
    }

    pub(super) fn has(&self, wanted: fn(Label) -> bool) -> bool {
        self.hits.iter().any(|hit| wanted(hit.label))
    }
}

/// The words of a text: letters and digits, small and without accents; `#` is
/// a word of its own.
pub(super) fn fold(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut open = false;
    for (start, character) in text.char_indices() {
        let end = start + character.len_utf8();
        let letter = character.is_alphanumeric() && !matches!(character, 'º' | 'ª');
        if !letter {
            open = false;
            if character == '#' {
                words.push(Word {
                    folded: "#".to_owned(),
                    start,
                    end,
                });
            }
            continue;
        }
        if !open {
            words.push(Word {
                folded: String::new(),
                start,
                end,
            });
            open = true;
        }
        if let Some(word) = words.last_mut() {
            for small in character.to_lowercase() {
                plain_letter(small, &mut word.folded);
            }
            word.end = end;
        }
    }
    words
}

/// The letters without accents of the languages whose labels are known.
fn plain_letter(letter: char, to: &mut String) {
    let plain = match letter {
        'à' | 'á' | 'â' | 'ã' | 'ä' | 'å' | 'ą' | 'ā' | 'ă' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'ď' | 'đ' => 'd',
        'è' | 'é' | 'ê' | 'ë' | 'ę' | 'ě' | 'ē' | 'ė' => 'e',
        'ì' | 'í' | 'î' | 'ï' | 'ī' => 'i',
        'ł' | 'ľ' => 'l',
        'ñ' | 'ń' | 'ň' => 'n',
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' | 'ő' | 'ø' => 'o',
        'ř' => 'r',
        'ś' | 'š' | 'ș' | 'ş' => 's',
        'ť' | 'ț' => 't',
        'ù' | 'ú' | 'û' | 'ü' | 'ů' | 'ű' | 'ū' => 'u',
        'ý' | 'ÿ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        'ß' => return to.push_str("ss"),
        'æ' => return to.push_str("ae"),
        'œ' => return to.push_str("oe"),
        // What is left of a letter that was written as two characters.
        '\u{300}'..='\u{36f}' => return,
        other => other,
    };
    to.push(plain);
}

/// The longest labels, from left to right.
fn hits(text: &str, words: &[Word]) -> Vec<Hit> {
    let mut hits: Vec<Hit> = Vec::new();
    let mut from = 0;
    while from < words.len() {
        let longest = (1..=PHRASE_WORDS_MAX).rev().find_map(|count| {
            let phrase = words.get(from..from + count)?;
            let folded: Vec<&str> = phrase.iter().map(|word| word.folded.as_str()).collect();
            let (label, tongue) = labels::label(&folded.join(" "))?;
            let (first, last) = (phrase.first()?, phrase.last()?);
            Some((count, label, tongue, first.start, last.end))
        });
        let Some((count, label, tongue, start, end)) = longest else {
            from += 1;
            continue;
        };
        let before = from.checked_sub(1).and_then(|index| words.get(index));
        let leads = before.is_none_or(|word| {
            let between = text.get(word.end..start).unwrap_or("");
            word.folded.starts_with(|c: char| c.is_ascii_digit())
                || between.contains([':', ';', ',', '|', '•', '·', '€', '$', '£'])
        });
        hits.push(Hit {
            label,
            tongue,
            start,
            end,
            leads,
        });
        from += count;
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_and_keep_their_place() {
        let text = "N° Größe l’été #7 ŁÓDŹ";
        let words = fold(text);
        let folded: Vec<&str> = words.iter().map(|word| word.folded.as_str()).collect();
        assert_eq!(folded, ["n", "grosse", "l", "ete", "#", "7", "lodz"]);
        assert_eq!(&text[words[1].start..words[1].end], "Größe");
    }

    #[test]
    fn the_longest_phrase_wins() {
        let labels = |text: &str| -> Vec<Label> {
            hits(text, &fold(text))
                .iter()
                .map(|hit| hit.label)
                .collect()
        };
        assert_eq!(labels("Date"), [Label::AnyDate]);
        assert_eq!(labels("Invoice Date"), [Label::Date]);
        assert_eq!(labels("Order date: due date"), [Label::Other, Label::Due]);
        assert_eq!(
            labels("Subtotal 5.00 VAT 1.00 Total"),
            [Label::AnyNet, Label::Tax, Label::AnyTotal]
        );
    }
}
