//! `http`: a request to another service runs the jobs of a kind.
//!
//! The payload is posted as it is, with the job's id, epoch and key in headers
//! and a signature (Standard Webhooks). Unless the kind is safe to repeat, the
//! call is an effect, named `http`; [`answer`] says what each answer means for
//! it. Where to call comes from the operator's configuration only.
//!
//! May crash anywhere: a call that went out and has no recorded outcome leaves
//! the job `unknown`.

mod answer;
mod signature;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::kind::Http;
use fencepost_core::limits::{OUTCOME_BYTES_MAX, RESULT_BYTES_MAX};
use fencepost_core::time::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};

use crate::call::{self, Ended, Output, Refused};
use crate::context::{Context, EffectCall};
use crate::handler::{Handler, HandlerResult};
pub use signature::{InvalidSecret, Secrets};

/// Connecting takes at most this long, and half of the whole call's time: it is
/// the part of a call whose failure is known to have done nothing.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The name of the effect, and the end of its key.
const EFFECT: &str = "http";

/// A handler of HTTP calls could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpSetupError {
    /// The URL cannot be used.
    #[error("the URL of an http kind cannot be used ({0}); expected an absolute http or https URL")]
    Url(String),
    /// The secret's file cannot be read.
    #[error("the secret file {path} cannot be read")]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The secret's file holds something else.
    #[error("the secret file {path} holds no usable secret")]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: InvalidSecret,
    },
    /// The client could not be made.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
}

/// Posts each job to a URL.
#[derive(Debug)]
pub struct HttpHandler {
    client: Client,
    url: Url,
    secrets: Option<Secrets>,
    http: Http,
    safe_to_repeat: bool,
}

impl HttpHandler {
    /// By a kind's configuration; reads the secret's file.
    ///
    /// # Errors
    /// [`HttpSetupError`].
    pub fn new(http: Http, safe_to_repeat: bool) -> Result<Self, HttpSetupError> {
        let url = Url::parse(&http.url).map_err(|error| HttpSetupError::Url(error.to_string()))?;
        let secrets = http.secret_file.as_deref().map(read_secrets).transpose()?;
        let client = Client::builder()
            .timeout(http.timeout)
            .connect_timeout(CONNECT_LIMIT.min(http.timeout / 2))
            .redirect(redirect::Policy::none())
            // A connection that the receiver closes while it is taken up again
            // fails in a way that says nothing of what was done.
            .pool_max_idle_per_host(0)
            // Nor would the refusal of something in between be the receiver's.
            .no_proxy()
            .user_agent(concat!("fencepost/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(HttpSetupError::Client)?;
        Ok(Self {
            client,
            url,
            secrets,
            http,
            safe_to_repeat,
        })
    }

    /// The headers of a request with this key and body; `more` besides those of all.
    fn headers(
        &self,
        key: &str,
        body: &str,
        now: Timestamp,
        more: Vec<(&'static str, String)>,
    ) -> HeaderMap {
        let seconds = now.as_millis() / 1_000;
        let mut told = more;
        told.push(("idempotency-key", key.to_owned()));
        told.push(("webhook-id", key.to_owned()));
        told.push(("webhook-timestamp", seconds.to_string()));
        if let Some(secrets) = &self.secrets {
            told.push(("webhook-signature", secrets.sign(key, seconds, body)));
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in told {
            // All are ASCII by the forms of their types.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        headers
    }

    async fn call(&self, context: &Context, call: EffectCall) -> Ended {
        let mut told = vec![
            ("fencepost-job-id", call.job.to_string()),
            ("fencepost-epoch", call.epoch.to_string()),
            ("fencepost-attempt", context.attempt().to_string()),
            ("fencepost-deadline", context.deadline_at().to_string()),
            ("fencepost-kind", context.kind().to_string()),
        ];
        if let Some(trace) = &context.job.trace {
            told.push(("traceparent", trace.clone()));
        }
        let body = context.payload().to_owned();
        self.post(&call.key, body, context.store.now(), told).await
    }

    /// Posts a body under a key; what the answer says of it.
    pub(crate) async fn post(
        &self,
        key: &str,
        body: String,
        now: Timestamp,
        more: Vec<(&'static str, String)>,
    ) -> Ended {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers(key, &body, now, more))
            .body(body);
        let response = match request.send().await {
            Ok(response) => response,
            // Nothing was sent: no address, no connection, no TLS session.
            Err(error) if error.is_connect() => {
                return Ended::Declined(Refused::new(
                    "http_not_connected",
                    format!("no connection to the receiver: {}", reason(&error)),
                ));
            }
            Err(error) => {
                return Ended::Unclear(Refused::new(
                    "http_no_answer",
                    format!("the request was sent and not answered: {}", reason(&error)),
                ));
            }
        };
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| answer::retry_after(text, now));
        match answer::judge(status, &self.http.declined, retry_after) {
            // What it did is done, whatever becomes of the rest of its answer.
            None => Ended::Done(self.body(response).await),
            Some(ended) => ended,
        }
    }

    async fn body(&self, mut response: Response) -> Output {
        let limit = if self.safe_to_repeat {
            RESULT_BYTES_MAX
        } else {
            OUTCOME_BYTES_MAX
        };
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => return Output::of(bytes, limit),
                Err(_) => return Output::CutOff,
            }
            if bytes.len() > limit {
                return Output::TooLong;
            }
        }
    }
}

fn read_secrets(path: &Path) -> Result<Secrets, HttpSetupError> {
    let text = std::fs::read_to_string(path).map_err(|source| HttpSetupError::SecretFile {
        path: path.to_owned(),
        source,
    })?;
    Secrets::parse(&text).map_err(|source| HttpSetupError::Secret {
        path: path.to_owned(),
        source,
    })
}

/// The innermost cause: the outer ones repeat the URL.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() {
        "it took too long".to_owned()
    } else {
        cause.to_string()
    }
}

#[async_trait]
impl Handler for HttpHandler {
    async fn run(&self, context: &Context) -> HandlerResult {
        call::make(context, EFFECT, self.safe_to_repeat, |call| {
            self.call(context, call)
        })
        .await
    }
}
