//! Databases, brokers, proxies and waiting for Fencepost's tests.
//!
//! A dev-dependency only; nothing that runs in production knows it. Owns the
//! life of what a test starts: every process, virtual host and port here is
//! gone when its value is dropped. What a test needs and cannot have is a
//! failure that says how to get it, never a silent skip.

pub mod broker;
pub mod proxy;
pub mod wait;
