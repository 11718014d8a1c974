//! `document.extract`: the text of a document.
//!
//! The payload is `{"document": {"blob": "sha256:…"}}`, a blob that was put
//! before, or `{"text": "…"}`. The result is
//! `{"text": …, "pages": …, "media_type": …, "truncated": …}`.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::document::{BlobRef, Input};
use crate::extract::Extractor;
use crate::handler::{Handler, HandlerResult, Outcome};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    document: Option<BlobRef>,
    text: Option<String>,
}

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
        let Ok(payload) = context.payload_as::<Payload>() else {
            return invalid(
                "expected either {\"document\": {\"blob\": \"sha256:…\"}} or {\"text\": \"…\"}",
            );
        };
        let input = match Input::new(payload.document, payload.text) {
            Ok(input) => input,
            Err(why) => return invalid(&why),
        };
        let extracted = match input.extract(context, &self.0).await? {
            Ok(extracted) => extracted,
            Err(outcome) => return Ok(outcome),
        };
        Ok(Outcome::completed(&Answer {
            text: &extracted.text,
            pages: extracted.pages,
            media_type: &extracted.media_type,
            truncated: extracted.truncated,
        })?)
    }
}
