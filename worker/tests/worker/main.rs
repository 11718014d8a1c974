//! The worker on a real store, from the database and through RabbitMQ.

mod amqp;
mod effects;
mod endings;
mod leases;
mod running;
mod setup;
mod sources;
