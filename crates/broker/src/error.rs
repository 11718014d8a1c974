//! What can go wrong between us and a broker, in words for an operator.
//!
//! AMQP reply codes are read here and nowhere else.

use std::fmt;
use std::time::Duration;

use lapin::ErrorKind;

/// The broker's reply to a declaration that differs from what exists.
const PRECONDITION_FAILED: u16 = 406;
/// The broker has no such queue, exchange or virtual host.
const NOT_FOUND: u16 = 404;
/// Replies that speak of the message itself, not of its route: content too
/// large, a property the broker does not accept, a frame it cannot read.
const ABOUT_THE_MESSAGE: [u16; 3] = [311, PRECONDITION_FAILED, 501];

/// A failure at the broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// The configured URL cannot be used.
    #[error("the AMQP URL {0}")]
    InvalidUrl(&'static str),
    /// No connection could be opened.
    #[error("cannot connect to the broker at {address}: {reason}")]
    Connect {
        /// Host, port and virtual host.
        address: String,
        /// What the network or the broker said.
        reason: String,
    },
    /// The broker did not answer in time.
    #[error("cannot {doing}: the broker gave no answer within {limit:?}")]
    TimedOut {
        /// What was asked for.
        doing: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The broker refused, or the connection was lost while it was asked.
    #[error("cannot {doing}: {reason}")]
    Failed {
        /// What was asked for.
        doing: String,
        /// What the broker said.
        reason: String,
    },
    /// A queue or exchange exists, but not as we declare it.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    /// There is no connection at the moment.
    #[error("there is no connection to the broker: {0}")]
    NotConnected(String),
}

/// A queue or exchange that exists with other arguments than we declare.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} exists with {argument} {found}, expected {expected}: \
     drain and delete it, and it is declared again within seconds"
)]
pub struct Mismatch {
    /// The queue or exchange, such as `queue fencepost.jobs.mail`.
    pub what: String,
    /// The argument that differs.
    pub argument: String,
    /// The value that we declare.
    pub expected: String,
    /// The value that exists, or `unknown` when the broker's text was cut off.
    pub found: String,
}

impl BrokerError {
    pub(crate) fn failed(doing: impl fmt::Display, error: &lapin::Error) -> Self {
        Self::Failed {
            doing: doing.to_string(),
            reason: reason(error),
        }
    }

    /// The failure of declaring `what`: a [`Mismatch`] when it is one.
    pub(crate) fn declaring(what: &str, error: &lapin::Error) -> Self {
        match reply(error) {
            Some((PRECONDITION_FAILED, text)) => match Mismatch::read(what, &text) {
                Some(mismatch) => Self::Mismatch(mismatch),
                None => Self::failed(format!("declare {what}"), error),
            },
            Some(_) | None => Self::failed(format!("declare {what}"), error),
        }
    }
}

impl Mismatch {
    /// Reads RabbitMQ's text, which is at most 255 bytes and may be cut off:
    /// `… inequivalent arg 'A' for queue 'Q' in vhost 'V': received [the value]
    /// 'X' [of type 'T'] but current is [the value] 'Y' | none`.
    fn read(what: &str, text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("inequivalent arg '")?;
        let (argument, rest) = rest.split_once('\'')?;
        let (_, values) = rest.split_once("received ").unwrap_or(("", rest));
        let (expected, found) = values.split_once("but current is ").unwrap_or((values, ""));
        let value = |text: &str| {
            let text = text.trim_start_matches("the value ").trim();
            match text.strip_prefix('\'') {
                Some(quoted) => quoted.split_once('\'').map(|(value, _)| value.to_owned()),
                None => (text == "none").then(|| "not set".to_owned()),
            }
        };
        let unknown = || "unknown".to_owned();
        Some(Self {
            what: what.to_owned(),
            argument: argument.to_owned(),
            expected: value(expected).unwrap_or_else(unknown),
            found: value(found).unwrap_or_else(unknown),
        })
    }
}

/// The broker's reply code and text, when the error is a reply.
fn reply(error: &lapin::Error) -> Option<(u16, String)> {
    if let ErrorKind::ProtocolError(reply) = error.kind() {
        Some((reply.get_id(), reply.get_message().to_string()))
    } else {
        None
    }
}

/// What happened, without lapin's wrapping.
pub(crate) fn reason(error: &lapin::Error) -> String {
    if let Some((code, text)) = reply(error) {
        format!("{text} ({code})")
    } else if let ErrorKind::IOError(error) = error.kind() {
        error.to_string()
    } else {
        error.to_string()
    }
}

/// Whether the broker said that there is no such thing.
pub(crate) fn is_not_found(error: &lapin::Error) -> bool {
    matches!(reply(error), Some((NOT_FOUND, _)))
}

/// Whether the broker's reply speaks of the message that was published.
pub(crate) fn is_about_the_message(error: &lapin::Error) -> bool {
    reply(error).is_some_and(|(code, _)| ABOUT_THE_MESSAGE.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_is_read_from_the_brokers_text() {
        let read = |text: &str| Mismatch::read("queue q", text).map(|m| m.to_string());
        assert_eq!(
            read(
                "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost \
                 '/': received the value 'quorum' of type 'longstr' but current is none"
            )
            .unwrap(),
            "queue q exists with x-queue-type not set, expected quorum: drain and delete it, \
             and it is declared again within seconds"
        );
        assert_eq!(
            read(
                "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': \
                 received 'true' but current is 'false'"
            )
            .unwrap(),
            "queue q exists with durable false, expected true: drain and delete it, \
             and it is declared again within seconds"
        );
    }

    #[test]
    fn a_text_that_was_cut_off_still_names_the_argument() {
        let mismatch = Mismatch::read("queue q", "X - inequivalent arg 'type' for queue 'qqqq");
        let mismatch = mismatch.unwrap();
        assert_eq!(
            (mismatch.argument.as_str(), mismatch.found.as_str()),
            ("type", "unknown")
        );
        assert_eq!(Mismatch::read("queue q", "RESOURCE_LOCKED"), None);
    }
}
