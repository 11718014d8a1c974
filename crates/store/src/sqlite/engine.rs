//! One transaction: begin, read the clock, load, decide, write, commit.
//!
//! Owns the writer connection and the order of things within a transaction:
//! submissions, then the verbs on jobs (all loaded in one statement, all
//! written in one set), then the verbs on sets of entries and on everything
//! else. That order is the serial order the answers are equal to.
//!
//! May crash before the commit (nothing happened) or after it (everything
//! did); the caller repeats its request either way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_core::id::{IdSource, JobId};
use fencepost_core::time::{Clock, Timestamp};
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::error::{during, is_busy};
use super::prepare::{LOCK_SUFFIX, beside, connect};
use super::turn::Turns;
use super::{admin, housekeeping, load, outbox, submit, write};
use crate::command::{Answer, Command, Flush, Subject};
use crate::contract::Submit;
use crate::decide::{self, Moment, Writes};
use crate::error::StoreError;
use crate::store::OpenOptions;

/// How long the write lock may be another's before the log says so.
const SLOW_LOCK: Duration = Duration::from_secs(2);

/// The writer connection.
#[derive(Debug)]
pub(crate) struct Engine {
    path: PathBuf,
    connection: SqliteConnection,
    ids: Arc<dyn IdSource>,
    flush: Flush,
    turns: Turns,
}

/// The answers of a committed transaction, in the order of its commands.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) answers: Vec<Answer>,
    /// Whether someone waits for what it did.
    pub(crate) rings: bool,
}

impl Engine {
    pub(crate) async fn open(options: &OpenOptions) -> Result<Self, StoreError> {
        Ok(Self {
            path: options.path.clone(),
            connection: connect(&options.path).await?,
            ids: Arc::clone(&options.ids),
            flush: Flush::Before,
            turns: Turns::at(beside(&options.path, LOCK_SUFFIX))?,
        })
    }

    /// Takes the write lock, for as long as `wanted` says so.
    ///
    /// # Errors
    /// Only what waiting cannot cure. Busy is never an error here: a first
    /// statement that writes waits in SQLite's busy handler, and comes again.
    pub(crate) async fn begin(
        &mut self,
        flush: Flush,
        wanted: impl Fn() -> bool,
    ) -> Result<(), StoreError> {
        self.set_flush(flush).await?;
        let started = tokio::time::Instant::now();
        let told = AtomicBool::new(false);
        // Asked every quarter of a second while another has the lock.
        let wanted = || {
            if started.elapsed() > SLOW_LOCK && !told.swap(true, Ordering::Relaxed) {
                let database = self.path.display();
                tracing::warn!(%database, "another process holds the database's write lock; waiting");
            }
            wanted()
        };
        let abandoned = || StoreError::Busy {
            waited: started.elapsed(),
        };
        if !self.turns.take(&wanted).await? {
            return Err(abandoned());
        }
        let begun = loop {
            match sqlx::query("BEGIN IMMEDIATE")
                .execute(&mut self.connection)
                .await
            {
                Ok(_) => break Ok(()),
                Err(error) if !is_busy(&error) => break Err(during("locking the database")(error)),
                Err(_) if !wanted() => break Err(abandoned()),
                Err(_) => {}
            }
        };
        if begun.is_err() {
            self.turns.give_back();
        } else if told.load(Ordering::Relaxed) {
            tracing::info!(waited = ?started.elapsed(), "the database's write lock is free again");
        }
        begun
    }

    /// In WAL mode `FULL` flushes at every commit and `NORMAL` does not; what
    /// an unflushed commit wrote is flushed by the next flushed one.
    async fn set_flush(&mut self, flush: Flush) -> Result<(), StoreError> {
        if self.flush == flush {
            return Ok(());
        }
        let pragma = match flush {
            Flush::Before => "PRAGMA synchronous = FULL",
            Flush::NotOnItsOwn => "PRAGMA synchronous = NORMAL",
        };
        sqlx::query(pragma)
            .execute(&mut self.connection)
            .await
            .map_err(during("setting the flush class"))?;
        self.flush = flush;
        Ok(())
    }

    /// Runs commands in the transaction that was begun, and commits it.
    ///
    /// # Errors
    /// Nothing was written, unless it is [`StoreError::OutcomeUnknown`].
    pub(crate) async fn transact(
        &mut self,
        commands: &[Command],
        clock: &dyn Clock,
    ) -> Result<Committed, StoreError> {
        let outcome = self.run(commands, clock).await;
        if outcome.is_err() {
            self.rollback().await;
            return outcome;
        }
        let committed = sqlx::query("COMMIT").execute(&mut self.connection).await;
        if let Err(error) = committed {
            self.rollback().await;
            let error = during("committing")(error);
            tracing::error!(%error, "a commit failed");
            // A failed flush may have reached the disk or not.
            return Err(StoreError::OutcomeUnknown);
        }
        self.turns.give_back();
        outcome
    }

    /// Gives the transaction up.
    pub(crate) async fn rollback(&mut self) {
        // SQLite may have rolled back by itself (disk full, I/O error); then
        // this says that no transaction is active, which is what is wanted.
        if let Err(error) = sqlx::query("ROLLBACK").execute(&mut self.connection).await {
            tracing::debug!(%error, "the rollback found no transaction");
        }
        self.turns.give_back();
    }

    pub(crate) async fn close(self) {
        if let Err(error) = self.connection.close().await {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }

    async fn run(
        &mut self,
        commands: &[Command],
        clock: &dyn Clock,
    ) -> Result<Committed, StoreError> {
        let now = clock.now();
        let mut answers: BTreeMap<usize, Answer> = BTreeMap::new();
        let mut rings = self.submissions(commands, now, &mut answers).await?;
        rings |= self.on_jobs(commands, now, &mut answers).await?;
        for (index, command) in commands.iter().enumerate() {
            if let Some(answer) = self.on_the_rest(command, now).await? {
                rings |= matches!(answer, Answer::Redispatch(1..) | Answer::ResumeQueue(()))
                    || matches!(&answer, Answer::Unpark(jobs) if !jobs.is_empty());
                answers.insert(index, answer);
            }
        }
        let answers: Vec<Answer> = answers.into_values().collect();
        assert_eq!(
            answers.len(),
            commands.len(),
            "every command has exactly one answer"
        );
        Ok(Committed { answers, rings })
    }

    async fn submissions(
        &mut self,
        commands: &[Command],
        now: Timestamp,
        answers: &mut BTreeMap<usize, Answer>,
    ) -> Result<bool, StoreError> {
        let mut submits: Vec<(usize, &Submit)> = Vec::new();
        for (index, command) in commands.iter().enumerate() {
            if let Command::Submit(request) = command {
                submits.push((index, request));
            }
        }
        if submits.is_empty() {
            return Ok(false);
        }
        submit::submit(&mut self.connection, &*self.ids, now, &submits, answers).await
    }

    /// The verbs on jobs: load all, decide each, write all.
    async fn on_jobs(
        &mut self,
        commands: &[Command],
        now: Timestamp,
        answers: &mut BTreeMap<usize, Answer>,
    ) -> Result<bool, StoreError> {
        let wanted: Vec<load::Wanted> = commands.iter().filter_map(load::Wanted::by).collect();
        if wanted.is_empty() {
            return Ok(false);
        }
        let rows = load::load(&mut self.connection, &wanted).await?;
        let mut writes = Writes::default();
        for (index, command) in commands.iter().enumerate() {
            let row = job_of(command).and_then(|job| rows.get(&job));
            let at = Moment {
                now,
                random: self.ids.random(),
            };
            if let Some(answer) = decide::decide(command, row, at, &mut writes) {
                answers.insert(index, answer);
            }
        }
        write::write(&mut self.connection, now, &writes).await?;
        Ok(writes.rings())
    }

    /// The verbs on sets of entries and on everything that is not a job.
    async fn on_the_rest(
        &mut self,
        command: &Command,
        now: Timestamp,
    ) -> Result<Option<Answer>, StoreError> {
        let on = &mut self.connection;
        let answer = match command {
            Command::Take(take) => Answer::Take(outbox::take(on, now, take).await?),
            Command::SettleDispatches(settle) => {
                Answer::SettleDispatches(outbox::settle(on, now, settle).await?)
            }
            Command::Redispatch(again) => Answer::Redispatch(outbox::redispatch(on, again).await?),
            Command::RecordBlob(blob) => {
                Answer::RecordBlob(admin::record_blob(on, now, blob).await?)
            }
            Command::TouchBlob(blob) => {
                Answer::TouchBlob(housekeeping::touch_blob(on, now, blob).await?)
            }
            Command::CollectBlobs(which) => {
                Answer::CollectBlobs(housekeeping::collect_blobs(on, now, *which).await?)
            }
            Command::Prune(which) => Answer::Prune(housekeeping::prune(on, now, *which).await?),
            Command::Unpark(which) => Answer::Unpark(housekeeping::unpark(on, now, which).await?),
            Command::PauseQueue(queue) => {
                Answer::PauseQueue(admin::pause_queue(on, now, queue).await?)
            }
            Command::ResumeQueue(queue) => {
                Answer::ResumeQueue(admin::resume_queue(on, now, queue).await?)
            }
            Command::CreateKey(key) => Answer::CreateKey(admin::create_key(on, now, key).await?),
            Command::RevokeKey(key) => Answer::RevokeKey(admin::revoke_key(on, now, key).await?),
            Command::Lead(bid) => Answer::Lead(admin::lead(on, now, bid).await?),
            Command::Resign(office) => Answer::Resign(admin::resign(on, now, office).await?),
            Command::Heartbeat(beat) => Answer::Heartbeat(admin::heartbeat(on, now, beat).await?),
            Command::Submit(_)
            | Command::ClaimJob(_)
            | Command::Renew(_)
            | Command::Complete(_)
            | Command::Fail(_)
            | Command::Release(_)
            | Command::Snooze(_)
            | Command::OpenEffect(_)
            | Command::SettleEffect(_)
            | Command::DeclineEffect(_)
            | Command::SaveStep(_)
            | Command::Cancel(_)
            | Command::Retry(_)
            | Command::Resolve(_)
            | Command::Reap(_)
            | Command::PutBack(_) => {
                return Ok(None);
            }
        };
        Ok(Some(answer))
    }
}

pub(super) fn job_of(command: &Command) -> Option<JobId> {
    match command.subject() {
        Some(Subject::Job(job)) => Some(job),
        Some(Subject::Key(..)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Row as _;

    use super::*;

    /// 2 is FULL, by which every commit in WAL mode flushes the log; 1 is NORMAL,
    /// by which none does (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
    #[tokio::test]
    async fn what_must_be_flushed_is_committed_at_the_level_that_flushes() {
        let directory = tempfile::tempdir().unwrap();
        let options = super::super::plans::options(&directory);
        super::super::prepare(&options).await.unwrap();
        let mut engine = Engine::open(&options).await.unwrap();
        for (flush, level) in [
            (Flush::Before, 2),
            (Flush::NotOnItsOwn, 1),
            (Flush::Before, 2),
        ] {
            engine.begin(flush, || true).await.unwrap();
            let row = sqlx::query("PRAGMA synchronous")
                .fetch_one(&mut engine.connection)
                .await
                .unwrap();
            assert_eq!(row.get::<i64, _>(0), level);
            engine.rollback().await;
        }
    }
}
