//! What commands print: readable on a terminal, JSON when asked for.

use crate::client::Job;
use crate::exit::{Exit, Failed};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON value (or one a line for lists), for scripts.
    Json,
}

/// Prints a line to standard output. A reader that has gone away is no error.
pub(crate) fn line(text: impl AsRef<str>) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{}", text.as_ref()).is_err() {
        // A closed pipe: `fencepost list | head` has what it wanted.
    }
}

/// Text that a client chose, made safe for a terminal: control characters
/// would let it rewrite what was printed before.
pub(crate) fn safe(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\n' && c != '\t' {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Prints aligned columns under a header.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let show = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            let pad = width.saturating_sub(cell.chars().count());
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', pad + 2));
        }
        line(text.trim_end());
    };
    show(&mut header.iter().copied());
    for row in rows {
        show(&mut row.iter().map(String::as_str));
    }
}

/// Prints a job for people.
pub(crate) fn job(job: &Job) {
    line(format!("job        {}", job.id));
    line(format!("kind       {} (queue {})", job.kind, job.queue));
    let dispatch = job
        .dispatch
        .as_deref()
        .map(|how| format!(", dispatch {how}"))
        .unwrap_or_default();
    line(format!("state      {}{dispatch}", job.state));
    line(format!(
        "attempts   {} of {} (epoch {})",
        job.attempts, job.max_attempts, job.epoch
    ));
    line(format!("created    {}", job.created_at));
    if job.state == "queued" {
        line(format!("runs       {}", job.run_at));
    }
    line(format!("deadline   {}", job.deadline_at));
    if let Some(finished) = &job.finished_at {
        line(format!("finished   {finished}"));
    }
    if let Some(error) = &job.error {
        line(format!(
            "error      {}: {}",
            error.code,
            safe(&error.message)
        ));
    }
    if let Some(result) = &job.result {
        line(format!("result     {}", result.get()));
    }
}

/// Prints a job's result for people: a document's text and the note about one as
/// they are, anything else as JSON.
pub(crate) fn result(job: &Job) -> Result<Exit, Failed> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Shown {
        text: String,
        note: String,
    }
    if job.state == "completed" {
        let json = job.result.as_ref().map_or("null", |result| result.get());
        let shown: Shown = serde_json::from_str(json).unwrap_or_default();
        match job.kind.as_str() {
            "document.extract" => line(safe(&shown.text)),
            "document.prepare" => line(safe(&shown.note)),
            _ => line(json),
        }
        return Ok(Exit::Done);
    }
    let why = match &job.error {
        Some(error) => format!("{}: {}", error.code, safe(&error.message)),
        None => "it is not finished yet".to_owned(),
    };
    Err(Failed::new(
        Exit::False,
        format!("job {} is {}: {why}", job.id, job.state),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_clients_cannot_drive_the_terminal() {
        assert_eq!(safe("a\u{1b}[2Jb\r\nc"), "a\u{fffd}[2Jb\u{fffd}\nc");
    }
}
