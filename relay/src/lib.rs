//! The relay: outbox to broker; beside it the reaper, redispatch and retention.
//!
//! ```text
//!   outbox ──take──► publish ──► plan: what does each answer mean? ──settle──► outbox
//!   step.rs                      plan.rs, pure                       step.rs
//!
//!   leased, expired ──► reaper.rs ──► queued, dead, cancelled, unknown
//!   published, unclaimed ──► redispatch.rs ──► to be published again
//!   ended long ago ──► retention.rs ──► gone
//! ```
//!
//! Keeps rule 1 (a broker message is a hint) and I5 (an entry is settled only
//! after a confirmed and routed publish). May crash anywhere: an entry that was
//! taken and not settled is due again after its hold, and a message that was
//! published twice is recognised by the claim.

mod counters;
mod leadership;
mod plan;
mod reaper;
mod redispatch;
mod retention;
mod step;

pub use counters::Counters;
pub use reaper::{Reaper, ReaperConfig};
pub use retention::{Retention, RetentionConfig};
pub use step::{Relay, RelayConfig, RelayState};
