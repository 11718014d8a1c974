//! `cargo xtask`: the development tasks of Fencepost.
//!
//! A person, the build machine and the documentation call the same tasks. Each
//! ends what it started: after success, after failure and when it is told to
//! stop.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for the terminal talks to the terminal"
)]

mod ci;
mod deny;
mod process;
mod samples;
mod services;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use process::{Signals, Stopped};
use services::{Broker, Given};
use suite::Times;

/// The development tasks of Fencepost.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test; finds or starts RabbitMQ
    Test {
        #[command(flatten)]
        given: Given,
        /// Run scenarios with their literal times, which takes long
        #[arg(long)]
        full: bool,
        /// For `cargo nextest run`: a part of a test's name, `-p PACKAGE` …
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run every check that a change must pass
    Ci(ci::Options),
    /// Test the compose stack; needs a Docker engine and Compose v2
    Compose,
    /// Compare the fields found in documents with those that people wrote down
    Samples {
        /// Holds documents, each with a `.json` of its fields beside it
        folder: PathBuf,
    },
    /// Start RabbitMQ and print how to reach it, until Ctrl-C
    Services(Given),
    /// Check the rules of the house that no lint can see
    Tidy,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.task).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            let stopped = error.downcast_ref::<Stopped>();
            stopped.map_or(ExitCode::FAILURE, |stopped| stopped.exit_code().into())
        }
    }
}

async fn run(task: Task) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("xtask lies in the workspace")?;
    let mut signals = Signals::catch()?;
    match task {
        Task::Test {
            given,
            full,
            arguments,
        } => {
            let (times, profile) = if full {
                (Times::Literal, Some("full"))
            } else {
                (Times::Scaled, None)
            };
            suite::run(root, &given, times, profile, &arguments, &mut signals).await
        }
        Task::Ci(options) => ci::run(root, &options, &mut signals).await,
        Task::Services(given) => {
            let broker = Broker::find_or_start(&given, &mut signals).await?;
            println!("{}", broker.shell_exports());
            eprintln!("RabbitMQ runs until Ctrl-C; paste the lines above into another shell");
            let stopped = signals.received().await;
            eprintln!("{stopped}");
            Ok(())
        }
        Task::Samples { folder } => samples::run(&folder).await,
        Task::Compose => suite::compose(root, &mut signals).await,
        Task::Tidy => tidy::check(root),
    }
}
