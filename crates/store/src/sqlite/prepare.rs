//! Before a file is used: is it ours, is it where it can be kept safe, is its
//! schema current?
//!
//! Any number of processes may come at once. One lock file orders them, and
//! each migration re-reads the version inside its transaction, so that nothing
//! is decided before the lock is held. A crash leaves the version before or
//! after a migration, never half of one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::error::during;
use super::mount;
use crate::error::StoreError;
use crate::store::OpenOptions;

/// Marks a file as ours: "Fnce" in ASCII, in SQLite's header.
const APPLICATION_ID: i64 = 0x466e_6365;

/// The migrations, in order; a file's `user_version` counts those it has.
const MIGRATIONS: [&str; 2] = [
    include_str!("../../../../migrations/sqlite/0001_init.sql"),
    include_str!("../../../../migrations/sqlite/0002_housekeeping.sql"),
];

/// How long SQLite itself waits for a lock before the caller is asked again.
pub(super) const BUSY_SLICE: Duration = Duration::from_millis(250);

/// A database page cache of 16 MiB: the indexes of some hundred thousand jobs.
const CACHE_KIB: &str = "-16384";

pub(super) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_SLICE)
        .foreign_keys(true)
        .statement_cache_capacity(512)
        .row_buffer_size(1_024)
        .pragma("cache_size", CACHE_KIB)
        // No commit moves the log: see the checkpointer.
        .pragma("wal_autocheckpoint", "0")
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// Opens a connection that may write.
pub(super) async fn connect(path: &Path) -> Result<SqliteConnection, StoreError> {
    connect_options(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .connect()
        .await
        .map_err(during("opening the database"))
}

/// The path of a file that stands beside the database.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The lock file orders those who open the file, and those who write it.
pub(super) const LOCK_SUFFIX: &str = ".lock";

/// Opens a lock file; made if missing, never truncated.
pub(super) fn lock_file(path: &Path) -> Result<File, StoreError> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|source| StoreError::File {
            path: path.to_owned(),
            doing: "opening the lock file",
            source,
        })
}

/// Checks the place and the file, and brings the schema up to date.
pub(crate) async fn prepare(options: &OpenOptions) -> Result<(), StoreError> {
    let path = &options.path;
    let failed = |doing| {
        move |source: io::Error| StoreError::File {
            path: path.clone(),
            doing,
            source,
        }
    };
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed("its directory could not be made"))?;
    if !options.allow_network_filesystem {
        let real = directory
            .canonicalize()
            .map_err(failed("its directory could not be resolved"))?;
        // Without the table (not Linux) there is nothing to go by.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if let Some(filesystem) = mount::untrusted(&real, &mounts) {
            return Err(StoreError::NetworkFilesystem {
                path: path.clone(),
                filesystem,
            });
        }
    }
    let lock = lock_file(&beside(path, LOCK_SUFFIX))?;
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
        .await
        .map_err(io::Error::other)
        .and_then(|locked| locked)
        .map_err(failed("its lock file could not be locked"))?;
    let exists = fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let outcome = async {
        if exists {
            // Read-only first: a file that is not ours is left untouched.
            let mut file = connect_options(path)
                .read_only(true)
                .connect()
                .await
                .map_err(during("opening the database"))?;
            let version = version(&mut file, path).await;
            file.close().await.map_err(during("closing the database"))?;
            version?;
        }
        migrate(path).await
    }
    .await;
    drop(lock);
    outcome
}

/// The schema version, if the file is ours or empty.
async fn version(file: &mut SqliteConnection, path: &Path) -> Result<usize, StoreError> {
    let read = during("reading the schema version");
    let row = sqlx::query(
        "SELECT (SELECT application_id FROM pragma_application_id), \
                (SELECT user_version FROM pragma_user_version), \
                (SELECT count(*) FROM sqlite_schema)",
    )
    .fetch_one(file)
    .await
    .map_err(&read)?;
    let number = |index| row.try_get::<i64, _>(index).map_err(&read);
    let (application, found, objects) = (number(0)?, number(1)?, number(2)?);
    if application != APPLICATION_ID && (objects > 0 || found > 0) {
        return Err(StoreError::Foreign {
            path: path.to_owned(),
        });
    }
    usize::try_from(found)
        .ok()
        .filter(|version| *version <= MIGRATIONS.len())
        .ok_or_else(|| StoreError::Newer {
            path: path.to_owned(),
            found,
            known: known_version(),
        })
}

/// The newest version this build knows.
fn known_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

async fn migrate(path: &Path) -> Result<(), StoreError> {
    let mut file = connect(path).await?;
    let migrating = during("migrating the database");
    loop {
        begin(&mut file).await?;
        let version = version(&mut file, path).await?;
        let Some(migration) = MIGRATIONS.get(version) else {
            sqlx::query("ROLLBACK")
                .execute(&mut file)
                .await
                .map_err(&migrating)?;
            break;
        };
        sqlx::raw_sql(*migration)
            .execute(&mut file)
            .await
            .map_err(&migrating)?;
        let next = version + 1;
        let mark = format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {next}; COMMIT"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(mark))
            .execute(&mut file)
            .await
            .map_err(&migrating)?;
        tracing::info!(version = next, "the database schema was brought up to date");
    }
    file.close().await.map_err(during("closing the database"))
}

/// Takes the write lock, however long a foreign holder keeps it.
async fn begin(file: &mut SqliteConnection) -> Result<(), StoreError> {
    loop {
        match sqlx::query("BEGIN IMMEDIATE").execute(&mut *file).await {
            Ok(_) => return Ok(()),
            Err(error) if super::error::is_busy(&error) => {}
            Err(error) => return Err(during("locking the database")(error)),
        }
    }
}
