//! The worker: consume, claim, run, complete, acknowledge.
//!
//! ```text
//!  Source ──► hand ──► claim ──► handler (own runtime) ──► report ──► settle
//!  source/     worker.rs          slot.rs  context.rs      slot.rs     ack.rs
//!                                   ▲
//!                        renew.rs: leases, from a thread of its own
//! ```
//!
//! Handlers that ship with it: `builtin/`, and for what an operator configures
//! `command/` (programs, under a guard) and `http/` (requests, signed). The
//! tools that read a supplier's document are in `document/`.
//!
//! Keeps rule 4, save and then acknowledge: a dispatch is settled only after
//! the store has recorded or refused what became of its job. May crash
//! anywhere: what was not acknowledged is delivered again, what was claimed is
//! taken back by the reaper.
//!
//! A worker of your own registers its handlers on [`Worker::builder`]:
//!
//! ```
//! use fencepost_worker::{Context, Handler, HandlerResult, Outcome};
//!
//! #[derive(Debug)]
//! struct Greet;
//!
//! #[async_trait::async_trait]
//! impl Handler for Greet {
//!     async fn run(&self, context: &Context) -> HandlerResult {
//!         let name: String = context.payload_as()?;
//!         Ok(Outcome::completed(&format!("hello {name}"))?)
//!     }
//! }
//! ```

pub mod ack;
pub mod builtin;
mod call;
pub mod command;
mod context;
pub mod document;
pub mod extract;
mod handler;
pub mod http;
pub mod planner;
pub mod probe;
mod renew;
mod slot;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use context::{CallError, Context, EffectCall, EffectError};
pub use handler::{Handler, HandlerError, HandlerResult, Outcome};
pub use worker::{BuildError, Builder, IN_HAND_PER_SLOT, SLOTS, SLOTS_MAX, Worker};
