//! The extractor against documents good, bad and hostile, and guards that misbehave.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::extract::{ExtractError, Extractor, Fault, TEXT_BYTES_MAX};

/// The example is built with the tests, beside them.
fn guard() -> Extractor {
    let own = std::env::current_exe().expect("a test has a program");
    let program = own
        .ancestors()
        .nth(2)
        .expect("it lies in a target directory")
        .join("examples/extract-guard");
    Extractor::new(program, Vec::new())
}

fn program(path: &str, arguments: &[&str]) -> Extractor {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Extractor::new(PathBuf::from(path), arguments)
}

/// A PDF of one page a text, in Helvetica, as PDF 32000-1 section 7.5 lays it out.
fn pdf(pages: &[&str]) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len())
        .map(|n| format!("{} 0 R", 4 + 2 * n))
        .collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!(
            "<< /Type /Pages /Kids [{}] /Count {} >>",
            kids.join(" "),
            pages.len()
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_owned(),
    ];
    for (n, text) in pages.iter().enumerate() {
        let content = format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET");
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R \
             /Resources << /Font << /F1 3 0 R >> >> >>",
            5 + 2 * n
        ));
        objects.push(format!(
            "<< /Length {} >>\nstream\n{content}\nendstream",
            content.len()
        ));
    }
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut offsets = Vec::new();
    for (n, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        file.extend(format!("{} 0 obj\n{object}\nendobj\n", n + 1).bytes());
    }
    let table = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).bytes());
    for offset in offsets {
        file.extend(format!("{offset:010} 00000 n \n").bytes());
    }
    let size = objects.len() + 1;
    file.extend(
        format!("trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n").bytes(),
    );
    file
}

#[tokio::test]
async fn a_pdf_gives_its_text_and_page_count() {
    let document = pdf(&["Invoice 4711", "Total 12.50"]);
    let extracted = guard().extract(document.into()).await.unwrap();
    assert_eq!(
        (extracted.pages, extracted.media_type.as_str()),
        (2, "application/pdf")
    );
    assert_eq!(extracted.text, "Invoice 4711\n\u{c}\nTotal 12.50");
    assert!(!extracted.truncated && !extracted.lines_truncated);
    let lines: Vec<_> = extracted
        .lines
        .iter()
        .map(|line| (line.page, line.line, line.y, line.cells[0].x))
        .collect();
    assert_eq!(lines, [(1, 1, 72.0, 72.0), (2, 1, 72.0, 72.0)]);
}

#[tokio::test]
async fn a_pdf_is_read_by_rows_and_not_in_the_order_it_was_drawn() {
    let drawn = "12.50) Tj -200 -20 Td (below) Tj 0 20 Td (Total";
    let extracted = guard().extract(pdf(&[drawn]).into()).await.unwrap();
    assert_eq!(extracted.text, "Total\t12.50\nbelow");
}

#[tokio::test]
async fn the_fields_of_a_pdf_are_found_in_its_rows_and_columns() {
    use fencepost_worker::document::{ValidateParameters, validate};
    // Drawn column by column, as spreadsheets do.
    let drawn = "Invoice no.) Tj 0 -14 Td (A-17) Tj 0 -40 Td (Subtotal) Tj 0 -14 Td (VAT 20%) Tj 0 -14 Td (Total) Tj \
                 160 82 Td (Invoice date) Tj 0 -14 Td (3 April 2024) Tj 0 -40 Td (100.00) Tj 0 -14 Td (20.00) Tj \
                 0 -14 Td (120.00 EUR";
    let extracted = guard().extract(pdf(&[drawn]).into()).await.unwrap();
    let validated = validate(
        &extracted.lines,
        extracted.lines_truncated,
        &ValidateParameters::default(),
    );
    let found: Vec<_> = validated
        .found
        .iter()
        .map(|found| {
            (
                found.field.name(),
                found.value.as_str(),
                found.place.page,
                found.place.line,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("invoice_number", "A-17", 1, 2),
            ("date", "2024-04-03", 1, 2),
            ("currency", "EUR", 1, 5),
            ("net_amount", "100.00", 1, 3),
            ("tax_amount", "20.00", 1, 4),
            ("total_amount", "120.00", 1, 5),
        ]
    );
    assert!(validated.checks.iter().all(|check| check.passed));
    assert_eq!(validated.checks.len(), 1);
}

#[tokio::test]
async fn a_page_that_cannot_be_read_is_not_left_out_in_silence() {
    let mut document = pdf(&["Invoice 4711", "Total 12.50"]);
    let at = document
        .windows(9)
        .rposition(|window| window == b"MediaBox ");
    let at = at.expect("a page has a media box");
    document[at] = b'X';
    let error = guard().extract(document.into()).await.unwrap_err();
    assert!(
        matches!(error, ExtractError::Refused(Fault::Damaged)),
        "{error:?}"
    );
}

#[tokio::test]
async fn plain_text_is_its_own_text() {
    let extracted = guard()
        .extract(Bytes::from_static("Größe\r\n".as_bytes()))
        .await
        .unwrap();
    assert_eq!((extracted.text.as_str(), extracted.pages), ("Größe\n", 1));
    let long = guard()
        .extract(vec![b'x'; TEXT_BYTES_MAX + 1].into())
        .await
        .unwrap();
    assert_eq!((long.text.len(), long.truncated), (TEXT_BYTES_MAX, true));
}

#[tokio::test]
async fn what_is_no_document_is_refused_for_good() {
    let refused = |document: Vec<u8>| async move {
        match guard().extract(document.into()).await {
            Err(ExtractError::Refused(fault)) => fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused(b"\x89PNG\r\n\x1a\n\0\0".to_vec()).await,
        Fault::Unsupported
    );
    let mut cut = pdf(&["Invoice"]);
    cut.truncate(120);
    assert_eq!(refused(cut).await, Fault::Damaged);
    let too_large = vec![b'x'; fencepost_core::limits::BLOB_BYTES_MAX + 1];
    assert!(matches!(
        guard().extract(too_large.into()).await,
        Err(ExtractError::TooLarge)
    ));
}

#[tokio::test]
async fn a_pdf_nested_beyond_reason_costs_an_answer_and_not_the_caller() {
    let mut document = b"%PDF-1.4\n1 0 obj\n".to_vec();
    document.extend(std::iter::repeat_n(b'[', 4_000_000));
    let error = guard().extract(document.into()).await.unwrap_err();
    assert!(
        matches!(
            error,
            ExtractError::Refused(Fault::Damaged) | ExtractError::Crashed(_)
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_guard_that_does_not_end_is_ended() {
    let started = Instant::now();
    let slow = program("/bin/sleep", &["600"]).wall_limit(Duration::from_millis(200));
    assert!(matches!(
        slow.extract(Bytes::new()).await,
        Err(ExtractError::OutOfTime)
    ));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_guard_that_prints_garbage_or_floods_is_a_crash() {
    let garbage = program("/bin/echo", &["hello"]).extract(Bytes::new()).await;
    assert!(
        matches!(garbage, Err(ExtractError::Crashed(_))),
        "{garbage:?}"
    );
    let flood = program("/usr/bin/yes", &[]).extract(Bytes::new()).await;
    assert!(matches!(flood, Err(ExtractError::Crashed(_))), "{flood:?}");
    let missing = program("/nowhere/guard", &[]).extract(Bytes::new()).await;
    assert!(
        matches!(missing, Err(ExtractError::Start(_))),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_dropped_extraction_leaves_no_child() {
    let seconds = "613";
    let extractor = program("/bin/sleep", &[seconds]);
    let extraction = extractor.extract(Bytes::new());
    assert!(
        tokio::time::timeout(Duration::from_millis(200), extraction)
            .await
            .is_err()
    );
    eventually(Duration::from_secs(10), "the child is gone", async || {
        let running = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            line.ends_with(format!("sleep\0{seconds}\0").as_bytes())
                .then_some(())
        });
        let count = running.count();
        require(count == 0, count)
    })
    .await;
}
