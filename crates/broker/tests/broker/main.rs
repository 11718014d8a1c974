//! The broker crate against a real RabbitMQ.
//!
//! Most tests have a virtual host of the shared node; those that kill, block
//! or configure a broker have a node of their own.

#[cfg(test)]
mod consuming;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod topology;
