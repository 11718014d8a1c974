//! One batch on its way: into the channel, and its answers back.
//!
//! Owns the channel in confirm mode for the time of the batch. Decides nothing
//! about the answers: [`settle`] does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::dispatch;
use fencepost_core::id::QueueName;
use futures_util::FutureExt;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::time::{Instant, timeout_at};

use crate::connection::{Health, Link};
use crate::error::{BrokerError, is_about_the_message, reason};
use crate::publish::{Answer, Publication, PublishOutcome, Return, settle};
use crate::topology::{JOBS_EXCHANGE, short};

/// Messages in flight at a time; later ones of a batch wait for these. Enough
/// to keep a flushing disk busy, few enough that lapin's bookkeeping, which
/// looks at all of them for a confirm of many, stays cheap.
const WINDOW_MAX: usize = 1024;

/// The header that names the envelope's version, for whoever looks at a
/// message without reading its body.
const ENVELOPE_HEADER: &str = "fencepost-envelope";

const PERSISTENT: u8 = 2;

/// One batch on its way.
pub(super) struct Flight {
    pub(super) link: Arc<Link>,
    /// The channel of the batch before, if it is still good.
    pub(super) channel: Option<Channel>,
    pub(super) limit: Duration,
}

/// What a batch leaves behind.
pub(super) struct Published {
    pub(super) channel: Option<Channel>,
    /// Queues whose way must be declared again before the next publish.
    pub(super) faulty: BTreeMap<QueueName, String>,
}

pub(super) fn channel_closed(why: &str) -> PublishOutcome {
    PublishOutcome::ChannelClosed {
        reason: why.to_owned(),
    }
}

impl Flight {
    /// Opens the channel for batches to come.
    pub(super) async fn open(mut self) -> Published {
        let deadline = Instant::now() + self.limit;
        let opened = timeout_at(deadline, self.ready_channel()).await;
        Published {
            // The next batch tries again, and says what is wrong.
            channel: opened.ok().and_then(Result::ok),
            faulty: BTreeMap::new(),
        }
    }

    /// Publishes a batch; its outcomes are added to those that are known.
    pub(super) async fn publish(
        mut self,
        batch: Vec<Publication>,
        mut outcomes: Vec<(u64, PublishOutcome)>,
    ) -> (Vec<(u64, PublishOutcome)>, Published) {
        let mut faulty = BTreeMap::new();
        let mut grounded = false;
        for window in batch.chunks(WINDOW_MAX) {
            let settled = if grounded {
                let why = "not sent: messages before it got no answer";
                window
                    .iter()
                    .map(|p| (p.token, channel_closed(why)))
                    .collect()
            } else {
                let answers = self.answers(window).await;
                settle(window.iter().map(|p| p.token).zip(answers).collect())
            };
            for (publication, (_, outcome)) in window.iter().zip(&settled) {
                match outcome {
                    PublishOutcome::Returned { reason }
                    | PublishOutcome::ChannelClosed { reason } => {
                        faulty.insert(publication.queue.clone(), reason.clone());
                    }
                    PublishOutcome::Confirmed
                    | PublishOutcome::Nacked
                    | PublishOutcome::TimedOut
                    | PublishOutcome::RouteUnavailable { .. }
                    | PublishOutcome::Refused { .. } => {}
                }
            }
            grounded = grounded || self.channel.is_none();
            outcomes.extend(settled);
        }
        let published = Published {
            channel: self.channel,
            faulty,
        };
        (outcomes, published)
    }

    /// Sends a window and collects its answers, in its order. A channel on
    /// which one was not answered is given up: a late answer must not meet
    /// later messages.
    async fn answers(&mut self, window: &[Publication]) -> Vec<Answer> {
        let deadline = Instant::now() + self.limit;
        let channel = match timeout_at(deadline, self.ready_channel()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                let failed = Answer::Failed {
                    reason: error.to_string(),
                    about_the_message: false,
                };
                return vec![failed; window.len()];
            }
            Err(_) => return vec![Answer::TimedOut; window.len()],
        };
        // The first poll of each hands its frames to lapin, in this order and
        // from this task alone, as the numbering of confirms asks for.
        let mut flights: Vec<_> = window
            .iter()
            .map(|publication| Box::pin(send(&channel, publication)))
            .collect();
        let mut answers: Vec<Option<Answer>> =
            flights.iter_mut().map(FutureExt::now_or_never).collect();
        for (flight, answer) in flights.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                *answer = timeout_at(deadline, flight).await.ok();
            }
        }
        // A flight that was given up above may have taken in another
        // message's return since: look at each once more, after the last.
        let answers: Vec<Answer> = flights
            .iter_mut()
            .zip(answers)
            .map(|(flight, answer)| answer.or_else(|| flight.now_or_never()))
            .map(|answer| answer.unwrap_or(Answer::TimedOut))
            .collect();
        let all_answered = answers
            .iter()
            .all(|answer| matches!(answer, Answer::Acked(_) | Answer::Nacked(_)));
        self.channel = all_answered.then(|| channel.clone());
        answers
    }

    /// A channel in confirm mode, once the broker takes messages.
    async fn ready_channel(&mut self) -> Result<Channel, BrokerError> {
        let mut health = self.link.health();
        // A blocked connection writes nothing, so messages would only pile up in it.
        let takes_messages = |health: &Health| *health != Health::Blocked;
        let health = health.wait_for(takes_messages).await.map(|h| h.clone());
        if let Ok(Health::Lost(reason)) = health {
            return Err(BrokerError::NotConnected(reason));
        }
        if let Some(channel) = self.channel.take().filter(|c| c.status().connected()) {
            return Ok(channel);
        }
        let channel = self.link.channel().await?;
        let confirming = channel.confirm_select(ConfirmSelectOptions::default());
        self.link
            .ask("switch on publisher confirms", confirming)
            .await?;
        Ok(channel)
    }
}

/// Publishes one message and waits for what the broker says of it.
async fn send(channel: &Channel, publication: &Publication) -> Answer {
    let mut headers = FieldTable::default();
    headers.insert(
        short(ENVELOPE_HEADER),
        AMQPValue::LongUInt(dispatch::VERSION),
    );
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type(short("application/json"))
        .with_message_id(short(&publication.token.to_string()))
        .with_headers(headers);
    let mandatory = BasicPublishOptions {
        mandatory: true,
        immediate: false,
    };
    let (exchange, key) = (short(JOBS_EXCHANGE), short(publication.queue.as_str()));
    let sent = channel.basic_publish(exchange, key, mandatory, &publication.body, properties);
    let confirmed = match sent.await {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    let back = |message: lapin::message::BasicReturnMessage| {
        let id = message.properties.message_id().as_ref();
        Return {
            token: id.and_then(|id| id.as_str().parse().ok()),
            reason: format!("{} ({})", message.reply_text, message.reply_code),
        }
    };
    match confirmed {
        Ok(Confirmation::Ack(returned)) => Answer::Acked(returned.map(back)),
        Ok(Confirmation::Nack(returned)) => Answer::Nacked(returned.map(back)),
        Ok(Confirmation::NotRequested) => Answer::NotRequested,
        Err(error) => Answer::Failed {
            reason: reason(&error),
            about_the_message: is_about_the_message(&error),
        },
    }
}
