//! The text of a document, parsed where it can do no harm.
//!
//! A document may be hostile: built to recurse, to inflate, or to loop. So it
//! is parsed in a child process (this program again, see [`guard`]) which bounds
//! its own memory, time and files before it reads the first byte. Whatever the
//! child does, the worker sees an answer or one of [`ExtractError`]; such a file
//! costs one attempt and not the worker. Document text never occurs in an error.

pub mod guard;
mod layout;
mod line;
mod plain;

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::limits::BLOB_BYTES_MAX;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

pub use line::{CELLS_MAX, CELLS_PER_LINE_MAX, Cell, LINES_MAX, LINES_TEXT_BYTES_MAX, Line};

/// Text kept of a document: with its JSON escapes it fits the 1 MiB of a result.
pub const TEXT_BYTES_MAX: usize = 768 * 1024;

/// Pages of a document: a thick book.
pub const PAGES_MAX: usize = 2_000;

/// The longest a parse may take by the wall clock: a large scan takes some seconds.
pub const WALL_LIMIT: Duration = Duration::from_secs(60);

/// CPU seconds of the child: what the wall limit allows on a busy machine.
pub const CPU_SECONDS_MAX: u64 = 45;

/// Memory of the child in bytes: many times the largest document.
pub const MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The child's answer in bytes: the text with every character escaped, its
/// lines again with their positions, and headroom.
const ANSWER_BYTES_MAX: u64 = 6 * TEXT_BYTES_MAX as u64 + 1024 * 1024;

/// A document's text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extracted {
    /// The text, pages separated by a form feed. Empty for a scan without text.
    /// Of a PDF a line is a row as a person sees it, with a tab where a wide
    /// gap is.
    pub text: String,
    /// The number of pages; one for plain text.
    pub pages: u32,
    /// `application/pdf` or `text/plain`.
    pub media_type: String,
    /// Whether the text was cut at [`TEXT_BYTES_MAX`].
    pub truncated: bool,
    /// The lines that are not empty, with where they stand; fewer than the text
    /// of a long document holds.
    pub lines: Vec<Line>,
    /// Whether the document has more than `lines` says.
    pub lines_truncated: bool,
}

/// What the guard prints on its last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Extracted(Extracted),
    Refused(Fault),
}

/// Why a document was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Neither a PDF nor plain text.
    Unsupported,
    /// A PDF that asks for a password.
    Encrypted,
    /// A PDF that the parser cannot read.
    Damaged,
    /// More than [`PAGES_MAX`] pages.
    TooManyPages,
}

/// A document gave no text. All but [`ExtractError::Start`] are for good.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// It is longer than a document may be.
    #[error("the document has more than {BLOB_BYTES_MAX} bytes")]
    TooLarge,
    /// The guard read it and refused it.
    #[error("{}", match .0 {
        Fault::Unsupported => "the document is neither a PDF nor plain text",
        Fault::Encrypted => "the document is encrypted",
        Fault::Damaged => "the PDF is damaged or uses what the parser cannot read",
        Fault::TooManyPages => "the document has too many pages",
    })]
    Refused(Fault),
    /// The parse took too long, by the wall clock or by CPU time.
    #[error("the parse did not end in time")]
    OutOfTime,
    /// The parser crashed or ran out of memory.
    #[error("the parser ended without an answer ({0})")]
    Crashed(String),
    /// The guard could not be started: nothing was parsed.
    #[error("the extraction guard could not be started")]
    Start(#[source] std::io::Error),
}

impl ExtractError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "document_too_large",
            Self::Refused(Fault::Unsupported) => "document_unsupported",
            Self::Refused(Fault::Encrypted) => "document_encrypted",
            Self::Refused(Fault::Damaged) => "document_damaged",
            Self::Refused(Fault::TooManyPages) => "document_too_many_pages",
            Self::OutOfTime => "extract_out_of_time",
            Self::Crashed(_) => "extract_crashed",
            Self::Start(_) => "extract_not_started",
        }
    }
}

/// Starts guards.
#[derive(Debug, Clone)]
pub struct Extractor {
    program: PathBuf,
    arguments: Vec<String>,
    wall_limit: Duration,
}

impl Extractor {
    /// By a program and its arguments, which must call [`guard::run`].
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<String>) -> Self {
        Self {
            program,
            arguments,
            wall_limit: WALL_LIMIT,
        }
    }

    /// With another limit by the wall clock.
    #[must_use]
    pub fn wall_limit(self, wall_limit: Duration) -> Self {
        Self { wall_limit, ..self }
    }

    /// Extracts the text of a document.
    ///
    /// # Errors
    /// [`ExtractError`].
    ///
    /// # Cancel safety
    /// Dropping the future kills the child.
    pub async fn extract(&self, document: Bytes) -> Result<Extracted, ExtractError> {
        if document.len() > BLOB_BYTES_MAX {
            return Err(ExtractError::TooLarge);
        }
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(ExtractError::Start)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ExtractError::Start(std::io::Error::other("no pipes")));
        };
        let talk = async {
            let send = async {
                // A guard that stopped reading says why in its answer.
                drop(stdin.write_all(&document).await);
                drop(stdin);
            };
            let mut answer = Vec::new();
            let mut limited = stdout.take(ANSWER_BYTES_MAX);
            let receive = limited.read_to_end(&mut answer);
            let ((), received) = tokio::join!(send, receive);
            drop(received);
            // A guard that goes on writing past the limit ends by a broken pipe.
            drop(limited);
            let status = child.wait().await;
            (answer, status)
        };
        let Ok((answer, status)) = tokio::time::timeout(self.wall_limit, talk).await else {
            return Err(ExtractError::OutOfTime);
        };
        judge(&answer, status.ok())
    }
}

/// The lines of a plain text, without a guard.
#[cfg(test)]
pub(crate) fn lines_of(text: &str) -> Vec<Line> {
    plain::lines(text).into_vec()
}

/// Decides what a guard's output and end mean. Libraries may print; the last line is the answer.
fn judge(output: &[u8], status: Option<ExitStatus>) -> Result<Extracted, ExtractError> {
    use std::os::unix::process::ExitStatusExt as _;
    /// SIGXCPU on Linux: the CPU limit (signal(7)).
    const OUT_OF_CPU: i32 = 24;

    if status.and_then(|status| status.signal()) == Some(OUT_OF_CPU) {
        return Err(ExtractError::OutOfTime);
    }
    let last = output
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty());
    let answer = last.and_then(|line| serde_json::from_slice::<Answer>(line).ok());
    match answer {
        Some(Answer::Extracted(extracted)) => Ok(extracted),
        Some(Answer::Refused(fault)) => Err(ExtractError::Refused(fault)),
        None => {
            let how =
                status.map_or_else(|| "unknown status".to_owned(), |status| status.to_string());
            Err(ExtractError::Crashed(how))
        }
    }
}
