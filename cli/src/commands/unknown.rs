//! What waits for a verdict, and verdicts, through the HTTP API.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{ArgGroup, Args};
use fencepost_core::kind::Kinds;
use fencepost_core::time::{Clock as _, Timestamp};
use fencepost_service::system::SystemClock;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::jobs::{item, pages, segment};
use super::probe;
use crate::client::{Client, Job};
use crate::exit::{Exit, Failed};
use crate::output::{self, Format};

/// List unknown jobs: what was called, when, by whom, and what is known of it.
#[derive(Debug, Args)]
#[command(after_help = "The receiver knows a call by the key JOB/EFFECT.")]
pub(crate) struct Unknown {
    #[command(flatten)]
    filter: Filter,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only jobs of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
}

impl Filter {
    fn query(&self) -> String {
        [("kind", &self.kind), ("queue", &self.queue)]
            .into_iter()
            .filter_map(|(name, value)| Some(format!("&{name}={}", segment(value.as_ref()?))))
            .collect()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Item {
    pub(super) job: String,
    pub(super) kind: String,
    since: String,
    pub(super) effect: Option<Effect>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Effect {
    pub(super) name: String,
    pub(super) epoch: i64,
    pub(super) opened_at: String,
    worker: String,
    evidence: Option<Box<RawValue>>,
}

impl Item {
    fn row(self, now: Timestamp) -> Vec<String> {
        let nothing = || "–".to_owned();
        let since = Timestamp::parse(&self.since).unwrap_or(now);
        let (name, epoch, opened_at, worker, evidence) = match self.effect {
            None => (
                "held by its kind".to_owned(),
                nothing(),
                nothing(),
                nothing(),
                nothing(),
            ),
            Some(effect) => (
                effect.name,
                effect.epoch.to_string(),
                effect.opened_at,
                effect.worker,
                effect.evidence.map_or_else(nothing, |evidence| {
                    output::safe(evidence.get()).replace('\n', " ")
                }),
            ),
        };
        vec![
            self.job,
            self.kind,
            name,
            epoch,
            opened_at,
            age(now.since(since)),
            worker,
            evidence,
        ]
    }
}

const COLUMNS: [&str; 8] = [
    "JOB", "KIND", "EFFECT", "EPOCH", "OPENED", "AGE", "WORKER", "EVIDENCE",
];

/// The largest unit is enough to see what waits for long.
fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

impl Unknown {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let now = SystemClock.now();
        let mut rows = Vec::new();
        pages(
            client,
            "/unknown",
            &self.filter.query(),
            self.limit,
            |raw| {
                if format == Format::Json {
                    output::line(raw.get());
                } else {
                    rows.push(item::<Item>(raw)?.row(now));
                }
                Ok(())
            },
        )
        .await?;
        if format == Format::Text {
            output::table(&COLUMNS, &rows);
        }
        Ok(Exit::Done)
    }
}

/// Decide about an unknown job, or about all that fit a filter.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("verdict").required(true).args(["happened", "did_not_happen", "complete", "abandon", "probe"]),
    group = ArgGroup::new("which").required(true).args(["id", "all"]),
    after_help = "Examples:
  fencepost resolve 0193a5c8-6d7e-7cc0-8a51-3f1d2a9b4e77 --happened --outcome '\"R-17\"' --reason 'seen in the ledger'
  fencepost resolve 0193a5c8-6d7e-7cc0-8a51-3f1d2a9b4e77 --complete '{\"receipt\":\"R-17\"}' --reason 'confirmed by phone'
  fencepost resolve --all --kind invoice.send --probe
  fencepost resolve --all --kind invoice.send --did-not-happen --reason 'the receiver was down until 10:00'"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags, of which clap's groups allow one"
)]
pub(crate) struct Resolve {
    /// The job's id
    id: Option<String>,
    /// Every unknown job that fits the filter, after a preview and a confirmation
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// The effect happened: the job goes on after it
    #[arg(long)]
    happened: bool,
    /// What the call gave back, JSON text [default: the evidence there is, or null]
    #[arg(long, value_name = "JSON", requires = "happened")]
    outcome: Option<String>,
    /// The effect did not happen: the job goes on and may make it
    #[arg(long)]
    did_not_happen: bool,
    /// The job is done, with this result, JSON text
    #[arg(long, value_name = "JSON")]
    complete: Option<String>,
    /// The job is given up
    #[arg(long)]
    abandon: bool,
    /// Ask the outside system with the probe that the kind's settings here name, and
    /// decide by its answer; no answer changes nothing
    #[arg(long, conflicts_with_all = ["effect", "timeout_ms"])]
    probe: bool,
    /// Why, for the history
    #[arg(long, required_unless_present = "probe")]
    reason: Option<String>,
    /// What it is based on, for the history
    #[arg(long)]
    evidence: Option<String>,
    /// Which effect, if several are open
    #[arg(long)]
    effect: Option<String>,
    /// A job that goes on is given up this many milliseconds from now [default: as its kind says]
    #[arg(long)]
    timeout_ms: Option<u64>,
    /// Do not ask before deciding about all
    #[arg(long, requires = "all")]
    yes: bool,
}

/// A verdict as the API reads it.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    pub(super) verdict: &'static str,
    pub(super) reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
    pub(super) probe: bool,
}

fn json(name: &str, text: Option<&String>) -> Result<Option<Box<RawValue>>, Failed> {
    text.map(|text| {
        RawValue::from_string(text.clone())
            .map_err(|error| Failed::new(Exit::Usage, format!("{name} is not JSON: {error}")))
    })
    .transpose()
}

impl Resolve {
    pub(crate) async fn run(
        self,
        client: &Client,
        kinds: &Kinds,
        format: Format,
    ) -> anyhow::Result<Exit> {
        if self.probe {
            let query = self.filter.query();
            return probe::run(client, kinds, self.id.as_deref(), &query, format).await;
        }
        Ok(self.decide(client, format).await?)
    }

    async fn decide(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let verdict = Body {
            verdict: if self.happened {
                "happened"
            } else if self.did_not_happen {
                "did-not-happen"
            } else if self.abandon {
                "abandon"
            } else {
                "complete"
            },
            reason: self.reason.as_deref().unwrap_or_default(),
            evidence: self.evidence.as_deref(),
            effect: self.effect.as_deref(),
            outcome: json("--outcome", self.outcome.as_ref())?,
            result: json("--complete", self.complete.as_ref())?,
            timeout_ms: self.timeout_ms,
            probe: false,
        };
        let body = serde_json::to_string(&verdict)
            .map_err(|error| Failed::new(Exit::Usage, error.to_string()))?;
        if let Some(id) = &self.id {
            let answer = decide(client, id, &body).await?;
            match format {
                Format::Json => output::line(&answer.text),
                Format::Text => output::job(&answer.parse()?),
            }
            return Ok(Exit::Done);
        }
        self.decide_all(client, verdict.verdict, &body, format)
            .await
    }

    /// Shows what fits, asks, and decides about each; what cannot be decided is told at the end.
    async fn decide_all(
        &self,
        client: &Client,
        word: &str,
        body: &str,
        format: Format,
    ) -> Result<Exit, Failed> {
        let now = SystemClock.now();
        let (mut jobs, mut rows) = (Vec::new(), Vec::new());
        pages(
            client,
            "/unknown",
            &self.filter.query(),
            usize::MAX,
            |raw| {
                let item: Item = item(raw)?;
                let named = item.effect.as_ref().map(|effect| effect.name.as_str());
                if self.effect.is_some() && named != self.effect.as_deref() {
                    return Ok(());
                }
                // One with several open effects is listed once for each of them.
                if jobs.last() != Some(&item.job) {
                    jobs.push(item.job.clone());
                }
                rows.push(item.row(now));
                Ok(())
            },
        )
        .await?;
        if jobs.is_empty() {
            output::line("nothing fits: no verdict was given");
            return Ok(Exit::Done);
        }
        if !self.yes {
            output::table(&COLUMNS, &rows);
            if !confirmed(&format!("{word} for these {} jobs?", jobs.len()))? {
                return Err(Failed::new(Exit::False, "no verdict was given"));
            }
        }
        let mut refused = 0_usize;
        for job in &jobs {
            match decide(client, job, body).await {
                Ok(answer) if format == Format::Json => output::line(&answer.text),
                Ok(answer) => {
                    let job: Job = answer.parse()?;
                    output::line(format!("{} is {}", job.id, job.state));
                }
                Err(failed) if failed.exit == Exit::False => {
                    refused += 1;
                    output::line(format!("{job}: {failed}"));
                }
                Err(failed) => return Err(failed),
            }
        }
        if refused > 0 {
            return Err(Failed::new(
                Exit::False,
                format!("{refused} of {} were refused", jobs.len()),
            ));
        }
        Ok(Exit::Done)
    }
}

async fn decide(client: &Client, job: &str, body: &str) -> Result<crate::client::Answer, Failed> {
    let path = format!("/jobs/{}/resolve", segment(job));
    client.post_text(&path, &[], body.to_owned()).await
}

/// Asks on the terminal; without one, `--yes` has to say so.
fn confirmed(question: &str) -> Result<bool, Failed> {
    if !std::io::stdin().is_terminal() {
        return Err(Failed::new(
            Exit::Usage,
            "nobody can be asked here: say --yes to decide about all that was listed",
        ));
    }
    let mut out = std::io::stdout().lock();
    let asked = write!(out, "{question} [y/N] ").and_then(|()| out.flush());
    let mut answer = String::new();
    let read = asked.and_then(|()| std::io::stdin().read_line(&mut answer));
    read.map_err(|error| Failed::new(Exit::Unavailable, error.to_string()))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
