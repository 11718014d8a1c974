//! What commands and HTTP calls have in common: one call to something outside,
//! as an effect, or repeated freely where the kind says that this is safe.
//!
//! Owns what becomes of the job by how the call ended. May crash before the
//! call (it is made by the next attempt) and after its outcome is saved (the
//! next attempt gets the saved one); in between, an effect leaves the job
//! `unknown` and anything else is called again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencepost_core::id::ErrorCode;
use fencepost_core::limits::OUTCOME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::context::{CallError, Context, EffectCall, EffectError};
use crate::handler::{HandlerResult, Outcome, constant};

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It did what it should.
    Done(Output),
    /// It says, or it is certain, that nothing was done.
    Declined(Refused),
    /// Nobody can say what it did.
    Unclear(Refused),
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// A stable reason.
    pub(crate) code: &'static str,
    /// What a person reads.
    pub(crate) message: String,
    /// It would be refused again.
    pub(crate) for_good: bool,
    /// Not before this long from now.
    pub(crate) after: Option<Duration>,
}

impl Refused {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            for_good: false,
            after: None,
        }
    }

    pub(crate) fn for_good(self) -> Self {
        Self {
            for_good: true,
            ..self
        }
    }

    fn outcome(self) -> Outcome {
        let code: ErrorCode = constant(self.code);
        let message = self.message.into();
        if self.for_good {
            Outcome::Dead { code, message }
        } else {
            Outcome::Retry {
                code,
                message,
                after: self.after,
            }
        }
    }
}

/// What a call that did what it should gave back; kept with the effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Output {
    /// A text.
    Text(String),
    /// More than may be kept.
    TooLong,
    /// Bytes that are not UTF-8.
    NotText,
    /// It broke off.
    CutOff,
}

impl Output {
    /// From the bytes of an answer, of which at most `limit` were to be kept.
    pub(crate) fn of(bytes: Vec<u8>, limit: usize) -> Self {
        if bytes.len() > limit {
            return Self::TooLong;
        }
        String::from_utf8(bytes).map_or(Self::NotText, Self::Text)
    }

    /// What fits beside an effect, with its escapes.
    fn fitting(self) -> Self {
        match serde_json::to_string(&self) {
            Ok(text) if text.len() <= OUTCOME_BYTES_MAX => self,
            Ok(_) | Err(_) => Self::TooLong,
        }
    }

    /// The result: JSON is kept as it is, nothing is `null`, and any other text
    /// is a JSON string.
    fn outcome(self) -> HandlerResult {
        let kept = match self {
            Self::Text(text) => Ok(text),
            Self::TooLong => Err("is longer than may be kept"),
            Self::NotText => Err("is not UTF-8"),
            Self::CutOff => Err("broke off"),
        };
        let text = match kept {
            Ok(text) => text,
            Err(fault) => {
                let message = format!("the call was made and succeeded, but its output {fault}");
                return Ok(Outcome::dead("invalid_result", message));
            }
        };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Ok(Outcome::Completed("null".to_owned()));
        }
        if serde_json::from_str::<&RawValue>(trimmed).is_ok() {
            return Ok(Outcome::Completed(trimmed.to_owned()));
        }
        Ok(Outcome::completed(&trimmed)?)
    }
}

/// Makes a call: as the effect of this name, or freely when it is safe to repeat.
pub(crate) async fn make<F, C>(
    context: &Context,
    name: &str,
    safe_to_repeat: bool,
    call: F,
) -> HandlerResult
where
    F: FnOnce(EffectCall) -> C + Send,
    C: Future<Output = Ended> + Send,
{
    if safe_to_repeat {
        let free = EffectCall {
            job: context.job(),
            epoch: context.epoch(),
            key: format!("{}/{name}", context.job()),
        };
        return match call(free).await {
            Ended::Done(output) => output.outcome(),
            Ended::Declined(refused) | Ended::Unclear(refused) => Ok(refused.outcome()),
        };
    }
    // What the effect's error cannot carry.
    let declined: Mutex<Option<Refused>> = Mutex::new(None);
    let made = context
        .effect(name, |effect| async {
            match call(effect).await {
                Ended::Done(output) => Ok(output.fitting()),
                Ended::Declined(refused) => {
                    let message = refused.message.clone();
                    *declined.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
                    Err(CallError::Declined(message))
                }
                Ended::Unclear(refused) => Err(CallError::Unknown(refused.message)),
            }
        })
        .await;
    match made {
        Ok(output) => output.outcome(),
        Err(error @ EffectError::Declined { .. }) => {
            let refused = declined
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner);
            refused.map_or_else(|| Err(error.into()), |refused| Ok(refused.outcome()))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str) -> Outcome {
        Output::Text(text.to_owned()).outcome().unwrap()
    }

    #[test]
    fn json_is_kept_nothing_is_null_and_other_text_is_a_string() {
        let completed = |text: &str| Outcome::Completed(text.to_owned());
        assert_eq!(result(" {\"n\": 1.0}\n"), completed("{\"n\": 1.0}"));
        assert_eq!(result("\n"), completed("null"));
        assert_eq!(result("it \"works\"\n"), completed("\"it \\\"works\\\"\""));
    }

    #[test]
    fn what_cannot_be_kept_is_a_failure_for_good_after_a_call_that_succeeded() {
        for output in [
            Output::of(vec![0xff], 10),
            Output::of(vec![b'x'; 11], 10),
            // Every byte is six in JSON.
            Output::of(vec![1; OUTCOME_BYTES_MAX / 2], OUTCOME_BYTES_MAX).fitting(),
        ] {
            let Outcome::Dead { code, .. } = output.outcome().unwrap() else {
                panic!()
            };
            assert_eq!(code.as_str(), "invalid_result");
        }
    }
}
