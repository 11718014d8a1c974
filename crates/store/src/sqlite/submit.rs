//! Acceptance: job, outbox entry, event and blob references in one transaction.
//!
//! Who was first with an operation key is decided by the unique index, not by
//! a look-up; answers are mapped by the generated id, so exactly one request
//! is told that it made the job.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::event::EventType;
use fencepost_core::id::{Epoch, IdSource, JobId};
use fencepost_core::kind::OnCrash;
use fencepost_core::lifecycle::State;
use fencepost_core::time::{Timestamp, millis};
use serde::Serialize;
use sqlx::sqlite::SqliteConnection;

use super::error::during;
use super::rows::{JOB_VIEW, get, hex, job_id, job_view, json};
use super::write::{EventColumns, INSERT_EVENTS, spread};
use crate::command::Answer;
use crate::contract::{JobView, Submit, Submitted};
use crate::error::StoreError;

pub(super) const TOMBSTONES: &str = "
    SELECT new.key AS place, operation_key.job
    FROM json_each(?1) AS new
    CROSS JOIN operation_key
       ON operation_key.tenant = new.value->>'tenant' AND operation_key.owner = new.value->>'owner'
      AND operation_key.operation_key = new.value->>'key'";

pub(super) const MISSING_BLOBS: &str = "
    SELECT want.value->>'place' AS place, want.value->>'index' AS number
    FROM json_each(?1) AS want
    WHERE NOT EXISTS (SELECT 1 FROM blob
        WHERE blob.tenant = want.value->>'tenant' AND blob.hash = unhex(want.value->>'hash'))";

const INSERT_JOBS: &str = "
    INSERT INTO job (id, tenant, owner, operation_key, fingerprint, kind, queue, priority, payload,
        state, epoch, attempts, max_attempts, snoozes, run_at, deadline_at, timeout_ms,
        backoff_initial_ms, backoff_max_ms, on_crash, trace, created_at, updated_at)
    SELECT unhex(new.value->>'id'), new.value->>'tenant', new.value->>'owner', new.value->>'key',
        unhex(new.value->>'fingerprint'), new.value->>'kind', new.value->>'queue',
        new.value->>'priority', new.value->>'payload', 'queued', 0, 0, new.value->>'max_attempts', 0,
        new.value->>'run_at', new.value->>'deadline_at', new.value->>'timeout_ms',
        new.value->>'backoff_initial_ms', new.value->>'backoff_max_ms', new.value->>'on_crash',
        new.value->>'trace', ?2, ?2
    FROM json_each(?1) AS new WHERE TRUE
    ON CONFLICT (tenant, owner, operation_key) DO NOTHING
    RETURNING id";

pub(super) const INSERT_ENTRIES: &str = "
    INSERT INTO outbox (job, queue, priority, stage, available_at)
    SELECT job.id, job.queue, job.priority,
           CASE WHEN job.run_at <= ?2 THEN 'ready' ELSE 'waiting' END, job.run_at
    FROM json_each(?1) AS made CROSS JOIN job ON job.id = unhex(made.value)";

const INSERT_BLOB_REFERENCES: &str = "
    INSERT INTO job_blob (job, tenant, hash)
    SELECT unhex(new.value->>'job'), new.value->>'tenant', unhex(new.value->>'hash')
    FROM json_each(?1) AS new WHERE TRUE
    ON CONFLICT DO NOTHING";

#[derive(Serialize)]
struct Columns<'a> {
    id: String,
    tenant: &'a str,
    owner: &'a str,
    key: &'a str,
    fingerprint: String,
    kind: &'a str,
    queue: &'a str,
    priority: u8,
    payload: &'a str,
    max_attempts: u32,
    run_at: i64,
    deadline_at: i64,
    timeout_ms: i64,
    backoff_initial_ms: i64,
    backoff_max_ms: i64,
    on_crash: &'static str,
    trace: Option<&'a str>,
}

#[derive(Serialize)]
struct Key<'a> {
    tenant: &'a str,
    owner: &'a str,
    #[serde(rename = "key")]
    text: &'a str,
}

#[derive(Serialize)]
struct BlobColumns<'a> {
    place: usize,
    index: usize,
    job: String,
    tenant: &'a str,
    hash: String,
}

/// A submission that nothing has answered yet, with the id it would get.
struct Candidate<'a> {
    place: usize,
    request: &'a Submit,
    id: JobId,
    run_at: Timestamp,
    deadline_at: Timestamp,
}

/// Accepts submissions, at most one per operation key. Says whether any job was made.
pub(super) async fn submit(
    connection: &mut SqliteConnection,
    ids: &dyn IdSource,
    now: Timestamp,
    submits: &[(usize, &Submit)],
    answers: &mut BTreeMap<usize, Answer>,
) -> Result<bool, StoreError> {
    let mut settled: BTreeMap<usize, Submitted> = BTreeMap::new();
    tombstones(connection, submits, &mut settled).await?;
    let candidates: Vec<Candidate<'_>> = submits
        .iter()
        .filter(|(place, _)| !settled.contains_key(place))
        .map(|(place, request)| {
            let run_at = request.run.map_or(now, |run| run.resolve(now)).max(now);
            Candidate {
                place: *place,
                request,
                id: JobId(ids.uuid()),
                run_at,
                deadline_at: request.deadline.resolve(now),
            }
        })
        .collect();

    // What cannot be inserted may still be a replay of what was.
    let mut refused: BTreeMap<usize, Submitted> = candidates
        .iter()
        .filter(|candidate| candidate.deadline_at <= candidate.run_at)
        .map(|candidate| (candidate.place, Submitted::DeadlineUnusable))
        .collect();
    missing_blobs(connection, &candidates, &mut refused).await?;

    let fresh: Vec<&Candidate<'_>> = candidates
        .iter()
        .filter(|candidate| !refused.contains_key(&candidate.place))
        .collect();
    let made = insert(connection, now, &fresh).await?;
    let mut known = look_up(connection, &candidates, &made).await?;
    for candidate in &candidates {
        let answer = if made.contains(&candidate.id) {
            Submitted::Created(Box::new(view(candidate, now)))
        } else if let Some(existing) = known.remove(&candidate.place) {
            existing
        } else {
            refused
                .remove(&candidate.place)
                .ok_or_else(|| StoreError::Corrupt {
                    what: "a submission that was neither made nor found".to_owned(),
                })?
        };
        settled.insert(candidate.place, answer);
    }
    let answered = settled
        .into_iter()
        .map(|(place, answer)| (place, Answer::Submit(answer)));
    answers.extend(answered);
    Ok(!made.is_empty())
}

async fn tombstones(
    connection: &mut SqliteConnection,
    submits: &[(usize, &Submit)],
    settled: &mut BTreeMap<usize, Submitted>,
) -> Result<(), StoreError> {
    let keys: Vec<Key<'_>> = submits.iter().map(|(_, request)| key(request)).collect();
    let rows = sqlx::query(TOMBSTONES)
        .bind(json(&keys)?)
        .fetch_all(connection)
        .await
        .map_err(during("looking for pruned keys"))?;
    for row in &rows {
        let place: i64 = get(row, "place")?;
        let submit = usize::try_from(place)
            .ok()
            .and_then(|place| submits.get(place));
        if let Some((place, _)) = submit {
            settled.insert(*place, Submitted::Gone(job_id(row, "job")?));
        }
    }
    Ok(())
}

async fn missing_blobs(
    connection: &mut SqliteConnection,
    candidates: &[Candidate<'_>],
    refused: &mut BTreeMap<usize, Submitted>,
) -> Result<(), StoreError> {
    let wanted = blob_columns(candidates);
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = sqlx::query(MISSING_BLOBS)
        .bind(json(&wanted)?)
        .fetch_all(connection)
        .await
        .map_err(during("looking for blobs"))?;
    for row in &rows {
        let (place, index): (i64, i64) = (get(row, "place")?, get(row, "number")?);
        let hash = candidates
            .iter()
            .find(|candidate| i64::try_from(candidate.place) == Ok(place))
            .and_then(|candidate| {
                let hash = candidate.request.blobs.get(usize::try_from(index).ok()?)?;
                Some((candidate.place, *hash))
            });
        if let Some((place, hash)) = hash {
            refused.entry(place).or_insert(Submitted::BlobMissing(hash));
        }
    }
    Ok(())
}

fn blob_columns<'a>(
    candidates: impl IntoIterator<Item = &'a Candidate<'a>>,
) -> Vec<BlobColumns<'a>> {
    candidates
        .into_iter()
        .flat_map(|candidate| {
            let blobs = candidate.request.blobs.iter().enumerate();
            blobs.map(|(index, hash)| BlobColumns {
                place: candidate.place,
                index,
                job: hex(candidate.id),
                tenant: candidate.request.tenant.as_str(),
                hash: crate::contract::hex(&hash.0),
            })
        })
        .collect()
}

async fn insert(
    connection: &mut SqliteConnection,
    now: Timestamp,
    fresh: &[&Candidate<'_>],
) -> Result<BTreeSet<JobId>, StoreError> {
    if fresh.is_empty() {
        return Ok(BTreeSet::new());
    }
    let columns: Vec<Columns<'_>> = fresh.iter().map(|candidate| columns(candidate)).collect();
    let rows = sqlx::query(INSERT_JOBS)
        .bind(json(&columns)?)
        .bind(now.as_millis())
        .fetch_all(&mut *connection)
        .await
        .map_err(during("accepting jobs"))?;
    let made = rows
        .iter()
        .map(|row| job_id(row, "id"))
        .collect::<Result<BTreeSet<_>, _>>()?;
    let made_hex: Vec<String> = made.iter().map(|id| hex(*id)).collect();
    spread(
        connection,
        now,
        "writing outbox entries",
        INSERT_ENTRIES,
        &made_hex,
    )
    .await?;
    let made_now = fresh
        .iter()
        .filter(|candidate| made.contains(&candidate.id));
    let events: Vec<EventColumns<'_>> = made_now
        .clone()
        .map(|candidate| EventColumns {
            job: Some(hex(candidate.id)),
            epoch: Epoch::ZERO.0,
            kind: EventType::Accepted.as_str(),
            actor: candidate.request.owner.as_str(),
            code: None,
            detail: None,
        })
        .collect();
    spread(connection, now, "writing events", INSERT_EVENTS, &events).await?;
    let blobs = blob_columns(made_now.copied());
    spread(
        connection,
        now,
        "referring to blobs",
        INSERT_BLOB_REFERENCES,
        &blobs,
    )
    .await?;
    Ok(made)
}

/// The jobs that stand under the keys of candidates which were not made.
async fn look_up(
    connection: &mut SqliteConnection,
    candidates: &[Candidate<'_>],
    made: &BTreeSet<JobId>,
) -> Result<BTreeMap<usize, Submitted>, StoreError> {
    let missing: Vec<&Candidate<'_>> = candidates
        .iter()
        .filter(|candidate| !made.contains(&candidate.id))
        .collect();
    let mut known = BTreeMap::new();
    if missing.is_empty() {
        return Ok(known);
    }
    let keys: Vec<Key<'_>> = missing
        .iter()
        .map(|candidate| key(candidate.request))
        .collect();
    let statement = format!(
        "SELECT want.key AS place, job.fingerprint, {JOB_VIEW}
         FROM json_each(?1) AS want
         CROSS JOIN job ON job.tenant = want.value->>'tenant' AND job.owner = want.value->>'owner'
            AND job.operation_key = want.value->>'key'"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(json(&keys)?)
        .fetch_all(connection)
        .await
        .map_err(during("finding replayed jobs"))?;
    for row in &rows {
        let place: i64 = get(row, "place")?;
        let candidate = usize::try_from(place)
            .ok()
            .and_then(|place| missing.get(place));
        let Some(candidate) = candidate else { continue };
        let fingerprint: &[u8] = get(row, "fingerprint")?;
        let answer = if fingerprint == candidate.request.fingerprint.0 {
            Submitted::Replayed(Box::new(job_view(row)?))
        } else {
            Submitted::KeyConflict
        };
        known.insert(candidate.place, answer);
    }
    Ok(known)
}

fn key(request: &Submit) -> Key<'_> {
    Key {
        tenant: request.tenant.as_str(),
        owner: request.owner.as_str(),
        text: request.key.as_str(),
    }
}

fn columns<'a>(candidate: &Candidate<'a>) -> Columns<'a> {
    let request = candidate.request;
    Columns {
        id: hex(candidate.id),
        tenant: request.tenant.as_str(),
        owner: request.owner.as_str(),
        key: request.key.as_str(),
        fingerprint: crate::contract::hex(&request.fingerprint.0),
        kind: request.kind.as_str(),
        queue: request.queue.as_str(),
        priority: request.priority,
        payload: &request.payload,
        max_attempts: request.max_attempts,
        run_at: candidate.run_at.as_millis(),
        deadline_at: candidate.deadline_at.as_millis(),
        timeout_ms: millis(request.timeout),
        backoff_initial_ms: millis(request.backoff.initial),
        backoff_max_ms: millis(request.backoff.max),
        on_crash: match request.on_crash {
            OnCrash::Retry => "retry",
            OnCrash::Hold => "hold",
        },
        trace: request.trace.as_deref(),
    }
}

fn view(candidate: &Candidate<'_>, now: Timestamp) -> JobView {
    let request = candidate.request;
    JobView {
        id: candidate.id,
        kind: request.kind.clone(),
        queue: request.queue.clone(),
        priority: request.priority,
        state: State::Queued,
        attempts: 0,
        max_attempts: request.max_attempts,
        epoch: Epoch::ZERO,
        created_at: now,
        run_at: candidate.run_at,
        deadline_at: candidate.deadline_at,
        finished_at: None,
        cancel_requested_at: None,
        error: None,
        result: None,
        parked: false,
    }
}
