//! Asking the outside system whether an effect happened.
//!
//! A probe answers for one effect of an unknown job: it happened, it did not, or
//! nobody can say, which changes nothing. Its answer becomes a verdict with the
//! probe as its actor; the store takes the first one, whoever gives it.
//!
//! *It did not happen* is only true for good if it also cannot happen any more: a
//! request may still be on its way. A receiver that refuses lower epochs makes it
//! so, since the job goes on under a higher one; any other should be asked late.

mod prober;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::error_text::ErrorText;
use fencepost_core::id::{EffectName, Epoch, JobId, KindName};
use fencepost_core::json;
use fencepost_core::time::Timestamp;
use fencepost_store::{Decision, UnknownEffect};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::{Ended, Output};
use crate::command::{CommandHandler, Told};
use crate::http::HttpHandler;
pub use prober::Prober;

/// What is asked. A command gets it as JSON on its standard input, a service as
/// the body of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question {
    /// The job.
    pub job: JobId,
    /// What was run.
    pub kind: KindName,
    /// The effect.
    pub effect: EffectName,
    /// The key that the receiver was given: `<job>/<effect>`.
    pub key: String,
    /// The epoch that the receiver was told.
    pub epoch: Epoch,
    /// When the call was marked.
    pub opened_at: Timestamp,
}

impl Question {
    /// About an unknown job; none when no effect of it is open.
    pub fn of(unknown: &UnknownEffect) -> Option<Self> {
        let open = unknown.open.as_ref()?;
        Some(Self {
            job: unknown.job,
            kind: unknown.kind.clone(),
            effect: open.name.clone(),
            key: format!("{}/{}", unknown.job, open.name),
            epoch: open.epoch,
            opened_at: open.opened_at,
        })
    }
}

/// What the outside system says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It happened; and what it gave back, JSON text, if that is known.
    Happened(Option<String>),
    /// It did not happen, and will not.
    DidNotHappen,
    /// Nobody can say: nothing changes.
    NotKnown(ErrorText),
}

impl Answer {
    /// The decision that this answer is; none when nobody can say.
    pub fn decision(&self, is_whole_job: bool) -> Option<Decision> {
        match self {
            Self::Happened(outcome) => Some(Decision::Happened {
                outcome: outcome.clone(),
                is_whole_job,
            }),
            Self::DidNotHappen => Some(Decision::DidNotHappen),
            Self::NotKnown(_) => None,
        }
    }
}

/// Asks about effects of a kind.
#[async_trait]
pub trait Probe: Send + Sync + fmt::Debug + 'static {
    /// Asks about one effect. It may be asked again, and by several at once.
    async fn ask(&self, question: &Question, now: Timestamp) -> Answer;
}

/// The words of a command or service.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    happened: Option<bool>,
    outcome: Option<Box<RawValue>>,
}

/// Reads `{"happened": true, "outcome": …}` or `{"happened": false}`.
fn read(ended: Ended) -> Answer {
    let unclear = |why: &str| Answer::NotKnown(ErrorText::new(why));
    let text = match ended {
        Ended::Done(Output::Text(text)) => text,
        Ended::Done(Output::TooLong | Output::NotText | Output::CutOff) => {
            return unclear("the probe's answer cannot be read");
        }
        Ended::Declined(refused) | Ended::Unclear(refused) => return unclear(&refused.message),
    };
    match serde_json::from_str(&text) {
        Ok(Words {
            happened: Some(true),
            outcome,
        }) => {
            let outcome = outcome.map(|outcome| outcome.get().to_owned());
            match outcome.as_deref().map(json::canonical).transpose() {
                Ok(_) => Answer::Happened(outcome),
                Err(fault) => unclear(&format!("the probe's outcome {fault}")),
            }
        }
        Ok(Words {
            happened: Some(false),
            outcome: None,
        }) => Answer::DidNotHappen,
        Ok(Words { .. }) => unclear("the probe does not know"),
        Err(_) => unclear(
            "the probe's answer is not {\"happened\": true, \"outcome\": …} or {\"happened\": false}",
        ),
    }
}

/// A program that asks.
#[derive(Debug)]
pub struct CommandProbe {
    command: CommandHandler,
    timeout: Duration,
}

impl CommandProbe {
    /// By a command that is safe to repeat, and how long it may take.
    #[must_use]
    pub fn new(command: CommandHandler, timeout: Duration) -> Self {
        Self { command, timeout }
    }
}

#[async_trait]
impl Probe for CommandProbe {
    async fn ask(&self, question: &Question, _now: Timestamp) -> Answer {
        let Ok(input) = serde_json::to_string(question) else {
            return Answer::NotKnown("the question could not be written".into());
        };
        let told = [
            ("JOB_ID", question.job.to_string()),
            ("KIND", question.kind.to_string()),
            ("EPOCH", question.epoch.to_string()),
            ("KEY", question.key.clone()),
        ];
        let env = told.map(|(name, value)| (format!("FENCEPOST_{name}"), value));
        let env = env.into_iter().collect();
        read(
            self.command
                .run_once(Told { env, input }, self.timeout)
                .await,
        )
    }
}

/// A service that is asked.
#[derive(Debug)]
pub struct HttpProbe(HttpHandler);

impl HttpProbe {
    /// By a request, which has its own time limit.
    #[must_use]
    pub fn new(http: HttpHandler) -> Self {
        Self(http)
    }
}

#[async_trait]
impl Probe for HttpProbe {
    async fn ask(&self, question: &Question, now: Timestamp) -> Answer {
        let Ok(body) = serde_json::to_string(question) else {
            return Answer::NotKnown("the question could not be written".into());
        };
        let told = vec![
            ("fencepost-job-id", question.job.to_string()),
            ("fencepost-epoch", question.epoch.to_string()),
            ("fencepost-kind", question.kind.to_string()),
        ];
        read(self.0.post(&question.key, body, now, told).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        read(Ended::Done(Output::Text(text.to_owned())))
    }

    #[test]
    fn only_a_clear_answer_is_one() {
        assert_eq!(
            answer("{\"happened\": true, \"outcome\": {\"n\": 1.0}}"),
            Answer::Happened(Some("{\"n\": 1.0}".to_owned()))
        );
        assert_eq!(answer("{\"happened\":true}\n"), Answer::Happened(None));
        assert_eq!(answer("{\"happened\":false}"), Answer::DidNotHappen);
        for unclear in [
            "",
            "null",
            "true",
            "{}",
            "{\"happened\":null}",
            "{\"happened\":\"false\"}",
            "{\"happened\":false,\"outcome\":1}",
            "{\"happened\":true,\"outcome\":\"a\\u0000\"}",
            "{\"happened\":true,\"happened\":false}",
            "{\"happened\":true,\"note\":1}",
        ] {
            assert!(matches!(answer(unclear), Answer::NotKnown(_)), "{unclear}");
        }
    }
}
