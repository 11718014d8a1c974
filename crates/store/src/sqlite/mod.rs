//! The store on SQLite.
//!
//! WAL, one writer connection per process, a few read-only connections. Owns
//! every SQL text and every type of the database library; none of them leaves
//! this folder. Statements are set-based (see [`spread`]).

mod admin;
mod checkpoint;
mod engine;
mod error;
mod housekeeping;
mod load;
mod mount;
mod outbox;
#[cfg(test)]
mod plans;
mod prepare;
mod reader;
mod rows;
mod spread;
mod submit;
mod turn;
mod unknown;
mod write;

pub(crate) use checkpoint::{Checkpointer, log_size};
pub(crate) use engine::Engine;
pub(crate) use prepare::prepare;
pub(crate) use reader::Reader;
