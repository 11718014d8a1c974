//! The pure domain of Fencepost.
//!
//! Everything here is a value or a total function over values: no I/O, no
//! async, no clock, no randomness. The stores, the API, the relay and the
//! worker all decide with these functions and only then act.
//!
//! | module | answers |
//! | --- | --- |
//! | [`lifecycle`] | may this event move this job, and to where? |
//! | [`lease`] | why a claim was refused, why a write was fenced |
//! | [`effect`] | what is known about a call to the outside world |
//! | [`outbox`] | when is a dispatch repeated, how far, how wide is the window? |
//! | [`dispatch`] | what does a broker message say? |
//! | [`retry`] | how long until the next attempt? |
//! | [`event`] | which facts are written to the history? |
//! | [`verify`] | does a job's history obey the rules? |
//! | [`kind`] | what may be run, where, how often, for how long? |
//! | [`json`] and [`fingerprint`] | is this payload well formed; are two submissions the same? |
//! | [`id`], [`time`], [`limits`], [`error_text`] | the words the others are made of |

pub mod dispatch;
pub mod effect;
pub mod error_text;
pub mod event;
pub mod fingerprint;
pub mod id;
pub mod json;
pub mod kind;
pub mod lease;
pub mod lifecycle;
pub mod limits;
pub mod outbox;
pub mod retry;
pub mod time;
pub mod verify;
