//! Fencepost as its users run it: processes, a real broker, real crashes.

mod broker;
mod effects;
mod embedded;
mod faults;
mod steps;
mod verdicts;
mod workers;
