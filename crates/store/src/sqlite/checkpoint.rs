//! One of the processes that share a file moves its log into it.
//!
//! Owns when that is done and by whom. SQLite's own way is that any commit may
//! find the log long and copy it then and there: commits stall on it, several
//! processes do it in turn, and while readers overlap all the time the log is
//! never begun anew and grows without end. Here no commit does it. Whoever
//! holds a kernel lock beside the file does, on a connection and a thread of its
//! own; the kernel gives the lock back when its process ends, and another takes
//! it within [`TAKE_OVER`].
//!
//! May crash anywhere: what was not copied is still in the log.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fencepost_core::time::Timestamp;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::error::during;
use super::prepare::{LOCK_SUFFIX, beside, connect_options, lock_file};
use super::turn::Turns;
use crate::error::StoreError;
use crate::store::LogSize;

/// Beside the database: whoever locks it moves the log.
const HOLDER_SUFFIX: &str = ".checkpoint";

/// How often one that does not hold the lock tries to.
const TAKE_OVER: Duration = Duration::from_secs(2);

/// How often the log's length is looked at: what a burst writes meanwhile is some
/// tens of megabytes.
const PERIOD: Duration = Duration::from_millis(500);

/// Pages of 4 KiB in the log from which on it is copied and begun anew. Below,
/// it is left alone: each copy costs two flushes, which a system that hardly
/// writes would pay over and over. The file behind it stays as long as it is,
/// since overwriting makes for cheaper flushes than growing.
const RESTART_PAGES: i64 = 4_096;

/// A shorter file cannot hold so many.
const RESTART_BYTES: u64 = 16 * 1024 * 1024;

/// A log longer than this is cut, and one that cannot be is told of.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How long the writers' turn is held for readers to leave the log: a reading of
/// ours takes a few milliseconds.
const READERS_WAIT: Duration = Duration::from_millis(100);

/// After readers did not leave: the next writers are not to pay for it again at once.
const BLOCKED_PAUSE: Duration = Duration::from_secs(2);

/// The thread's handle. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    end: watch::Sender<bool>,
    /// Told when the thread has ended.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Checkpointer {
    pub(crate) fn start(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::File {
            path: path.to_owned(),
            doing: "its checkpoint thread could not be started",
            source,
        };
        // It is there from now on, for whoever asks how old the log is.
        drop(lock_file(&beside(path, HOLDER_SUFFIX))?);
        let (end, asked) = watch::channel(false);
        let (done, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(failed)?;
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("fencepost-log".to_owned())
            .spawn(move || {
                runtime.block_on(run(path, asked));
                // A thread may still wait for a turn that nobody gives back.
                runtime.shutdown_background();
                done.send(()).ok();
            })
            .map_err(failed)?;
        Ok(Self {
            end,
            ended: Mutex::new(Some(ended)),
        })
    }

    /// Ends the thread, and waits for it.
    pub(crate) async fn close(&self) {
        self.end.send_replace(true);
        let ended = self
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(ended) = ended
            && ended.await.is_err()
        {
            tracing::error!("the checkpoint thread ended by a panic");
        }
    }
}

/// The length of a database's log, and how long ago it was last begun anew, by
/// whichever process.
pub(crate) fn log_size(path: &Path, now: Timestamp) -> Result<LogSize, StoreError> {
    let holder = beside(path, HOLDER_SUFFIX);
    let changed = std::fs::metadata(&holder)
        .and_then(|file| file.modified())
        .map_err(|source| StoreError::File {
            path: holder,
            doing: "its time of change could not be read",
            source,
        })?;
    let now = Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or_default());
    Ok(LogSize {
        bytes: bytes(path),
        // Zero where the store's clock is behind that of the file system.
        since_checkpoint: (SystemTime::UNIX_EPOCH + now)
            .duration_since(changed)
            .unwrap_or_default(),
    })
}

/// The length of the log of a database; by its name only: closing a file that
/// SQLite has open, too, would give SQLite's locks away.
fn bytes(path: &Path) -> u64 {
    std::fs::metadata(beside(path, "-wal")).map_or(0, |file| file.len())
}

/// Waits; whether the end was asked for.
async fn pause(ended: &mut watch::Receiver<bool>, duration: Duration) -> bool {
    // A dropped sender asks for the end, too.
    tokio::time::timeout(duration, ended.wait_for(|ended| *ended))
        .await
        .is_ok()
}

async fn run(path: PathBuf, mut ended: watch::Receiver<bool>) {
    let Some(held) = hold(&path, &mut ended).await else {
        return;
    };
    let mut log = Log::new(path, held);
    loop {
        let blocked = match log.look().await {
            Ok(blocked) => blocked,
            Err(error) => {
                tracing::warn!(%error, "the database's log could not be moved into the file; trying again");
                log.connection = None;
                true
            }
        };
        let next = if blocked { BLOCKED_PAUSE } else { PERIOD };
        if pause(&mut ended, next).await {
            break;
        }
    }
    if let Some(connection) = log.connection.take() {
        drop(connection.close().await);
    }
}

/// Waits for the lock; none when the end comes first.
async fn hold(path: &Path, ended: &mut watch::Receiver<bool>) -> Option<File> {
    loop {
        match lock_file(&beside(path, HOLDER_SUFFIX)).map(|file| (file.try_lock(), file)) {
            Ok((Ok(()), file)) => return Some(file),
            Ok((Err(_), _)) => {}
            Err(error) => tracing::warn!(%error, "the checkpoint lock could not be opened"),
        }
        if pause(ended, TAKE_OVER).await {
            return None;
        }
    }
}

/// The log of a file, while this process is the one that moves it.
struct Log {
    path: PathBuf,
    /// The lock. Its time of change tells every process when the log was last begun anew.
    held: File,
    connection: Option<SqliteConnection>,
    turns: Option<Turns>,
    /// Since when it has been too long.
    long: Option<Instant>,
}

/// What a checkpoint says.
struct Moved {
    /// Someone was in the way.
    busy: bool,
    /// Pages in the log.
    pages: i64,
    /// Pages of them that are in the file.
    copied: i64,
}

impl Log {
    fn new(path: PathBuf, held: File) -> Self {
        Self {
            path,
            held,
            connection: None,
            turns: None,
            long: None,
        }
    }

    fn bytes(&self) -> u64 {
        bytes(&self.path)
    }

    /// Moves what there is to move; whether someone was in the way.
    async fn look(&mut self) -> Result<bool, StoreError> {
        let blocked = self.move_on().await;
        self.tell();
        blocked
    }

    async fn move_on(&mut self) -> Result<bool, StoreError> {
        let bytes = self.bytes();
        if bytes < RESTART_BYTES {
            return Ok(false);
        }
        let too_long = bytes > LOG_BYTES_MAX;
        let now = self.checkpoint("PRAGMA wal_checkpoint(NOOP)").await?;
        if !too_long && (now.pages < RESTART_PAGES || now.copied == now.pages) {
            return Ok(false);
        }
        // Most of it while others write.
        let moved = self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)").await?;
        if moved.busy || (moved.copied < moved.pages && moved.copied == now.copied) {
            // Not a page: somebody reads a state that old, and keeps reading it. The
            // writers' turn would not help, and each try would stall them for nothing.
            return Ok(true);
        }
        self.finish(too_long).await
    }

    /// The rest while nobody writes, so that the log is begun anew.
    async fn finish(&mut self, cut: bool) -> Result<bool, StoreError> {
        let mut turns = match self.turns.take() {
            Some(turns) => turns,
            None => Turns::at(beside(&self.path, LOCK_SUFFIX))?,
        };
        let asked = Instant::now();
        let taken = turns.take(|| asked.elapsed() < BLOCKED_PAUSE).await?;
        let moved = if taken {
            let statement = if cut {
                "PRAGMA wal_checkpoint(TRUNCATE)"
            } else {
                "PRAGMA wal_checkpoint(RESTART)"
            };
            let moved = self.checkpoint(statement).await;
            turns.give_back();
            Some(moved?)
        } else {
            None
        };
        self.turns = Some(turns);
        let blocked = moved.is_none_or(|moved| moved.busy);
        if !blocked && let Err(error) = self.held.write_at(b".", 0) {
            tracing::warn!(%error, "the time of the checkpoint could not be kept");
        }
        Ok(blocked)
    }

    async fn checkpoint(&mut self, statement: &'static str) -> Result<Moved, StoreError> {
        let moving = during("moving the log into the file");
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(
                connect_options(&self.path)
                    .busy_timeout(READERS_WAIT)
                    .connect()
                    .await
                    .map_err(&moving)?,
            ),
        };
        let row = sqlx::query(statement)
            .fetch_one(connection)
            .await
            .map_err(&moving)?;
        let number = |index| row.try_get::<i64, _>(index).map_err(&moving);
        Ok(Moved {
            busy: number(0)? != 0,
            pages: number(1)?,
            copied: number(2)?,
        })
    }

    /// Says once that the log is too long, and once that it is not any more.
    fn tell(&mut self) {
        let bytes = self.bytes();
        let database = self.path.display();
        match self.long {
            None if bytes > LOG_BYTES_MAX => {
                self.long = Some(Instant::now());
                tracing::warn!(%database, bytes, "the database's log cannot be shortened: some program keeps a reading open");
            }
            Some(since) if bytes <= LOG_BYTES_MAX => {
                self.long = None;
                tracing::info!(%database, bytes, after = ?since.elapsed(), "the database's log is short again");
            }
            None | Some(_) => {}
        }
    }
}
