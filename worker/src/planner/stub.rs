//! The planner there is without a model: it always knows what comes next.

use async_trait::async_trait;

use super::{PlanError, Planner};
use crate::document::plan::{Finished, Proposal, Task, Tool};
use crate::document::{DraftParameters, ExtractParameters};

/// Proposes `extract`, `validate` and `draft`, in this order. Asks nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct StubPlanner;

#[async_trait]
impl Planner for StubPlanner {
    async fn propose(&self, task: &Task) -> Result<Proposal, PlanError> {
        Ok(match task.finished.last() {
            None => Proposal::new(
                Tool::Extract,
                &ExtractParameters {
                    document: task.document.clone(),
                },
            ),
            Some(Finished::Extract { .. }) => Proposal::new(Tool::Validate, &task.asked),
            Some(Finished::Validate { .. }) => Proposal::new(Tool::Draft, &DraftParameters {}),
        })
    }
}
