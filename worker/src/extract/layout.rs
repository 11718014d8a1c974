//! The rows of a PDF's pages, as a person sees them.
//!
//! A page is drawn in any order. This takes each run of characters with where
//! it stands, cuts it into words, and puts the words of one baseline together
//! from left to right: a space where words are apart, another cell where the
//! gap is wide. Text of another direction than most of the page (a stamp along
//! the edge) follows after it. Nothing here is slower than a sort.

use pdf_extract::{MediaBox, OutputDev, OutputError, Transform};

use super::TEXT_BYTES_MAX;
use super::line::{Cell, Line, Lines};

/// Baselines that are closer than this many letter heights make one row: an
/// index stays with its line, the next line does not.
const ROW: f64 = 0.4;

/// A gap of more letter heights than this is a space (the space of common
/// fonts is a quarter, kerning less than a tenth).
const SPACE: f64 = 0.13;

/// A gap of more letter heights than this ends a cell: no word space is as wide.
const CELL: f64 = 1.0;

/// Words that overlap by this share and are equal are one, drawn twice to look bold.
const OVERPRINT: f64 = 0.7;

#[derive(Debug, Clone, Default)]
struct Word {
    text: String,
    x: f64,
    right: f64,
    /// Of the baseline, downwards.
    y: f64,
    size: f64,
    /// In quarter turns.
    turn: u8,
    /// Whether the document has a space before it.
    spaced: bool,
}

/// Takes a document from the parser, page by page.
#[derive(Debug, Default)]
pub(super) struct Layout {
    text: String,
    truncated: bool,
    lines: Lines,
    page: u32,
    page_box: (f64, f64, f64, f64),
    words: Vec<Word>,
    /// Characters in `words`, in bytes.
    held: usize,
    open: Option<Word>,
    /// Whether the last character was a space.
    space: bool,
}

impl Layout {
    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }

    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn into_lines(self) -> Lines {
        self.lines
    }

    fn close_word(&mut self) {
        self.words.extend(self.open.take());
    }

    fn write_page(&mut self) {
        let mut words = std::mem::take(&mut self.words);
        self.held = 0;
        let mut turns = [0_usize; 4];
        for word in &words {
            if let Some(count) = turns.get_mut(usize::from(word.turn)) {
                *count += word.text.len();
            }
        }
        // The turn with most text first; of equal ones the plainer.
        let mut order = [0_u8, 1, 2, 3];
        order.sort_by_key(|turn| std::cmp::Reverse(turns.get(usize::from(*turn))));
        let mut number = 0;
        let mut page = String::new();
        for turn in order {
            let (mut these, rest): (Vec<_>, Vec<_>) =
                words.into_iter().partition(|word| word.turn == turn);
            words = rest;
            these.sort_by(|a, b| a.y.total_cmp(&b.y));
            for row in rows(these) {
                number += 1;
                self.write_row(&mut page, number, row);
            }
        }
        if !self.text.is_empty() {
            self.text.push_str("\n\u{c}\n");
        }
        self.text.push_str(page.trim_end());
    }

    fn write_row(&mut self, page: &mut String, number: u32, row: Row) {
        let cells = cells(row.words);
        for (n, cell) in cells.iter().enumerate() {
            page.push_str(if n == 0 { "" } else { "\t" });
            page.push_str(&cell.text);
        }
        page.push('\n');
        // Past its bounds `lines` takes no more, and says so.
        self.lines.push(Line {
            page: self.page,
            line: number,
            y: row.y,
            cells,
        });
    }

    /// Where a character stands in the direction in which it is read:
    /// from the left, from the top, letter height, quarter turns.
    fn place(&self, trm: &Transform, font_size: f64) -> (f64, f64, f64, u8) {
        let (left, bottom, right, top) = self.page_box;
        let (x, y) = (trm.m31 - left, top - trm.m32);
        let (width, height) = (right - left, top - bottom);
        let size = (trm.m11 * trm.m22 - trm.m12 * trm.m21).abs().sqrt() * font_size.abs();
        let turn = if trm.m11.abs() >= trm.m12.abs() {
            if trm.m11 >= 0.0 { 0 } else { 2 }
        } else if trm.m12 >= 0.0 {
            1
        } else {
            3
        };
        match turn {
            0 => (x, y, size, turn),
            1 => (height - y, x, size, turn),
            2 => (width - x, height - y, size, turn),
            _ => (y, width - x, size, turn),
        }
    }
}

impl OutputDev for Layout {
    fn begin_page(
        &mut self,
        number: u32,
        media_box: &MediaBox,
        _art_box: Option<(f64, f64, f64, f64)>,
    ) -> Result<(), OutputError> {
        self.page = number;
        self.page_box = (media_box.llx, media_box.lly, media_box.urx, media_box.ury);
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), OutputError> {
        self.close_word();
        self.write_page();
        Ok(())
    }

    fn output_character(
        &mut self,
        trm: &Transform,
        width: f64,
        _spacing: f64,
        font_size: f64,
        text: &str,
    ) -> Result<(), OutputError> {
        if text.chars().all(char::is_whitespace) {
            self.close_word();
            self.space = true;
            return Ok(());
        }
        self.held += text.len();
        if self.text.len() + self.held > TEXT_BYTES_MAX {
            self.truncated = true;
            return Ok(());
        }
        let (x, y, size, turn) = self.place(trm, font_size);
        if ![x, y, size, width].iter().all(|number| number.is_finite()) {
            return Ok(());
        }
        let advance = (trm.m11.hypot(trm.m12) * font_size * width).abs();
        let apart = self.open.as_ref().is_some_and(|word| {
            word.turn != turn
                || (word.y - y).abs() > ROW * size
                || x - word.right > SPACE * size
                || x < word.x - ROW * size
        });
        if apart {
            self.close_word();
        }
        let word = self.open.get_or_insert_with(|| Word {
            x,
            y,
            size,
            turn,
            spaced: self.space,
            ..Word::default()
        });
        self.space = false;
        word.text.push_str(text);
        word.right = x + advance;
        Ok(())
    }

    fn begin_word(&mut self) -> Result<(), OutputError> {
        self.close_word();
        self.space = false;
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), OutputError> {
        self.close_word();
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), OutputError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Row {
    y: f64,
    size: f64,
    words: Vec<Word>,
}

/// Words, ordered from the top, into rows.
fn rows(words: Vec<Word>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for word in words {
        match rows.last_mut() {
            Some(row) if word.y - row.y <= ROW * row.size.min(word.size) => row.words.push(word),
            Some(_) | None => rows.push(Row {
                y: word.y,
                size: word.size,
                words: vec![word],
            }),
        }
    }
    rows
}

/// The words of a row into cells.
fn cells(mut words: Vec<Word>) -> Vec<Cell> {
    words.sort_by(|a, b| a.x.total_cmp(&b.x));
    let mut cells: Vec<Cell> = Vec::new();
    let mut last: Option<Word> = None;
    for word in words {
        if let Some(last) = &last
            && last.text == word.text
            && last.right - word.x > OVERPRINT * (word.right - word.x)
        {
            continue;
        }
        let gap = last.as_ref().map(|last| word.x - last.right);
        match (cells.last_mut(), gap) {
            (Some(cell), Some(gap)) if gap <= CELL * word.size => {
                if word.spaced || gap > SPACE * word.size {
                    cell.text.push(' ');
                }
                cell.text.push_str(&word.text);
                cell.right = cell.right.max(word.right);
            }
            (Some(_) | None, _) => cells.push(Cell {
                x: word.x,
                right: word.right,
                text: word.text.clone(),
            }),
        }
        last = Some(word);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: MediaBox = MediaBox {
        llx: 0.0,
        lly: 0.0,
        urx: 600.0,
        ury: 800.0,
    };

    /// Draws runs of letters, each half as wide as it is high, in 10 points.
    fn drawn(runs: &[(f64, f64, &str)], turn: fn(f64, f64) -> Transform) -> Layout {
        let mut layout = Layout::default();
        layout.begin_page(1, &PAGE, None).unwrap();
        for (x, y, text) in runs {
            layout.begin_word().unwrap();
            for (n, letter) in (0_u32..).zip(text.chars()) {
                let trm = turn(x + 5.0 * f64::from(n), *y);
                let letter = letter.to_string();
                layout
                    .output_character(&trm, 0.5, 0.0, 10.0, &letter)
                    .unwrap();
            }
            layout.end_word().unwrap();
        }
        layout.end_page().unwrap();
        layout
    }

    fn upright(x: f64, y: f64) -> Transform {
        Transform::row_major(1.0, 0.0, 0.0, 1.0, x, 800.0 - y)
    }

    #[test]
    fn a_row_is_read_from_left_to_right_however_it_was_drawn() {
        let layout = drawn(
            &[
                (300.0, 100.0, "12.50"),
                (50.0, 120.0, "below"),
                (50.0, 100.5, "Total"),
                (80.0, 101.0, "due"),
                (95.2, 101.0, "now"),
            ],
            upright,
        );
        assert_eq!(layout.text(), "Total duenow\t12.50\nbelow");
        let lines = layout.into_lines().into_vec();
        assert_eq!((lines[0].line, lines[0].y), (1, 100.0));
        assert_eq!(
            (lines[0].cells[1].x, lines[0].cells[1].right),
            (300.0, 325.0)
        );
        assert_eq!((lines[1].line, lines[1].page), (2, 1));
    }

    #[test]
    fn a_word_drawn_twice_to_look_bold_is_one_word() {
        let bold = [(50.0, 100.0, "Total"), (50.3, 100.0, "Total")];
        assert_eq!(drawn(&bold, upright).text(), "Total");
        let apart = [(50.0, 100.0, "12"), (62.0, 100.0, "12")];
        assert_eq!(drawn(&apart, upright).text(), "12 12");
    }

    #[test]
    fn text_of_every_direction_is_read_along_its_own() {
        let text = [(50.0, 100.0, "Invoice 7"), (50.0, 120.0, "second line")];
        let turns: [fn(f64, f64) -> Transform; 3] = [
            |u, v| Transform::row_major(0.0, 1.0, -1.0, 0.0, v, u),
            |u, v| Transform::row_major(-1.0, 0.0, 0.0, -1.0, 600.0 - u, v),
            |u, v| Transform::row_major(0.0, -1.0, 1.0, 0.0, 600.0 - v, 800.0 - u),
        ];
        for turn in turns {
            let layout = drawn(&text, turn);
            assert_eq!(layout.text(), "Invoice 7\nsecond line");
            let lines = layout.into_lines().into_vec();
            assert_eq!((lines[0].y, lines[0].cells[0].x), (100.0, 50.0));
        }
    }

    #[test]
    fn positions_that_are_no_numbers_are_left_out() {
        let wild = drawn(&[(f64::NAN, 5.0, "x"), (f64::INFINITY, 5.0, "y")], upright);
        assert_eq!(wild.text(), "");
        assert!(wild.into_lines().into_vec().is_empty());
    }
}
