//! The verbs on jobs, through the HTTP API.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::client::{Client, Job, WAIT_SECONDS_MAX};
use crate::exit::{Exit, Failed};
use crate::output::{self, Format};

/// Submit a job.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fencepost submit echo '{\"hello\":\"world\"}' --wait
  fencepost submit document.extract --file invoice.pdf --wait
  fencepost submit document.prepare '{\"required\":[\"iban\",\"total_amount\"]}' --file invoice.pdf --wait
  fencepost submit echo '{}' --key order-4711 --delay-ms 60000")]
pub(crate) struct Submit {
    /// What is to be run
    kind: String,
    /// The payload: JSON text, or `-` to read it from standard input [default: {}]
    payload: Option<String>,
    /// Put this file as a blob and refer to it as `document` in the payload
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The operation key; the same key and content is the same job [default: a new one]
    #[arg(long)]
    key: Option<String>,
    /// Wait until the job has ended and print its result
    #[arg(long)]
    wait: bool,
    /// 0 to 9; higher goes first
    #[arg(long)]
    priority: Option<u8>,
    /// Attempts at most
    #[arg(long)]
    max_attempts: Option<u32>,
    /// Not before this instant (RFC 3339)
    #[arg(long, conflicts_with = "delay_ms")]
    run_at: Option<String>,
    /// Not before this many milliseconds from now
    #[arg(long)]
    delay_ms: Option<u64>,
    /// Given up at this instant (RFC 3339)
    #[arg(long, conflicts_with = "timeout_ms")]
    deadline_at: Option<String>,
    /// Given up this many milliseconds from now
    #[arg(long)]
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Blob {
    blob: String,
}

impl Submit {
    pub(crate) async fn run(
        self,
        client: &Client,
        new_key: String,
        format: Format,
    ) -> Result<Exit, Failed> {
        let text = match self.payload.as_deref() {
            Some("-") => std::io::read_to_string(std::io::stdin())
                .map_err(|error| Failed::new(Exit::Usage, format!("standard input: {error}")))?,
            Some(text) => text.to_owned(),
            None => "{}".to_owned(),
        };
        let payload = match &self.file {
            None => parse(text)?,
            Some(file) => {
                let mut members: Map<String, Value> =
                    serde_json::from_str(&text).map_err(|_| {
                        Failed::new(Exit::Usage, "with --file the payload must be a JSON object")
                    })?;
                let content = std::fs::read(file).map_err(|error| {
                    Failed::new(Exit::Usage, format!("{}: {error}", file.display()))
                })?;
                let put = client.put_blob(content).await?;
                let blob: Blob = put.parse()?;
                members.insert("document".to_owned(), json!({"blob": blob.blob}));
                to_raw_value(&members)
                    .map_err(|error| Failed::new(Exit::Usage, error.to_string()))?
            }
        };
        let key = self.key.clone().unwrap_or(new_key);
        let body = self.body(&payload)?;
        let answer = client
            .post_text("/jobs", &[("idempotency-key", &key)], body)
            .await?;
        let job: Job = answer.parse()?;
        if !self.wait {
            match format {
                Format::Json => output::line(&answer.text),
                Format::Text if answer.replayed => {
                    output::line(format!("{} (was accepted before)", job.id));
                }
                Format::Text => output::line(&job.id),
            }
            return Ok(Exit::Done);
        }
        wait(client, &job.id, format).await
    }

    /// The submission as JSON text, the payload digit for digit.
    fn body(&self, payload: &RawValue) -> Result<String, Failed> {
        #[derive(serde::Serialize)]
        struct Body<'a> {
            kind: &'a str,
            payload: &'a RawValue,
            #[serde(flatten)]
            options: Map<String, Value>,
        }
        let given = [
            ("priority", self.priority.map(Value::from)),
            ("max_attempts", self.max_attempts.map(Value::from)),
            ("run_at", self.run_at.clone().map(Value::from)),
            ("delay_ms", self.delay_ms.map(Value::from)),
            ("deadline_at", self.deadline_at.clone().map(Value::from)),
            ("timeout_ms", self.timeout_ms.map(Value::from)),
        ];
        let options = given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        serde_json::to_string(&Body {
            kind: &self.kind,
            payload,
            options,
        })
        .map_err(|error| Failed::new(Exit::Usage, error.to_string()))
    }
}

fn parse(text: String) -> Result<Box<RawValue>, Failed> {
    RawValue::from_string(text)
        .map_err(|error| Failed::new(Exit::Usage, format!("the payload is not JSON: {error}")))
}

/// Holds until a job is at rest, however long that takes.
async fn wait(client: &Client, id: &str, format: Format) -> Result<Exit, Failed> {
    loop {
        let answer = client
            .get(&format!("/jobs/{id}?wait={WAIT_SECONDS_MAX}"))
            .await?;
        let job: Job = answer.parse()?;
        if !job.is_at_rest() {
            continue;
        }
        if format == Format::Json {
            output::line(&answer.text);
            return Ok(if job.state == "completed" {
                Exit::Done
            } else {
                Exit::False
            });
        }
        return output::result(&job);
    }
}

/// Show a job.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The job's id
    id: String,
    /// Wait until it has ended; the exit code then says whether it completed
    #[arg(long)]
    wait: bool,
}

impl Get {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        if self.wait {
            return wait(client, &self.id, format).await;
        }
        let answer = client.get(&format!("/jobs/{}", segment(&self.id))).await?;
        show(&answer, format)
    }
}

/// Keeps an argument inside its path segment.
pub(super) fn segment(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn show(answer: &crate::client::Answer, format: Format) -> Result<Exit, Failed> {
    match format {
        Format::Json => output::line(&answer.text),
        Format::Text => output::job(&answer.parse()?),
    }
    Ok(Exit::Done)
}

/// List jobs, newest first.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only jobs in this state; may be given several times
    #[arg(long)]
    state: Vec<String>,
    /// Only jobs of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// The longest page that is asked for at once.
const PAGE: usize = 100;

/// Reads pages until `limit` items or the end.
pub(super) async fn pages(
    client: &Client,
    path: &str,
    filter: &str,
    limit: usize,
    mut each: impl FnMut(&RawValue) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut left = limit;
    let mut cursor = String::new();
    while left > 0 {
        let query = format!("{path}?limit={}{filter}{cursor}", left.min(PAGE));
        let answer = client.get(&query).await?;
        let page: Page = answer.parse()?;
        for item in page.items.iter().take(left) {
            each(item)?;
        }
        left = left.saturating_sub(page.items.len());
        match page.next {
            Some(next) => cursor = format!("&cursor={}", segment(&next)),
            None => break,
        }
    }
    Ok(())
}

pub(super) fn item<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, Failed> {
    serde_json::from_str(raw.get()).map_err(|error| {
        Failed::new(
            Exit::Unavailable,
            format!("an item is not what was expected: {error}"),
        )
    })
}

impl List {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let states = self.state.iter().map(|state| ("state", state));
        let rest = [("kind", &self.kind), ("queue", &self.queue)];
        let rest = rest
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let filter: Vec<String> = states
            .chain(rest)
            .map(|(name, value)| format!("&{name}={}", segment(value)))
            .collect();
        let filter = filter.concat();
        let mut rows = Vec::new();
        pages(client, "/jobs", &filter, self.limit, |raw| {
            if format == Format::Json {
                output::line(raw.get());
                return Ok(());
            }
            let job: Job = item(raw)?;
            let why = job.error.map_or_else(String::new, |error| error.code);
            let attempts = format!("{}/{}", job.attempts, job.max_attempts);
            rows.push(vec![
                job.id,
                job.kind,
                job.queue,
                job.state,
                attempts,
                job.created_at,
                why,
            ]);
            Ok(())
        })
        .await?;
        if format == Format::Text {
            output::table(
                &[
                    "ID", "KIND", "QUEUE", "STATE", "ATTEMPTS", "CREATED", "ERROR",
                ],
                &rows,
            );
        }
        Ok(Exit::Done)
    }
}

/// Show a job's history.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// The job's id
    id: String,
}

#[derive(Deserialize)]
struct Event {
    at: String,
    #[serde(rename = "type")]
    kind: String,
    epoch: i64,
    actor: String,
    code: Option<String>,
    detail: Option<String>,
    count: u32,
}

impl Events {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let mut rows = Vec::new();
        let path = format!("/jobs/{}/events", segment(&self.id));
        pages(client, &path, "", usize::MAX, |raw| {
            if format == Format::Json {
                output::line(raw.get());
                return Ok(());
            }
            let event: Event = item(raw)?;
            let kind = if event.count > 1 {
                format!("{} ×{}", event.kind, event.count)
            } else {
                event.kind
            };
            let code = event.code.unwrap_or_default();
            let detail = output::safe(&event.detail.unwrap_or_default()).replace('\n', " ");
            rows.push(vec![
                event.at,
                kind,
                event.epoch.to_string(),
                event.actor,
                code,
                detail,
            ]);
            Ok(())
        })
        .await?;
        if format == Format::Text {
            output::table(&["AT", "EVENT", "EPOCH", "ACTOR", "CODE", "DETAIL"], &rows);
        }
        Ok(Exit::Done)
    }
}

/// Cancel a job: at once when it waits, by asking its worker when it runs.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The job's id
    id: String,
    /// Disown the worker of a running job at once
    #[arg(long)]
    force: bool,
}

impl Cancel {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let path = format!("/jobs/{}/cancel", segment(&self.id));
        let body = json!({"force": self.force});
        show(&client.post(&path, &[], body).await?, format)
    }
}

/// Queue an ended job anew, with a fresh attempt budget.
#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The job's id
    id: String,
    /// Given up this many milliseconds from now [default: as its kind says]
    #[arg(long)]
    timeout_ms: Option<u64>,
}

impl Retry {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<Exit, Failed> {
        let path = format!("/jobs/{}/retry", segment(&self.id));
        let body = self
            .timeout_ms
            .map_or_else(|| json!({}), |timeout| json!({"timeout_ms": timeout}));
        show(&client.post(&path, &[], body).await?, format)
    }
}
