//! Claims, renewals and the four reports of a claim's holder.

use std::time::Duration;

use fencepost_core::event::EventType;
use fencepost_core::lease::{ClaimRefusal, Fenced};
use fencepost_core::lifecycle::{self, Event, Refusal, State, Step};

use super::transition::{self, Asked};
use super::{EventWrite, Fence, JobUpdate, Moment, Row, Writes};
use crate::contract::{
    Claim, ClaimJob, ClaimOutcome, ClaimedJob, Complete, Fail, Release, Renew, Renewed, Report,
    Snooze,
};

pub(super) fn claim(
    request: &ClaimJob,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> ClaimOutcome {
    let Some(row) = row else {
        return ClaimOutcome::Refused(ClaimRefusal::NoSuchJob);
    };
    let moved = match row.step(Event::Claim, row.epoch, at) {
        Step::Move(_) if row.queue_paused => {
            return ClaimOutcome::Refused(ClaimRefusal::QueuePaused);
        }
        Step::Move(moved) => moved,
        Step::Refuse(Refusal::Claim(refusal)) => return ClaimOutcome::Refused(refusal),
        Step::Refuse(_) | Step::AskToCancel => {
            return ClaimOutcome::Refused(ClaimRefusal::Ended(row.state));
        }
    };
    let worker = request.worker.to_string();
    let asked = Asked {
        lease: Some((at.now.after(request.lease), worker.clone())),
        ..Asked::by(&worker)
    };
    let after = transition::apply(row, Fence::Unchanged, moved, &asked, at, writes);
    ClaimOutcome::Claimed(Box::new(ClaimedJob {
        claim: Claim::issue(after.id, after.epoch),
        kind: after.kind.clone(),
        tenant: after.tenant.clone(),
        owner: after.owner.clone(),
        payload: after.payload.clone().unwrap_or_default(),
        attempt: after.attempts,
        max_attempts: after.max_attempts,
        lease_for: request.lease,
        deadline_in: after.deadline_at.since(at.now),
        deadline_at: after.deadline_at,
        trace: after.trace.clone(),
        effects: after.effects.iter().map(super::EffectRow::record).collect(),
    }))
}

pub(super) fn renew(
    request: &Renew,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Renewed {
    let Some(row) = row else {
        return Renewed::Fenced(Fenced::NoSuchJob);
    };
    if let Some(fenced) = row.fence(request.claim.epoch(), at) {
        return Renewed::Fenced(fenced);
    }
    let mut after = row.clone();
    after.lease_expires_at = Some(at.now.after(request.lease));
    writes.updates.push(JobUpdate::new(row, after, Fence::Live));
    Renewed::Live {
        lease_for: request.lease,
        deadline_in: row.deadline_at.since(at.now),
        cancel_requested: row.cancel_requested_at.is_some(),
    }
}

pub(super) fn complete(
    request: &Complete,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Report {
    let asked = Asked {
        result: Some(request.result.clone()),
        ..Asked::default()
    };
    report(request.claim, Event::Complete, asked, row, at, writes)
}

pub(super) fn fail(request: &Fail, row: Option<&Row>, at: Moment, writes: &mut Writes) -> Report {
    let backoff = row.map_or(Duration::ZERO, |row| {
        row.backoff.delay(row.attempts, at.random)
    });
    let asked = Asked {
        error: Some((request.code.clone(), request.message.to_string())),
        delay: request.retry_after.unwrap_or(backoff),
        detail: Some(request.message.to_string()),
        ..Asked::default()
    };
    report(
        request.claim,
        Event::Fail(request.failure),
        asked,
        row,
        at,
        writes,
    )
}

pub(super) fn release(
    request: &Release,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Report {
    let asked = Asked {
        detail: Some(request.reason.to_owned()),
        ..Asked::default()
    };
    report(request.claim, Event::Release, asked, row, at, writes)
}

pub(super) fn snooze(
    request: Snooze,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Report {
    let asked = Asked {
        delay: request.delay,
        ..Asked::default()
    };
    report(request.claim, Event::Snooze, asked, row, at, writes)
}

fn report(
    claim: Claim,
    event: Event,
    asked: Asked,
    row: Option<&Row>,
    at: Moment,
    writes: &mut Writes,
) -> Report {
    let Some(row) = row else {
        return Report::Fenced(Fenced::NoSuchJob);
    };
    let facts = row.facts(claim.epoch(), at.now, asked.delay);
    match lifecycle::next(row.state, event, &facts) {
        Step::Move(moved) => {
            let asked = Asked {
                actor: row.leased_by.clone().unwrap_or_default(),
                // A result is kept with a completed job alone.
                result: asked.result.filter(|_| moved.to == State::Completed),
                ..asked
            };
            let after = transition::apply(row, Fence::Live, moved, &asked, at, writes);
            Report::Recorded { state: after.state }
        }
        Step::Refuse(Refusal::Fenced(fenced)) => {
            writes
                .events
                .push(fenced_event(row, claim, fenced, word(event)));
            Report::Fenced(fenced)
        }
        Step::Refuse(_) | Step::AskToCancel => Report::Fenced(Fenced::NotLeased(row.state)),
    }
}

/// A fenced report changes nothing but leaves a line in the history: the work
/// of that claim is known to have gone on after its end.
pub(super) fn fenced_event(row: &Row, claim: Claim, fenced: Fenced, what: &str) -> EventWrite {
    EventWrite {
        epoch: claim.epoch(),
        code: Some(fenced.as_str().to_owned()),
        detail: Some(what.to_owned()),
        ..row.event(EventType::Fenced, "store")
    }
}

fn word(event: Event) -> &'static str {
    match event {
        Event::Complete => "complete",
        Event::Fail(_) => "fail",
        Event::Release => "release",
        Event::Snooze => "snooze",
        Event::Claim | Event::Reap | Event::Cancel(_) | Event::Retry | Event::Verdict(_) => "other",
    }
}
