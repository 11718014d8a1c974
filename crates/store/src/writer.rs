//! Group commit: one writer per process, one transaction for all that waits.
//!
//! ```text
//!   call ──► queue ──► batch ──► begin ─ now ─ load ─ decide ─ write ─ commit ──► answers
//!                        ▲                                                │
//!                        └── what shares a job or key with the batch ◄────┘ waits for the next
//! ```
//!
//! Owns the queue, the choice of a batch, and the one-by-one rerun of a batch
//! that the database refused. One job is the small case of many: there is no
//! second path. The writer runs on a thread of its own, so neither a blocked
//! handler nor a dropped request can leave a transaction open. Renewals go
//! first, in a small transaction of their own.
//!
//! May crash anywhere: a transaction is committed whole or not at all, and an
//! answer that was not sent is found out by repeating the request.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::time::{Clock, Timestamp};
use tokio::sync::{Notify, oneshot};

use crate::command::{Answer, Command, Flush};
use crate::error::{ErrorClass, StoreError};
use crate::sqlite::Engine;
use crate::wake::Bell;

/// Commands in one transaction: past a few hundred the time for one row no
/// longer falls, while those behind wait longer.
pub(crate) const BATCH_COMMANDS_MAX: usize = 512;

/// Bytes in one transaction, so that none holds the lock for long.
pub(crate) const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Commands that may wait: about two seconds of work at full speed. More are
/// refused at once, which tells clients to slow down before they time out.
pub(crate) const WAITING_COMMANDS_MAX: usize = 20_000;

/// Bytes that may wait.
pub(crate) const WAITING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// How long an answer is waited for past the budget once the database has the command.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// The handle to the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Told when the thread has ended; not joined, since waiting for a thread would
    /// take one of the caller's runtime, and keep that from ending.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Notify,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Queue {
    renewals: VecDeque<Pending>,
    others: VecDeque<Pending>,
    bytes: usize,
    next_ticket: u64,
    closed: bool,
}

#[derive(Debug)]
struct Pending {
    ticket: u64,
    command: Command,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent between any two statements under its lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(
        &mut self,
        command: Command,
    ) -> Result<(u64, oneshot::Receiver<Result<Answer, StoreError>>), StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        let weight = command.weight();
        let renewal = command.is_renewal();
        let full =
            self.others.len() >= WAITING_COMMANDS_MAX || self.bytes + weight > WAITING_BYTES_MAX;
        // Renewals are few and small, and losing one loses a lease.
        if full && !renewal {
            return Err(StoreError::Overloaded);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.bytes += weight;
        let (answer, receiver) = oneshot::channel();
        let pending = Pending {
            ticket,
            command,
            answer,
        };
        if renewal {
            self.renewals.push_back(pending);
        } else {
            self.others.push_back(pending);
        }
        Ok((ticket, receiver))
    }

    /// Takes a command back that no batch has taken yet.
    fn withdraw(&mut self, ticket: u64) -> bool {
        for queue in [&mut self.renewals, &mut self.others] {
            // Tickets rise along each queue: what is passed over keeps its place.
            if let Ok(index) = queue.binary_search_by_key(&ticket, |pending| pending.ticket)
                && let Some(pending) = queue.remove(index)
            {
                self.bytes -= pending.command.weight();
                return true;
            }
        }
        false
    }

    /// Whether there is work, and whether its commit must be flushed.
    fn wanted(&self) -> Option<Flush> {
        if !self.renewals.is_empty() {
            return Some(Flush::NotOnItsOwn);
        }
        let next = self.others.iter().take(BATCH_COMMANDS_MAX);
        next.map(|pending| pending.command.flush()).max()
    }

    /// Takes the next batch for a transaction of this flush class: renewals
    /// alone if there are any, else as much as a transaction may hold, at most
    /// one command per subject.
    fn batch(&mut self, flush: Flush) -> Vec<Pending> {
        let queue = if self.renewals.is_empty() {
            &mut self.others
        } else {
            &mut self.renewals
        };
        let mut batch = Vec::new();
        let mut passed_over = VecDeque::new();
        let mut subjects = BTreeSet::new();
        let mut bytes = 0;
        while batch.len() < BATCH_COMMANDS_MAX && passed_over.len() < BATCH_COMMANDS_MAX {
            let Some(pending) = queue.pop_front() else {
                break;
            };
            let weight = pending.command.weight();
            if !batch.is_empty() && bytes + weight > BATCH_BYTES_MAX {
                queue.push_front(pending);
                break;
            }
            let subject = pending.command.subject();
            // What is passed over keeps its subject taken: its turn comes
            // before that of any later command on the same job or key.
            let first = subject.is_none_or(|subject| subjects.insert(subject));
            if first && pending.command.flush() <= flush {
                bytes += weight;
                batch.push(pending);
            } else {
                passed_over.push_back(pending);
            }
        }
        for pending in passed_over.into_iter().rev() {
            queue.push_front(pending);
        }
        self.bytes -= bytes;
        batch
    }
}

impl Writer {
    /// Starts the writer thread.
    pub(crate) fn start(
        engine: Engine,
        clock: Arc<dyn Clock>,
        bell: Bell,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Notify::new(),
            clock,
        });
        let failed = |source| StoreError::File {
            path: "the writer thread".into(),
            doing: "could not be started",
            source,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(failed)?;
        let work = Arc::clone(&shared);
        let (done, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("fencepost-writer".to_owned())
            .spawn(move || {
                let _closing = CloseOnExit(Arc::clone(&work));
                runtime.block_on(run(&work, engine, &bell));
                // A thread may still wait for a lock that nobody gives back.
                runtime.shutdown_background();
                done.send(()).ok();
            })
            .map_err(failed)?;
        Ok(Self {
            shared,
            ended: Mutex::new(Some(ended)),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Sends a command and waits for its answer.
    ///
    /// A command that no batch has taken within `budget` is withdrawn: nothing
    /// was written, and it says so. Dropping the future withdraws nothing.
    pub(crate) async fn call(
        &self,
        command: Command,
        budget: Duration,
    ) -> Result<Answer, StoreError> {
        let (ticket, mut receiver) = self.shared.queue().push(command)?;
        self.shared.work.notify_one();
        let answer = match tokio::time::timeout(budget, &mut receiver).await {
            Ok(answer) => answer,
            Err(_) if self.shared.queue().withdraw(ticket) => {
                return Err(StoreError::Busy { waited: budget });
            }
            Err(_) => match tokio::time::timeout(ANSWER_GRACE, receiver).await {
                Ok(answer) => answer,
                Err(_) => return Err(StoreError::OutcomeUnknown),
            },
        };
        // A dropped sender: the writer ended with the command in its hands.
        answer.unwrap_or(Err(StoreError::OutcomeUnknown))
    }

    /// Refuses new commands, waits for those in hand, and ends the thread.
    pub(crate) async fn close(&self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_one();
        let ended = self
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(ended) = ended
            && ended.await.is_err()
        {
            tracing::error!("the writer thread ended by a panic");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_one();
    }
}

/// Whatever ends the thread, nobody may wait for it for ever.
struct CloseOnExit(Arc<Shared>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        queue.renewals.clear();
        queue.others.clear();
    }
}

async fn run(shared: &Shared, mut engine: Engine, bell: &Bell) {
    loop {
        let (wanted, closed) = {
            let queue = shared.queue();
            (queue.wanted(), queue.closed)
        };
        match wanted {
            Some(flush) => turn(shared, &mut engine, bell, flush).await,
            None if closed => break,
            None => shared.work.notified().await,
        }
    }
    engine.close().await;
}

/// One turn with the write lock. The batch is taken after the lock, so that a
/// command whose budget ends while the lock is another's can still be withdrawn.
async fn turn(shared: &Shared, engine: &mut Engine, bell: &Bell, flush: Flush) {
    let begun = engine
        .begin(flush, || shared.queue().wanted().is_some())
        .await;
    let batch = shared.queue().batch(flush);
    let (commands, answers): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|pending| (pending.command, pending.answer))
        .unzip();
    let outcome = match begun {
        Ok(()) if commands.is_empty() => {
            engine.rollback().await;
            return;
        }
        Ok(()) => engine.transact(&commands, &*shared.clock).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(committed) => {
            if committed.rings {
                bell.ring();
            }
            for (answer, sender) in committed.answers.into_iter().zip(answers) {
                // The caller may have hung up; what it asked for stands.
                drop(sender.send(Ok(answer)));
            }
        }
        Err(refused) if commands.len() > 1 && refused.class() != ErrorClass::Transient => {
            tracing::debug!(%refused, commands = commands.len(), "a batch was refused; its commands run one by one");
            for (command, sender) in commands.into_iter().zip(answers) {
                drop(sender.send(alone(shared, engine, bell, command).await));
            }
        }
        Err(error) => {
            for sender in answers {
                drop(sender.send(Err(error.again())));
            }
        }
    }
}

/// Runs one command of a refused batch, so that only the culprit fails.
async fn alone(
    shared: &Shared,
    engine: &mut Engine,
    bell: &Bell,
    command: Command,
) -> Result<Answer, StoreError> {
    engine.begin(Flush::Before, || true).await?;
    let mut committed = engine.transact(&[command], &*shared.clock).await?;
    if committed.rings {
        bell.ring();
    }
    committed.answers.pop().ok_or(StoreError::OutcomeUnknown)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
