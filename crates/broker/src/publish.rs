//! What is published, and what the broker's answers mean.
//!
//! Keeps invariant I5: an entry is settled only after a confirmed *and* routed
//! publish. [`PublishOutcome::Confirmed`] is the only success, and [`settle`]
//! the only place that makes one; everything else leaves the entry pending.
//!
//! A broker answers an unroutable message twice: it hands the message back
//! and then confirms it. lapin pairs the two by their order of arrival: the
//! next confirm, whichever message it is for, carries the waiting return. With
//! many messages in flight that is often the wrong one, so [`settle`] looks at
//! all answers of a window together and goes by the id inside the return.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_core::id::QueueName;
use tokio::sync::watch;

use crate::error::BrokerError;
use crate::state::BrokerState;
use crate::topology::QueueDepth;

/// A dispatch on its way to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The caller's word for it, unique within a batch; also the message id.
    pub token: u64,
    /// The queue it goes to.
    pub queue: QueueName,
    /// The encoded envelope.
    pub body: Bytes,
}

/// What became of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum PublishOutcome {
    /// The broker has it, in a queue. The only success.
    Confirmed,
    /// The broker handed it back: no queue is bound.
    Returned {
        /// The broker's words.
        reason: String,
    },
    /// The broker could not store it.
    Nacked,
    /// No certain answer came in time. It may be in the queue or not.
    TimedOut,
    /// The channel or connection was not there, or ended before the answer.
    /// It may be in the queue or not.
    ChannelClosed {
        /// Why.
        reason: String,
    },
    /// Its queue cannot be declared, or is being declared: it was not sent.
    RouteUnavailable {
        /// Why.
        reason: String,
    },
    /// This message is not taken, alone on its channel: too large, for one.
    /// The only outcome that is the message's own fault.
    Refused {
        /// The broker's words, or the limit that it exceeds.
        reason: String,
    },
}

/// Publishing, as the relay sees it.
///
/// 1. Every publication is answered exactly once, in any order.
/// 2. `Confirmed` is answered only for a message that the broker has taken
///    responsibility for in a queue.
/// 3. `Refused` is answered only for a message that is known to be the cause:
///    it exceeds our own limit, or it failed with no other beside it.
/// 4. An answer comes within the confirm limit after the last confirm of the
///    batch before it, however the broker behaves.
#[async_trait]
pub trait Publish: Send + Sync + std::fmt::Debug {
    /// Publishes a batch and waits for its answers.
    ///
    /// # Cancel safety
    /// Dropping the future does not call back what was sent: the messages may
    /// arrive, and nobody learns of it.
    async fn publish(&self, batch: Vec<Publication>) -> Vec<(u64, PublishOutcome)>;

    /// Asks what the broker holds of a queue; `None` when it has no such queue.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    ///
    /// # Cancel safety
    /// Safe.
    async fn depth(&self, queue: &QueueName) -> Result<Option<QueueDepth>, BrokerError>;

    /// How it stands, and every change of it: publishing makes sense again
    /// when it turns [`BrokerState::Ready`].
    fn state(&self) -> watch::Receiver<BrokerState>;
}

/// What lapin's future of one publication ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Acked(Option<Return>),
    Nacked(Option<Return>),
    /// The channel was not in confirm mode: looks like success, and is none.
    NotRequested,
    TimedOut,
    Failed {
        reason: String,
        about_the_message: bool,
    },
}

/// A message that was handed back, perhaps with another message's confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Return {
    /// Whose it is, if its id could be read.
    pub(crate) token: Option<u64>,
    pub(crate) reason: String,
}

/// Decides what became of the messages of one window, all that were in flight
/// on a channel at one time.
///
/// The answers must be complete: a return that has come in with any confirm
/// of the window is among them.
pub(crate) fn settle(window: Vec<(u64, Answer)>) -> Vec<(u64, PublishOutcome)> {
    let alone = window.len() == 1;
    let mut returned: HashMap<u64, String> = HashMap::new();
    let mut stray = None;
    for (_, answer) in &window {
        if let Answer::Acked(Some(back)) | Answer::Nacked(Some(back)) = answer {
            match back.token {
                Some(token) => drop(returned.insert(token, back.reason.clone())),
                None => stray = Some(back.reason.clone()),
            }
        }
    }
    // Every return waits for one confirm. When all confirms are in, so are all
    // returns; while some are missing, a confirm that carries another's
    // return may have left its own behind.
    let complete = window
        .iter()
        .all(|(_, answer)| matches!(answer, Answer::Acked(_) | Answer::Nacked(_)));
    let outcome = |token: u64, answer: Answer| {
        if let Some(reason) = returned.get(&token).or(stray.as_ref()) {
            let reason = reason.clone();
            return PublishOutcome::Returned { reason };
        }
        match answer {
            Answer::Acked(None) => PublishOutcome::Confirmed,
            Answer::Acked(Some(_)) if complete => PublishOutcome::Confirmed,
            Answer::Nacked(_) => PublishOutcome::Nacked,
            Answer::Acked(Some(_)) | Answer::TimedOut => PublishOutcome::TimedOut,
            Answer::NotRequested => PublishOutcome::ChannelClosed {
                reason: "the channel was not in confirm mode".to_owned(),
            },
            Answer::Failed {
                reason,
                about_the_message: true,
            } if alone => PublishOutcome::Refused { reason },
            Answer::Failed { reason, .. } => PublishOutcome::ChannelClosed { reason },
        }
    };
    window
        .into_iter()
        .map(|(token, answer)| (token, outcome(token, answer)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(token: u64) -> Return {
        Return {
            token: Some(token),
            reason: "NO_ROUTE".into(),
        }
    }

    fn closed(about_the_message: bool) -> Answer {
        Answer::Failed {
            reason: "closed".into(),
            about_the_message,
        }
    }

    fn settled(answers: Vec<Answer>) -> Vec<PublishOutcome> {
        let window = (1..).zip(answers).collect();
        settle(window)
            .into_iter()
            .map(|(_, outcome)| outcome)
            .collect()
    }

    fn is_returned(outcome: &PublishOutcome) -> bool {
        matches!(outcome, PublishOutcome::Returned { .. })
    }

    #[test]
    fn only_an_ack_with_nothing_returned_confirms() {
        let not_confirmed = [
            Answer::Acked(Some(back(1))),
            Answer::Nacked(None),
            Answer::Nacked(Some(back(1))),
            Answer::NotRequested,
            Answer::TimedOut,
            closed(false),
            closed(true),
        ];
        for answer in not_confirmed {
            let outcomes = settled(vec![answer.clone()]);
            assert_ne!(outcomes, [PublishOutcome::Confirmed], "{answer:?}");
        }
        let outcomes = settled(vec![Answer::Acked(None)]);
        assert_eq!(outcomes, [PublishOutcome::Confirmed]);
    }

    #[test]
    fn a_return_counts_for_its_own_message_whichever_confirm_carried_it() {
        let outcomes = settled(vec![
            Answer::Acked(Some(back(3))),
            Answer::Acked(None),
            Answer::Acked(None),
        ]);
        assert_eq!(
            outcomes[..2],
            [PublishOutcome::Confirmed, PublishOutcome::Confirmed]
        );
        assert!(is_returned(&outcomes[2]), "{outcomes:?}");
    }

    #[test]
    fn a_confirm_with_anothers_return_proves_nothing_while_answers_are_missing() {
        for missing in [Answer::TimedOut, closed(false), Answer::NotRequested] {
            let outcomes = settled(vec![
                missing,
                Answer::Acked(Some(back(1))),
                Answer::Acked(None),
            ]);
            assert!(is_returned(&outcomes[0]), "{outcomes:?}");
            assert_eq!(outcomes[1], PublishOutcome::TimedOut);
            assert_eq!(outcomes[2], PublishOutcome::Confirmed);
        }
    }

    #[test]
    fn a_return_that_cannot_be_read_spoils_the_whole_window() {
        let unread = Return {
            token: None,
            reason: "NO_ROUTE".into(),
        };
        let outcomes = settled(vec![Answer::Acked(Some(unread)), Answer::Acked(None)]);
        assert!(outcomes.iter().all(is_returned), "{outcomes:?}");
    }

    #[test]
    fn a_message_is_refused_only_when_it_fails_alone() {
        let refused = settled(vec![closed(true)]);
        assert!(matches!(refused[..], [PublishOutcome::Refused { .. }]));
        for answers in [vec![closed(false)], vec![closed(true), closed(true)]] {
            for outcome in settled(answers) {
                assert!(matches!(outcome, PublishOutcome::ChannelClosed { .. }));
            }
        }
    }
}
