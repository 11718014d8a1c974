//! Which tags are good, and settling by them.
//!
//! Keeps the two rules that the broker punishes by closing a channel with all
//! that is in hand on it: a tag is settled on the channel it came on, and once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use tokio::sync::watch;

/// What a delivery is settled by: the channel it came on, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryTag {
    /// Which of the consumer's channels; never reused by a consumer.
    pub generation: u64,
    /// The broker's number for it on that channel.
    pub tag: u64,
}

/// What became of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Settlement {
    /// It is on its way.
    Sent,
    /// Its channel has ended: the message is the broker's again, and comes again.
    Stale,
    /// It was settled before; nothing was sent.
    Repeated,
}

#[derive(Debug)]
pub(super) struct Ledger {
    live: Mutex<BTreeMap<u64, Generation>>,
    /// How many generations there have been; sent at each beginning and end.
    count: watch::Sender<u64>,
}

#[derive(Debug)]
struct Generation {
    channel: Channel,
    /// Tags in hand: as many as the prefetch at most.
    unsettled: BTreeSet<u64>,
}

/// A generation's life: it ends when this is dropped, wherever its task is.
#[derive(Debug)]
pub(super) struct Life {
    ledger: Arc<Ledger>,
    generation: u64,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            live: Mutex::new(BTreeMap::new()),
            count: watch::Sender::new(0),
        }
    }

    pub(super) fn generations(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    pub(super) fn is_live(&self, tag: DeliveryTag) -> bool {
        let live = self.live();
        let generation = live.get(&tag.generation);
        generation.is_some_and(|generation| generation.channel.status().connected())
    }

    pub(super) fn begin(self: &Arc<Self>, channel: Channel) -> Life {
        let mut generation = 0;
        // Under the lock: who sees the new count finds the generation.
        let mut live = self.live();
        self.count.send_modify(|count| {
            *count += 1;
            generation = *count;
        });
        let unsettled = BTreeSet::new();
        live.insert(generation, Generation { channel, unsettled });
        drop(live);
        Life {
            ledger: Arc::clone(self),
            generation,
        }
    }

    pub(super) fn ack(&self, tag: DeliveryTag) -> Settlement {
        self.settle(tag, |channel| {
            let ack = channel.basic_ack(tag.tag, BasicAckOptions { multiple: false });
            ack.now_or_never()
        })
    }

    pub(super) fn reject(&self, tag: DeliveryTag) -> Settlement {
        self.settle(tag, |channel| {
            let reject = channel.basic_reject(tag.tag, BasicRejectOptions { requeue: false });
            reject.now_or_never()
        })
    }

    pub(super) fn nack_requeue(&self, tag: DeliveryTag) -> Settlement {
        self.settle(tag, |channel| {
            let requeue = BasicNackOptions {
                multiple: false,
                requeue: true,
            };
            channel.basic_nack(tag.tag, requeue).now_or_never()
        })
    }

    /// Sends a settlement. The first poll of lapin's future hands the frame to
    /// the connection's thread; the rest would only wait for it to be written.
    fn settle(
        &self,
        tag: DeliveryTag,
        send: impl FnOnce(&Channel) -> Option<lapin::Result<()>>,
    ) -> Settlement {
        let mut live = self.live();
        let Some(generation) = live.get_mut(&tag.generation) else {
            return Settlement::Stale;
        };
        if !generation.unsettled.remove(&tag.tag) {
            return Settlement::Repeated;
        }
        match send(&generation.channel) {
            None | Some(Ok(())) => Settlement::Sent,
            Some(Err(_)) => Settlement::Stale,
        }
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Generation>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Life {
    /// How many deliveries are in hand.
    pub(super) fn in_hand(&self) -> usize {
        let live = self.ledger.live();
        let generation = live.get(&self.generation);
        generation.map_or(0, |generation| generation.unsettled.len())
    }

    /// Takes a delivery into hand.
    pub(super) fn take(&self, tag: u64) -> DeliveryTag {
        if let Some(generation) = self.ledger.live().get_mut(&self.generation) {
            generation.unsettled.insert(tag);
        }
        DeliveryTag {
            generation: self.generation,
            tag,
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let ended = self.ledger.live().remove(&self.generation);
        // The channel goes after the lock: it tells the broker of its end.
        drop(ended);
        // The count stays, and those who wait for it look again.
        self.ledger.count.send_modify(|_| {});
    }
}
