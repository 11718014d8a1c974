//! What runs a job: the trait that handlers implement, and how a run ends.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::error_text::ErrorText;
use fencepost_core::id::ErrorCode;
use fencepost_core::json;
use fencepost_core::lifecycle::Failure;
use fencepost_core::limits::RESULT_BYTES_MAX;
use serde::Serialize;

use crate::context::Context;

/// Any error inside a handler: the attempt failed and may be repeated.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// How a handler ends: an [`Outcome`], or any error, which is tried again
/// within the job's attempts.
pub type HandlerResult = Result<Outcome, HandlerError>;

/// Runs the jobs of a kind.
#[async_trait]
pub trait Handler: Send + Sync + fmt::Debug + 'static {
    /// Runs one attempt of a job.
    ///
    /// 1. It may run again after it ended or broke off: wrap calls that change
    ///    the outside world in [`Context::effect`].
    /// 2. It is stopped (its task is aborted at the next await) when its lease
    ///    or deadline ends, and should stop by itself when
    ///    [`Context::cancelled`] resolves.
    async fn run(&self, context: &Context) -> HandlerResult;
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done; the result is JSON text and is kept digit for digit.
    Completed(String),
    /// It failed and may be tried again.
    Retry {
        /// A stable reason.
        code: ErrorCode,
        /// What a person reads.
        message: ErrorText,
        /// Not before this long from now, instead of the kind's backoff.
        after: Option<Duration>,
    },
    /// It failed and would fail again.
    Dead {
        /// A stable reason.
        code: ErrorCode,
        /// What a person reads.
        message: ErrorText,
    },
    /// It is put off; the attempt is not counted.
    Snooze(Duration),
}

impl Outcome {
    /// Done, with a value as its result.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn completed(result: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_string(result).map(Self::Completed)
    }

    /// Failed for good.
    ///
    /// # Panics
    /// When the code is not of an error code's form: it is a constant of the handler.
    #[must_use]
    pub fn dead(code: &str, message: impl Into<ErrorText>) -> Self {
        Self::Dead {
            code: constant(code),
            message: message.into(),
        }
    }

    /// Failed, to be tried again after the kind's backoff.
    ///
    /// # Panics
    /// As [`Outcome::dead`].
    #[must_use]
    pub fn retry(code: &str, message: impl Into<ErrorText>) -> Self {
        Self::Retry {
            code: constant(code),
            message: message.into(),
            after: None,
        }
    }

    /// Checks a result as the API checks a payload: what no reader could read
    /// again is a failure for good, not a loop.
    pub(crate) fn checked(self) -> Self {
        let Self::Completed(result) = &self else {
            return self;
        };
        let fault = if result.len() > RESULT_BYTES_MAX {
            format!(
                "the result has {} bytes; {RESULT_BYTES_MAX} are allowed",
                result.len()
            )
        } else if let Err(fault) = json::canonical(result) {
            format!("the result {fault}")
        } else {
            return self;
        };
        Self::dead("invalid_result", fault)
    }

    pub(crate) fn of_error(error: &HandlerError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Self::retry("handler_failed", text)
    }

    pub(crate) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Self::retry("handler_panicked", text)
    }
}

#[expect(
    clippy::expect_used,
    reason = "a constant of the program; a wrong one fails its first test"
)]
pub(crate) fn constant(code: &str) -> ErrorCode {
    ErrorCode::new(code).expect("an error code is 1 to 100 of a-z, 0-9 and `_`")
}

/// The part of a failure that the store is told.
pub(crate) fn failure(
    outcome: &Outcome,
) -> Option<(Failure, &ErrorCode, &ErrorText, Option<Duration>)> {
    match outcome {
        Outcome::Retry {
            code,
            message,
            after,
        } => Some((Failure::Repeatable, code, message, *after)),
        Outcome::Dead { code, message } => Some((Failure::Permanent, code, message, None)),
        Outcome::Completed(_) | Outcome::Snooze(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_cannot_be_kept_is_a_failure_for_good() {
        let long = format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX));
        for bad in [
            "",
            "{",
            "\"a\\u0000b\"",
            "{\"\\u0000\":1}",
            "\"\\ud800\"",
            long.as_str(),
        ] {
            let Outcome::Dead { code, .. } = Outcome::Completed(bad.to_owned()).checked() else {
                panic!("{} was kept", bad.get(..10).unwrap_or(bad));
            };
            assert_eq!(code.as_str(), "invalid_result");
        }
        let good = Outcome::Completed("{\"n\":1e309}".to_owned());
        assert_eq!(good.clone().checked(), good);
    }

    #[test]
    fn an_error_is_told_with_its_causes_and_cleaned() {
        let error: HandlerError = "broken\0pipe".into();
        let Outcome::Retry { code, message, .. } = Outcome::of_error(&error) else {
            panic!()
        };
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("handler_failed", "broken\u{fffd}pipe")
        );
    }

    /// The guide shows the example's handler; the example is compiled with the tests.
    #[test]
    fn the_guide_shows_the_compiled_example() {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        let guide = include_str!("../../docs/guides/handlers.md");
        let shown = guide
            .split("```rust")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let example = bare(include_str!("../../examples/invoice-worker.rs"));
        assert!(example.contains(&bare(shown.unwrap())));
    }
}
