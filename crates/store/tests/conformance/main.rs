//! The conformance suite of the Store contract: every verb, every fence.
//!
//! Written against the contract alone; what stands in [`world`] is all that a
//! second database has to bring.

mod control;
mod effects;
mod files;
mod outbox;
mod random;
mod run;
mod submit;
mod world;
mod writer;
