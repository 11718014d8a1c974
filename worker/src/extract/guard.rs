//! The child's side: bound yourself, read, parse, answer, end.

use std::io::{Read, Write};
use std::process::ExitCode;

use fencepost_core::limits::BLOB_BYTES_MAX;
use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};

use super::layout::Layout;
use super::{
    Answer, CPU_SECONDS_MAX, Extracted, Fault, MEMORY_BYTES_MAX, PAGES_MAX, TEXT_BYTES_MAX, plain,
};

/// Where a PDF may begin (PDF 32000-1, annex H.3).
const PDF_HEADER_WITHIN: usize = 1024;

/// A parse on the main thread may need a deep stack; this much is bounded all the same.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Runs the guard: a document on standard input, one line of JSON on standard output.
///
/// The first thing it does is to bound itself; then it can only answer, or end.
pub fn run() -> ExitCode {
    if confine().is_err() {
        return ExitCode::from(71);
    }
    // A thread of its own, so that the stack is of a known size.
    let parse = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(|| {
            let mut document = Vec::new();
            let limit = u64::try_from(BLOB_BYTES_MAX).unwrap_or(u64::MAX);
            std::io::stdin()
                .lock()
                .take(limit)
                .read_to_end(&mut document)
                .ok()?;
            Some(extract(&document))
        });
    let answer = match parse.map(std::thread::JoinHandle::join) {
        Ok(Ok(Some(Ok(extracted)))) => Answer::Extracted(extracted),
        Ok(Ok(Some(Err(fault)))) => Answer::Refused(fault),
        // The parser panicked: the document is beyond it.
        Ok(Err(_)) => Answer::Refused(Fault::Damaged),
        Ok(Ok(None)) | Err(_) => return ExitCode::from(74),
    };
    let Ok(line) = serde_json::to_string(&answer) else {
        return ExitCode::from(70);
    };
    let mut out = std::io::stdout().lock();
    match writeln!(out, "\n{line}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(74),
    }
}

fn confine() -> rustix::io::Result<()> {
    // Whoever started us may be killed at any time: then we end too. It may
    // have died before this call; then we have another parent already.
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        return Err(rustix::io::Errno::SRCH);
    }
    let bound = |resource, most| {
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )
    };
    bound(Resource::As, MEMORY_BYTES_MAX)?;
    bound(Resource::Core, 0)?;
    bound(Resource::Fsize, 0)?;
    bound(Resource::Nofile, 16)?;
    // One second more before the kernel kills outright: SIGXCPU says why.
    let cpu = Rlimit {
        current: Some(CPU_SECONDS_MAX),
        maximum: Some(CPU_SECONDS_MAX + 1),
    };
    setrlimit(Resource::Cpu, cpu)
}

fn extract(document: &[u8]) -> Result<Extracted, Fault> {
    let head = document
        .get(..PDF_HEADER_WITHIN.min(document.len()))
        .unwrap_or(document);
    if head.windows(5).any(|window| window == b"%PDF-") {
        return pdf(document);
    }
    let text = plain::plain(document).ok_or(Fault::Unsupported)?;
    let (text, truncated) = bounded(&text);
    let lines = plain::lines(&text);
    Ok(Extracted {
        text,
        pages: 1,
        media_type: "text/plain".to_owned(),
        truncated,
        lines_truncated: truncated || lines.truncated(),
        lines: lines.into_vec(),
    })
}

fn pdf(document: &[u8]) -> Result<Extracted, Fault> {
    let refused = |error: &dyn std::fmt::Debug| {
        let told = format!("{error:?}").to_ascii_lowercase();
        if told.contains("encrypt") || told.contains("password") || told.contains("decrypt") {
            Fault::Encrypted
        } else {
            Fault::Damaged
        }
    };
    let mut file = pdf_extract::Document::load_mem(document).map_err(|error| refused(&error))?;
    if file.is_encrypted() {
        // Many are encrypted with an empty password, which any reader tries.
        file.decrypt("").map_err(|error| refused(&error))?;
    }
    let pages = file.get_pages().len();
    if pages > PAGES_MAX {
        return Err(Fault::TooManyPages);
    }
    if pages == 0 {
        return Err(Fault::Damaged);
    }
    let mut layout = Layout::default();
    pdf_extract::output_doc(&file, &mut layout).map_err(|error| refused(&error))?;
    let (text, cut) = bounded(layout.text());
    let truncated = cut || layout.truncated();
    let lines = layout.into_lines();
    Ok(Extracted {
        text,
        pages: u32::try_from(pages).unwrap_or(u32::MAX),
        media_type: "application/pdf".to_owned(),
        truncated,
        lines_truncated: truncated || lines.truncated(),
        lines: lines.into_vec(),
    })
}

/// Normalised line ends, no control characters, cut on a character.
fn bounded(text: &str) -> (String, bool) {
    let mut kept = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for character in text.replace("\r\n", "\n").chars() {
        let character = match character {
            '\r' => '\n',
            '\n' | '\t' | '\u{c}' => character,
            c if c.is_control() => continue,
            c => c,
        };
        if kept.len() + character.len_utf8() > TEXT_BYTES_MAX {
            return (kept, true);
        }
        kept.push(character);
    }
    (kept, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_read_in_the_encodings_people_use() {
        let read = |bytes: &[u8]| extract(bytes).map(|extracted| extracted.text);
        assert_eq!(read("Größe\r\n5 €".as_bytes()), Ok("Größe\n5 €".to_owned()));
        assert_eq!(read(b"\xff\xfeh\0i\0"), Ok("hi".to_owned()));
        assert_eq!(read(b"\xfe\xff\0h\0i"), Ok("hi".to_owned()));
        assert_eq!(read(b"5 \x80, Gr\xf6\xdfe"), Ok("5 €, Größe".to_owned()));
        assert_eq!(read(b""), Ok(String::new()));
        assert_eq!(read(b"a\0b"), Err(Fault::Unsupported));
        assert_eq!(read(b"\x89PNG\r\n\x1a\n\0\0"), Err(Fault::Unsupported));
        assert_eq!(read(b"\xff\xfeh"), Err(Fault::Unsupported));
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let extracted = extract(long.as_bytes()).unwrap();
        assert!(extracted.truncated && extracted.text.len() <= TEXT_BYTES_MAX);
    }

    #[test]
    fn a_damaged_pdf_is_refused() {
        assert_eq!(extract(b"%PDF-1.4\nnothing else"), Err(Fault::Damaged));
    }
}
