//! The `fencepost` binary: every role and the operator's verbs, and the only
//! place that puts the parts together.

mod args;
mod client;
mod commands;
mod exit;
mod handlers;
mod output;
mod roles;

use std::process::ExitCode;

use clap::Parser as _;
use fencepost_service::settings::{Settings, SettingsError, Sources, process_environment};

use crate::args::{Cli, Verb};
use crate::exit::{Exit, Failed};

fn main() -> ExitCode {
    // Guards start nothing that they do not need, and read no settings.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = !error.use_stderr();
            if error.print().is_err() {
                // Nobody reads; the exit code says the rest.
            }
            return if is_help { Exit::Done } else { Exit::Usage }.into();
        }
    };
    if matches!(cli.verb, Verb::ExtractGuard) {
        return fencepost_worker::extract::guard::run();
    }
    if matches!(cli.verb, Verb::CommandGuard) {
        return fencepost_worker::command::guard::run();
    }
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(error) => {
            complain(&format!("fencepost: {error:#}"));
            exit_of(&error).into()
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let environment: &dyn Fn(&str) -> Option<String> = &process_environment;
    let settings = Settings::load(Sources {
        file: cli.global.config.clone(),
        environment: Some(environment),
        flags: cli.global.settings.clone(),
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let exit = runtime.block_on(commands::run(cli, settings));
    // What still runs (a resolver, a blocked handler) may not keep the process.
    runtime.shutdown_background();
    exit
}

/// The exit code of an error, by its kind and never by its text.
fn exit_of(error: &anyhow::Error) -> Exit {
    if let Some(failed) = error.downcast_ref::<Failed>() {
        failed.exit
    } else if error.downcast_ref::<SettingsError>().is_some()
        || error.downcast_ref::<fencepost_api::StartError>().is_some()
        || error
            .downcast_ref::<fencepost_worker::BuildError>()
            .is_some()
        || error
            .downcast_ref::<fencepost_worker::http::HttpSetupError>()
            .is_some()
    {
        Exit::BadConfig
    } else if let Some(error) = error.downcast_ref::<fencepost_store::StoreError>() {
        match error.class() {
            fencepost_store::ErrorClass::Transient => Exit::Unavailable,
            fencepost_store::ErrorClass::Permanent => Exit::BadConfig,
            fencepost_store::ErrorClass::Conflict | fencepost_store::ErrorClass::Corrupt => {
                Exit::False
            }
        }
    } else {
        Exit::Unavailable
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the one line about why the command failed"
)]
fn complain(text: &str) {
    eprintln!("{text}");
}
