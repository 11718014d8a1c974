//! What was typed: the command line, and nothing of what it means.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, value_parser};
use fencepost_service::settings;

use crate::commands::{healthcheck, jobs, keys, outbox, queues, unknown};
use crate::exit;

/// A durable job system: accept over HTTP, run on workers, lose nothing.
#[derive(Debug, Parser)]
#[command(name = "fencepost", version, after_help = exit::HELP, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags that every verb takes.
#[derive(Debug)]
pub(crate) struct Global {
    /// The settings file that was named.
    pub(crate) config: Option<PathBuf>,
    /// Print JSON.
    pub(crate) json: bool,
    /// Settings given as flags: key and value.
    pub(crate) settings: Vec<(String, String)>,
}

// The flags of settings come from the settings' own table, so that a setting is
// declared once; clap's derive cannot know them.
impl Args for Global {
    fn augment_args(command: Command) -> Command {
        let own = command
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .global(true)
                    .value_parser(value_parser!(PathBuf))
                    .help("The settings file [default: fencepost.toml, if it exists]"),
            )
            .arg(
                Arg::new("json")
                    .long("json")
                    .global(true)
                    .action(clap::ArgAction::SetTrue)
                    .help("Print JSON"),
            );
        settings::flags().fold(own, |command, (key, doc)| {
            command.arg(
                Arg::new(key)
                    .long(key.replace('_', "-"))
                    .value_name("VALUE")
                    .global(true)
                    .help_heading("Settings")
                    .help(doc.trim_end_matches('.')),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Global {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = settings::flags().filter_map(|(key, _)| {
            let value = matches.get_one::<String>(key)?;
            Some((key.to_owned(), value.clone()))
        });
        Ok(Self {
            config: matches.get_one::<PathBuf>("config").cloned(),
            json: matches.get_flag("json"),
            settings: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run everything in one process: API, relay duties and workers, on one SQLite file
    Up,
    /// Run the HTTP API
    Api,
    /// Run the relay: outbox to broker, reaper, redispatch
    Relay,
    /// Run a worker
    Worker,
    /// Bring the database's schema up to date and end
    Migrate,
    /// Manage API keys, directly on the database
    #[command(subcommand)]
    Keys(keys::Keys),
    Submit(jobs::Submit),
    Get(jobs::Get),
    List(jobs::List),
    Events(jobs::Events),
    Cancel(jobs::Cancel),
    Retry(jobs::Retry),
    Unknown(unknown::Unknown),
    Resolve(Box<unknown::Resolve>),
    /// Show, pause and resume queues
    #[command(subcommand)]
    Queues(queues::Queues),
    /// Show what is to be dispatched, and release what is held back; directly on the database
    #[command(subcommand)]
    Outbox(outbox::Outbox),
    /// Replay every job's history against the rules, directly on the database
    Verify,
    Healthcheck(healthcheck::Healthcheck),
    /// Parse a document under tight limits; started by workers, not by people
    #[command(hide = true)]
    ExtractGuard,
    /// Run a program and end it with its claim; started by workers, not by people
    #[command(hide = true)]
    CommandGuard,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_setting_may_stand_before_or_after_the_verb() {
        for line in [
            ["fencepost", "--listen", "x:1", "up"],
            ["fencepost", "up", "--listen", "x:1"],
        ] {
            let cli = Cli::parse_from(line);
            assert_eq!(
                cli.global.settings,
                [("listen".to_owned(), "x:1".to_owned())]
            );
        }
    }
}
