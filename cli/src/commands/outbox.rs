//! What is to be dispatched, directly on the database: it belongs to no tenant,
//! and is looked at when the API may be down.

use anyhow::Context as _;
use clap::{ArgGroup, Args, Subcommand};
use fencepost_core::id::{JobId, QueueName};
use fencepost_store::{ParkedEntry, StageCount, Store, Unpark};
use serde_json::json;

use crate::exit::{Exit, Failed};
use crate::output::{self, Format};

/// Entries that are read or released at once.
const PAGE: u32 = 500;

/// Who releases, for the history.
const ACTOR: &str = "operator";

#[derive(Debug, Subcommand)]
pub(crate) enum Outbox {
    List(List),
    Release(Release),
}

/// Count the entries of each queue by stage, and list those that failed alone and are held back.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only entries of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// At most so many held back
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// Release entries that are held back: they are due at once, their failures forgotten.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["jobs", "all"]))]
pub(crate) struct Release {
    /// The jobs whose entries are held back
    jobs: Vec<JobId>,
    /// Every entry that is held back
    #[arg(long)]
    all: bool,
    /// Only entries of this queue
    #[arg(long, requires = "all")]
    queue: Option<QueueName>,
}

impl Outbox {
    pub(crate) async fn run(self, store: &Store, format: Format) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(store, format).await,
            Self::Release(release) => release.run(store, format).await,
        }
    }
}

impl List {
    async fn run(self, store: &Store, format: Format) -> anyhow::Result<Exit> {
        let stages = store.stages().await.context("counting outbox entries")?;
        let asked = |queue: &QueueName| self.queue.as_ref().is_none_or(|asked| asked == queue);
        let stages: Vec<_> = stages.iter().filter(|stage| asked(&stage.queue)).collect();
        let mut parked: Vec<ParkedEntry> = Vec::new();
        while parked.len() < self.limit {
            let after = parked.last().map_or(0, |entry| entry.seq);
            let page = store.parked(self.queue.as_ref(), after, PAGE).await;
            let page = page.context("listing parked entries")?;
            if page.is_empty() {
                break;
            }
            parked.extend(page);
        }
        parked.truncate(self.limit);
        if format == Format::Json {
            for stage in stages {
                let StageCount {
                    queue,
                    stage,
                    entries,
                } = stage;
                output::line(
                    json!({"queue": queue, "stage": stage, "entries": entries}).to_string(),
                );
            }
            for entry in parked {
                let told = json!({
                    "job": entry.job, "kind": entry.kind, "queue": entry.queue, "stage": "parked",
                    "failures": entry.failures, "error": entry.error, "parked_at": entry.parked_at,
                });
                output::line(told.to_string());
            }
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = stages
            .iter()
            .map(|stage| {
                vec![
                    stage.queue.to_string(),
                    stage.stage.clone(),
                    stage.entries.to_string(),
                ]
            })
            .collect();
        output::table(&["QUEUE", "STAGE", "ENTRIES"], &rows);
        if parked.is_empty() {
            return Ok(Exit::Done);
        }
        output::line("");
        let rows: Vec<Vec<String>> = parked.into_iter().map(row).collect();
        output::table(
            &["PARKED JOB", "KIND", "QUEUE", "FAILURES", "SINCE", "ERROR"],
            &rows,
        );
        Ok(Exit::Done)
    }
}

fn row(entry: ParkedEntry) -> Vec<String> {
    vec![
        entry.job.to_string(),
        entry.kind.to_string(),
        entry.queue.to_string(),
        entry.failures.to_string(),
        entry.parked_at.to_string(),
        output::safe(&entry.error.unwrap_or_default()).replace('\n', " "),
    ]
}

impl Release {
    async fn run(self, store: &Store, format: Format) -> anyhow::Result<Exit> {
        let mut released: Vec<JobId> = Vec::new();
        loop {
            let unpark = Unpark {
                jobs: (!self.all).then(|| self.jobs.clone()),
                queue: self.queue.clone(),
                limit: PAGE,
                actor: ACTOR.to_owned(),
            };
            let page = store.unpark(unpark).await;
            let page = page.context("releasing parked entries")?;
            let was_all = page.len() < PAGE as usize;
            released.extend(page);
            if was_all {
                break;
            }
        }
        for job in &released {
            match format {
                Format::Json => output::line(json!({"released": job}).to_string()),
                Format::Text => output::line(format!("{job} released")),
            }
        }
        let missing: Vec<String> = self
            .jobs
            .iter()
            .filter(|job| !released.contains(job))
            .map(ToString::to_string)
            .collect();
        if !missing.is_empty() {
            let told = format!("no entry is held back of {}", missing.join(", "));
            return Err(Failed::new(Exit::False, told).into());
        }
        if self.all && format == Format::Text {
            output::line(format!("{} released", released.len()));
        }
        Ok(Exit::Done)
    }
}
