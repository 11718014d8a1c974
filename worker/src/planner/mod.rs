//! Who proposes the next tool of a review.
//!
//! A planner is asked for one tool at a time and is told names and numbers, not
//! the document ([`Task`]). What it says is data: trusted code decides what
//! becomes of it. Asking changes nothing outside, so it is a step, not an effect.

mod openai;
mod stub;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::document::plan::{Proposal, Task};
use crate::handler::{Outcome, constant};

pub use openai::{OpenAiPlanner, PlannerSetupError};
pub use stub::StubPlanner;

/// Proposes the next tool.
#[async_trait]
pub trait Planner: Send + Sync + fmt::Debug + 'static {
    /// The next tool and its parameters.
    ///
    /// # Errors
    /// [`PlanError`].
    ///
    /// # Cancel safety
    /// May be dropped at any point and asked again.
    async fn propose(&self, task: &Task) -> Result<Proposal, PlanError>;
}

/// A planner proposed nothing. The text holds nothing of what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It cannot be asked now.
    #[error("the planner did not answer: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// It answered and proposed nothing that can be read.
    #[error("the planner's answer cannot be used: {0}")]
    Unusable(&'static str),
    /// It will not answer until its settings are mended.
    #[error("the planner answered {status}; its address, model or key is to be mended")]
    Refused {
        /// The status of its answer.
        status: u16,
    },
}

impl PlanError {
    /// What becomes of the job: what may pass is tried again, within its attempts.
    pub(crate) fn outcome(&self) -> Outcome {
        let text = self.to_string();
        match self {
            Self::Unavailable { after, .. } => Outcome::Retry {
                code: constant("planner_unavailable"),
                message: text.into(),
                after: *after,
            },
            Self::Unusable(_) => Outcome::retry("planner_unusable", text),
            Self::Refused { .. } => Outcome::dead("planner_refused", text),
        }
    }
}
