//! `fencepost verify`: replays every job's history against the rules.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use anyhow::Context as _;
use fencepost_core::verify::{self, Rule, Violation};
use fencepost_store::Store;
use serde_json::json;

use crate::exit::Exit;
use crate::output::{self, Format};

/// Jobs read in one short transaction.
const PAGE: u32 = 500;

/// What a whole run found.
#[derive(Debug, Default)]
struct Report {
    jobs: u64,
    /// The first violation of each rule, and how many there are.
    broken: BTreeMap<Rule, (Violation, u64)>,
    orphaned_entries: u64,
    orphaned_events: u64,
}

/// Verifies every job of a store and prints what it found.
pub(crate) async fn run(store: &Store, format: Format) -> anyhow::Result<Exit> {
    let total = store
        .count_jobs()
        .await
        .context("counting the jobs to verify")?;
    let shows_progress = std::io::stderr().is_terminal();
    let mut report = Report::default();
    let mut after = None;
    loop {
        let page = store
            .audit(after, PAGE)
            .await
            .context("reading jobs to verify")?;
        for audit in page.jobs {
            report.jobs += 1;
            for violation in verify::check(&audit.snapshot, &audit.history) {
                let entry = report.broken.entry(violation.rule);
                entry.or_insert((violation, 0)).1 += 1;
            }
        }
        if shows_progress {
            progress(report.jobs, total);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    (report.orphaned_entries, report.orphaned_events) =
        store.orphans().await.context("looking for orphans")?;
    Ok(print(&report, format))
}

fn progress(done: u64, total: u64) {
    use std::io::Write as _;
    let mut err = std::io::stderr().lock();
    let end = if done >= total { "\n" } else { "" };
    if write!(err, "\rverified {done} of {total} jobs{end}")
        .and_then(|()| err.flush())
        .is_err()
    {
        // Progress that nobody can see is not worth an error.
    }
}

fn print(report: &Report, format: Format) -> Exit {
    let sound =
        report.broken.is_empty() && report.orphaned_entries == 0 && report.orphaned_events == 0;
    if format == Format::Json {
        let broken: Vec<_> = report
            .broken
            .iter()
            .map(|(rule, (first, count))| {
                json!({
                    "rule": rule.sentence(), "count": count, "job": first.job.to_string(),
                    "event": first.event, "seen": first.seen,
                })
            })
            .collect();
        let orphans =
            json!({"outbox_entries": report.orphaned_entries, "histories": report.orphaned_events});
        output::line(
            json!({"jobs": report.jobs, "sound": sound, "broken": broken, "orphans": orphans})
                .to_string(),
        );
    } else {
        for (rule, (first, count)) in &report.broken {
            let event = first
                .event
                .map(|event| format!(" at event {event}"))
                .unwrap_or_default();
            output::line(format!("broken: {} ({count} times)", rule.sentence()));
            output::line(format!("  first: job {}{event}: {}", first.job, first.seen));
        }
        if report.orphaned_entries > 0 {
            output::line(format!(
                "broken: {} outbox entries have no job",
                report.orphaned_entries
            ));
        }
        if report.orphaned_events > 0 {
            output::line(format!(
                "broken: {} histories have no job",
                report.orphaned_events
            ));
        }
        let verdict = if sound {
            "every rule holds"
        } else {
            "rules are broken"
        };
        output::line(format!("{} jobs verified: {verdict}", report.jobs));
    }
    if sound { Exit::Done } else { Exit::False }
}
