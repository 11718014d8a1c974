//! Documents that are built to hurt: the tools end, soon, and find nothing wrong.

use std::time::{Duration, Instant};

use super::{found, found_with};
use crate::document::{ValidateParameters, draft, validate};
use crate::extract::{CELLS_PER_LINE_MAX, Cell, LINES_MAX, Line, lines_of};

/// Far beyond what a linear pass takes in a debug build, far below a quadratic one.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn nothing_gives_nothing() {
    for text in [
        "",
        "\n\n\n",
        " \t ",
        "\u{c}\u{c}",
        "\u{202e}\u{200b}",
        "%",
        "#",
        ":",
        "-",
        "()",
    ] {
        assert_eq!(found(text), [], "{text:?}");
    }
}

#[test]
fn what_is_long_takes_linear_time() {
    let started = Instant::now();
    let mark = "9".repeat(50_000);
    for text in [
        format!("Total {mark}"),
        format!("Total: {}", "1.".repeat(25_000)),
        format!("Total: {}", "1 ".repeat(25_000)),
        format!("Total: {}", "1 234".repeat(10_000)),
        format!("Invoice no {mark}"),
        format!("IBAN {}", "NL91 ".repeat(10_000)),
        format!("IBAN NL91{mark}"),
        format!("VAT no DE{mark}"),
        format!("Date: {}", "1/".repeat(25_000)),
        "invoice number ".repeat(3_000),
        "total  ".repeat(8_000),
        "net  vat  total\n".repeat(900),
        "1.00  2.00  3.00\n".repeat(900),
        "Bill to:  Seller:\n".repeat(900),
        "a@b.example ".repeat(4_000),
        "Sample Ltd ".repeat(4_000),
        "- ".repeat(20_000),
        "%".repeat(50_000),
        "e\u{301}".repeat(15_000),
    ] {
        found(&text);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn amounts_beyond_reason_are_no_amounts() {
    for text in [
        "Grand total   999999999999999999999.00",
        "Net amount   9999999999999.00\nVAT   9999999999999999.00",
        "Grand total   -999999999999999999999999999",
    ] {
        let found = found(text);
        assert!(
            found
                .iter()
                .all(|(field, _)| field != "total_amount" && field != "tax_amount"),
            "{found:?}"
        );
    }
}

#[test]
fn characters_that_turn_text_around_do_not_reach_a_value() {
    let found = found(
        "Invoice no. A\u{202e}-17\u{200b}\nSold by: Sam\u{2066}ple Trading Ltd\nGrand total   12\u{200b}.50",
    );
    let values: Vec<&str> = found.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["Sample Trading Ltd", "A-17", "12.50"]);
}

#[test]
fn places_that_make_no_sense_do_no_harm() {
    let cell = |x: f64, right: f64, text: &str| Cell {
        x,
        right,
        text: text.to_owned(),
    };
    let texts = [
        "Invoice no",
        "A-17",
        "Total",
        "5.00",
        "Bill to:",
        "IBAN",
        "",
    ];
    let strange = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -1e300,
        1e300,
    ];
    let lines: Vec<Line> = (0..200_u32)
        .map(|n| {
            let cells = texts.iter().zip(strange.iter().cycle().skip(n as usize));
            Line {
                page: n % 3,
                line: 200 - n,
                y: strange[n as usize % strange.len()],
                cells: cells.map(|(text, x)| cell(*x, -*x, text)).collect(),
            }
        })
        .collect();
    let validated = validate(&lines, false, &ValidateParameters::default());
    assert!(draft(&validated).note.starts_with("Review"));
}

/// Pieces of documents in random order never panic, and give the same twice.
#[test]
fn any_mixture_of_pieces_is_survived() {
    const PIECES: [&str; 40] = [
        "Invoice",
        "no.",
        "#",
        "Date",
        ":",
        "due",
        "Total",
        "net",
        "VAT",
        "20%",
        "1.234,56",
        "1,234.56",
        "€",
        "$",
        "EUR",
        "-5",
        "(",
        ")",
        "NL91ABNA0417164300",
        "DE136695976",
        "03/04/2024",
        "3 April 2024",
        "GmbH",
        "Sample",
        "Sold by",
        "Bill to",
        "  ",
        "\t",
        "\n",
        "\n\n",
        "\u{c}",
        "ß",
        "Ł",
        "İ",
        "ǅ",
        "\u{301}",
        "'",
        "1 234",
        "BIC",
        "ABNANL2A",
    ];
    // A linear congruential generator: the same mixtures at every run.
    let mut state = 17_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..1_000 {
        let mut text = String::new();
        for _ in 0..next() % 60 {
            text.push_str(PIECES[next() % PIECES.len()]);
            if next() % 3 > 0 {
                text.push(' ');
            }
        }
        assert_eq!(
            found_with(&text, Some("de-DE")),
            found_with(&text, Some("de-DE"))
        );
    }
}

#[test]
fn lines_keep_their_bounds() {
    let wide = "x  ".repeat(1_000);
    assert_eq!(lines_of(&wide)[0].cells.len(), CELLS_PER_LINE_MAX);
    assert_eq!(lines_of(&"x\n".repeat(5_000)).len(), LINES_MAX);
}
