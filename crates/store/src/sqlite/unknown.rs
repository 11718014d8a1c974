//! What waits for a verdict.

use fencepost_core::id::{EffectName, JobId, Owner};
use sqlx::sqlite::SqliteRow;

use super::error::during;
use super::reader::{Reader, id_bytes};
use super::rows::{epoch, get, job_id, time, word};
use crate::contract::{JobFilter, OpenCall, Scope, UnknownEffect, UnknownPage};
use crate::error::StoreError;

/// A page of jobs first, by the index of unknown jobs; then their open effects, and who opened them.
pub(super) const UNKNOWN: &str = "
    SELECT job.id, job.kind, job.queue, job.tenant, job.owner, job.updated_at,
           effect.name, effect.epoch, effect.opened_at, effect.evidence,
           (SELECT actor FROM event WHERE event.job = job.id AND event.type = 'effect_opened'
               AND event.detail = effect.name ORDER BY event.id DESC LIMIT 1) AS worker
    FROM (SELECT id FROM job
          WHERE tenant = ?1 AND state = 'unknown' AND (?2 IS NULL OR id > ?2)
            AND (?3 IS NULL OR owner = ?3) AND (?4 IS NULL OR kind = ?4)
            AND (?5 IS NULL OR queue = ?5)
          ORDER BY id LIMIT ?6) AS page
    CROSS JOIN job ON job.id = page.id
    LEFT JOIN effect ON effect.job = job.id AND effect.kind = 'effect'
        AND effect.settled_at IS NULL AND effect.declined_at IS NULL
    ORDER BY job.id, effect.opened_at, effect.name";

impl Reader {
    pub(crate) async fn unknown(
        &self,
        scope: Option<&Scope>,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<UnknownPage, StoreError> {
        let statement = match scope {
            Some(_) => UNKNOWN.to_owned(),
            None => UNKNOWN.replace("tenant = ?1", "?1 IS NULL"),
        };
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(scope.map(|scope| scope.tenant.as_str()))
            .bind(after.map(id_bytes))
            .bind(
                scope
                    .and_then(|scope| scope.owner.as_ref())
                    .map(Owner::as_str),
            )
            .bind(
                filter
                    .kind
                    .as_ref()
                    .map(fencepost_core::id::KindName::as_str),
            )
            .bind(
                filter
                    .queue
                    .as_ref()
                    .map(fencepost_core::id::QueueName::as_str),
            )
            .bind(i64::from(limit) + 1)
            .fetch_all(self.pool())
            .await
            .map_err(during("listing unknown jobs"))?;
        let mut effects = rows.iter().map(unknown).collect::<Result<Vec<_>, _>>()?;
        let mut jobs: Vec<JobId> = effects.iter().map(|effect| effect.job).collect();
        jobs.dedup();
        let over = jobs.get(limit as usize).copied();
        effects.retain(|effect| Some(effect.job) != over);
        let next = over.and_then(|_| effects.last().map(|effect| effect.job));
        Ok(UnknownPage { effects, next })
    }
}

fn unknown(row: &SqliteRow) -> Result<UnknownEffect, StoreError> {
    let name: Option<&str> = get(row, "name")?;
    let open = match name {
        None => None,
        Some(_) => Some(OpenCall {
            name: word(row, "name", |text| EffectName::new(text).ok())?,
            epoch: epoch(row)?,
            opened_at: time(row, "opened_at")?,
            worker: get::<Option<String>>(row, "worker")?.unwrap_or_default(),
            evidence: get(row, "evidence")?,
        }),
    };
    Ok(UnknownEffect {
        job: job_id(row, "id")?,
        kind: word(row, "kind", |text| text.parse().ok())?,
        queue: word(row, "queue", |text| text.parse().ok())?,
        tenant: word(row, "tenant", |text| text.parse().ok())?,
        owner: word(row, "owner", |text| text.parse().ok())?,
        since: time(row, "updated_at")?,
        open,
    })
}
