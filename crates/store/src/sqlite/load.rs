//! Loads every row that a transaction's decisions need, in two statements.

use std::collections::BTreeMap;

use fencepost_core::effect::EffectKind;
use fencepost_core::id::JobId;
use fencepost_core::kind::OnCrash;
use fencepost_core::retry::Backoff;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::engine::job_of;
use super::rows::{
    count, duration, effect_state, epoch, error_view, get, job_id, state, time, time_maybe, word,
};
use super::spread::{Cells, Spread};
use crate::command::Command;
use crate::decide::{EffectRow, Row};
use crate::error::StoreError;

/// A job to load. Payloads and outcomes are large and seldom needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    job: JobId,
    payload: bool,
    outcomes: bool,
}

impl Wanted {
    pub(super) fn by(command: &Command) -> Option<Self> {
        let payload = matches!(command, Command::ClaimJob(_));
        Some(Self {
            job: job_of(command)?,
            payload,
            outcomes: payload || matches!(command, Command::OpenEffect(_) | Command::Resolve(_)),
        })
    }
}

pub(super) static LOAD: Spread = Spread::new(
    2,
    "
    WITH want(job, payload) AS (:rows)
    SELECT job.id, job.tenant, job.owner, job.kind, job.queue, job.priority,
           CASE WHEN want.payload THEN job.payload END AS payload,
           job.state, job.epoch, job.attempts, job.max_attempts, job.snoozes, job.run_at,
           job.deadline_at, job.timeout_ms, job.backoff_initial_ms, job.backoff_max_ms, job.on_crash,
           job.lease_expires_at, job.leased_by, job.cancel_requested_at, job.error_code,
           job.error_message, job.trace, job.created_at, job.finished_at,
           outbox.put_backs, outbox.stage = 'parked' AS parked,
           queue.paused_at IS NOT NULL AS queue_paused
    FROM want
    CROSS JOIN job ON job.id = want.job
    LEFT JOIN outbox ON outbox.job = job.id
    LEFT JOIN queue ON queue.name = job.queue",
);

pub(super) static LOAD_EFFECTS: Spread = Spread::new(
    2,
    "
    WITH want(job, outcomes) AS (:rows)
    SELECT effect.job, effect.name, effect.kind, effect.epoch, effect.opened_at, effect.settled_at,
           effect.declined_at, CASE WHEN want.outcomes THEN effect.outcome END AS outcome,
           CASE WHEN want.outcomes THEN effect.evidence END AS evidence
    FROM want CROSS JOIN effect ON effect.job = want.job
    ORDER BY effect.job, effect.opened_at, effect.name",
);

pub(super) async fn load(
    connection: &mut SqliteConnection,
    wanted: &[Wanted],
) -> Result<BTreeMap<JobId, Row>, StoreError> {
    let bind = |cells: &mut Cells, want: &Wanted| {
        cells.job(want.job).add(want.payload);
    };
    let rows = LOAD.fetch(connection, "loading jobs", wanted, bind).await?;
    let mut jobs = BTreeMap::new();
    for row in &rows {
        let job = job(row)?;
        jobs.insert(job.id, job);
    }
    let bind = |cells: &mut Cells, want: &Wanted| {
        cells.job(want.job).add(want.outcomes);
    };
    let rows = LOAD_EFFECTS
        .fetch(connection, "loading effects", wanted, bind)
        .await?;
    for row in &rows {
        if let Some(job) = jobs.get_mut(&job_id(row, "job")?) {
            job.effects.push(effect(row)?);
        }
    }
    Ok(jobs)
}

fn job(row: &SqliteRow) -> Result<Row, StoreError> {
    let parked: Option<bool> = get(row, "parked")?;
    let put_backs: Option<i64> = get(row, "put_backs")?;
    Ok(Row {
        id: job_id(row, "id")?,
        tenant: word(row, "tenant", |text| text.parse().ok())?,
        owner: word(row, "owner", |text| text.parse().ok())?,
        kind: word(row, "kind", |text| text.parse().ok())?,
        queue: word(row, "queue", |text| text.parse().ok())?,
        priority: count(row, "priority")?,
        payload: get(row, "payload")?,
        state: state(row)?,
        epoch: epoch(row)?,
        attempts: count(row, "attempts")?,
        max_attempts: count(row, "max_attempts")?,
        snoozes: count(row, "snoozes")?,
        run_at: time(row, "run_at")?,
        deadline_at: time(row, "deadline_at")?,
        timeout: duration(row, "timeout_ms")?,
        backoff: Backoff {
            initial: duration(row, "backoff_initial_ms")?,
            max: duration(row, "backoff_max_ms")?,
        },
        on_crash: word(row, "on_crash", |text| match text {
            "retry" => Some(OnCrash::Retry),
            "hold" => Some(OnCrash::Hold),
            _ => None,
        })?,
        lease_expires_at: time_maybe(row, "lease_expires_at")?,
        leased_by: get(row, "leased_by")?,
        cancel_requested_at: time_maybe(row, "cancel_requested_at")?,
        result: None,
        error: error_view(row)?,
        trace: get(row, "trace")?,
        created_at: time(row, "created_at")?,
        finished_at: time_maybe(row, "finished_at")?,
        put_backs: put_backs.and_then(|count| u32::try_from(count).ok()),
        parked: parked.unwrap_or(false),
        queue_paused: get(row, "queue_paused")?,
        effects: Vec::new(),
    })
}

fn effect(row: &SqliteRow) -> Result<EffectRow, StoreError> {
    Ok(EffectRow {
        name: word(row, "name", |text| text.parse().ok())?,
        kind: word(row, "kind", |text| match text {
            "effect" => Some(EffectKind::Effect),
            "step" => Some(EffectKind::Step),
            _ => None,
        })?,
        epoch: epoch(row)?,
        state: effect_state(row)?,
        opened_at: time(row, "opened_at")?,
        outcome: get(row, "outcome")?,
        evidence: get(row, "evidence")?,
    })
}
