//! Content that is too large for a payload: addressed by its hash, under its tenant.
//!
//! Owns where the bytes lie: the data directory by default, S3 by
//! configuration. Which blobs a tenant has, and which jobs refer to them, is
//! the store's business. Content is durable before [`Blobs::put`] answers; a
//! crash before that leaves an object nobody refers to, which is swept.
//!
//! Every upload writes an object of a new name, and the record says which one
//! counts. So the deletion of a forgotten blob's content, however late it comes,
//! can only meet an object that nobody refers to: an upload of the same content
//! meanwhile has its own. Only the record decides, in the writer's transaction,
//! against submissions that refer to it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fencepost_core::id::Tenant;
use fencepost_core::limits::BLOB_BYTES_MAX;
use fencepost_core::time::{Timestamp, millis};
use futures_util::{Stream, StreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::contract::{BlobHash, BlobKnown, BlobPlace, RecordBlob, TouchBlob, hex};
use crate::error::StoreError;
use crate::store::Store;

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
    /// The store did not answer or record it.
    #[error(transparent)]
    Store(#[from] StoreError),
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

    /// Reads a stream to its end, stores it durably and records it; answers its
    /// hash and length. `unique` is used for nothing else: it makes the object's name.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] as soon as the stream exceeds [`BLOB_BYTES_MAX`].
    ///
    /// # Cancel safety
    /// A dropped upload leaves at most an object that nobody refers to.
    pub async fn put<E>(
        &self,
        store: &Store,
        unique: Uuid,
        tenant: &Tenant,
        content: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(BlobHash, u64), BlobError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let _permit = self.uploads.acquire().await;
        let bytes = read(content).await?;
        let hash = BlobHash(Sha256::digest(&bytes).into());
        let size = bytes.len() as u64;
        let touch = TouchBlob {
            tenant: tenant.clone(),
            hash,
        };
        // A record says that its content is durable.
        if store.touch_blob(touch).await? {
            return Ok((hash, size));
        }
        let object = format!("{}-{}", location(tenant, &hash), unique.as_simple());
        let path = ObjectPath::from(object.as_str());
        self.objects
            .put(&path, PutPayload::from_bytes(bytes))
            .await
            .map_err(BlobError::Storage)?;
        let record = RecordBlob {
            tenant: tenant.clone(),
            hash,
            size,
            object,
        };
        match store.record_blob(record).await? {
            BlobKnown::New => {}
            // Another upload of the same content was first; ours is one too many.
            BlobKnown::Before => self.delete_object(&path).await,
        }
        Ok((hash, size))
    }

    /// The content of a blob, its hash checked.
    ///
    /// # Errors
    /// [`BlobError::Missing`], [`BlobError::Damaged`], [`BlobError::Storage`].
    pub async fn get(&self, place: &BlobPlace) -> Result<Bytes, BlobError> {
        let hash = place.hash;
        let found = match self.objects.get(&path_of(place)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Err(BlobError::Missing(hash)),
            Err(error) => return Err(BlobError::Storage(error)),
        };
        if found.meta.size > BLOB_BYTES_MAX as u64 {
            return Err(BlobError::Damaged(hash));
        }
        let bytes = found.bytes().await.map_err(BlobError::Storage)?;
        if Sha256::digest(&bytes)[..] == hash.0 {
            Ok(bytes)
        } else {
            Err(BlobError::Damaged(hash))
        }
    }

    /// Deletes the content of blobs that the store has forgotten.
    pub async fn delete(&self, places: &[BlobPlace]) {
        for place in places {
            self.delete_object(&path_of(place)).await;
        }
    }

    /// Deletes named objects that no blob refers to and that were written at least
    /// `unused_for` ago: uploads that broke off. Answers how many.
    ///
    /// # Errors
    /// [`BlobError::Storage`], [`BlobError::Store`]; what was deleted before stays so.
    pub async fn sweep(&self, store: &Store, unused_for: Duration) -> Result<u64, BlobError> {
        let before = millis_before(store.now(), unused_for);
        let mut objects = self.objects.list(None);
        let mut page = Vec::with_capacity(SWEEP_PAGE);
        let mut deleted = 0;
        loop {
            let next = objects
                .next()
                .await
                .transpose()
                .map_err(BlobError::Storage)?;
            let ended = next.is_none();
            if let Some(object) = next
                && object.last_modified.timestamp_millis() <= before
                && is_named(&object.location)
            {
                page.push(object.location.to_string());
            }
            if page.len() == SWEEP_PAGE || (ended && !page.is_empty()) {
                let known = store.known_objects(&page).await?;
                for name in page.drain(..).filter(|name| !known.contains(name)) {
                    self.delete_object(&ObjectPath::from(name)).await;
                    deleted += 1;
                }
            }
            if ended {
                return Ok(deleted);
            }
        }
    }

    /// Deletes an object; one that stays is found again by the next sweep.
    async fn delete_object(&self, path: &ObjectPath) {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => tracing::warn!(%error, "the content of a blob could not be deleted"),
        }
    }
}

/// Objects that are looked up at once.
const SWEEP_PAGE: usize = 500;

fn millis_before(now: Timestamp, duration: Duration) -> i64 {
    now.as_millis().saturating_sub(millis(duration))
}

async fn read<E>(content: impl Stream<Item = Result<Bytes, E>>) -> Result<Bytes, BlobError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut content = std::pin::pin!(content);
    let mut bytes = BytesMut::new();
    while let Some(chunk) = content.next().await {
        let chunk = chunk.map_err(|error| BlobError::Upload(error.into()))?;
        if bytes.len() + chunk.len() > BLOB_BYTES_MAX {
            return Err(BlobError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
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

fn path_of(place: &BlobPlace) -> ObjectPath {
    match &place.object {
        Some(name) => ObjectPath::from(name.as_str()),
        None => location(&place.tenant, &place.hash),
    }
}

/// Whether an object has a name of its own: those that have not are found by
/// their hash alone, and go with their record.
fn is_named(path: &ObjectPath) -> bool {
    path.filename().is_some_and(|name| name.contains('-'))
}
