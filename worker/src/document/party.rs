//! Which cells speak of the seller and which of the buyer.
//!
//! A party's label opens a block: the cells below it in its column, without a
//! gap, up to the next such label.

use super::labels::Label;
use super::sheet::{Cell, Sheet};

/// Whose block a cell stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Seller,
    Buyer,
}

/// Rows of a block: an address with what belongs to it.
const ROWS_MAX: usize = 12;

/// Blocks that are open at a time: columns of addresses.
const OPEN_MAX: usize = 8;

/// Units of a page: where a column may be off, how far apart its rows and how
/// wide it is.
struct Units {
    off: f64,
    gap: f64,
    width: f64,
}

const POINTS: Units = Units {
    off: 4.0,
    gap: 22.0,
    width: 250.0,
};

const CHARACTERS: Units = Units {
    off: 1.0,
    gap: 1.0,
    width: 60.0,
};

#[derive(Debug)]
struct Block {
    party: Party,
    page: u32,
    x: f64,
    limit: f64,
    y: f64,
    rows: usize,
}

fn opens(cell: &Cell<'_>) -> Option<Party> {
    let hit = cell.hits.first().filter(|hit| hit.leads)?;
    let party = match hit.label {
        Label::Seller => Party::Seller,
        Label::Buyer | Label::BuyerVat => Party::Buyer,
        Label::Number
        | Label::Title
        | Label::Date
        | Label::AnyDate
        | Label::Due
        | Label::Total
        | Label::AnyTotal
        | Label::Net
        | Label::AnyNet
        | Label::Tax
        | Label::Vat(_)
        | Label::Iban
        | Label::Bic
        | Label::Currency
        | Label::Register
        | Label::Other => return None,
    };
    Some(party)
}

/// Marks every cell that stands in a block.
pub(super) fn mark(sheet: &mut Sheet<'_>) {
    let units = if sheet.plain { CHARACTERS } else { POINTS };
    let mut open: Vec<Block> = Vec::new();
    for row in &mut sheet.rows {
        open.retain(|block| {
            block.page == row.page && row.y - block.y <= units.gap && block.rows < ROWS_MAX
        });
        for (index, cell) in row.cells.iter().enumerate() {
            let Some(party) = opens(cell) else { continue };
            let x = cell.x;
            open.retain(|block| (block.x - x).abs() > units.off);
            // What is labelled beside it does not belong to it.
            let next = row
                .cells
                .get(index + 1)
                .filter(|next| !next.hits.is_empty());
            let next = next.map(|next| next.x - units.off);
            if open.len() < OPEN_MAX {
                open.push(Block {
                    party,
                    page: row.page,
                    x,
                    limit: next.unwrap_or(x + units.width),
                    y: row.y,
                    rows: 0,
                });
            }
        }
        open.sort_by(|a, b| b.x.total_cmp(&a.x));
        for cell in &mut row.cells {
            let inside = |block: &&mut Block| cell.x >= block.x - units.off && cell.x < block.limit;
            if let Some(block) = open.iter_mut().find(inside) {
                cell.party = Some(block.party);
                if row.y > block.y {
                    block.rows += 1;
                    block.y = row.y;
                }
            }
        }
    }
}
