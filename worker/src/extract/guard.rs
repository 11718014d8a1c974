//! The child's side: bound yourself, read, parse, answer, end.

use std::io::{Read, Write};
use std::process::ExitCode;

use fencepost_core::limits::BLOB_BYTES_MAX;
use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};

use super::{
    Answer, CPU_SECONDS_MAX, Extracted, Fault, MEMORY_BYTES_MAX, PAGES_MAX, TEXT_BYTES_MAX,
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
    let text = plain(document).ok_or(Fault::Unsupported)?;
    Ok(bounded(&text, 1, "text/plain"))
}

fn pdf(document: &[u8]) -> Result<Extracted, Fault> {
    let pages = pdf_extract::extract_text_from_mem_by_pages(document).map_err(|error| {
        let told = format!("{error:?}").to_ascii_lowercase();
        if told.contains("encrypt") || told.contains("password") || told.contains("decrypt") {
            Fault::Encrypted
        } else {
            Fault::Damaged
        }
    })?;
    if pages.len() > PAGES_MAX {
        return Err(Fault::TooManyPages);
    }
    let count = u32::try_from(pages.len()).unwrap_or(u32::MAX);
    let trimmed: Vec<&str> = pages.iter().map(|page| page.trim()).collect();
    Ok(bounded(
        &trimmed.join("\n\u{c}\n"),
        count,
        "application/pdf",
    ))
}

/// UTF-8, UTF-16 with a byte order mark, or else Windows-1252, as long as it
/// holds no control characters that text does not have.
fn plain(document: &[u8]) -> Option<String> {
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

/// Normalised line ends, no control characters, cut on a character.
fn bounded(text: &str, pages: u32, media_type: &str) -> Extracted {
    let mut kept = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    let mut truncated = false;
    for character in text.replace("\r\n", "\n").chars() {
        let character = match character {
            '\r' => '\n',
            '\n' | '\t' | '\u{c}' => character,
            c if c.is_control() => continue,
            c => c,
        };
        if kept.len() + character.len_utf8() > TEXT_BYTES_MAX {
            truncated = true;
            break;
        }
        kept.push(character);
    }
    Extracted {
        text: kept,
        pages,
        media_type: media_type.to_owned(),
        truncated,
    }
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
