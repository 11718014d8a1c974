//! `fencepost resolve --probe`: ask the outside system, and decide by its answer.
//!
//! Asks from here, with the probes that the settings here name: where the
//! operator sits, what they need must be reachable.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::id::{Epoch, KindName};
use fencepost_core::kind::Kinds;
use fencepost_core::time::{Clock as _, Timestamp};
use fencepost_service::system::SystemClock;
use fencepost_worker::probe::{Answer, Probe, Question};
use serde_json::value::RawValue;

use super::jobs::{item, pages, segment};
use super::unknown::{Body, Item};
use crate::client::{Client, Job};
use crate::exit::{Exit, Failed};
use crate::handlers;
use crate::output::{self, Format};

type Probes = BTreeMap<KindName, Arc<dyn Probe>>;

/// Asks about every open effect that fits, of one job or of all of a query.
pub(crate) async fn run(
    client: &Client,
    kinds: &Kinds,
    job: Option<&str>,
    query: &str,
    format: Format,
) -> anyhow::Result<Exit> {
    let mut probes = Probes::new();
    for kind in kinds.iter() {
        if let Some(probe) = handlers::probe(kind)? {
            probes.insert(kind.name.clone(), probe);
        }
    }
    let mut questions = Vec::new();
    pages(client, "/unknown", query, usize::MAX, |raw| {
        let listed: Item = item(raw)?;
        if job.is_none_or(|job| job == listed.job) {
            questions.push(question(listed)?);
        }
        Ok(())
    })
    .await?;
    if questions.is_empty() {
        return Err(Failed::new(Exit::False, "nothing fits: nobody was asked").into());
    }
    let mut left = 0_usize;
    for (job, question) in questions {
        let told = match question {
            None => "no effect of it is open: a person has to decide".to_owned(),
            Some(question) => ask(client, &probes, question, format).await?,
        };
        if !told.is_empty() {
            left += 1;
            output::line(format!("{job}: {told}"));
        }
    }
    Ok(if left == 0 { Exit::Done } else { Exit::False })
}

/// What is asked about a listed job; none when no effect of it is open.
fn question(listed: Item) -> Result<(String, Option<Question>), Failed> {
    let malformed = || Failed::new(Exit::Unavailable, "an item is not what was expected");
    let Some(effect) = listed.effect else {
        return Ok((listed.job, None));
    };
    let question = Question {
        job: listed.job.parse().map_err(|_| malformed())?,
        kind: listed.kind.parse().map_err(|_| malformed())?,
        effect: effect.name.parse().map_err(|_| malformed())?,
        key: format!("{}/{}", listed.job, effect.name),
        epoch: Epoch(effect.epoch),
        opened_at: Timestamp::parse(&effect.opened_at).map_err(|_| malformed())?,
    };
    Ok((listed.job, Some(question)))
}

/// Asks and decides; why nothing was decided, or nothing to say.
async fn ask(
    client: &Client,
    probes: &Probes,
    question: Question,
    format: Format,
) -> Result<String, Failed> {
    let Some(probe) = probes.get(&question.kind) else {
        return Ok(format!(
            "kind `{}` names no probe in the settings here",
            question.kind
        ));
    };
    let (word, outcome) = match probe.ask(&question, SystemClock.now()).await {
        Answer::Happened(outcome) => ("happened", outcome),
        Answer::DidNotHappen => ("did-not-happen", None),
        Answer::NotKnown(why) => return Ok(output::safe(why.as_str()).replace('\n', " ")),
    };
    let outcome = outcome.map(RawValue::from_string).transpose();
    let usage = |error: serde_json::Error| Failed::new(Exit::Usage, error.to_string());
    let body = Body {
        verdict: word,
        reason: "the probe asked the outside system",
        evidence: None,
        effect: Some(question.effect.as_str()),
        outcome: outcome.map_err(usage)?,
        result: None,
        timeout_ms: None,
        probe: true,
    };
    let text = serde_json::to_string(&body).map_err(usage)?;
    let path = format!("/jobs/{}/resolve", segment(&question.job.to_string()));
    match client.post_text(&path, &[], text).await {
        Ok(answer) => {
            match format {
                Format::Json => output::line(&answer.text),
                Format::Text => {
                    let job: Job = answer.parse()?;
                    output::line(format!("{}: {word}; the job is {}", job.id, job.state));
                }
            }
            Ok(String::new())
        }
        // Someone else was first.
        Err(failed) if failed.exit == Exit::False => Ok(failed.to_string()),
        Err(failed) => Err(failed),
    }
}
