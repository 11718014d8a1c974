//! How it stands between us and the broker, for readiness and for the log.
//!
//! Owns when a change is worth a line. Does not decide what the state is.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

/// A fault that goes on is said again at this pace: often enough for whoever
/// looks at the end of a log, seldom enough not to bury the rest.
const REPEAT: Duration = Duration::from_secs(30);

/// How it stands with one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerState {
    /// The first attempt is under way.
    Connecting,
    /// Connected, and every queue is as it should be.
    Ready,
    /// The broker takes no messages until it has memory or disk again.
    Blocked,
    /// A queue or exchange exists with other arguments; the text says which.
    Misconfigured(String),
    /// No connection, or a queue that cannot be used; the text says why.
    Down(String),
}

impl BrokerState {
    /// Whether work can flow.
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

impl fmt::Display for BrokerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting to the broker"),
            Self::Ready => f.write_str("ready"),
            Self::Blocked => f.write_str(
                "the broker is out of memory or disk and takes no messages until it has some again",
            ),
            Self::Misconfigured(text) | Self::Down(text) => f.write_str(text),
        }
    }
}

/// Publishes states and logs their changes.
#[derive(Debug)]
pub(crate) struct Reporter {
    role: &'static str,
    state: watch::Sender<BrokerState>,
    logged_at: Instant,
}

impl Reporter {
    pub(crate) fn new(role: &'static str) -> Self {
        Self {
            role,
            state: watch::Sender::new(BrokerState::Connecting),
            logged_at: Instant::now(),
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<BrokerState> {
        self.state.subscribe()
    }

    /// Takes over a state; a fault may be reported as often as it is met.
    pub(crate) fn set(&mut self, new: BrokerState) {
        let before = self.state.borrow().clone();
        if self.is_worth_a_line(&before, &new) {
            self.logged_at = Instant::now();
            let role = self.role;
            match &new {
                BrokerState::Connecting => debug!(role, "connecting to the broker"),
                BrokerState::Ready => info!(role, "the broker is ready"),
                BrokerState::Blocked | BrokerState::Down(_) => warn!(role, "{new}"),
                BrokerState::Misconfigured(_) => error!(role, "{new}"),
            }
        }
        if before != new {
            self.state.send_replace(new);
        }
    }

    fn is_worth_a_line(&self, before: &BrokerState, new: &BrokerState) -> bool {
        match (before, new) {
            // Which queue is wrong is news; in which words a broker is down is not.
            (BrokerState::Misconfigured(old), BrokerState::Misconfigured(new)) if old != new => {
                true
            }
            (BrokerState::Blocked, BrokerState::Blocked)
            | (BrokerState::Misconfigured(_), BrokerState::Misconfigured(_))
            | (BrokerState::Down(_), BrokerState::Down(_)) => self.logged_at.elapsed() >= REPEAT,
            (before, new) => before != new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(text: &str) -> BrokerState {
        BrokerState::Down(text.to_owned())
    }

    fn worth(reporter: &mut Reporter, new: BrokerState) -> bool {
        let before = reporter.state.borrow().clone();
        let worth = reporter.is_worth_a_line(&before, &new);
        reporter.set(new);
        worth
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_logged_and_a_repeated_fault_every_thirty_seconds() {
        let mut reporter = Reporter::new("test");
        assert!(worth(&mut reporter, down("refused")));
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(5)).await;
            assert!(!worth(&mut reporter, down("timed out")));
        }
        assert_eq!(*reporter.subscribe().borrow(), down("timed out"));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(worth(&mut reporter, down("refused")));
        assert!(worth(&mut reporter, BrokerState::Ready));
        tokio::time::advance(REPEAT * 2).await;
        assert!(!worth(&mut reporter, BrokerState::Ready));
        assert!(worth(&mut reporter, BrokerState::Misconfigured("a".into())));
        assert!(!worth(
            &mut reporter,
            BrokerState::Misconfigured("a".into())
        ));
        assert!(worth(
            &mut reporter,
            BrokerState::Misconfigured("a; b".into())
        ));
    }
}
