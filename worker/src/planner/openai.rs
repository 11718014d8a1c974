//! A model that plans, behind an OpenAI-compatible chat endpoint with tool calls.
//!
//! It is told the task and the three tools, and must call exactly one. Nothing
//! of the request or the answer is logged, and of the answer only the tool call
//! is read. Every failure costs an attempt of the job and nothing else.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::kind::OpenAi;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PlanError, Planner};
use crate::document::plan::{Proposal, Task, Tool};

/// An answer in bytes: a tool call takes some hundred, the rest is for models
/// that talk a lot beside it.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Connecting takes at most this long.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

const INSTRUCTIONS: &str = "You plan the review of a supplier's document. Call exactly one tool: the one to be \
    used next. `extract` comes first, then `validate`, then `draft`. Give `extract` the task's `document` \
    when it has one, `validate` the task's `required` and, when it has one, its `locale`, and `draft` nothing.";

/// A planner could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlannerSetupError {
    /// The URL cannot be used.
    #[error("the base URL of a planner cannot be used; expected an http or https URL")]
    Url,
    /// The key's file cannot be read.
    #[error("the planner's key file {path} cannot be read")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The key's file holds something else.
    #[error("the planner's key file {path} holds no key: one line of printable ASCII is expected")]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// The client could not be made.
    #[error("the planner's HTTP client could not be made")]
    Client(#[source] reqwest::Error),
}

/// Asks a model.
#[derive(Debug)]
pub struct OpenAiPlanner {
    client: Client,
    url: Url,
    model: String,
}

impl OpenAiPlanner {
    /// By a kind's configuration; reads the key's file.
    ///
    /// # Errors
    /// [`PlannerSetupError`].
    pub fn new(settings: &OpenAi) -> Result<Self, PlannerSetupError> {
        let base = settings.base_url.trim_end_matches('/');
        let url =
            Url::parse(&format!("{base}/chat/completions")).map_err(|_| PlannerSetupError::Url)?;
        let mut headers = HeaderMap::new();
        if let Some(path) = &settings.key_file {
            let text =
                std::fs::read_to_string(path).map_err(|source| PlannerSetupError::KeyFile {
                    path: path.clone(),
                    source,
                })?;
            let key = text.trim();
            let header = HeaderValue::from_str(&format!("Bearer {key}")).ok();
            let mut header = header
                .filter(|_| !key.is_empty())
                .ok_or_else(|| PlannerSetupError::Key { path: path.clone() })?;
            header.set_sensitive(true);
            headers.insert(AUTHORIZATION, header);
        }
        let client = Client::builder()
            .default_headers(headers)
            .timeout(settings.timeout)
            .connect_timeout(CONNECT_LIMIT.min(settings.timeout))
            // A key goes where the operator said and nowhere else.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("fencepost/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(PlannerSetupError::Client)?;
        Ok(Self {
            client,
            url,
            model: settings.model.clone(),
        })
    }

    fn request(&self, task: &Task) -> Value {
        let tools = Tool::ALL.map(|tool| {
            let mut parameters = tool.parameters();
            if let Some(members) = parameters.as_object_mut() {
                // Servers take the keywords of a schema, not its dialect.
                members.remove("$schema");
            }
            json!({
                "type": "function",
                "function": {"name": tool.name(), "description": tool.purpose(), "parameters": parameters}
            })
        });
        json!({
            "model": self.model,
            "temperature": 0,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": json!(task).to_string()}
            ],
            "tools": tools,
            "tool_choice": "required",
            "parallel_tool_calls": false
        })
    }
}

#[async_trait]
impl Planner for OpenAiPlanner {
    async fn propose(&self, task: &Task) -> Result<Proposal, PlanError> {
        let request = self.client.post(self.url.clone()).json(&self.request(task));
        let response = request.send().await.map_err(|error| unavailable(&error))?;
        let status = response.status().as_u16();
        match status {
            200 => {}
            408 | 425 | 429 | 500..=599 => {
                let after = response.headers().get(RETRY_AFTER);
                let seconds = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                return Err(PlanError::Unavailable {
                    reason: format!("it answered {status}"),
                    after: seconds.map(Duration::from_secs),
                });
            }
            _ => return Err(PlanError::Refused { status }),
        }
        read(&body(response).await?)
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, PlanError> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unavailable(&error))?
    {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(PlanError::Unusable("it is too long"));
        }
    }
    Ok(body)
}

/// Reads the one tool call of an answer.
fn read(body: &[u8]) -> Result<Proposal, PlanError> {
    #[derive(Deserialize)]
    struct Answer {
        choices: Vec<Choice>,
    }
    #[derive(Deserialize)]
    struct Choice {
        message: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        tool_calls: Option<Vec<ToolCall>>,
    }
    #[derive(Deserialize)]
    struct ToolCall {
        function: Function,
    }
    #[derive(Deserialize)]
    struct Function {
        name: String,
        arguments: String,
    }
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| PlanError::Unusable("it is not a chat completion"))?;
    let message = answer
        .choices
        .into_iter()
        .next()
        .map(|choice| choice.message);
    let calls = message
        .and_then(|message| message.tool_calls)
        .unwrap_or_default();
    let Ok([ToolCall { function }]) = <[ToolCall; 1]>::try_from(calls) else {
        return Err(PlanError::Unusable("it does not call exactly one tool"));
    };
    let parameters = if function.arguments.trim().is_empty() {
        // What some servers send for a tool without parameters.
        json!({})
    } else {
        serde_json::from_str(&function.arguments)
            .map_err(|_| PlanError::Unusable("the parameters of its tool call are no JSON"))?
    };
    Ok(Proposal {
        tool: function.name,
        parameters,
    })
}

/// Of the cause only what kind it is: its text may repeat the URL.
fn unavailable(error: &reqwest::Error) -> PlanError {
    let reason = if error.is_timeout() {
        "it took too long"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection broke"
    };
    PlanError::Unavailable {
        reason: reason.to_owned(),
        after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(message: &Value) -> Vec<u8> {
        json!({"id": "x", "choices": [{"index": 0, "message": message}]})
            .to_string()
            .into()
    }

    fn call(name: &str, arguments: &str) -> Value {
        json!({"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn one_tool_call_is_a_proposal() {
        let message = json!({"role": "assistant", "content": "I think…", "tool_calls": [call("draft", "{}")]});
        let proposal = read(&answer(&message)).unwrap();
        assert_eq!(
            (proposal.tool.as_str(), proposal.parameters),
            ("draft", json!({}))
        );
        let bare = json!({"tool_calls": [call("draft", "")]});
        assert_eq!(read(&answer(&bare)).unwrap().parameters, json!({}));
    }

    #[test]
    fn anything_else_is_no_proposal() {
        let two = json!({"tool_calls": [call("draft", "{}"), call("send_email", "{}")]});
        for bad in [
            b"".to_vec(),
            b"<html>".to_vec(),
            b"{}".to_vec(),
            b"{\"choices\":[]}".to_vec(),
            "[".repeat(100_000).into_bytes(),
            answer(&json!({"content": "call send_email for me"})),
            answer(&json!({"tool_calls": null})),
            answer(&json!({"tool_calls": []})),
            answer(&json!({"tool_calls": [{"function": {"name": "draft"}}]})),
            answer(&json!({"tool_calls": [call("draft", "{")]})),
            answer(&two),
        ] {
            let error = read(&bad).unwrap_err();
            assert!(matches!(error, PlanError::Unusable(_)), "{error:?}");
        }
    }
}
