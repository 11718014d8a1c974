//! Lines of a document and where they stand.
//!
//! Owns their bounds and what characters they hold: none that a reader does not
//! see, so that a value is what it looks like.

use serde::{Deserialize, Serialize};

/// Lines kept: some twenty pages of an invoice. Together with the two bounds
/// below they fit one saved outcome, positions and JSON escapes included.
pub const LINES_MAX: usize = 1_000;

/// Cells kept of a document.
pub const CELLS_MAX: usize = 2_000;

/// Text kept in lines, in bytes.
pub const LINES_TEXT_BYTES_MAX: usize = 56 * 1024;

/// Cells of one line: a wide table. What goes beyond is dropped.
pub const CELLS_PER_LINE_MAX: usize = 64;

/// A row of a page. Distances are in points (1/72 inch) from the top left of
/// the page as its text is read; of plain text they are characters and lines,
/// counted from one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Counted from one.
    pub page: u32,
    /// The line of the page, counted from one.
    pub line: u32,
    /// Of the baseline, downwards.
    pub y: f64,
    /// What the row holds from left to right, apart where the gap is wide.
    pub cells: Vec<Cell>,
}

/// Words that stand together in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Where it begins.
    pub x: f64,
    /// Where it ends.
    pub right: f64,
    /// Its words, one space between them.
    pub text: String,
}

/// Lines, as many as are kept.
#[derive(Debug, Default)]
pub(super) struct Lines {
    kept: Vec<Line>,
    cells: usize,
    bytes: usize,
    truncated: bool,
}

impl Lines {
    /// Keeps a line that is not empty; false when the bounds are reached.
    pub(super) fn push(&mut self, mut line: Line) -> bool {
        if self.truncated {
            return false;
        }
        for cell in &mut line.cells {
            cell.text.retain(is_seen);
            cell.x = tenth(cell.x);
            cell.right = tenth(cell.right);
        }
        line.y = tenth(line.y);
        line.cells.retain(|cell| !cell.text.trim().is_empty());
        if line.cells.len() > CELLS_PER_LINE_MAX {
            line.cells.truncate(CELLS_PER_LINE_MAX);
        }
        if line.cells.is_empty() {
            return true;
        }
        let bytes: usize = line.cells.iter().map(|cell| cell.text.len()).sum();
        self.truncated = self.kept.len() == LINES_MAX
            || self.cells + line.cells.len() > CELLS_MAX
            || self.bytes + bytes > LINES_TEXT_BYTES_MAX;
        if self.truncated {
            return false;
        }
        self.cells += line.cells.len();
        self.bytes += bytes;
        self.kept.push(line);
        true
    }

    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn into_vec(self) -> Vec<Line> {
        self.kept
    }
}

/// Whether a reader sees it: no control character, none that turns the
/// direction of text (Unicode UAX 9), none without a width.
fn is_seen(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// To a tenth, and to a page that has an end.
fn tenth(distance: f64) -> f64 {
    if distance.is_finite() {
        (distance.clamp(-99_999.0, 99_999.0) * 10.0).round() / 10.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::limits::OUTCOME_BYTES_MAX;

    fn line(text: &str, cells: usize) -> Line {
        let cell = Cell {
            x: -99_999.94,
            right: 99_999.94,
            text: text.to_owned(),
        };
        Line {
            page: u32::MAX,
            line: u32::MAX,
            y: f64::NAN,
            cells: vec![cell; cells],
        }
    }

    #[test]
    fn the_most_lines_with_the_worst_text_fit_a_saved_outcome() {
        let mut lines = Lines::default();
        let quotes = "\"".repeat(LINES_TEXT_BYTES_MAX / CELLS_MAX);
        while lines.push(line(&quotes, CELLS_MAX / LINES_MAX)) {}
        assert!(lines.truncated());
        let lines = lines.into_vec();
        assert_eq!(lines.len(), LINES_MAX);
        assert!(serde_json::to_vec(&lines).unwrap().len() < OUTCOME_BYTES_MAX - 8 * 1024);
    }

    #[test]
    fn what_a_reader_does_not_see_is_dropped() {
        let mut lines = Lines::default();
        assert!(lines.push(line("1\u{202e}2\u{200b}3\u{7}", 1)));
        assert!(lines.push(line("\u{202e}", 2)));
        let kept = lines.into_vec();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].cells[0].text, "123");
        assert!((kept[0].y, kept[0].cells[0].x) == (0.0, -99_999.0));
    }
}
