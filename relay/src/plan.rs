//! What each answer of the broker means for an entry. Pure.
//!
//! Faults of a route (returned, nacked, timed out, closed, not declared) never
//! count against an entry and never park it: the route backs off and the entry
//! is due again. Only an entry that is refused by itself, while its route
//! confirms others or with nothing else beside it, fails; after
//! [`FAILURES_MAX`] of those it is parked.

use std::time::Duration;

use fencepost_broker::PublishOutcome;
use fencepost_core::error_text::ErrorText;
use fencepost_core::retry::Backoff;
use fencepost_store::DispatchResult;

/// Publications of one entry that may fail alone before it is parked: enough
/// to outlive a broker's setting being mended, few enough to be seen within
/// minutes.
pub(crate) const FAILURES_MAX: u32 = 5;

/// The pauses of an entry that fails alone.
pub(crate) const FAILED_PAUSE: Backoff = Backoff {
    initial: Duration::from_secs(2),
    max: Duration::from_secs(120),
};

/// What an outcome says of the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// It works.
    Good,
    /// It is at fault: back off.
    Faulty,
    /// It says nothing of the route.
    Unknown,
}

/// Decides how a dispatch ended, given how often its entry failed alone before.
pub(crate) fn settle(outcome: &PublishOutcome, failures: u32) -> (DispatchResult, Route) {
    let fault = |text: &str| {
        (
            DispatchResult::RouteFault(ErrorText::new(text)),
            Route::Faulty,
        )
    };
    match outcome {
        PublishOutcome::Confirmed => (DispatchResult::Published, Route::Good),
        PublishOutcome::Returned { reason } => fault(&format!("unroutable: {reason}")),
        PublishOutcome::Nacked => fault("nacked"),
        PublishOutcome::TimedOut => fault("no confirm in time"),
        PublishOutcome::ChannelClosed { reason } => fault(&format!("channel closed: {reason}")),
        PublishOutcome::RouteUnavailable { reason } => {
            fault(&format!("route unavailable: {reason}"))
        }
        PublishOutcome::Refused { reason } => {
            let error = ErrorText::new(&format!("refused: {reason}"));
            if failures + 1 >= FAILURES_MAX {
                return (DispatchResult::Parked(error), Route::Unknown);
            }
            let delay = FAILED_PAUSE.ceiling(failures + 1);
            (DispatchResult::Failed { error, delay }, Route::Unknown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_outcome_marks_an_entry() {
        let reason = || "x".to_owned();
        let faults = [
            PublishOutcome::Returned { reason: reason() },
            PublishOutcome::Nacked,
            PublishOutcome::TimedOut,
            PublishOutcome::ChannelClosed { reason: reason() },
            PublishOutcome::RouteUnavailable { reason: reason() },
        ];
        for outcome in faults {
            // However often: a fault of the route never parks.
            for failures in [0, 100] {
                let (result, route) = settle(&outcome, failures);
                assert!(
                    matches!(result, DispatchResult::RouteFault(_)),
                    "{outcome:?}"
                );
                assert_eq!(route, Route::Faulty);
            }
        }
        assert_eq!(
            settle(&PublishOutcome::Confirmed, 3),
            (DispatchResult::Published, Route::Good)
        );
    }

    #[test]
    fn an_entry_that_fails_alone_waits_longer_each_time_and_is_parked_at_last() {
        let refused = PublishOutcome::Refused {
            reason: "too large".to_owned(),
        };
        let mut delays = Vec::new();
        for failures in 0..FAILURES_MAX - 1 {
            let (DispatchResult::Failed { delay, .. }, Route::Unknown) = settle(&refused, failures)
            else {
                panic!("{failures}");
            };
            delays.push(delay.as_secs());
        }
        assert_eq!(delays, [2, 4, 8, 16]);
        assert!(matches!(
            settle(&refused, FAILURES_MAX - 1).0,
            DispatchResult::Parked(_)
        ));
    }
}
