//! Where dispatches come from.
//!
//! A source delivers references to jobs, and is told what became of each
//! delivery. It knows nothing of claims: whatever it delivers twice or late is
//! sorted out by the store.

mod amqp;
mod poll;

use async_trait::async_trait;
use fencepost_core::dispatch::JobRef;

pub use amqp::Amqp;
pub use poll::Poll;

use crate::ack::Settlement;

/// A delivery's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) TokenOf);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TokenOf {
    Poll(fencepost_core::id::JobId),
    Amqp(fencepost_broker::DeliveryTag),
}

/// A message, or what stands for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Its handle.
    pub token: Token,
    /// The jobs it names; empty when it cannot be read.
    pub jobs: Vec<JobRef>,
}

/// Where dispatches come from.
///
/// 1. What was delivered and not settled is delivered again, here or elsewhere, if this process dies.
/// 2. A delivery stands under its token until it is settled or its channel is lost.
#[async_trait]
pub trait Source: Send + std::fmt::Debug {
    /// The next delivery; never resolves while paused. `None` when there will be no more.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost when the future is dropped.
    async fn next(&mut self) -> Option<Delivered>;

    /// Whether a delivery can still be settled.
    fn is_live(&self, token: Token) -> bool;

    /// Settles a delivery.
    fn settle(&mut self, token: Token, how: Settlement);

    /// Stops delivering until [`Source::resume`].
    fn pause(&mut self);

    /// Delivers again.
    fn resume(&mut self);

    /// Ends; what is unsettled goes back.
    async fn close(self: Box<Self>);
}
