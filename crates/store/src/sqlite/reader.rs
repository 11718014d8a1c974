//! Readings: single short statements on a few read-only connections.
//!
//! No reading stays open while something else is awaited, so none can hold the
//! write-ahead log back. The scope is part of every query.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::dispatch::JobRef;
use fencepost_core::event::EventRecord;
use fencepost_core::id::{JobId, QueueName};
use fencepost_core::outbox::DispatchRef;
use fencepost_core::time::Timestamp;
use fencepost_core::verify::Snapshot;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqlitePoolOptions, SqliteRow};

use super::error::during;
use super::prepare::connect_options;
use super::rows::{
    EVENT, JOB_VIEW, count, epoch, event, get, hex, job_id, job_list, job_view, json, state, time,
    time_maybe, word,
};
use crate::contract::{
    Audit, AuditPage, Expired, ExpiredPage, FeedEvent, Heartbeat, HistoryPage, JobFilter, JobPage,
    JobView, KeyRecord, QueueDepth, Role, Scope, Unclaimed, UnclaimedPage, WorkerRecord,
};
use crate::error::StoreError;
use crate::store::OpenOptions;

/// Read-only connections: SQLite reads are short; more would only wait for the disk.
const CONNECTIONS_MAX: u32 = 4;

/// How long a reading may wait for a connection.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(5);

/// The read-only connections.
#[derive(Debug)]
pub(crate) struct Reader {
    pool: SqlitePool,
}

pub(super) fn id_bytes(job: JobId) -> Vec<u8> {
    job.0.as_bytes().to_vec()
}

impl Reader {
    pub(crate) async fn open(options: &OpenOptions) -> Result<Self, StoreError> {
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_LIMIT)
            // A reading is a statement of its own; there is nothing to test.
            .test_before_acquire(false)
            .connect_with(connect_options(&options.path).read_only(true))
            .await
            .map_err(during("opening the database for reading"))?;
        Ok(Self { pool })
    }

    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1 FROM job LIMIT 1")
            .fetch_optional(&self.pool)
            .await
            .map_err(during("asking the database"))?;
        Ok(())
    }

    pub(crate) async fn job(
        &self,
        scope: &Scope,
        job: JobId,
    ) -> Result<Option<JobView>, StoreError> {
        let statement = format!(
            "SELECT {JOB_VIEW} FROM job
             WHERE job.id = ?1 AND job.tenant = ?2 AND (?3 IS NULL OR job.owner = ?3)"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(id_bytes(job))
            .bind(scope.tenant.as_str())
            .bind(scope.owner.as_ref().map(fencepost_core::id::Owner::as_str))
            .fetch_optional(&self.pool)
            .await
            .map_err(during("reading a job"))?;
        row.as_ref().map(job_view).transpose()
    }

    pub(crate) async fn jobs(
        &self,
        scope: &Scope,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<JobPage, StoreError> {
        let columns = job_list();
        // Two texts, so that each scope walks its own index backwards.
        let owned = if scope.owner.is_some() {
            "AND job.owner = ?2"
        } else {
            "AND ?2 IS NULL"
        };
        let statement = format!(
            "SELECT {columns} FROM job
             WHERE job.tenant = ?1 {owned} AND (?3 IS NULL OR job.id < ?3)
               AND (?4 IS NULL OR job.state IN (SELECT value FROM json_each(?4)))
               AND (?5 IS NULL OR job.kind = ?5) AND (?6 IS NULL OR job.queue = ?6)
             ORDER BY job.id DESC LIMIT ?7"
        );
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        let states = if states.is_empty() {
            None
        } else {
            Some(json(&states)?)
        };
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(scope.tenant.as_str())
            .bind(scope.owner.as_ref().map(fencepost_core::id::Owner::as_str))
            .bind(after.map(id_bytes))
            .bind(states)
            .bind(
                filter
                    .kind
                    .as_ref()
                    .map(fencepost_core::id::KindName::as_str),
            )
            .bind(filter.queue.as_ref().map(QueueName::as_str))
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.pool)
            .await
            .map_err(during("listing jobs"))?;
        let mut jobs = rows.iter().map(job_view).collect::<Result<Vec<_>, _>>()?;
        let next = cut(&mut jobs, limit).and_then(|()| jobs.last().map(|job| job.id));
        Ok(JobPage { jobs, next })
    }

    pub(crate) async fn history(
        &self,
        scope: &Scope,
        job: JobId,
        after: i64,
        limit: u32,
    ) -> Result<Option<HistoryPage>, StoreError> {
        let statement = format!(
            "SELECT {EVENT} FROM job LEFT JOIN event ON event.job = job.id AND event.id > ?4
             WHERE job.id = ?1 AND job.tenant = ?2 AND (?3 IS NULL OR job.owner = ?3)
             ORDER BY event.id LIMIT ?5"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(id_bytes(job))
            .bind(scope.tenant.as_str())
            .bind(scope.owner.as_ref().map(fencepost_core::id::Owner::as_str))
            .bind(after)
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.pool)
            .await
            .map_err(during("reading a history"))?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            // A job without later events is one row of nulls.
            if get::<Option<i64>>(row, "id")?.is_some() {
                events.push(event(row)?);
            }
        }
        let next = cut(&mut events, limit).and_then(|()| events.last().map(|event| event.id));
        Ok(Some(HistoryPage { events, next }))
    }

    pub(crate) async fn feed(&self, after: i64, limit: u32) -> Result<Vec<FeedEvent>, StoreError> {
        let statement = format!(
            "SELECT event.job, {EVENT} FROM event WHERE event.id > ?1 ORDER BY event.id LIMIT ?2"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(during("reading the feed"))?;
        rows.iter().map(feed_event).collect()
    }

    pub(crate) async fn feed_end(&self) -> Result<i64, StoreError> {
        sqlx::query("SELECT coalesce(max(id), 0) FROM event")
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(during("reading the feed"))
    }

    pub(crate) async fn due(
        &self,
        queues: &[QueueName],
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobRef>, StoreError> {
        // One part per stage, each by its own index; parked entries wait for a person,
        // jobs past their deadline for the reaper: no claim of them would be given out.
        let rows = sqlx::query(
            "SELECT job.id, job.kind, job.trace FROM (
                 SELECT entry.seq, entry.job, entry.priority FROM json_each(?1) AS lane CROSS JOIN (
                     SELECT seq, job, priority, queue FROM outbox WHERE stage = 'ready'
                     UNION ALL
                     SELECT seq, job, priority, queue FROM outbox
                     WHERE stage = 'waiting' AND available_at <= ?2
                     UNION ALL
                     SELECT seq, job, priority, queue FROM outbox WHERE stage = 'taken'
                     UNION ALL
                     SELECT seq, job, priority, queue FROM outbox WHERE stage = 'published'
                 ) AS entry ON entry.queue = lane.value
                 ORDER BY entry.priority DESC, entry.seq LIMIT ?3
             ) AS due CROSS JOIN job ON job.id = due.job AND job.deadline_at > ?2
             ORDER BY due.priority DESC, due.seq",
        )
        .bind(json(queues)?)
        .bind(now.as_millis())
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(during("looking for due jobs"))?;
        rows.iter()
            .map(|row| {
                Ok(JobRef {
                    id: job_id(row, "id")?,
                    kind: word(row, "kind", |text| text.parse().ok())?,
                    trace: get(row, "trace")?,
                })
            })
            .collect()
    }

    pub(crate) async fn next_due_at(
        &self,
        queues: &[QueueName],
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query(
            "SELECT min((SELECT min(available_at) FROM outbox
                 WHERE outbox.queue = lane.value AND stage = 'waiting' AND available_at > ?2)) AS next
             FROM json_each(?1) AS lane",
        )
        .bind(json(queues)?)
        .bind(now.as_millis())
        .fetch_one(&self.pool)
        .await
        .map_err(during("looking for the next due job"))?;
        time_maybe(&row, "next")
    }

    pub(crate) async fn expired(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, JobId)>,
        limit: u32,
    ) -> Result<ExpiredPage, StoreError> {
        let (since, job) = after.map_or((-1, Vec::new()), |(since, job)| {
            (since.as_millis(), id_bytes(job))
        });
        let rows = sqlx::query(
            "SELECT id, epoch, since FROM (
                 SELECT id, epoch, min(lease_expires_at, deadline_at) AS since FROM job
                 WHERE state = 'leased' AND lease_expires_at <= ?1
                 UNION
                 SELECT id, epoch, min(coalesce(lease_expires_at, deadline_at), deadline_at) FROM job
                 WHERE state IN ('queued', 'leased') AND deadline_at <= ?1)
             WHERE (since, id) > (?2, ?3) ORDER BY since, id LIMIT ?4",
        )
        .bind(now.as_millis())
        .bind(since)
        .bind(job)
        .bind(i64::from(limit) + 1)
        .fetch_all(&self.pool)
        .await
        .map_err(during("looking for expired jobs"))?;
        let mut jobs = rows
            .iter()
            .map(|row| {
                Ok(Expired {
                    job: job_id(row, "id")?,
                    epoch: epoch(row)?,
                    since: time(row, "since")?,
                })
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        let next =
            cut(&mut jobs, limit).and_then(|()| jobs.last().map(|last| (last.since, last.job)));
        Ok(ExpiredPage { jobs, next })
    }

    pub(crate) async fn unclaimed(
        &self,
        queue: &QueueName,
        now: Timestamp,
        age: Duration,
        after: Option<Unclaimed>,
        limit: u32,
    ) -> Result<UnclaimedPage, StoreError> {
        let (since, seq) = after.map_or((-1, -1), |last| {
            (last.published_at.as_millis(), last.entry.seq)
        });
        let rows = sqlx::query(
            "SELECT seq, dispatch_no, published_at, redispatches FROM outbox
             WHERE queue = ?1 AND stage = 'published' AND published_at <= ?2
               AND (published_at, seq) > (?3, ?4)
             ORDER BY published_at, seq LIMIT ?5",
        )
        .bind(queue.as_str())
        .bind(
            now.as_millis()
                .saturating_sub(fencepost_core::time::millis(age)),
        )
        .bind(since)
        .bind(seq)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(during("looking for unclaimed entries"))?;
        let entries = rows
            .iter()
            .map(|row| {
                Ok(Unclaimed {
                    entry: DispatchRef {
                        seq: get(row, "seq")?,
                        dispatch_no: get(row, "dispatch_no")?,
                    },
                    published_at: time(row, "published_at")?,
                    redispatches: count(row, "redispatches")?,
                })
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        Ok(UnclaimedPage { now, entries })
    }

    pub(crate) async fn queues(&self) -> Result<Vec<QueueDepth>, StoreError> {
        let rows = sqlx::query(
            "SELECT lane.*, job.created_at AS oldest_queued_at FROM (
                 SELECT name, sum(queued) AS queued, sum(parked) AS parked, sum(running) AS running,
                        max(paused_at) AS paused_at, min(oldest) AS oldest
                 FROM (
                     SELECT queue AS name, count(*) AS queued, sum(stage = 'parked') AS parked,
                            0 AS running, NULL AS paused_at,
                            min(CASE WHEN stage IN ('ready', 'taken', 'published') THEN seq END) AS oldest
                     FROM outbox GROUP BY queue
                     UNION ALL SELECT queue, 0, 0, count(*), NULL, NULL
                         FROM job WHERE state = 'leased' GROUP BY queue
                     UNION ALL SELECT name, 0, 0, 0, paused_at, NULL FROM queue)
                 GROUP BY name) AS lane
             LEFT JOIN outbox ON outbox.seq = lane.oldest
             LEFT JOIN job ON job.id = outbox.job
             ORDER BY lane.name",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(during("reading the queues"))?;
        rows.iter()
            .map(|row| {
                Ok(QueueDepth {
                    queue: word(row, "name", |text| text.parse().ok())?,
                    queued: count(row, "queued")?,
                    parked: count(row, "parked")?,
                    running: count(row, "running")?,
                    oldest_queued_at: time_maybe(row, "oldest_queued_at")?,
                    paused_at: time_maybe(row, "paused_at")?,
                })
            })
            .collect()
    }

    pub(crate) async fn workers(&self, since: Timestamp) -> Result<Vec<WorkerRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, version, queues, slots, started_at, seen_at FROM worker
             WHERE seen_at >= ?1 AND slots > 0 ORDER BY id",
        )
        .bind(since.as_millis())
        .fetch_all(&self.pool)
        .await
        .map_err(during("reading the workers"))?;
        rows.iter()
            .map(|row| {
                Ok(WorkerRecord {
                    said: Heartbeat {
                        worker: word(row, "id", |text| text.parse().ok())?,
                        version: get(row, "version")?,
                        queues: word(row, "queues", |text| serde_json::from_str(text).ok())?,
                        slots: count(row, "slots")?,
                    },
                    started_at: time(row, "started_at")?,
                    seen_at: time(row, "seen_at")?,
                })
            })
            .collect()
    }

    pub(crate) async fn key(&self, id: &str) -> Result<Option<KeyRecord>, StoreError> {
        let row = sqlx::query("SELECT * FROM api_key WHERE id = ?1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await
            .map_err(during("reading a key"))?;
        row.as_ref().map(key).transpose()
    }

    pub(crate) async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM api_key ORDER BY created_at, id")
            .fetch_all(&self.pool)
            .await
            .map_err(during("reading the keys"))?;
        rows.iter().map(key).collect()
    }

    pub(crate) async fn count_jobs(&self) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT count(*) AS jobs FROM job")
            .fetch_one(&self.pool)
            .await
            .map_err(during("counting jobs"))?;
        count(&row, "jobs")
    }

    pub(crate) async fn audit(
        &self,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        // Rows and histories of one instant: one read transaction for the page,
        // given up when this future is dropped, lest it hold the log for ever.
        let mut transaction = self
            .pool
            .begin()
            .await
            .map_err(during("waiting for a connection"))?;
        let page = audit_page(&mut transaction, after, limit).await;
        transaction
            .commit()
            .await
            .map_err(during("reading jobs to verify"))?;
        page
    }

    pub(crate) async fn orphans(&self) -> Result<(u64, u64), StoreError> {
        let row = sqlx::query(
            "SELECT (SELECT count(*) FROM outbox
                     WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.id = outbox.job)) AS entries,
                    (SELECT count(*) FROM (SELECT DISTINCT job FROM event WHERE job IS NOT NULL) AS told
                     WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.id = told.job)) AS events",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(during("looking for orphans"))?;
        Ok((count(&row, "entries")?, count(&row, "events")?))
    }
}

async fn audit_page(
    connection: &mut SqliteConnection,
    after: Option<JobId>,
    limit: u32,
) -> Result<AuditPage, StoreError> {
    let auditing = during("reading jobs to verify");
    let rows = sqlx::query(
        "SELECT id, state, epoch, attempts, max_attempts, result IS NOT NULL AS has_result,
                (SELECT count(*) FROM outbox WHERE outbox.job = job.id) AS entries,
                (SELECT count(*) FROM effect WHERE effect.job = job.id AND settled_at IS NULL
                     AND declined_at IS NULL) AS open_effects
         FROM job WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2",
    )
    .bind(after.map(id_bytes))
    .bind(i64::from(limit) + 1)
    .fetch_all(&mut *connection)
    .await
    .map_err(&auditing)?;
    let mut snapshots = rows
        .iter()
        .map(|row| {
            Ok(Snapshot {
                job: job_id(row, "id")?,
                state: state(row)?,
                epoch: epoch(row)?,
                attempts: count(row, "attempts")?,
                max_attempts: count(row, "max_attempts")?,
                outbox_entries: count(row, "entries")?,
                has_result: get(row, "has_result")?,
                open_effects: count(row, "open_effects")?,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let next = cut(&mut snapshots, limit).and_then(|()| snapshots.last().map(|last| last.job));
    let ids: Vec<String> = snapshots.iter().map(|snapshot| hex(snapshot.job)).collect();
    let statement = format!(
        "SELECT event.job, {EVENT} FROM json_each(?1) AS want
         CROSS JOIN event ON event.job = unhex(want.value) ORDER BY event.id"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(json(&ids)?)
        .fetch_all(&mut *connection)
        .await
        .map_err(&auditing)?;
    let mut histories: BTreeMap<JobId, Vec<EventRecord>> = BTreeMap::new();
    for row in &rows {
        histories
            .entry(job_id(row, "job")?)
            .or_default()
            .push(event(row)?);
    }
    let jobs = snapshots
        .into_iter()
        .map(|snapshot| {
            let history = histories.remove(&snapshot.job).unwrap_or_default();
            Audit { snapshot, history }
        })
        .collect();
    Ok(AuditPage { jobs, next })
}

/// Cuts a page that was read one longer than asked for; says whether there is more.
fn cut<T>(page: &mut Vec<T>, limit: u32) -> Option<()> {
    let more = page.len() > limit as usize;
    page.truncate(limit as usize);
    more.then_some(())
}

fn feed_event(row: &SqliteRow) -> Result<FeedEvent, StoreError> {
    let job: Option<&[u8]> = get(row, "job")?;
    Ok(FeedEvent {
        job: job.map(|_| job_id(row, "job")).transpose()?,
        event: event(row)?,
    })
}

fn key(row: &SqliteRow) -> Result<KeyRecord, StoreError> {
    let hash: &[u8] = get(row, "secret_hash")?;
    Ok(KeyRecord {
        id: get(row, "id")?,
        secret_hash: hash.try_into().map_err(|_| StoreError::Corrupt {
            what: "column `secret_hash`".to_owned(),
        })?,
        tenant: word(row, "tenant", |text| text.parse().ok())?,
        owner: word(row, "owner", |text| text.parse().ok())?,
        roles: word(row, "roles", |text| {
            text.split_ascii_whitespace().map(Role::parse).collect()
        })?,
        created_at: time(row, "created_at")?,
        expires_at: time_maybe(row, "expires_at")?,
        revoked_at: time_maybe(row, "revoked_at")?,
    })
}
