//! The conformance suite of the Store contract: every verb, every fence.
//!
//! Written against the contract alone; what stands in [`world`] is all that a
//! second database has to bring.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    clippy::clone_on_ref_ptr,
    clippy::let_underscore_must_use,
    clippy::wildcard_enum_match_arm,
    clippy::match_wildcard_for_single_variants,
    reason = "a test that meets what it does not expect ends there"
)]

mod blobs;
mod control;
mod effects;
mod files;
mod log;
mod outbox;
mod random;
mod retention;
mod run;
mod submit;
mod verdicts;
mod world;
mod writer;
