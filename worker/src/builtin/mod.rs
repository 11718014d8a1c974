//! The handlers that ship with Fencepost.

mod document_extract;
mod document_prepare;
mod echo;

pub use document_extract::DocumentExtract;
pub use document_prepare::DocumentPrepare;
pub use echo::Echo;
