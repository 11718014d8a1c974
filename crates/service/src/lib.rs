//! What every role of Fencepost needs around its work.
//!
//! [`settings`] reads the file, the environment and the flags, and is the only
//! place that does. [`system`] is the real clock and the real source of ids.
//! [`telemetry`] writes logs; [`shutdown`] turns signals into a request to end;
//! [`health`] says which parts are ready.

pub mod health;
pub mod settings;
pub mod shutdown;
pub mod system;
pub mod telemetry;
