//! Processes that share a file take turns through a kernel lock.
//!
//! SQLite's own busy handler polls with growing pauses: under load a process
//! that is not writing all the time waits half a second and more while those
//! that are take the lock again and again, and what waits may be a renewal. A
//! `flock` wakes who waits. Measured with `examples/contention.rs`; the figures
//! stand in `docs/adr/0003-turns-by-flock.md`.
//!
//! A turn is an optimisation: the write lock that counts is SQLite's, taken
//! after it. The kernel gives a turn back when its process ends.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::prepare::lock_file;
use crate::error::StoreError;

/// How often a waiting writer looks whether its work is still wanted.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The place in the line for one file.
#[derive(Debug)]
pub(super) struct Turns {
    path: PathBuf,
    file: File,
    /// A thread that waits in the kernel. It outlives a turn that is no longer
    /// wanted, and what it is then given serves the next.
    waiting: Option<JoinHandle<std::io::Result<File>>>,
    taken: Option<File>,
}

impl Turns {
    pub(super) fn at(path: PathBuf) -> Result<Self, StoreError> {
        Ok(Self {
            file: lock_file(&path)?,
            path,
            waiting: None,
            taken: None,
        })
    }

    /// Takes the turn, for as long as `wanted` says so; false when given up.
    pub(super) async fn take(&mut self, wanted: impl Fn() -> bool) -> Result<bool, StoreError> {
        if self.waiting.is_none() {
            match self.file.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.failed(error)),
            }
            let path = self.path.clone();
            self.waiting = Some(tokio::task::spawn_blocking(move || {
                // A file of its own: dropping it, wherever, gives the turn back.
                let file = File::options().write(true).open(path)?;
                file.lock()?;
                Ok(file)
            }));
        }
        while let Some(waiting) = &mut self.waiting {
            match tokio::time::timeout(LOOK_AGAIN, waiting).await {
                Ok(taken) => {
                    self.waiting = None;
                    let taken = taken.map_err(std::io::Error::other).and_then(|taken| taken);
                    self.taken = Some(taken.map_err(|error| self.failed(error))?);
                }
                Err(_) if !wanted() => return Ok(false),
                Err(_) => {}
            }
        }
        Ok(true)
    }

    /// Gives the turn back. Without one this does nothing.
    pub(super) fn give_back(&mut self) {
        if self.taken.take().is_none()
            && let Err(error) = self.file.unlock()
        {
            tracing::warn!(%error, "the database's turn could not be given back");
        }
    }

    fn failed(&self, source: std::io::Error) -> StoreError {
        StoreError::File {
            path: self.path.clone(),
            doing: "its lock could not be taken",
            source,
        }
    }
}
