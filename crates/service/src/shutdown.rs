//! Signals, turned into a request to end.
//!
//! The first SIGTERM or SIGINT asks for a graceful end; a second one ends the
//! process at once, with code 0: a stop that was asked for is no failure. Works as PID 1, which has no default handlers to rely on.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A request to end, shared by all parts of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: watch::Receiver<bool>,
}

/// The asking side, for tests and for processes that end themselves.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Trigger {
    /// Asks for the end.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Follows the process's signals.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    pub fn install() -> std::io::Result<Self> {
        let (trigger, shutdown) = Self::manual();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "it lives as long as the process and cannot fail"
        )]
        tokio::spawn(async move {
            let mut next = async || {
                tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                }
            };
            let name = next().await;
            tracing::info!(
                signal = name,
                "ending gracefully; a second signal ends at once"
            );
            trigger.pull();
            let name = next().await;
            tracing::warn!(signal = name, "ending at once");
            #[expect(clippy::disallowed_methods, reason = "the second signal means now")]
            std::process::exit(0);
        });
        Ok(shutdown)
    }

    /// A request that a test or a caller makes itself.
    #[must_use]
    pub fn manual() -> (Trigger, Self) {
        let (sender, requested) = watch::channel(false);
        (Trigger(sender), Self { requested })
    }

    /// Resolves when the end is asked for.
    ///
    /// # Cancel safety
    /// Safe: dropping it changes nothing.
    pub async fn requested(&self) {
        let mut requested = self.requested.clone();
        // A dropped trigger can ask no more: it counts as asked.
        drop(requested.wait_for(|asked| *asked).await);
    }

    /// Whether the end was asked for.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_is_told() {
        let (trigger, shutdown) = Shutdown::manual();
        let other = shutdown.clone();
        assert!(!other.is_requested());
        trigger.pull();
        other.requested().await;
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }
}
