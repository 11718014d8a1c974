//! Wake-ups: who waits for a commit is told at once, in every process.
//!
//! In a process by a watch channel. Across processes by a wake file beside the
//! database: a writer touches it after a commit that others wait for, and every
//! process watches it. A slow poll stands behind both, since a notification is
//! a hint that may be lost.

use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use notify::Watcher as _;
use tokio::sync::watch;

use crate::error::StoreError;

/// Notifications beyond this many are dropped: one pending already says "look".
const PENDING_MAX: usize = 1;

/// The watching side, owned by the store.
#[derive(Debug)]
pub(crate) struct Wake {
    bell: Bell,
    /// Its end tells the thread to end.
    _alive: SyncSender<()>,
    _watcher: Option<notify::RecommendedWatcher>,
}

/// The ringing side, owned by the writer.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    changes: watch::Sender<u64>,
    file: Arc<File>,
}

impl Bell {
    /// Tells everyone who waits, here and in other processes.
    pub(crate) fn ring(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
        // A lost touch costs a poll period; the poll stands behind it.
        if let Err(error) = self.file.write_at(b".", 0) {
            tracing::debug!(%error, "the wake file could not be touched");
        }
    }
}

impl Wake {
    /// Watches the wake file of a database.
    pub(crate) fn start(database: &Path, poll: Duration) -> Result<Self, StoreError> {
        let mut name = database.as_os_str().to_owned();
        name.push(".wake");
        let path = std::path::PathBuf::from(name);
        let failed = |doing| {
            let path = path.clone();
            move |source| StoreError::File {
                path,
                doing,
                source,
            }
        };
        let file = FileOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed("opening the wake file"))?;
        let (changes, _) = watch::channel(0_u64);
        let (alive, touched) = sync_channel::<()>(PENDING_MAX);
        let on_event = {
            let alive = alive.clone();
            move |_| {
                // Full means that a look is pending already, closed that nobody looks.
                match alive.try_send(()) {
                    Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
                }
            }
        };
        let watcher = notify::recommended_watcher(on_event)
            .and_then(|mut watcher| {
                watcher.watch(&path, notify::RecursiveMode::NonRecursive)?;
                Ok(watcher)
            })
            .inspect_err(|error| {
                tracing::warn!(%error, ?poll, "no file notifications here; polling instead");
            })
            .ok();
        let ringer = changes.clone();
        std::thread::Builder::new()
            .name("fencepost-wake".to_owned())
            .spawn(move || {
                loop {
                    match touched.recv_timeout(poll) {
                        Ok(()) | Err(RecvTimeoutError::Timeout) => {
                            ringer.send_modify(|count| *count = count.wrapping_add(1));
                        }
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })
            .map_err(failed("starting the wake thread"))?;
        let bell = Bell {
            changes,
            file: Arc::new(file),
        };
        Ok(Self {
            bell,
            _alive: alive,
            _watcher: watcher,
        })
    }

    pub(crate) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.bell.changes.subscribe()
    }
}
