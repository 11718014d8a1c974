//! `/unknown` and `/jobs/{id}/resolve`: what waits for a verdict, and verdicts.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use fencepost_core::error_text::ErrorText;
use fencepost_core::id::{EffectName, Epoch, JobId, KindName, QueueName};
use fencepost_core::json as json_text;
use fencepost_core::kind::Runner;
use fencepost_core::lifecycle;
use fencepost_core::limits::{OUTCOME_BYTES_MAX, RESULT_BYTES_MAX};
use fencepost_core::time::Timestamp;
use fencepost_store::{Decision, JobFilter, Resolve, Resolved, UnknownEffect};
use serde::Serialize;
use serde_json::value::RawValue;

use super::jobs::read;
use crate::cursor;
use crate::extract::{JobPath, Operator, VerdictBody};
use crate::fields::Fields;
use crate::problem::{ApiError, Code};
use crate::query::Query;
use crate::state::Parts;
use crate::submission::{deadline, deadline_unusable};
use crate::view::{Job, Page, json};

/// An unknown job with one of its open effects.
#[derive(Debug, Serialize)]
struct Unknown<'a> {
    job: JobId,
    kind: &'a str,
    queue: &'a str,
    owner: &'a str,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Effect<'a>>,
}

#[derive(Debug, Serialize)]
struct Effect<'a> {
    name: &'a str,
    /// What the receiver knows it as.
    key: String,
    epoch: Epoch,
    opened_at: Timestamp,
    worker: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'a RawValue>,
}

impl<'a> Unknown<'a> {
    fn of(effect: &'a UnknownEffect) -> Self {
        let open = effect.open.as_ref().map(|call| Effect {
            name: call.name.as_str(),
            key: format!("{}/{}", effect.job, call.name),
            epoch: call.epoch,
            opened_at: call.opened_at,
            worker: &call.worker,
            evidence: call
                .evidence
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok()),
        });
        Self {
            job: effect.job,
            kind: effect.kind.as_str(),
            queue: effect.queue.as_str(),
            owner: effect.owner.as_str(),
            since: effect.since,
            effect: open,
        }
    }
}

/// Lists what waits for a verdict, oldest job first.
pub(super) async fn list(
    State(api): State<Arc<Parts>>,
    Operator(caller): Operator,
    mut query: Query,
) -> Result<Response, ApiError> {
    let name = "1 to 100 letters, digits, `.`, `_` or `-`";
    let filter = JobFilter {
        states: Vec::new(),
        kind: query.parsed("kind", |text| KindName::new(text).ok(), name)?,
        queue: query.parsed("queue", |text| QueueName::new(text).ok(), name)?,
    };
    let limit = query.limit()?;
    let after = query.one("cursor")?;
    let after = after.as_deref().map(cursor::read_after_job).transpose()?;
    query.finish()?;
    let scope = caller.scope();
    let page = api.store.unknown(&scope, &filter, after, limit);
    let page = api.ask(page).await?;
    let items = page.effects.iter().map(Unknown::of).collect();
    let next = page.next.map(cursor::after_job);
    json(StatusCode::OK, &Page { items, next })
}

/// Decides about an unknown job: 200 when it has ended or waits for more
/// decisions, 202 when it is queued again.
pub(super) async fn resolve(
    State(api): State<Arc<Parts>>,
    Operator(caller): Operator,
    JobPath(job): JobPath,
    query: Query,
    VerdictBody(text): VerdictBody,
) -> Result<Response, ApiError> {
    query.finish()?;
    let scope = caller.scope();
    let mut fields = Fields::read("the body", &text)?;
    let decision = decision(&mut fields)?;
    let effect = fields.text("effect")?.map(|text| effect_name(&text));
    let reason = words(&mut fields, "reason")?
        .ok_or_else(|| ApiError::invalid("`reason` says why: it is needed"))?;
    let evidence = words(&mut fields, "evidence")?;
    let deadline = deadline(&mut fields, api.store.now())?;
    let by_probe = fields.flag("probe")?.unwrap_or(false);
    fields.finish()?;
    let decision = match decision {
        Decision::Happened { outcome, .. } => {
            let kind = read(&api, &scope, job).await?.kind;
            let known = api.catalogue.get(kind.as_str());
            Decision::Happened {
                outcome,
                is_whole_job: known.is_ok_and(|entry| {
                    matches!(entry.kind.runner, Runner::Command(_) | Runner::Http(_))
                }),
            }
        }
        decision @ (Decision::DidNotHappen | Decision::Complete { .. } | Decision::Abandon) => {
            decision
        }
    };
    let actor = caller.actor();
    let request = Resolve {
        scope,
        job,
        effect: effect.transpose()?,
        decision,
        reason,
        evidence,
        deadline,
        actor: if by_probe {
            format!("probe by {actor}")
        } else {
            actor
        },
    };
    match api.ask(api.store.resolve(request)).await? {
        Resolved::Decided(job) => {
            let status = if job.state == lifecycle::State::Queued {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            json(status, &Job::whole(&job)?)
        }
        Resolved::Conflict(state) => Err(ApiError::new(
            Code::StateConflict,
            format!("the job is {} and needs no verdict", state.as_str()),
        )),
        Resolved::WhichEffect(names) => {
            let names: Vec<&str> = names.iter().map(EffectName::as_str).collect();
            Err(ApiError::new(
                Code::StateConflict,
                format!(
                    "several effects are open: name one of {} as `effect`",
                    names.join(", ")
                ),
            ))
        }
        Resolved::NoOpenEffect => Err(ApiError::new(
            Code::StateConflict,
            "no such effect of the job is open: it was decided before, or its kind holds jobs whose worker was lost",
        )),
        Resolved::DeadlineUnusable => Err(deadline_unusable()),
        Resolved::NotFound => Err(ApiError::not_found()),
    }
}

fn decision(fields: &mut Fields<'_>) -> Result<Decision, ApiError> {
    const WORDS: &str = "`verdict` must be happened, did-not-happen, complete or abandon";
    let verdict = fields.text("verdict")?;
    match verdict.as_deref() {
        Some("happened") => Ok(Decision::Happened {
            outcome: document(fields, "outcome", OUTCOME_BYTES_MAX)?,
            is_whole_job: false,
        }),
        Some("did-not-happen") => Ok(Decision::DidNotHappen),
        Some("complete") => {
            let result = document(fields, "result", RESULT_BYTES_MAX)?;
            let result =
                result.ok_or_else(|| ApiError::invalid("`result` is needed to complete a job"))?;
            Ok(Decision::Complete { result })
        }
        Some("abandon") => Ok(Decision::Abandon),
        Some(_) | None => Err(ApiError::invalid(WORDS)),
    }
}

/// JSON text as it was sent, checked as a result is.
fn document(
    fields: &mut Fields<'_>,
    name: &'static str,
    bytes_max: usize,
) -> Result<Option<String>, ApiError> {
    let Some(value) = fields.raw(name) else {
        return Ok(None);
    };
    let text = value.get();
    if text.len() > bytes_max {
        return Err(ApiError::too_large(format!(
            "`{name}` has at most {bytes_max} bytes"
        )));
    }
    json_text::canonical(text).map_err(|fault| ApiError::invalid(format!("`{name}` {fault}")))?;
    Ok(Some(text.to_owned()))
}

fn words(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<ErrorText>, ApiError> {
    let text = fields.text(name)?;
    match text.as_deref().map(str::trim) {
        Some("") => Err(ApiError::invalid(format!("`{name}` is empty"))),
        Some(text) => Ok(Some(ErrorText::new(text))),
        None => Ok(None),
    }
}

fn effect_name(text: &str) -> Result<EffectName, ApiError> {
    EffectName::new(text).map_err(|error| ApiError::invalid(format!("`effect`: {error}")))
}
