//! `cargo xtask ci`: what every change must pass, the cheap checks first.
//!
//! Owns the order and the report. Stops at the first failure; a step that
//! could not check all it should says so in the report, never in silence.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process::{Signals, cargo};
use crate::services::Given;
use crate::suite::Times;
use crate::{deny, suite, tidy};

/// In the order they run. The tests come last, so that their runner's summary
/// stands at the end of a long log.
const STEPS: [Step; 6] = [
    Step::Format,
    Step::Tidy,
    Step::Clippy,
    Step::Documentation,
    Step::Dependencies,
    Step::Tests,
];

#[derive(Debug, Clone, Copy)]
enum Step {
    Format,
    Tidy,
    Clippy,
    Documentation,
    Dependencies,
    Tests,
}

/// What the steps need.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    given: Given,
    /// Where cargo-deny is installed when the machine has none, by default below
    /// ~/.cache/fencepost-ci; kept between runs
    #[arg(long, value_name = "FOLDER", env = "FENCEPOST_TOOLS_DIR")]
    tools_dir: Option<PathBuf>,
}

/// Runs every step.
///
/// # Errors
/// That of the first step that fails.
pub(crate) async fn run(root: &Path, options: &Options, signals: &mut Signals) -> Result<()> {
    let started = Instant::now();
    let mut report = Vec::new();
    let mut outcome = Ok(());
    for step in STEPS {
        println!("\n==> {}", step.name());
        let began = Instant::now();
        let result = step.run(root, options, signals).await;
        let time = seconds(began.elapsed());
        let said = match &result {
            Ok(None) => "ok".to_owned(),
            Ok(Some(note)) => format!("ok, but {note}"),
            Err(error) => format!("FAILED: {error:#}"),
        };
        println!("<== {}: {said} ({time})", step.name());
        report.push(format!("  {:<14} {time:>8}  {said}", step.name()));
        if let Err(error) = result {
            outcome = Err(error.context(format!("{} failed", step.name())));
            break;
        }
    }
    println!("\nci after {}:", seconds(started.elapsed()));
    for line in &report {
        println!("{line}");
    }
    for step in STEPS.iter().skip(report.len()) {
        println!("  {:<14} {:>8}  not run", step.name(), "");
    }
    println!("ci {}", if outcome.is_ok() { "passed" } else { "FAILED" });
    outcome
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Tidy => "tidy",
            Self::Clippy => "clippy",
            Self::Documentation => "documentation",
            Self::Dependencies => "dependencies",
            Self::Tests => "tests",
        }
    }

    /// The answer is what the step could not check, if anything.
    async fn run(
        self,
        root: &Path,
        options: &Options,
        signals: &mut Signals,
    ) -> Result<Option<String>> {
        let everything = &["--workspace", "--all-features", "--locked"];
        match self {
            Self::Format => {
                let format = cargo(root, &["fmt", "--all", "--check"]);
                signals.run(format).await?;
            }
            Self::Tidy => tidy::check(root)?,
            Self::Clippy => {
                let words = [&["clippy"], &everything[..], &["--all-targets"]].concat();
                let mut clippy = cargo(root, &words);
                clippy.args(["--", "--deny", "warnings"]);
                signals.run(clippy).await?;
            }
            Self::Documentation => {
                let only = &["--no-deps", "--document-private-items"];
                let mut doc = cargo(root, &[&["doc"], &everything[..], only].concat());
                doc.env("RUSTDOCFLAGS", "--deny warnings");
                signals.run(doc).await?;
            }
            Self::Dependencies => {
                let home = || std::env::home_dir().context("there is no home directory");
                let tools = match &options.tools_dir {
                    Some(tools) => tools.clone(),
                    None => home()?.join(".cache/fencepost-ci/tools"),
                };
                return deny::check(root, &tools, signals).await;
            }
            Self::Tests => {
                let given = &options.given;
                suite::run(root, given, Times::Scaled, Some("ci"), &[], signals).await?;
            }
        }
        Ok(None)
    }
}

/// To a tenth of a second: finer is noise.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
