//! The job store: its contract, its SQLite implementation, group commit.
//!
//! ```text
//!   verbs ──► writer: one queue, one transaction for all that waits
//!                │
//!                ├─ load rows            sqlite/engine.rs
//!                ├─ decide               decide/: pure, asks core::lifecycle
//!                └─ write the decisions  sqlite/engine.rs, fenced in SQL
//!   readings ──► reader: read-only connections, single short statements
//! ```
//!
//! No SQL and no type of a database library leaves this crate. A second
//! database implements the same engine and reader and passes the same
//! conformance suite; the decisions are shared.

pub mod blobs;
mod command;
mod contract;
mod decide;
mod error;
mod sqlite;
mod store;
mod wake;
mod writer;

pub use contract::*;
pub use error::{ErrorClass, StoreError};
pub use store::{BUDGET, LogSize, OpenOptions, Store};
