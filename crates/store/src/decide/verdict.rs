//! Decisions about jobs whose outcome nobody knows.

use fencepost_core::effect::{EffectKind, EffectState};
use fencepost_core::error_text::ErrorText;
use fencepost_core::event::EventType;
use fencepost_core::id::EffectName;
use fencepost_core::lifecycle::{Event, State, Step, Verdict};

use super::effect::EffectWrite;
use super::transition::{self, Asked};
use super::{EffectChange, EffectRow, EventWrite, Fence, Moment, Row, Writes};
use crate::contract::{Decision, Resolve, Resolved};

pub(super) fn resolve(
    request: &Resolve,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Resolved {
    let Some(row) = row.filter(|row| row.is_in(&request.scope)) else {
        return Resolved::NotFound;
    };
    if row.state != State::Unknown {
        return Resolved::Conflict(row.state);
    }
    let open: Vec<&EffectRow> = row.open_effects().collect();
    let ends_job = matches!(
        request.decision,
        Decision::Complete { .. } | Decision::Abandon
    );
    let chosen = match (&request.effect, open.as_slice()) {
        (Some(name), all) => match all.iter().find(|effect| effect.name == *name) {
            Some(effect) => Some(*effect),
            None => return Resolved::NoOpenEffect,
        },
        (None, [only]) => Some(*only),
        (None, [_, _, ..]) if !ends_job => {
            let names = open.iter().map(|effect| effect.name.clone());
            return Resolved::WhichEffect(names.collect());
        }
        (None, _) => None,
    };
    if matches!(request.decision, Decision::Happened { .. }) && chosen.is_none() {
        return Resolved::NoOpenEffect;
    }
    let deadline = request
        .deadline
        .map_or(at.now.after(row.timeout), |moment| moment.resolve(at.now));
    if !ends_job && deadline <= at.now {
        return Resolved::DeadlineUnusable;
    }
    writes.events.push(verdict_event(request, row));
    let result = mark(request, row, &open, chosen, writes);
    let left = open.len() - usize::from(chosen.is_some());
    if left > 0 && !ends_job {
        // Someone has to decide about the others, too.
        return Resolved::Decided(Box::new(row.view()));
    }
    let verdict = match &request.decision {
        Decision::Happened { .. } if result.is_some() => Verdict::HappenedAndWasAll,
        Decision::Happened { .. } => Verdict::Happened,
        Decision::DidNotHappen => Verdict::DidNotHappen,
        Decision::Complete { .. } => Verdict::Complete,
        Decision::Abandon => Verdict::Abandon,
    };
    let Step::Move(moved) = row.step(Event::Verdict(verdict), row.epoch, at) else {
        return Resolved::Conflict(row.state);
    };
    let asked = Asked {
        result,
        // A job that ends keeps the deadline that it had.
        deadline: (moved.to == State::Queued).then_some(deadline),
        ..Asked::by(&request.actor)
    };
    let after = transition::apply(row, Fence::Unchanged, moved, &asked, at, writes);
    Resolved::Decided(Box::new(after.view()))
}

/// Marks the effects that the decision speaks of; answers the job's result, if it gets one.
fn mark(
    request: &Resolve,
    row: &Row,
    open: &[&EffectRow],
    chosen: Option<&EffectRow>,
    writes: &mut Writes,
) -> Option<String> {
    let settled = EventType::EffectSettled;
    match &request.decision {
        Decision::Happened {
            outcome,
            is_whole_job,
        } => {
            let effect = chosen?;
            let completes = *is_whole_job && (outcome.is_some() || effect.evidence.is_none());
            let given = outcome.clone().or_else(|| effect.evidence.clone());
            let outcome = given.unwrap_or_else(|| "null".to_owned());
            let change = EffectChange::Settle(outcome.clone());
            write(row, effect, change, settled, &request.actor, writes);
            completes.then_some(outcome)
        }
        Decision::DidNotHappen => {
            let declined = EventType::EffectDeclined;
            if let Some(effect) = chosen {
                let change = EffectChange::Decline;
                write(row, effect, change, declined, &request.actor, writes);
            }
            None
        }
        Decision::Complete { result } => {
            // Nothing of it is open any more; nobody will read their outcomes.
            for effect in open {
                let change = EffectChange::Settle("null".to_owned());
                write(row, effect, change, settled, &request.actor, writes);
            }
            Some(result.clone())
        }
        // Its effects stay open: it may not be retried before someone knows.
        Decision::Abandon => None,
    }
}

fn write(
    row: &Row,
    effect: &EffectRow,
    change: EffectChange,
    event: EventType,
    actor: &str,
    writes: &mut Writes,
) {
    writes.effects.push(EffectWrite {
        job: row.id,
        name: effect.name.clone(),
        // A disowned run's effect has an earlier epoch than the job.
        epoch: effect.epoch,
        change,
    });
    writes.events.push(EventWrite {
        detail: Some(effect.name.to_string()),
        ..row.event(event, actor)
    });
}

fn verdict_event(request: &Resolve, row: &Row) -> EventWrite {
    let name = request.effect.as_ref().map(EffectName::as_str);
    let mut detail = match name {
        Some(name) => format!("{name}: {}", request.reason),
        None => request.reason.to_string(),
    };
    if let Some(evidence) = &request.evidence {
        detail = format!("{detail}\nevidence: {evidence}");
    }
    EventWrite {
        code: Some(request.decision.as_str().to_owned()),
        detail: Some(ErrorText::new(&detail).to_string()),
        ..row.event(EventType::Verdict, &request.actor)
    }
}

impl Row {
    fn open_effects(&self) -> impl Iterator<Item = &EffectRow> {
        self.effects
            .iter()
            .filter(|effect| effect.kind == EffectKind::Effect && effect.state == EffectState::Open)
    }
}
