//! `document.prepare`: a supplier's document is read, checked, and a note about
//! it drafted, for a clerk who reads it, edits it and sends it herself.
//!
//! The payload is `{"document": {"blob": "sha256:…"}}` or `{"text": "…"}`, with
//! `required`, the fields that the document must have (all of them when it is
//! left out), and `locale`, where it comes from. The result is
//! `{"note": …, "required": …, "found": …, "missing": …, "checks": …}`.
//!
//! A [`Planner`] proposes the next tool, [`plan::decide`] lets it through or ends the
//! job, at most [`STEPS_MAX`] times. Each proposal that was let through and each
//! output is a checkpoint, `1.plan`, `1.extract`, `2.plan` and so on: a run that
//! breaks off anywhere is taken up at the first step without one. Nothing here
//! acts on the outside world, so no crash leaves the job `unknown`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::context::{Context, EffectError};
use crate::document::plan::{self, Call, Finished, STEPS_MAX, Task, Tool};
use crate::document::{
    BlobRef, DraftOutput, ExtractOutput, Field, Input, ValidateOutput, ValidateParameters, draft,
    validate,
};
use crate::extract::Extractor;
use crate::handler::{Handler, HandlerError, HandlerResult, Outcome};
use crate::planner::Planner;

/// Kept of the time until the deadline, so that how the job ended can still be
/// recorded: many times a commit.
const RECORD_RESERVE: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    document: Option<BlobRef>,
    text: Option<String>,
    required: Option<Vec<Field>>,
    locale: Option<String>,
}

/// The job's result.
#[derive(Serialize)]
struct Prepared {
    note: String,
    #[serde(flatten)]
    validated: ValidateOutput,
}

/// Why a step gave nothing.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// The job ends, or waits for another attempt, as this says.
    #[error("the review ended")]
    Ended(Outcome),
    /// The attempt failed.
    #[error(transparent)]
    Failed(#[from] HandlerError),
}

/// Reviews documents by a plan of three tools.
#[derive(Debug)]
pub struct DocumentPrepare {
    extractor: Extractor,
    planner: Arc<dyn Planner>,
}

impl DocumentPrepare {
    /// Reads by the given guard and plans by the given planner.
    #[must_use]
    pub fn new(extractor: Extractor, planner: Arc<dyn Planner>) -> Self {
        Self { extractor, planner }
    }

    /// Takes the steps of a plan until a note is drafted.
    async fn review(
        &self,
        context: &Context,
        input: &Input,
        mut task: Task,
    ) -> Result<Outcome, Stop> {
        let mut extracted: Option<ExtractOutput> = None;
        let mut validated: Option<ValidateOutput> = None;
        for number in 1..=STEPS_MAX {
            let plan = || self.plan(&task);
            match (
                step(context, number, "plan", plan).await?,
                &extracted,
                &validated,
            ) {
                (Call::Extract(_), _, _) => {
                    let work = || self.extract(context, input);
                    let output = step(context, number, Tool::Extract.name(), work).await?;
                    task.finished.push(Finished::from(&output));
                    extracted = Some(output);
                }
                (Call::Validate(parameters), Some(read), _) => {
                    let work = async || Ok(validate(&read.lines, read.truncated, &parameters));
                    let output = step(context, number, Tool::Validate.name(), work).await?;
                    task.finished.push(Finished::from(&output));
                    validated = Some(output);
                }
                (Call::Draft(_), _, Some(validated)) => {
                    let work = async || Ok(draft(validated));
                    let DraftOutput { note } =
                        step(context, number, Tool::Draft.name(), work).await?;
                    let validated = validated.clone();
                    let prepared = Prepared { note, validated };
                    return Ok(Outcome::completed(&prepared).map_err(HandlerError::from)?);
                }
                (Call::Validate(_) | Call::Draft(_), _, _) => {
                    let error = "a tool was let through before what it builds on";
                    return Err(Stop::Failed(error.into()));
                }
            }
        }
        Err(Stop::Ended(Outcome::dead(
            "step_budget_spent",
            format!("no note was drafted in {STEPS_MAX} steps"),
        )))
    }

    async fn plan(&self, task: &Task) -> Result<Call, Stop> {
        let proposal = self.planner.propose(task).await;
        let proposal = proposal.map_err(|error| Stop::Ended(error.outcome()))?;
        plan::decide(proposal, task)
            .map_err(|refusal| Stop::Ended(Outcome::dead(refusal.code(), refusal.to_string())))
    }

    async fn extract(&self, context: &Context, input: &Input) -> Result<ExtractOutput, Stop> {
        let extracted = input.extract(context, &self.extractor).await?;
        Ok(extracted.map_err(Stop::Ended)?.into())
    }
}

/// Does one step, or returns what an earlier attempt saved of it. It ends before
/// the deadline does.
async fn step<T, W>(
    context: &Context,
    number: u32,
    name: &str,
    work: impl FnOnce() -> W + Send,
) -> Result<T, Stop>
where
    T: Serialize + DeserializeOwned,
    W: Future<Output = Result<T, Stop>> + Send,
{
    let limit = context.deadline_in().saturating_sub(RECORD_RESERVE);
    let in_time = || async {
        let ended = tokio::time::timeout(limit, work()).await;
        ended.unwrap_or_else(|_| {
            Err(Stop::Ended(Outcome::dead(
                "time_budget_spent",
                format!("the deadline is too near for step {number} ({name})"),
            )))
        })
    };
    match context.step(&format!("{number}.{name}"), in_time).await {
        Ok(output) => Ok(output),
        Err(EffectError::Step { source, .. }) => Err(match source.downcast::<Stop>() {
            Ok(stop) => *stop,
            Err(error) => Stop::Failed(error),
        }),
        Err(error) => Err(Stop::Failed(error.into())),
    }
}

#[async_trait]
impl Handler for DocumentPrepare {
    async fn run(&self, context: &Context) -> HandlerResult {
        let invalid = |why: &str| Ok(Outcome::dead("invalid_payload", why));
        let Ok(payload) = context.payload_as::<Payload>() else {
            return invalid(
                "expected `document`, {\"blob\": \"sha256:…\"}, or `text`; and, if wanted, \
                 `required`, a list of fields, and `locale`",
            );
        };
        let document = payload.document.clone();
        let input = match Input::new(payload.document, payload.text) {
            Ok(input) => input,
            Err(why) => return invalid(&why),
        };
        let asked = ValidateParameters {
            required: payload.required.unwrap_or_else(|| Field::ALL.to_vec()),
            locale: payload.locale,
        };
        if !plan::is_askable(&asked) {
            return invalid(
                "`required` names a field twice, or `locale` is no language tag such as `de-DE`",
            );
        }
        let task = Task {
            document,
            asked,
            finished: Vec::new(),
        };
        let ended = tokio::select! {
            biased;
            () = context.cancelled() => return Err("the review was told to stop".into()),
            ended = self.review(context, &input, task) => ended,
        };
        match ended {
            Ok(outcome) | Err(Stop::Ended(outcome)) => Ok(outcome),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}
