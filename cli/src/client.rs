//! The operator's side of the HTTP API.
//!
//! Owns requests, their time limits and what their failures mean for the exit
//! code. Every submission carries an operation key, so a lost answer is found
//! out by repeating it.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exit::{Exit, Failed};

/// Longer than the server's own budget for a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// How long one `?wait=` may hold; the server caps it as well.
pub(crate) const WAIT_SECONDS_MAX: u64 = 30;

/// Tries of a request that may be repeated: the key makes it the same one.
const TRIES: u32 = 5;

/// A job as the API answers it.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) state: String,
    pub(crate) attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) epoch: i64,
    pub(crate) created_at: String,
    pub(crate) run_at: String,
    pub(crate) deadline_at: String,
    pub(crate) finished_at: Option<String>,
    pub(crate) error: Option<JobError>,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) dispatch: Option<String>,
}

impl Job {
    /// Whether nothing more happens by itself.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(
            self.state.as_str(),
            "completed" | "dead" | "cancelled" | "unknown"
        )
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct JobError {
    pub(crate) code: String,
    pub(crate) message: String,
}

#[derive(Debug, Deserialize)]
struct Problem {
    code: String,
    detail: Option<String>,
    title: Option<String>,
}

/// A raw answer: kept as text, so that `--json` prints it digit for digit.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) replayed: bool,
}

impl Answer {
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failed> {
        serde_json::from_str(&self.text).map_err(|error| {
            Failed::new(
                Exit::Unavailable,
                format!("the server's answer is not what was expected: {error}"),
            )
        })
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Client {
    pub(crate) fn new(url: &str, key: String) -> Result<Self, Failed> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_LIMIT + Duration::from_secs(WAIT_SECONDS_MAX))
            .connect_timeout(Duration::from_secs(5))
            .build()
            .map_err(|error| Failed::new(Exit::Unavailable, error.to_string()))?;
        Ok(Self {
            http,
            url: url.trim_end_matches('/').to_owned(),
            key,
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Failed> {
        self.send(Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Result<Answer, Failed> {
        let body = body.to_string().into_bytes();
        self.send(
            Method::POST,
            path,
            headers,
            Some(("application/json", body)),
        )
        .await
    }

    /// A body that is JSON text already, kept digit for digit.
    pub(crate) async fn post_text(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Answer, Failed> {
        self.send(
            Method::POST,
            path,
            headers,
            Some(("application/json", body.into_bytes())),
        )
        .await
    }

    pub(crate) async fn put_blob(&self, content: Vec<u8>) -> Result<Answer, Failed> {
        self.send(
            Method::PUT,
            "/blobs",
            &[],
            Some(("application/octet-stream", content)),
        )
        .await
    }

    /// Sends a request; one that found the service away or busy is repeated.
    /// Every request here may be: reads, content-addressed puts, keyed submissions,
    /// and actions that are done twice as once.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Answer, Failed> {
        let mut tries = 1;
        loop {
            let mut request = self
                .http
                .request(method.clone(), format!("{}{path}", self.url))
                .bearer_auth(&self.key);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some((kind, content)) = &body {
                request = request.header("content-type", *kind).body(content.clone());
            }
            let pause = match request.send().await {
                Ok(answer)
                    if answer.status() == StatusCode::SERVICE_UNAVAILABLE && tries < TRIES =>
                {
                    let after = answer
                        .headers()
                        .get("retry-after")
                        .and_then(|value| value.to_str().ok());
                    after.and_then(|value| value.parse().ok()).unwrap_or(1)
                }
                Ok(answer) => return read(answer).await,
                Err(error) if tries < TRIES && !error.is_builder() && !error.is_connect() => 1,
                Err(error) => return Err(self.unreachable(&error)),
            };
            tries += 1;
            tokio::time::sleep(Duration::from_secs(pause.min(10))).await;
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failed {
        // The library's text may hold the URL with its query; ours is enough.
        let why = if error.is_connect() {
            "nothing answers there; is `fencepost up` or `fencepost api` running?"
        } else if error.is_timeout() {
            "no answer in time"
        } else {
            "the request failed"
        };
        Failed::new(Exit::Unavailable, format!("{}: {why}", self.url))
    }
}

async fn read(answer: reqwest::Response) -> Result<Answer, Failed> {
    let status = answer.status();
    let replayed = answer.headers().contains_key("idempotent-replayed");
    let text = answer.text().await.map_err(|_| {
        Failed::new(
            Exit::Unavailable,
            "the answer broke off; repeat the command",
        )
    })?;
    if status.is_success() {
        return Ok(Answer { text, replayed });
    }
    let exit = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::NotPermitted,
        status if status.is_server_error() => Exit::Unavailable,
        _ => Exit::False,
    };
    let message = match serde_json::from_str::<Problem>(&text) {
        Ok(problem) => {
            let told = problem.detail.or(problem.title).unwrap_or_default();
            format!("{}: {told}", problem.code)
        }
        Err(_) => format!("the server answered {status}"),
    };
    Err(Failed::new(exit, message))
}
