//! Where a job's document is, and how it is read.

use bytes::Bytes;
use fencepost_store::BlobHash;
use fencepost_store::blobs::BlobError;

use super::tools::BlobRef;
use crate::context::Context;
use crate::extract::{ExtractError, Extracted, Extractor};
use crate::handler::{HandlerError, Outcome};

/// A job's document: a blob that was put before, or text in the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Blob(BlobHash),
    Text(String),
}

impl Input {
    /// From the two members of a payload, of which one must be given.
    pub(crate) fn new(document: Option<BlobRef>, text: Option<String>) -> Result<Self, String> {
        match (document, text) {
            (Some(reference), None) => reference
                .blob
                .parse()
                .map(Self::Blob)
                .map_err(|error: <BlobHash as std::str::FromStr>::Err| error.to_string()),
            (None, Some(text)) => Ok(Self::Text(text)),
            (Some(_), Some(_)) | (None, None) => Err("give either `document` or `text`".to_owned()),
        }
    }

    /// Its text; or, in the inner error, how the job ends without it.
    pub(crate) async fn extract(
        &self,
        context: &Context,
        extractor: &Extractor,
    ) -> Result<Result<Extracted, Outcome>, HandlerError> {
        let content = match self {
            Self::Text(text) => Bytes::from(text.clone()),
            Self::Blob(hash) => match context.blob(hash).await {
                Ok(content) => content,
                Err(error @ (BlobError::Missing(_) | BlobError::Damaged(_))) => {
                    return Ok(Err(Outcome::dead("blob_unusable", error.to_string())));
                }
                Err(error) => return Err(error.into()),
            },
        };
        match extractor.extract(content).await {
            Ok(extracted) => Ok(Ok(extracted)),
            Err(error @ ExtractError::Start(_)) => Err(error.into()),
            Err(error) => Ok(Err(Outcome::dead(error.code(), error.to_string()))),
        }
    }
}
