//! The API over HTTP: the real server on a port, the real store in a file.
//!
//! One binary, so that it is linked once; one module per concern.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "this file is a test; a failed expectation is a failed test"
)]

mod acting;
mod faults;
mod harness;
mod identity;
mod limits;
mod queues;
mod reading;
mod reference;
mod resolving;
mod submitting;
