//! What every role of Fencepost needs around it.
//!
//! Owns the edges of a process: the system's clock and randomness, settings,
//! logging, the stop signal and health. Knows no database, broker or route.
//!
//! | module | answers |
//! | --- | --- |
//! | [`settings`] | what was asked for, by file, environment and flags |
//! | [`system`] | the time, new ids and random numbers |
//! | [`telemetry`] | where the log goes, how an error is written |
//! | [`shutdown`] | has someone asked this process to end? |
//! | [`health`] | is each part ready, and who may ask? |

pub mod system;
