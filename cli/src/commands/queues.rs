//! Queues: how much waits in each, and pausing them, through the HTTP API.

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::jobs::{item, segment};
use crate::client::Client;
use crate::exit::{Exit, Failed};
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Queues {
    /// List queues with what waits in them
    List,
    /// Start no more jobs of a queue; what runs goes on
    Pause(Name),
    /// Start jobs of a queue again
    Resume(Name),
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The queue
    queue: String,
}

#[derive(Deserialize)]
struct Queue {
    name: String,
    queued: u64,
    parked: u64,
    running: u64,
    oldest_queued_at: Option<String>,
    slots: u64,
    paused_at: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
}

impl Queues {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let (name, verb) = match self {
            Self::List => return list(client, format).await,
            Self::Pause(name) => (name.queue, "pause"),
            Self::Resume(name) => (name.queue, "resume"),
        };
        let path = format!("/queues/{}/{verb}", segment(&name));
        let answer = client.post(&path, &[], json!({})).await?;
        match format {
            Format::Json => output::line(&answer.text),
            Format::Text => show(vec![answer.parse()?]),
        }
        Ok(Exit::Done)
    }
}

async fn list(client: &Client, format: Format) -> Result<Exit, Failed> {
    let answer = client.get("/queues").await?;
    let page: Page = answer.parse()?;
    if format == Format::Json {
        for queue in &page.items {
            output::line(queue.get());
        }
        return Ok(Exit::Done);
    }
    let queues = page.items.iter().map(|queue| item(queue));
    show(queues.collect::<Result<_, _>>()?);
    Ok(Exit::Done)
}

fn show(queues: Vec<Queue>) {
    let nothing = || "–".to_owned();
    let rows: Vec<Vec<String>> = queues
        .into_iter()
        .map(|queue| {
            vec![
                queue.name,
                queue.queued.to_string(),
                queue.parked.to_string(),
                queue.running.to_string(),
                queue.slots.to_string(),
                queue.oldest_queued_at.unwrap_or_else(nothing),
                queue.paused_at.unwrap_or_else(nothing),
            ]
        })
        .collect();
    output::table(
        &[
            "QUEUE", "QUEUED", "PARKED", "RUNNING", "SLOTS", "OLDEST", "PAUSED",
        ],
        &rows,
    );
}
