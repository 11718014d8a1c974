//! The HTTP facade of Fencepost: the only crate that knows axum.
//!
//! ```text
//!   connection ──► frame ──► route ──► who asks? ──► what is asked? ──► store ──► answer
//!   server.rs      frame.rs  routes/   identity.rs   extract.rs         one verb  view.rs
//!                     │                keys.rs       submission.rs                problem.rs
//!                     └─ request id, log line, problem body of every refusal
//! ```
//!
//! Owns identity, the reading of requests and the shape of answers. Does not
//! own any rule about jobs: those are the domain's and the store's. Keeps rule
//! 8 (everything has a limit): connections, headers, bodies, waits and the time
//! for each of them are bounded here.
//!
//! May crash anywhere. What was answered 202 was committed before the answer;
//! what was not answered is found out by repeating the request under its key.
//! Every write runs in the store's writer, so a client that hangs up leaves
//! nothing open.

mod catalogue;
mod cursor;
mod extract;
mod fields;
mod frame;
pub mod identity;
mod keys;
mod problem;
mod query;
mod routes;
mod server;
mod state;
mod submission;
mod view;
mod waiters;

pub use problem::documented_codes;
pub use server::{CONNECTIONS_MAX, serve};
pub use state::{Api, ApiConfig, Readiness, StartError};
