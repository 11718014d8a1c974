//! Fencepost's side of an AMQP broker: the only crate that knows lapin.
//!
//! A broker message is a hint; the database is the truth. So this crate
//! promises little and says exactly what happened:
//!
//! | module | owns |
//! | --- | --- |
//! | [`topology`] | which exchanges and queues there are, and declaring them |
//! | [`publish`] | what is published, and which answer counts as a confirm |
//! | [`publisher`] | the relay's connection: kept up, always in confirm mode |
//! | [`consumer`] | the worker's connection: exactly one consumer per queue |
//! | [`connection`] | one connection: limits, heartbeat, its end |
//! | [`reconnect`] | how long to wait between attempts |
//! | [`state`] | what readiness and the log are told |
//! | [`url`] | where the broker is, without its password in any log |
//!
//! There is one mechanism that reconnects, and it is here: lapin's own
//! recovery is off.

pub mod connection;
pub mod consumer;
pub mod error;
pub mod publish;
pub mod publisher;
pub mod reconnect;
pub mod state;
pub mod topology;
pub mod url;

pub use connection::ConnectionOptions;
pub use consumer::{Consumer, ConsumerOptions, Deliveries, Delivery, DeliveryTag, Settlement};
pub use error::{BrokerError, Mismatch};
pub use publish::{Publication, Publish, PublishOutcome};
pub use publisher::{Publisher, PublisherOptions};
pub use state::BrokerState;
pub use topology::{QueueDepth, Topology};
pub use url::AmqpUrl;
