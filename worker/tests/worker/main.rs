//! The worker on a real store, from the database and through RabbitMQ.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets what it does not expect ends there"
)]

mod amqp;
mod caps;
mod command;
mod effects;
mod endings;
mod http;
mod leases;
mod prepare;
mod receiver;
mod running;
mod setup;
mod sources;
