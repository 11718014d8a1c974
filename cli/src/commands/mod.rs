//! Every verb, from what was typed to what it does.

pub(crate) mod healthcheck;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod outbox;
mod probe;
pub(crate) mod queues;
pub(crate) mod unknown;
mod verify;

use anyhow::Context as _;
use fencepost_core::id::IdSource as _;
use fencepost_service::settings::Settings;
use fencepost_service::system::SystemIds;
use fencepost_service::telemetry;
use fencepost_store::Store;

use crate::args::{Cli, Verb};
use crate::client::Client;
use crate::exit::{Exit, Failed};
use crate::output::{self, Format};
use crate::roles;

/// What a command logs: its own trouble, not the progress of a server.
const COMMAND_LOG: &str = "warn";

pub(crate) async fn run(cli: Cli, settings: Settings) -> anyhow::Result<Exit> {
    let format = if cli.global.json {
        Format::Json
    } else {
        Format::Text
    };
    let is_role = matches!(cli.verb, Verb::Up | Verb::Api | Verb::Relay | Verb::Worker);
    let log = if is_role {
        settings.log.as_str()
    } else {
        COMMAND_LOG
    };
    telemetry::start(log, settings.log_format).map_err(|error| {
        Failed::new(
            Exit::BadConfig,
            format!("setting `log`: {error}, expected a level such as info"),
        )
    })?;
    match cli.verb {
        Verb::Up => roles::up(&settings).await,
        Verb::Api => roles::api(&settings).await,
        Verb::Relay => roles::relay(&settings).await,
        Verb::Worker => roles::worker(&settings).await,
        Verb::Migrate => {
            let path = roles::database_path(&settings)?;
            roles::open(&settings).await?.close().await;
            output::line(format!("{} is up to date", path.display()));
            Ok(Exit::Done)
        }
        Verb::Keys(keys) => {
            let store = roles::open(&settings).await?;
            let exit = keys.run(&store, &SystemIds, format).await;
            store.close().await;
            exit
        }
        Verb::Verify => {
            let store = existing(&settings).await?;
            let exit = verify::run(&store, format).await;
            store.close().await;
            exit
        }
        Verb::Outbox(outbox) => {
            let store = existing(&settings).await?;
            let exit = outbox.run(&store, format).await;
            store.close().await;
            exit
        }
        Verb::Queues(queues) => Ok(queues.run(&client(&settings)?, format).await?),
        Verb::Submit(submit) => {
            let key = SystemIds.uuid().to_string();
            Ok(submit.run(&client(&settings)?, key, format).await?)
        }
        Verb::Get(get) => Ok(get.run(&client(&settings)?, format).await?),
        Verb::List(list) => Ok(list.run(&client(&settings)?, format).await?),
        Verb::Events(events) => Ok(events.run(&client(&settings)?, format).await?),
        Verb::Cancel(cancel) => Ok(cancel.run(&client(&settings)?, format).await?),
        Verb::Retry(retry) => Ok(retry.run(&client(&settings)?, format).await?),
        Verb::Unknown(unknown) => Ok(unknown.run(&client(&settings)?, format).await?),
        Verb::Resolve(resolve) => {
            resolve
                .run(&client(&settings)?, &settings.kinds, format)
                .await
        }
        Verb::Healthcheck(check) => Ok(check
            .run(&settings.url, settings.health_listen.as_deref())
            .await?),
        Verb::ExtractGuard | Verb::CommandGuard => {
            unreachable!("guards run before settings are read")
        }
    }
}

/// Opens the database, but does not make one: there would be nothing to look at.
async fn existing(settings: &Settings) -> anyhow::Result<Store> {
    let path = roles::database_path(settings)?;
    if !path.exists() {
        return Err(Failed::new(
            Exit::Unavailable,
            format!("there is no database at {}", path.display()),
        )
        .into());
    }
    roles::open(settings).await
}

/// The client of the HTTP API, with the key from the settings or from where `up` writes it.
fn client(settings: &Settings) -> anyhow::Result<Client> {
    let key = if let Some(key) = &settings.api_key {
        key.expose().to_owned()
    } else {
        let file = roles::first_key_file(settings);
        let read = std::fs::read_to_string(&file).map_err(|error| {
            Failed::new(
                Exit::NotPermitted,
                format!("no API key: set FENCEPOST_API_KEY, or name the data directory of `fencepost up` ({}: {error})", file.display()),
            )
        })?;
        read.trim().to_owned()
    };
    Client::new(&settings.url, key).context("the HTTP client could not be made")
}
