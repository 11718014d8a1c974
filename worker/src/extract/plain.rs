//! The text of a document that is plain text.
//!
//! Owns the encodings and where a line's words lie. Pure; linear in the document.

use super::line::{Cell, Line, Lines};

/// UTF-8, UTF-16 with a byte order mark, or else Windows-1252, as long as it
/// holds no control characters that text does not have.
pub(super) fn plain(document: &[u8]) -> Option<String> {
    let text = match document {
        [0xef, 0xbb, 0xbf, rest @ ..] => std::str::from_utf8(rest).ok()?.to_owned(),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        _ => match std::str::from_utf8(document) {
            Ok(text) => text.to_owned(),
            Err(_) => document.iter().map(|byte| windows_1252(*byte)).collect(),
        },
    };
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{c}');
    text.chars().all(is_text).then_some(text)
}

fn utf16(bytes: &[u8], read: fn([u8; 2]) -> u16) -> Option<String> {
    let pairs = bytes.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let units = pairs.filter_map(|pair| pair.try_into().ok().map(read));
    char::decode_utf16(units)
        .collect::<Result<String, _>>()
        .ok()
}

/// The bytes 0x80 to 0x9f of Windows-1252 (WHATWG Encoding, index-windows-1252);
/// the five it leaves open stay control characters and so are refused.
fn windows_1252(byte: u8) -> char {
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž',
        '\u{8f}', '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}',
        'ž', 'Ÿ',
    ];
    let high = byte
        .checked_sub(0x80)
        .and_then(|index| HIGH.get(usize::from(index)));
    high.copied().unwrap_or(char::from(byte))
}

/// The lines of a text: a form feed ends a page, a tab or two spaces end a cell.
pub(super) fn lines(text: &str) -> Lines {
    let mut lines = Lines::default();
    for (page, text) in (1..).zip(text.split('\u{c}')) {
        for (number, line) in (1..).zip(text.lines()) {
            let line = Line {
                page,
                line: number,
                y: f64::from(number),
                cells: cells(line),
            };
            if !lines.push(line) {
                return lines;
            }
        }
    }
    lines
}

fn cells(line: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut open: Option<Cell> = None;
    let mut gap = 0;
    for (column, character) in (1_u32..).zip(line.chars()) {
        if character.is_whitespace() {
            gap += if character == '\t' { 2 } else { 1 };
            continue;
        }
        if gap >= 2 {
            cells.extend(open.take());
        }
        let cell = open.get_or_insert_with(|| Cell {
            x: f64::from(column),
            right: 0.0,
            text: String::new(),
        });
        if gap == 1 && !cell.text.is_empty() {
            cell.text.push(' ');
        }
        cell.text.push(character);
        cell.right = f64::from(column) + 1.0;
        gap = 0;
    }
    cells.extend(open);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_far_apart_are_cells_with_their_columns() {
        let lines = lines("Total:   12.50\tEUR\n\n  a b\u{c}next page").into_vec();
        let shape: Vec<_> = lines
            .iter()
            .flat_map(|line| line.cells.iter().map(move |cell| (line, cell)))
            .map(|(line, cell)| (line.page, line.line, cell.x, cell.right, cell.text.as_str()))
            .collect();
        assert_eq!(
            shape,
            [
                (1, 1, 1.0, 7.0, "Total:"),
                (1, 1, 10.0, 15.0, "12.50"),
                (1, 1, 16.0, 19.0, "EUR"),
                (1, 3, 3.0, 6.0, "a b"),
                (2, 1, 1.0, 10.0, "next page"),
            ]
        );
    }
}
