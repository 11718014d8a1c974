//! Marks around calls to the outside world.

use fencepost_core::effect::{self, EffectState, OpenAnswer};
use fencepost_core::event::EventType;
use fencepost_core::id::{EffectName, Epoch, JobId};
use fencepost_core::lease::Fenced;
use fencepost_core::limits::EFFECTS_PER_JOB_MAX;

use super::run::fenced_event;
use super::{EventWrite, Moment, Row, Writes};
use crate::contract::{Claim, DeclineEffect, Marked, OpenEffect, Opened, SaveStep, SettleEffect};

/// A change of an effect's record.
#[derive(Debug)]
pub(crate) struct EffectWrite {
    pub(crate) job: JobId,
    pub(crate) name: EffectName,
    pub(crate) epoch: Epoch,
    pub(crate) change: EffectChange,
}

/// What changes.
#[derive(Debug)]
pub(crate) enum EffectChange {
    Open,
    Settle(String),
    Decline,
    Step(String),
    Evidence(String),
}

fn mark(row: &Row, name: &EffectName, change: EffectChange) -> EffectWrite {
    EffectWrite {
        job: row.id,
        name: name.clone(),
        epoch: row.epoch,
        change,
    }
}

fn event(row: &Row, kind: EventType, name: &EffectName) -> EventWrite {
    let actor = row.leased_by.as_deref().unwrap_or_default();
    EventWrite {
        detail: Some(name.to_string()),
        ..row.event(kind, actor)
    }
}

pub(super) fn open(
    request: &OpenEffect,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Opened {
    let Some(row) = row else {
        return Opened::Fenced(Fenced::NoSuchJob);
    };
    if let Some(fenced) = row.fence(request.claim.epoch(), at) {
        return Opened::Fenced(fenced);
    }
    let recorded = row.effect(&request.name);
    match effect::open(recorded.map(|known| (known.state, known.epoch)), row.epoch) {
        OpenAnswer::Call if recorded.is_none() && row.effects.len() >= EFFECTS_PER_JOB_MAX => {
            Opened::TooMany
        }
        OpenAnswer::Call => {
            writes
                .effects
                .push(mark(row, &request.name, EffectChange::Open));
            writes
                .events
                .push(event(row, EventType::EffectOpened, &request.name));
            Opened::Call
        }
        OpenAnswer::Saved => Opened::Saved(
            recorded
                .and_then(|known| known.outcome.clone())
                .unwrap_or_default(),
        ),
        OpenAnswer::StillOpen => Opened::StillOpen,
        OpenAnswer::DeclinedUnderThisClaim => Opened::Declined,
    }
}

/// The effect of this name that is open under this very claim.
fn own_open<'a>(row: &'a Row, claim: Claim, name: &EffectName) -> Option<&'a super::EffectRow> {
    row.effect(name)
        .filter(|known| known.state == EffectState::Open && known.epoch == claim.epoch())
}

pub(super) fn settle(
    request: &SettleEffect,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Marked {
    let Some(row) = row else {
        return Marked::Fenced(Fenced::NoSuchJob);
    };
    let open = own_open(row, request.claim, &request.name);
    if let Some(fenced) = row.fence(request.claim.epoch(), at) {
        writes
            .events
            .push(fenced_event(row, request.claim, fenced, "settle"));
        if open.is_some() {
            let evidence = EffectChange::Evidence(request.outcome.clone());
            writes.effects.push(EffectWrite {
                epoch: request.claim.epoch(),
                ..mark(row, &request.name, evidence)
            });
        }
        return Marked::Fenced(fenced);
    }
    if open.is_none() {
        return Marked::NotApplicable;
    }
    let change = EffectChange::Settle(request.outcome.clone());
    writes.effects.push(mark(row, &request.name, change));
    writes
        .events
        .push(event(row, EventType::EffectSettled, &request.name));
    Marked::Recorded
}

pub(super) fn decline(
    request: &DeclineEffect,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Marked {
    let Some(row) = row else {
        return Marked::Fenced(Fenced::NoSuchJob);
    };
    if let Some(fenced) = row.fence(request.claim.epoch(), at) {
        writes
            .events
            .push(fenced_event(row, request.claim, fenced, "decline"));
        return Marked::Fenced(fenced);
    }
    if own_open(row, request.claim, &request.name).is_none() {
        return Marked::NotApplicable;
    }
    writes
        .effects
        .push(mark(row, &request.name, EffectChange::Decline));
    writes
        .events
        .push(event(row, EventType::EffectDeclined, &request.name));
    Marked::Recorded
}

pub(super) fn save_step(
    request: &SaveStep,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Marked {
    let Some(row) = row else {
        return Marked::Fenced(Fenced::NoSuchJob);
    };
    if let Some(fenced) = row.fence(request.claim.epoch(), at) {
        writes
            .events
            .push(fenced_event(row, request.claim, fenced, "step"));
        return Marked::Fenced(fenced);
    }
    let taken = row.effect(&request.name);
    if taken.is_some() || row.effects.len() >= EFFECTS_PER_JOB_MAX {
        // A step that was saved is returned, not run again: saving it twice,
        // or under the name of an effect, is a mistake of the handler.
        return Marked::NotApplicable;
    }
    let change = EffectChange::Step(request.outcome.clone());
    writes.effects.push(mark(row, &request.name, change));
    writes
        .events
        .push(event(row, EventType::StepSaved, &request.name));
    Marked::Recorded
}
