//! Content that is too large for a payload: addressed by its hash, under its tenant.
//!
//! Owns where the bytes lie: the data directory by default, S3 by
//! configuration. Which blobs a tenant has, and which jobs refer to them, is
//! the store's business. Content is durable before [`Blobs::put`] answers; a
//! crash before that leaves an object nobody refers to, which is collected.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fencepost_core::id::Tenant;
use fencepost_core::limits::BLOB_BYTES_MAX;
use futures_util::{Stream, StreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::contract::{BlobHash, hex};

/// Uploads held in memory at once: with [`BLOB_BYTES_MAX`] this bounds them to 128 MiB.
const UPLOADS_MAX: usize = 8;

/// A blob could not be put or got.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// It is longer than a blob may be.
    #[error("a blob has at most {BLOB_BYTES_MAX} bytes")]
    TooLarge,
    /// The sender broke off.
    #[error("the upload broke off")]
    Upload(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no such content.
    #[error("the content of blob {0} is not there")]
    Missing(BlobHash),
    /// What lies there is not what was put.
    #[error("the content of blob {0} is damaged: its hash does not match")]
    Damaged(BlobHash),
    /// The storage failed.
    #[error("blob storage failed")]
    Storage(#[source] object_store::Error),
    /// The settings of the storage are not usable.
    #[error("blob storage could not be opened")]
    Open(#[source] object_store::Error),
}

/// Where blobs lie. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
    uploads: Arc<Semaphore>,
}

impl Blobs {
    /// In a directory, made if missing. Files and folders are flushed before an answer.
    ///
    /// # Errors
    /// [`BlobError::Open`].
    pub fn local(directory: &Path) -> Result<Self, BlobError> {
        std::fs::create_dir_all(directory).map_err(|error| {
            BlobError::Open(object_store::Error::Generic {
                store: "local",
                source: Box::new(error),
            })
        })?;
        let objects = LocalFileSystem::new_with_prefix(directory).map_err(BlobError::Open)?;
        Ok(Self::on(Arc::new(objects.with_fsync(true))))
    }

    /// On S3-compatible storage.
    ///
    /// # Errors
    /// [`BlobError::Open`] when a setting is missing or malformed; nothing is connected yet.
    #[cfg(feature = "s3")]
    pub fn s3(settings: &S3Settings) -> Result<Self, BlobError> {
        let mut builder = object_store::aws::AmazonS3Builder::new()
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(&settings.access_key_id)
            .with_secret_access_key(&settings.secret_access_key)
            .with_allow_http(settings.allow_http);
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let objects = builder.build().map_err(BlobError::Open)?;
        let prefix = ObjectPath::from(settings.prefix.as_str());
        Ok(Self::on(Arc::new(object_store::prefix::PrefixStore::new(
            objects, prefix,
        ))))
    }

    fn on(objects: Arc<dyn ObjectStore>) -> Self {
        Self {
            objects,
            uploads: Arc::new(Semaphore::new(UPLOADS_MAX)),
        }
    }

    /// Reads a stream to its end and stores it durably; answers its hash and length.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] as soon as the stream exceeds [`BLOB_BYTES_MAX`].
    ///
    /// # Cancel safety
    /// A dropped upload stores nothing that is referred to.
    pub async fn put<E>(
        &self,
        tenant: &Tenant,
        content: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(BlobHash, u64), BlobError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let _permit = self.uploads.acquire().await;
        let mut content = std::pin::pin!(content);
        let mut bytes = BytesMut::new();
        while let Some(chunk) = content.next().await {
            let chunk = chunk.map_err(|error| BlobError::Upload(error.into()))?;
            if bytes.len() + chunk.len() > BLOB_BYTES_MAX {
                return Err(BlobError::TooLarge);
            }
            bytes.extend_from_slice(&chunk);
        }
        let bytes = bytes.freeze();
        let hash = BlobHash(Sha256::digest(&bytes).into());
        let size = bytes.len() as u64;
        // Always written, even if it is there: an earlier upload may have
        // crashed before its flush.
        self.objects
            .put(&location(tenant, &hash), PutPayload::from_bytes(bytes))
            .await
            .map_err(BlobError::Storage)?;
        Ok((hash, size))
    }

    /// The content of a blob, its hash checked.
    ///
    /// # Errors
    /// [`BlobError::Missing`], [`BlobError::Damaged`], [`BlobError::Storage`].
    pub async fn get(&self, tenant: &Tenant, hash: &BlobHash) -> Result<Bytes, BlobError> {
        let found = match self.objects.get(&location(tenant, hash)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Err(BlobError::Missing(*hash)),
            Err(error) => return Err(BlobError::Storage(error)),
        };
        if found.meta.size > BLOB_BYTES_MAX as u64 {
            return Err(BlobError::Damaged(*hash));
        }
        let bytes = found.bytes().await.map_err(BlobError::Storage)?;
        if Sha256::digest(&bytes)[..] == hash.0 {
            Ok(bytes)
        } else {
            Err(BlobError::Damaged(*hash))
        }
    }
}

/// How to reach S3-compatible storage.
#[cfg(feature = "s3")]
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// Before every object's name; may be empty.
    pub prefix: String,
    /// The region.
    pub region: String,
    /// Another server than Amazon's.
    pub endpoint: Option<String>,
    /// The public half of the credential.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: String,
    /// Speak plain HTTP to the endpoint.
    pub allow_http: bool,
}

#[cfg(feature = "s3")]
impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Settings")
            .field("bucket", &self.bucket)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// Tenants are written in hexadecimal: any name is a safe one for a folder.
fn location(tenant: &Tenant, hash: &BlobHash) -> ObjectPath {
    let digest = hex(&hash.0);
    let shard = digest.get(..2).unwrap_or_default().to_owned();
    ObjectPath::from_iter([hex(tenant.as_str().as_bytes()), shard, digest])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(chunks: Vec<&'static [u8]>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
        futures_util::stream::iter(
            chunks
                .into_iter()
                .map(|chunk| Ok(Bytes::from_static(chunk))),
        )
    }

    #[tokio::test]
    async fn content_is_addressed_by_its_hash_under_its_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        let (a, b) = (Tenant::new("../a").unwrap(), Tenant::new("b").unwrap());
        let (hash, size) = blobs.put(&a, stream(vec![b"he", b"llo"])).await.unwrap();
        assert_eq!(size, 5);
        assert_eq!(
            hash.to_string(),
            "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
        assert_eq!(&blobs.get(&a, &hash).await.unwrap()[..], b"hello");
        assert!(matches!(
            blobs.get(&b, &hash).await,
            Err(BlobError::Missing(_))
        ));
        assert_eq!(blobs.put(&a, stream(vec![b"hello"])).await.unwrap().0, hash);
    }

    #[tokio::test]
    async fn a_stream_that_is_too_long_or_breaks_off_stores_nothing() {
        static MEBIBYTE: [u8; 1 << 20] = [7; 1 << 20];
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        let tenant = Tenant::new("a").unwrap();
        let long = stream(vec![&MEBIBYTE; 17]);
        assert!(matches!(
            blobs.put(&tenant, long).await,
            Err(BlobError::TooLarge)
        ));
        let broken = stream(vec![b"x"]).chain(futures_util::stream::iter([Err(
            std::io::Error::other("gone"),
        )]));
        assert!(matches!(
            blobs.put(&tenant, broken).await,
            Err(BlobError::Upload(_))
        ));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn damaged_content_is_not_handed_out() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        let tenant = Tenant::new("a").unwrap();
        let (hash, _) = blobs.put(&tenant, stream(vec![b"hello"])).await.unwrap();
        let file = directory.path().join(location(&tenant, &hash).as_ref());
        std::fs::write(file, b"hallo").unwrap();
        assert!(matches!(
            blobs.get(&tenant, &hash).await,
            Err(BlobError::Damaged(_))
        ));
    }
}
