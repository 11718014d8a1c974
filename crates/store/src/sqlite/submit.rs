//! Acceptance: job, outbox entry, event and blob references in one transaction.
//!
//! Who was first with an operation key is decided by the unique index, not by
//! a look-up; answers are mapped by the generated id, so exactly one request
//! is told that it made the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use fencepost_core::event::EventType;
use fencepost_core::id::{Epoch, IdSource, JobId};
use fencepost_core::kind::OnCrash;
use fencepost_core::lifecycle::State;
use fencepost_core::time::{Timestamp, millis};
use sqlx::sqlite::SqliteConnection;

use super::rows::{JOB_VIEW, get, job_id, job_view};
use super::spread::{Cells, Spread};
use super::write::{self, EventColumns, NewEntry};
use crate::command::Answer;
use crate::contract::{BlobHash, JobView, Submit, Submitted};
use crate::error::StoreError;

pub(super) static TOMBSTONES: Spread = Spread::new(
    4,
    "
    WITH new(place, tenant, owner, operation_key) AS (:rows)
    SELECT new.place, operation_key.job
    FROM new CROSS JOIN operation_key
       ON operation_key.tenant = new.tenant AND operation_key.owner = new.owner
      AND operation_key.operation_key = new.operation_key",
);

pub(super) static MISSING_BLOBS: Spread = Spread::new(
    4,
    "
    WITH want(place, number, tenant, hash) AS (:rows)
    SELECT want.place, want.number FROM want
    WHERE want.hash IS NOT NULL AND NOT EXISTS (SELECT 1 FROM blob
        WHERE blob.tenant = want.tenant AND blob.hash = want.hash)",
);

pub(super) static INSERT_JOBS: Spread = Spread::new(
    18,
    "
    WITH new(id, tenant, owner, operation_key, fingerprint, kind, queue, priority, payload,
             max_attempts, run_at, deadline_at, timeout_ms, backoff_initial_ms, backoff_max_ms,
             on_crash, trace, now) AS (:rows)
    INSERT INTO job (id, tenant, owner, operation_key, fingerprint, kind, queue, priority, payload,
        state, epoch, attempts, max_attempts, snoozes, run_at, deadline_at, timeout_ms,
        backoff_initial_ms, backoff_max_ms, on_crash, trace, created_at, updated_at)
    SELECT id, tenant, owner, operation_key, fingerprint, kind, queue, priority, payload,
        'queued', 0, 0, max_attempts, 0, run_at, deadline_at, timeout_ms, backoff_initial_ms,
        backoff_max_ms, on_crash, trace, now, now
    FROM new WHERE id IS NOT NULL
    ON CONFLICT (tenant, owner, operation_key) DO NOTHING
    RETURNING id",
);

static INSERT_BLOB_REFERENCES: Spread = Spread::new(
    3,
    "
    WITH new(job, tenant, hash) AS (:rows)
    INSERT INTO job_blob (job, tenant, hash)
    SELECT job, tenant, hash FROM new WHERE job IS NOT NULL
    ON CONFLICT DO NOTHING",
);

pub(super) static LOOK_UP: LazyLock<Spread> = LazyLock::new(|| {
    let statement = format!(
        "
    WITH want(place, tenant, owner, operation_key) AS (:rows)
    SELECT want.place, job.fingerprint, {JOB_VIEW}
    FROM want CROSS JOIN job ON job.tenant = want.tenant AND job.owner = want.owner
        AND job.operation_key = want.operation_key"
    );
    Spread::new(4, statement.leak())
});

/// A blob that a candidate refers to.
struct BlobReference<'a> {
    place: usize,
    index: usize,
    job: JobId,
    tenant: &'a str,
    hash: &'a BlobHash,
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
    let keys = submits.iter().map(|(_, request)| *request).enumerate();
    let rows = TOMBSTONES
        .fetch(connection, "looking for pruned keys", keys, bind_key)
        .await?;
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
    let bind = |cells: &mut Cells, blob: BlobReference<'_>| {
        cells.add(number(blob.place)).add(number(blob.index));
        cells.add(blob.tenant).add(blob.hash.0.as_slice());
    };
    let wanted = blob_references(candidates);
    let rows = MISSING_BLOBS
        .fetch(connection, "looking for blobs", wanted, bind)
        .await?;
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

fn blob_references<'a>(
    candidates: impl IntoIterator<Item = &'a Candidate<'a>>,
) -> impl Iterator<Item = BlobReference<'a>> {
    candidates.into_iter().flat_map(|candidate| {
        let blobs = candidate.request.blobs.iter().enumerate();
        blobs.map(|(index, hash)| BlobReference {
            place: candidate.place,
            index,
            job: candidate.id,
            tenant: candidate.request.tenant.as_str(),
            hash,
        })
    })
}

async fn insert(
    connection: &mut SqliteConnection,
    now: Timestamp,
    fresh: &[&Candidate<'_>],
) -> Result<BTreeSet<JobId>, StoreError> {
    let bind = |cells: &mut Cells, candidate: &&Candidate<'_>| bind_job(cells, candidate, now);
    let rows = INSERT_JOBS
        .fetch(connection, "accepting jobs", fresh, bind)
        .await?;
    let made = rows
        .iter()
        .map(|row| job_id(row, "id"))
        .collect::<Result<BTreeSet<_>, _>>()?;
    let made_now = || {
        let made = |candidate: &&Candidate<'_>| made.contains(&candidate.id);
        fresh.iter().copied().filter(made)
    };
    let entries = made_now().map(|candidate| NewEntry {
        job: candidate.id,
        queue: candidate.request.queue.as_str(),
        priority: candidate.request.priority,
        available_at: candidate.run_at,
    });
    write::insert_entries(connection, now, entries).await?;
    let events = made_now().map(|candidate| EventColumns {
        job: Some(candidate.id),
        epoch: Epoch::ZERO,
        kind: EventType::Accepted,
        actor: candidate.request.owner.as_str(),
        code: None,
        detail: None,
    });
    write::events(connection, now, events).await?;
    let bind = |cells: &mut Cells, blob: BlobReference<'_>| {
        cells
            .job(blob.job)
            .add(blob.tenant)
            .add(blob.hash.0.as_slice());
    };
    let blobs = blob_references(made_now());
    INSERT_BLOB_REFERENCES
        .execute(connection, "referring to blobs", blobs, bind)
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
    let keys = missing
        .iter()
        .map(|candidate| candidate.request)
        .enumerate();
    let rows = LOOK_UP
        .fetch(connection, "finding replayed jobs", keys, bind_key)
        .await?;
    let mut known = BTreeMap::new();
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

fn number(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

fn bind_key(cells: &mut Cells, (place, request): (usize, &Submit)) {
    cells.add(number(place)).add(request.tenant.as_str());
    cells.add(request.owner.as_str()).add(request.key.as_str());
}

fn bind_job(cells: &mut Cells, candidate: &Candidate<'_>, now: Timestamp) {
    let request = candidate.request;
    let on_crash = match request.on_crash {
        OnCrash::Retry => "retry",
        OnCrash::Hold => "hold",
    };
    cells.job(candidate.id).add(request.tenant.as_str());
    cells.add(request.owner.as_str()).add(request.key.as_str());
    cells.add(request.fingerprint.0.as_slice());
    cells.add(request.kind.as_str()).add(request.queue.as_str());
    cells.add(request.priority).add(request.payload.as_str());
    cells.add(request.max_attempts);
    cells.add(candidate.run_at.as_millis());
    cells.add(candidate.deadline_at.as_millis());
    cells.add(millis(request.timeout));
    cells.add(millis(request.backoff.initial));
    cells.add(millis(request.backoff.max));
    cells.add(on_crash).add(request.trace.as_deref());
    cells.add(now.as_millis());
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
