//! The handlers that ship with Fencepost.

mod document_extract;
mod echo;

pub use document_extract::DocumentExtract;
pub use echo::Echo;
