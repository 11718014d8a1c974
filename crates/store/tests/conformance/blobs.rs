//! Content beside the jobs, and its collection against everything that may cross it.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::id::{IdSource as _, Tenant};
use fencepost_store::blobs::{BlobError, Blobs};
use fencepost_store::*;
use futures_util::{Stream, StreamExt as _, stream};

use super::world::*;

const DAY: Duration = Duration::from_hours(24);

const ALMOST_A_DAY: Duration = Duration::from_secs(24 * 3_600 - 1);

/// The world's own clock stands ahead of the file system's: to it every file is
/// old, unless as old as this.
const NEVER: Duration = Duration::from_hours(24 * 20_000);

struct Place {
    world: World,
    blobs: Blobs,
    directory: std::path::PathBuf,
    ids: CountingIds,
}

fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn chunks(chunks: Vec<&'static [u8]>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::iter(
        chunks
            .into_iter()
            .map(|chunk| Ok(Bytes::from_static(chunk))),
    )
}

impl Place {
    async fn new() -> Self {
        let world = World::new().await;
        let directory = world.path.with_file_name("blobs");
        Self {
            blobs: Blobs::local(&directory).unwrap(),
            ids: CountingIds::default(),
            directory,
            world,
        }
    }

    async fn put(
        &self,
        tenant: &Tenant,
        content: Vec<&'static [u8]>,
    ) -> Result<BlobHash, BlobError> {
        let unique = self.ids.uuid();
        let put = self
            .blobs
            .put(&self.world.store, unique, tenant, chunks(content));
        put.await.map(|(hash, _)| hash)
    }

    async fn get(&self, tenant: &Tenant, hash: &BlobHash) -> Result<Bytes, BlobError> {
        match self.world.store.blob(tenant, hash).await.unwrap() {
            Some(place) => self.blobs.get(&place).await,
            None => Err(BlobError::Missing(*hash)),
        }
    }

    async fn collect(&self) -> Vec<BlobPlace> {
        let collect = CollectBlobs {
            unused_for: DAY,
            limit: 100,
        };
        self.world.store.collect_blobs(collect).await.unwrap()
    }

    fn objects(&self) -> usize {
        fn files(directory: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(directory).unwrap().flatten();
            let count = entries.map(|entry| {
                if entry.file_type().unwrap().is_dir() {
                    files(&entry.path())
                } else {
                    1
                }
            });
            count.sum()
        }
        files(&self.directory)
    }
}

fn referring(key: &str, hash: BlobHash) -> Submit {
    Submit {
        blobs: vec![hash],
        ..submission(key)
    }
}

#[tokio::test]
async fn content_is_addressed_by_its_hash_under_its_tenant() {
    let place = Place::new().await;
    let (a, b) = (Tenant::new("../a").unwrap(), Tenant::new("b").unwrap());
    let hash = place.put(&a, vec![b"he", b"llo"]).await.unwrap();
    assert_eq!(
        hash.to_string(),
        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!(&place.get(&a, &hash).await.unwrap()[..], b"hello");
    assert!(matches!(
        place.get(&b, &hash).await,
        Err(BlobError::Missing(_))
    ));
    assert_eq!(place.put(&a, vec![b"hello"]).await.unwrap(), hash);
    assert_eq!(place.objects(), 1);
}

#[tokio::test]
async fn a_stream_that_is_too_long_or_breaks_off_stores_nothing() {
    static MEBIBYTE: [u8; 1 << 20] = [7; 1 << 20];
    let place = Place::new().await;
    let long = place.put(&tenant(), vec![&MEBIBYTE; 17]).await;
    assert!(matches!(long, Err(BlobError::TooLarge)));
    let broken = chunks(vec![b"x"]).chain(stream::iter([Err(std::io::Error::other("gone"))]));
    let unique = place.ids.uuid();
    let tenant = tenant();
    let put = place.blobs.put(&place.world.store, unique, &tenant, broken);
    assert!(matches!(put.await, Err(BlobError::Upload(_))));
    assert_eq!(place.objects(), 0);
}

#[tokio::test]
async fn damaged_content_is_not_handed_out() {
    let place = Place::new().await;
    let hash = place.put(&tenant(), vec![b"hello"]).await.unwrap();
    let found = place.world.store.blob(&tenant(), &hash).await.unwrap();
    let file = place.directory.join(found.unwrap().object.unwrap());
    std::fs::write(file, b"hallo").unwrap();
    assert!(matches!(
        place.get(&tenant(), &hash).await,
        Err(BlobError::Damaged(_))
    ));
}

#[tokio::test]
async fn two_uploads_of_one_content_keep_one_object() {
    let place = Place::new().await;
    let tenant = tenant();
    let (one, other) = tokio::join!(
        place.put(&tenant, vec![b"same"]),
        place.put(&tenant, vec![b"same"])
    );
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(place.objects(), 1);
}

#[tokio::test]
async fn only_what_nobody_refers_to_is_collected_after_its_time() {
    let place = Place::new().await;
    let used = place.put(&tenant(), vec![b"used"]).await.unwrap();
    let unused = place.put(&tenant(), vec![b"unused"]).await.unwrap();
    place.world.submitted(referring("k", used)).await;
    place.world.clock.turn(ALMOST_A_DAY);
    assert_eq!(place.collect().await, []);
    place.world.clock.turn(Duration::from_secs(1));
    let collected = place.collect().await;
    assert_eq!(collected.len(), 1);
    assert_eq!(collected[0].hash, unused);
    place.blobs.delete(&collected).await;
    assert_eq!(place.objects(), 1);
    assert!(place.get(&tenant(), &used).await.is_ok());
}

#[tokio::test]
async fn the_blobs_of_a_removed_job_go_after_it() {
    let place = Place::new().await;
    let world = &place.world;
    let hash = place.put(&tenant(), vec![b"used"]).await.unwrap();
    let job = world.submitted(referring("k", hash)).await.id;
    let claim = world.claimed(job).await.claim;
    let report = world.store.complete(complete(claim)).await.unwrap();
    assert!(matches!(report, Report::Recorded { .. }));
    world.clock.turn(DAY);
    assert_eq!(place.collect().await, []);
    let prune = Prune {
        finished_for: DAY,
        keep_keys: DAY,
        limit: 10,
    };
    assert_eq!(world.store.prune(prune).await.unwrap().jobs, 1);
    assert_eq!(place.collect().await.len(), 1);
    world.verify().await;
}

/// Put again at the last moment: the record wins its turn before the collection.
#[tokio::test]
async fn an_upload_before_the_collection_keeps_the_blob() {
    let place = Place::new().await;
    let hash = place.put(&tenant(), vec![b"hello"]).await.unwrap();
    place.world.clock.turn(DAY);
    assert_eq!(place.put(&tenant(), vec![b"hello"]).await.unwrap(), hash);
    assert_eq!(place.collect().await, []);
    place.world.submitted(referring("k", hash)).await;
    assert!(place.get(&tenant(), &hash).await.is_ok());
}

/// The collector forgets the blob, stalls, and deletes its content long after the
/// same content was put again.
#[tokio::test]
async fn an_upload_between_the_collection_and_its_deletion_is_not_lost() {
    let place = Place::new().await;
    let hash = place.put(&tenant(), vec![b"hello"]).await.unwrap();
    place.world.clock.turn(DAY);
    let collected = place.collect().await;
    // A submission in between is told to put it first.
    assert_eq!(
        place
            .world
            .store
            .submit(referring("k", hash))
            .await
            .unwrap(),
        Submitted::BlobMissing(hash)
    );
    assert_eq!(place.put(&tenant(), vec![b"hello"]).await.unwrap(), hash);
    place.world.submitted(referring("k", hash)).await;
    place.blobs.delete(&collected).await;
    assert_eq!(&place.get(&tenant(), &hash).await.unwrap()[..], b"hello");
    assert_eq!(place.objects(), 1);
}

#[tokio::test]
async fn uploads_that_broke_off_are_swept_and_nothing_else_is() {
    let place = Place::new().await;
    let store = &place.world.store;
    let hash = place.put(&tenant(), vec![b"kept"]).await.unwrap();
    let kept = store.blob(&tenant(), &hash).await.unwrap().unwrap();
    let kept = place.directory.join(kept.object.unwrap());
    // As a crash between the object and its record leaves it.
    let lost = kept.with_file_name("00-018f0d5e7a317c3a9a390242ac120002");
    std::fs::write(&lost, b"lost").unwrap();
    // Stored before objects had names of their own.
    let unnamed = kept.with_file_name("00");
    std::fs::write(&unnamed, b"old").unwrap();
    assert_eq!(place.blobs.sweep(store, NEVER).await.unwrap(), 0);
    assert_eq!(place.blobs.sweep(store, DAY).await.unwrap(), 1);
    assert!(kept.exists() && unnamed.exists() && !lost.exists());
}
