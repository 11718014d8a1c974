//! A job's row as the decisions see it.

use std::time::Duration;

use fencepost_core::effect::{EffectKind, EffectState};
use fencepost_core::event::EventType;
use fencepost_core::id::{EffectName, Epoch, ErrorCode, JobId, KindName, Owner, QueueName, Tenant};
use fencepost_core::kind::OnCrash;
use fencepost_core::lease::Fenced;
use fencepost_core::lifecycle::{self, Event, Facts, State, Step};
use fencepost_core::limits::SNOOZES_MAX;
use fencepost_core::retry::Backoff;
use fencepost_core::time::Timestamp;

use super::{EventWrite, Moment};
use crate::contract::{EffectRecord, ErrorView, JobView, Scope};

/// A job, its effects, and what its queue and outbox entry say.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: JobId,
    pub(crate) tenant: Tenant,
    pub(crate) owner: Owner,
    pub(crate) kind: KindName,
    pub(crate) queue: QueueName,
    pub(crate) priority: u8,
    /// Loaded for claims only.
    pub(crate) payload: Option<String>,
    pub(crate) state: State,
    pub(crate) epoch: Epoch,
    pub(crate) attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) snoozes: u32,
    pub(crate) run_at: Timestamp,
    pub(crate) deadline_at: Timestamp,
    pub(crate) timeout: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) on_crash: OnCrash,
    pub(crate) lease_expires_at: Option<Timestamp>,
    pub(crate) leased_by: Option<String>,
    pub(crate) cancel_requested_at: Option<Timestamp>,
    /// Set by a decision that completes the job; never loaded.
    pub(crate) result: Option<String>,
    pub(crate) error: Option<ErrorView>,
    pub(crate) trace: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) finished_at: Option<Timestamp>,
    /// How often its outbox entry was put back; `None` without an entry.
    pub(crate) put_backs: Option<u32>,
    pub(crate) parked: bool,
    pub(crate) queue_paused: bool,
    pub(crate) effects: Vec<EffectRow>,
}

/// An effect or step of a job.
#[derive(Debug, Clone)]
pub(crate) struct EffectRow {
    pub(crate) name: EffectName,
    pub(crate) kind: EffectKind,
    pub(crate) epoch: Epoch,
    pub(crate) state: EffectState,
    pub(crate) opened_at: Timestamp,
    /// Loaded where a decision hands it out.
    pub(crate) outcome: Option<String>,
    /// Loaded with it.
    pub(crate) evidence: Option<String>,
}

impl EffectRow {
    pub(crate) fn record(&self) -> EffectRecord {
        EffectRecord {
            name: self.name.clone(),
            kind: self.kind,
            epoch: self.epoch,
            state: self.state,
            opened_at: self.opened_at,
            outcome: self.outcome.clone(),
        }
    }
}

impl Row {
    pub(crate) fn is_in(&self, scope: &Scope) -> bool {
        self.tenant == scope.tenant
            && scope
                .owner
                .as_ref()
                .is_none_or(|owner| *owner == self.owner)
    }

    /// What is true now, for an event under the given epoch whose next attempt
    /// would come after `delay`.
    pub(crate) fn facts(&self, epoch: Epoch, now: Timestamp, delay: Duration) -> Facts {
        let effects = |state| {
            self.effects
                .iter()
                .any(|effect| effect.kind == EffectKind::Effect && effect.state == state)
        };
        Facts {
            epoch_is_current: epoch == self.epoch,
            lease_until: self.lease_expires_at.unwrap_or(now),
            lease_expired: self.lease_expires_at.is_some_and(|end| end <= now),
            deadline_passed: self.deadline_at <= now,
            due: self.run_at <= now,
            attempts_spent: self.attempts >= self.max_attempts,
            retry_fits: now.after(delay) < self.deadline_at,
            snoozes_spent: self.snoozes >= SNOOZES_MAX,
            effect_open: effects(EffectState::Open),
            effect_settled: effects(EffectState::Settled),
            cancel_asked: self.cancel_requested_at.is_some(),
            hold_on_crash: self.on_crash == OnCrash::Hold,
        }
    }

    pub(crate) fn step(&self, event: Event, epoch: Epoch, at: Moment) -> Step {
        lifecycle::next(
            self.state,
            event,
            &self.facts(epoch, at.now, Duration::ZERO),
        )
    }

    pub(crate) fn fence(&self, epoch: Epoch, at: Moment) -> Option<Fenced> {
        lifecycle::fence(self.state, &self.facts(epoch, at.now, Duration::ZERO))
    }

    pub(crate) fn effect(&self, name: &EffectName) -> Option<&EffectRow> {
        self.effects.iter().find(|effect| effect.name == *name)
    }

    /// An event of this job without code or detail.
    pub(crate) fn event(&self, kind: EventType, actor: &str) -> EventWrite {
        EventWrite {
            job: self.id,
            epoch: self.epoch,
            kind,
            actor: actor.to_owned(),
            code: None,
            detail: None,
        }
    }

    pub(crate) fn view(&self) -> JobView {
        JobView {
            id: self.id,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            state: self.state,
            attempts: self.attempts,
            max_attempts: self.max_attempts,
            epoch: self.epoch,
            created_at: self.created_at,
            run_at: self.run_at,
            deadline_at: self.deadline_at,
            finished_at: self.finished_at,
            cancel_requested_at: self.cancel_requested_at,
            error: self.error.clone(),
            result: self.result.clone(),
            parked: self.parked,
        }
    }

    /// Replaces the recorded error by one of our own codes.
    pub(crate) fn set_error(&mut self, code: &str, message: String) {
        if let Ok(code) = ErrorCode::new(code) {
            self.error = Some(ErrorView { code, message });
        }
    }
}
