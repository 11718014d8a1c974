//! `document.extract`: the text of a document.
//!
//! The payload is `{"document": {"blob": "sha256:…"}}`, a blob that was put
//! before, or `{"text": "…"}`. The result is
//! `{"text": …, "pages": …, "media_type": …, "truncated": …}`.

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_store::BlobHash;
use fencepost_store::blobs::BlobError;
use serde::Serialize;

use crate::context::Context;
use crate::document::ExtractParameters;
use crate::extract::{ExtractError, Extractor};
use crate::handler::{Handler, HandlerResult, Outcome};

/// What the job's result says of a document.
#[derive(Serialize)]
struct Answer<'a> {
    text: &'a str,
    pages: u32,
    media_type: &'a str,
    truncated: bool,
}

/// Extracts the text of a document in a guarded child process.
#[derive(Debug)]
pub struct DocumentExtract(Extractor);

impl DocumentExtract {
    /// Extracts by the given guard.
    #[must_use]
    pub fn new(extractor: Extractor) -> Self {
        Self(extractor)
    }
}

#[async_trait]
impl Handler for DocumentExtract {
    async fn run(&self, context: &Context) -> HandlerResult {
        let invalid = |why: &str| Ok(Outcome::dead("invalid_payload", why));
        let document = match context.payload_as() {
            Ok(ExtractParameters::Text { text }) => Bytes::from(text),
            Ok(ExtractParameters::Document { document }) => match document.blob.parse::<BlobHash>()
            {
                Ok(hash) => match context.blob(&hash).await {
                    Ok(content) => content,
                    Err(error @ (BlobError::Missing(_) | BlobError::Damaged(_))) => {
                        return Ok(Outcome::dead("blob_unusable", error.to_string()));
                    }
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return invalid(&error.to_string()),
            },
            Err(_) => {
                return invalid(
                    "expected either {\"document\": {\"blob\": \"sha256:…\"}} or {\"text\": \"…\"}",
                );
            }
        };
        match self.0.extract(document).await {
            Ok(extracted) => Ok(Outcome::completed(&Answer {
                text: &extracted.text,
                pages: extracted.pages,
                media_type: &extracted.media_type,
                truncated: extracted.truncated,
            })?),
            Err(error @ ExtractError::Start(_)) => Err(error.into()),
            Err(error) => Ok(Outcome::dead(error.code(), error.to_string())),
        }
    }
}
