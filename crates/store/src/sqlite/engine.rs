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
use std::time::Duration;

use fencepost_core::id::{IdSource, JobId};
use fencepost_core::time::Clock;
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::error::{during, is_busy};
use super::prepare::connect;
use super::{admin, load, outbox, submit, write};
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
        let mut told = false;
        loop {
            match sqlx::query("BEGIN IMMEDIATE")
                .execute(&mut self.connection)
                .await
            {
                Ok(_) => break,
                Err(error) if !is_busy(&error) => {
                    return Err(during("locking the database")(error));
                }
                Err(_) if !wanted() => {
                    return Err(StoreError::Busy {
                        waited: started.elapsed(),
                    });
                }
                Err(_) => {}
            }
            if !told && started.elapsed() > SLOW_LOCK {
                told = true;
                tracing::warn!(database = %self.path.display(), "another process holds the database's write lock; waiting");
            }
        }
        if told {
            tracing::info!(waited = ?started.elapsed(), "the database's write lock is free again");
        }
        Ok(())
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
        if let Err(error) = sqlx::query("COMMIT").execute(&mut self.connection).await {
            self.rollback().await;
            let error = during("committing")(error);
            tracing::error!(%error, "a commit failed");
            // A failed flush may have reached the disk or not.
            return Err(StoreError::OutcomeUnknown);
        }
        outcome
    }

    /// Gives the transaction up.
    pub(crate) async fn rollback(&mut self) {
        // SQLite may have rolled back by itself (disk full, I/O error); then
        // this says that no transaction is active, which is what is wanted.
        if let Err(error) = sqlx::query("ROLLBACK").execute(&mut self.connection).await {
            tracing::debug!(%error, "the rollback found no transaction");
        }
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
        let mut rings = false;

        let submits: Vec<(usize, &Submit)> = commands
            .iter()
            .enumerate()
            .filter_map(|(index, command)| match command {
                Command::Submit(request) => Some((index, request)),
                _ => None,
            })
            .collect();
        if !submits.is_empty() {
            rings |= submit::submit(
                &mut self.connection,
                &*self.ids,
                now,
                &submits,
                &mut answers,
            )
            .await?;
        }

        let wanted: Vec<load::Wanted> = commands.iter().filter_map(load::Wanted::by).collect();
        if !wanted.is_empty() {
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
            rings |= writes.rings();
            write::write(&mut self.connection, now, &writes).await?;
        }

        for (index, command) in commands.iter().enumerate() {
            let connection = &mut self.connection;
            let answer = match command {
                Command::Take(request) => {
                    Answer::Take(outbox::take(connection, now, request).await?)
                }
                Command::SettleDispatches(request) => {
                    Answer::SettleDispatches(outbox::settle(connection, now, request).await?)
                }
                Command::Redispatch(request) => {
                    rings = true;
                    Answer::Redispatch(outbox::redispatch(connection, request).await?)
                }
                Command::RecordBlob(request) => {
                    Answer::RecordBlob(admin::record_blob(connection, now, request).await?)
                }
                Command::PauseQueue(request) => {
                    Answer::PauseQueue(admin::pause_queue(connection, now, request).await?)
                }
                Command::ResumeQueue(request) => {
                    rings = true;
                    Answer::ResumeQueue(admin::resume_queue(connection, now, request).await?)
                }
                Command::CreateKey(request) => {
                    Answer::CreateKey(admin::create_key(connection, now, request).await?)
                }
                Command::RevokeKey(request) => {
                    Answer::RevokeKey(admin::revoke_key(connection, now, request).await?)
                }
                Command::Lead(request) => {
                    Answer::Lead(admin::lead(connection, now, request).await?)
                }
                Command::Resign(request) => {
                    Answer::Resign(admin::resign(connection, now, request).await?)
                }
                Command::Heartbeat(request) => {
                    Answer::Heartbeat(admin::heartbeat(connection, now, request).await?)
                }
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
                | Command::Reap(_)
                | Command::PutBack(_) => continue,
            };
            answers.insert(index, answer);
        }
        let answers: Vec<Answer> = answers.into_values().collect();
        assert_eq!(
            answers.len(),
            commands.len(),
            "every command has exactly one answer"
        );
        Ok(Committed { answers, rings })
    }
}

pub(super) fn job_of(command: &Command) -> Option<JobId> {
    match command.subject() {
        Some(Subject::Job(job)) => Some(job),
        Some(Subject::Key(..)) | None => None,
    }
}
