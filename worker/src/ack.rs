//! What becomes of a dispatch, by what the store said of its job.
//!
//! One pure function holds the whole table; the loop around it only acts.

use fencepost_core::lease::ClaimRefusal;
use fencepost_core::lifecycle::State;

/// What was learned of a job that a dispatch names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The store recorded how the run ended.
    Recorded(State),
    /// The store refused the report: the claim was no longer good.
    Fenced,
    /// Lease or deadline ended here before there was anything to report.
    Expired,
    /// The claim was refused.
    Refused(ClaimRefusal),
    /// This worker has no handler for the kind.
    KindNotHere,
    /// This worker runs as many jobs of the kind as it may, and holds the next ones already.
    CapReached,
    /// The job is in hand already.
    InHand(FirstTag),
    /// The message cannot be read.
    Unreadable,
    /// The worker ends before it claimed the job.
    Ending,
    /// The database does not answer.
    OutOfReach,
}

/// How it stands with the delivery by which a job came into our hands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstTag {
    /// Its channel lives: the new one is a duplicate.
    Live,
    /// Its channel is gone: the new one is the same message, delivered again.
    Dead,
}

/// What is done with the dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Settlement {
    /// The job is done with this dispatch.
    Ack,
    /// The entry is put back first, for this reason; then the dispatch is acknowledged.
    PutBack(&'static str),
    /// To the dead-letter queue, once it is true of every job that the message names.
    Reject,
    /// Back to the broker, unclaimed.
    Requeue,
    /// The new delivery takes the place of the dead one and is settled with the result.
    Replace,
    /// Nothing yet: stop consuming and ask again.
    Hold,
}

/// The table.
#[expect(clippy::match_same_arms, reason = "one arm for each row of the table")]
pub fn settle(said: Said) -> Settlement {
    match said {
        // Recorded, terminal or unknown, or someone else's: nothing is left to do.
        Said::Recorded(_) | Said::Fenced | Said::Refused(ClaimRefusal::Ended(_)) => Settlement::Ack,
        // The lease row is the recovery signal: the reaper requeues it.
        Said::Expired | Said::Refused(ClaimRefusal::Leased { .. }) => Settlement::Ack,
        // Its entry, or the reaper, has it.
        Said::Refused(
            ClaimRefusal::NotDue | ClaimRefusal::DeadlinePassed | ClaimRefusal::AttemptsSpent,
        ) => Settlement::Ack,
        Said::Refused(ClaimRefusal::QueuePaused) => Settlement::PutBack("queue_paused"),
        Said::KindNotHere => Settlement::PutBack("kind_not_here"),
        Said::CapReached => Settlement::PutBack("cap_reached"),
        Said::InHand(FirstTag::Live) => Settlement::Ack,
        Said::InHand(FirstTag::Dead) => Settlement::Replace,
        Said::Refused(ClaimRefusal::NoSuchJob) | Said::Unreadable => Settlement::Reject,
        Said::Ending => Settlement::Requeue,
        Said::OutOfReach => Settlement::Hold,
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_recorded_outcome_is_acknowledged_whatever_it_is() {
        for state in State::ALL {
            assert_eq!(settle(Said::Recorded(state)), Settlement::Ack);
        }
    }

    #[test]
    fn a_fenced_or_ended_job_is_acknowledged() {
        assert_eq!(settle(Said::Fenced), Settlement::Ack);
        for state in [
            State::Completed,
            State::Dead,
            State::Cancelled,
            State::Unknown,
        ] {
            assert_eq!(
                settle(Said::Refused(ClaimRefusal::Ended(state))),
                Settlement::Ack
            );
        }
    }

    #[test]
    fn a_job_leased_elsewhere_is_left_to_the_reaper() {
        let until = Timestamp::from_millis(1);
        assert_eq!(
            settle(Said::Refused(ClaimRefusal::Leased { until })),
            Settlement::Ack
        );
        assert_eq!(settle(Said::Expired), Settlement::Ack);
    }

    #[test]
    fn a_job_that_cannot_run_yet_is_left_to_its_entry_or_the_reaper() {
        for refusal in [
            ClaimRefusal::NotDue,
            ClaimRefusal::DeadlinePassed,
            ClaimRefusal::AttemptsSpent,
        ] {
            assert_eq!(settle(Said::Refused(refusal)), Settlement::Ack);
        }
    }

    #[test]
    fn a_job_that_cannot_run_here_is_put_back() {
        assert_eq!(
            settle(Said::Refused(ClaimRefusal::QueuePaused)),
            Settlement::PutBack("queue_paused")
        );
        assert_eq!(
            settle(Said::KindNotHere),
            Settlement::PutBack("kind_not_here")
        );
        assert_eq!(settle(Said::CapReached), Settlement::PutBack("cap_reached"));
    }

    #[test]
    fn a_duplicate_on_a_live_channel_is_acknowledged_at_once() {
        assert_eq!(settle(Said::InHand(FirstTag::Live)), Settlement::Ack);
    }

    #[test]
    fn a_redelivery_after_a_reconnect_replaces_the_dead_tag() {
        assert_eq!(settle(Said::InHand(FirstTag::Dead)), Settlement::Replace);
    }

    #[test]
    fn what_names_no_job_or_cannot_be_read_is_rejected() {
        assert_eq!(
            settle(Said::Refused(ClaimRefusal::NoSuchJob)),
            Settlement::Reject
        );
        assert_eq!(settle(Said::Unreadable), Settlement::Reject);
    }

    #[test]
    fn a_database_out_of_reach_holds() {
        assert_eq!(settle(Said::OutOfReach), Settlement::Hold);
    }

    #[test]
    fn what_was_not_claimed_when_the_worker_ends_goes_back() {
        assert_eq!(settle(Said::Ending), Settlement::Requeue);
    }
}
