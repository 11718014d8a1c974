//! Fencepost as its users run it: processes, a real broker, real crashes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "a test that meets what it does not expect ends there"
)]

mod broker;
mod canaries;
mod cancels;
mod effects;
mod embedded;
mod faults;
mod housekeeping;
mod log;
mod outages;
mod signals;
mod steps;
mod verdicts;
mod workers;
