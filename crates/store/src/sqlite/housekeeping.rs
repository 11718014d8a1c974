//! Retention, blob collection, parked entries.

use fencepost_core::event::EventType;
use fencepost_core::id::{JobId, QueueName};
use fencepost_core::time::{Timestamp, millis};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::error::during;
use super::reader::Reader;
use super::rows::{count, epoch, get, hex, job_id, json, time, word};
use super::write::{self, EventColumns};
use crate::contract::{
    BlobHash, BlobPlace, CollectBlobs, ParkedEntry, Prune, Pruned, StageCount, TouchBlob, Unpark,
};
use crate::error::StoreError;

/// Only jobs that have ended have a time of it, and nothing changes an ended
/// job but a retry, which takes that time away under the same lock.
pub(super) const ENDED: &str =
    "SELECT id FROM job WHERE finished_at <= ?1 ORDER BY finished_at LIMIT ?2";

pub(super) const KEEP_KEYS: &str = "
    INSERT OR REPLACE INTO operation_key (tenant, owner, operation_key, job, expires_at)
    SELECT job.tenant, job.owner, job.operation_key, job.id, ?2
    FROM json_each(?1) AS gone CROSS JOIN job ON job.id = unhex(gone.value)";

/// In this order: what refers to a job goes before it.
pub(super) const REMOVE: [&str; 4] = [
    "DELETE FROM event WHERE job IN (SELECT unhex(value) FROM json_each(?1))",
    "DELETE FROM effect WHERE job IN (SELECT unhex(value) FROM json_each(?1))",
    "DELETE FROM job_blob WHERE job IN (SELECT unhex(value) FROM json_each(?1))",
    "DELETE FROM job WHERE id IN (SELECT unhex(value) FROM json_each(?1))",
];

pub(super) const FORGET_KEYS: &str = "
    DELETE FROM operation_key WHERE (tenant, owner, operation_key) IN
        (SELECT tenant, owner, operation_key FROM operation_key WHERE expires_at <= ?1
         ORDER BY expires_at LIMIT ?2)";

pub(super) async fn prune(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: Prune,
) -> Result<Pruned, StoreError> {
    let pruning = during("removing ended jobs");
    let before = now.as_millis() - millis(request.finished_for);
    let rows = sqlx::query(ENDED)
        .bind(before)
        .bind(i64::from(request.limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(&pruning)?;
    let ended = rows
        .iter()
        .map(|row| job_id(row, "id").map(hex))
        .collect::<Result<Vec<_>, _>>()?;
    if !ended.is_empty() {
        let ended = json(&ended)?;
        sqlx::query(KEEP_KEYS)
            .bind(&ended)
            .bind(now.after(request.keep_keys).as_millis())
            .execute(&mut *connection)
            .await
            .map_err(&pruning)?;
        for statement in REMOVE {
            sqlx::query(statement)
                .bind(&ended)
                .execute(&mut *connection)
                .await
                .map_err(&pruning)?;
        }
    }
    let keys = sqlx::query(FORGET_KEYS)
        .bind(now.as_millis())
        .bind(i64::from(request.limit))
        .execute(connection)
        .await
        .map_err(&pruning)?;
    Ok(Pruned {
        jobs: ended.len() as u64,
        keys: keys.rows_affected(),
    })
}

pub(super) async fn touch_blob(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &TouchBlob,
) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE blob SET last_put_at = ?3 WHERE tenant = ?1 AND hash = ?2")
        .bind(request.tenant.as_str())
        .bind(request.hash.0.as_slice())
        .bind(now.as_millis())
        .execute(connection)
        .await
        .map_err(during("touching a blob"))?;
    Ok(done.rows_affected() > 0)
}

pub(super) const COLLECT: &str = "
    DELETE FROM blob WHERE (tenant, hash) IN
        (SELECT tenant, hash FROM blob WHERE last_put_at <= ?1
           AND NOT EXISTS (SELECT 1 FROM job_blob
               WHERE job_blob.tenant = blob.tenant AND job_blob.hash = blob.hash)
         ORDER BY last_put_at LIMIT ?2)
    RETURNING tenant, hash, object";

pub(super) async fn collect_blobs(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: CollectBlobs,
) -> Result<Vec<BlobPlace>, StoreError> {
    let rows = sqlx::query(COLLECT)
        .bind(now.as_millis() - millis(request.unused_for))
        .bind(i64::from(request.limit))
        .fetch_all(connection)
        .await
        .map_err(during("collecting blobs"))?;
    rows.iter().map(place).collect()
}

fn place(row: &SqliteRow) -> Result<BlobPlace, StoreError> {
    let hash: &[u8] = get(row, "hash")?;
    Ok(BlobPlace {
        tenant: word(row, "tenant", |text| text.parse().ok())?,
        hash: BlobHash(hash.try_into().map_err(|_| StoreError::Corrupt {
            what: "column `hash`".to_owned(),
        })?),
        object: get(row, "object")?,
    })
}

const UNPARK: &str = "
    UPDATE outbox SET stage = 'ready', parked_at = NULL, publish_attempts = 0,
        dispatch_no = dispatch_no + 1
    WHERE seq IN (SELECT seq FROM outbox WHERE stage = 'parked'
        AND (?1 IS NULL OR job IN (SELECT unhex(value) FROM json_each(?1)))
        AND (?2 IS NULL OR queue = ?2)
        ORDER BY seq LIMIT ?3)
    RETURNING job, (SELECT epoch FROM job WHERE job.id = outbox.job) AS epoch";

pub(super) async fn unpark(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &Unpark,
) -> Result<Vec<JobId>, StoreError> {
    let jobs = request.jobs.as_ref().map(|jobs| {
        let jobs: Vec<String> = jobs.iter().map(|job| hex(*job)).collect();
        json(&jobs)
    });
    let rows = sqlx::query(UNPARK)
        .bind(jobs.transpose()?)
        .bind(request.queue.as_ref().map(QueueName::as_str))
        .bind(i64::from(request.limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(during("releasing parked entries"))?;
    let mut released = Vec::with_capacity(rows.len());
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let job = job_id(row, "job")?;
        released.push(job);
        events.push(EventColumns {
            job: Some(job),
            epoch: epoch(row)?,
            kind: EventType::Unparked,
            actor: &request.actor,
            code: None,
            detail: None,
        });
    }
    write::events(connection, now, events).await?;
    Ok(released)
}

const PARKED: &str = "
    SELECT outbox.seq, outbox.job, outbox.queue, job.kind, outbox.publish_attempts,
           outbox.last_error, outbox.parked_at
    FROM outbox CROSS JOIN job ON job.id = outbox.job
    WHERE outbox.stage = 'parked' AND outbox.seq > ?1 AND (?2 IS NULL OR outbox.queue = ?2)
    ORDER BY outbox.seq LIMIT ?3";

impl Reader {
    pub(crate) async fn parked(
        &self,
        queue: Option<&QueueName>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ParkedEntry>, StoreError> {
        let rows = sqlx::query(PARKED)
            .bind(after)
            .bind(queue.map(QueueName::as_str))
            .bind(i64::from(limit))
            .fetch_all(self.pool())
            .await
            .map_err(during("listing parked entries"))?;
        let parked = |row: &SqliteRow| {
            Ok(ParkedEntry {
                job: job_id(row, "job")?,
                kind: word(row, "kind", |text| text.parse().ok())?,
                queue: word(row, "queue", |text| text.parse().ok())?,
                failures: count(row, "publish_attempts")?,
                error: get(row, "last_error")?,
                parked_at: time(row, "parked_at")?,
                seq: get(row, "seq")?,
            })
        };
        rows.iter().map(parked).collect()
    }

    pub(crate) async fn stages(&self) -> Result<Vec<StageCount>, StoreError> {
        let rows = sqlx::query(
            "SELECT queue, stage, count(*) AS entries FROM outbox GROUP BY queue, stage
             ORDER BY queue, stage",
        )
        .fetch_all(self.pool())
        .await
        .map_err(during("counting outbox entries"))?;
        let stage = |row: &SqliteRow| {
            Ok(StageCount {
                queue: word(row, "queue", |text| text.parse().ok())?,
                stage: get(row, "stage")?,
                entries: count(row, "entries")?,
            })
        };
        rows.iter().map(stage).collect()
    }

    pub(crate) async fn blob(
        &self,
        tenant: &fencepost_core::id::Tenant,
        hash: &BlobHash,
    ) -> Result<Option<BlobPlace>, StoreError> {
        let row =
            sqlx::query("SELECT tenant, hash, object FROM blob WHERE tenant = ?1 AND hash = ?2")
                .bind(tenant.as_str())
                .bind(hash.0.as_slice())
                .fetch_optional(self.pool())
                .await
                .map_err(during("looking for a blob"))?;
        row.as_ref().map(place).transpose()
    }

    /// Which of these objects some blob refers to.
    pub(crate) async fn known_objects(&self, names: &[String]) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(KNOWN_OBJECTS)
            .bind(json(names)?)
            .fetch_all(self.pool())
            .await
            .map_err(during("looking for objects"))?;
        let name = |row: &SqliteRow| row.try_get(0).map_err(during("reading an object's name"));
        rows.iter().map(name).collect()
    }
}

pub(super) const KNOWN_OBJECTS: &str = "
    SELECT blob.object FROM json_each(?1) AS name CROSS JOIN blob ON blob.object = name.value";
