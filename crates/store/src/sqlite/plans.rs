//! Every set-based statement looks its rows up by an index, whatever the tables'
//! sizes: a plan that scans a table would make the cost of a batch grow with
//! the store.

use sqlx::{ConnectOptions as _, Row as _};

use super::prepare::connect_options;
use super::{housekeeping, load, outbox, submit, unknown, write};
use crate::store::OpenOptions;

#[derive(Debug)]
struct Nothing;

impl fencepost_core::time::Clock for Nothing {
    fn now(&self) -> fencepost_core::time::Timestamp {
        fencepost_core::time::Timestamp::from_millis(0)
    }
}

impl fencepost_core::id::IdSource for Nothing {
    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::nil()
    }

    fn random(&self) -> u64 {
        0
    }

    fn secret(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// For a file in a directory of its own.
pub(super) fn options(directory: &tempfile::TempDir) -> OpenOptions {
    OpenOptions {
        path: directory.path().join("fencepost.db"),
        clock: std::sync::Arc::new(Nothing),
        ids: std::sync::Arc::new(Nothing),
        allow_network_filesystem: true,
        wake_poll: std::time::Duration::from_secs(1),
    }
}

#[tokio::test]
async fn no_statement_over_many_rows_scans_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    super::prepare(&options).await.unwrap();
    let mut file = connect_options(&options.path).connect().await.unwrap();
    let mut statements = vec![
        outbox::IN_WINDOW,
        outbox::TAKE,
        outbox::TAKEN,
        unknown::UNKNOWN,
        housekeeping::ENDED,
        housekeeping::KEEP_KEYS,
        housekeeping::REMOVE[0],
        housekeeping::REMOVE[1],
        housekeeping::REMOVE[2],
        housekeeping::REMOVE[3],
        housekeeping::FORGET_KEYS,
        housekeeping::COLLECT,
        housekeeping::KNOWN_OBJECTS,
    ];
    for spread in [
        &load::LOAD,
        &load::LOAD_EFFECTS,
        &write::UPDATE_JOBS,
        &write::DELETE_ENTRIES,
        &write::PUT_BACK_ENTRIES,
        &write::PUT_BACK_EVENTS,
        &write::SETTLE_EFFECTS,
        &write::DECLINE_EFFECTS,
        &write::KEEP_EVIDENCE,
        &outbox::SETTLE,
        &outbox::SETTLE_EVENTS,
        &outbox::REDISPATCH,
        &submit::TOMBSTONES,
        &submit::MISSING_BLOBS,
        &submit::INSERT_JOBS,
        &*submit::LOOK_UP,
    ] {
        statements.extend([1, 2, 128].map(|rows| spread.text(rows)));
    }
    for statement in statements {
        let explained = format!("EXPLAIN QUERY PLAN {statement}");
        let plan = sqlx::query(sqlx::AssertSqlSafe(explained))
            .fetch_all(&mut file)
            .await
            .unwrap();
        assert!(!plan.is_empty(), "{statement}");
        for step in plan {
            let step: String = step.get("detail");
            for table in [
                "job",
                "outbox",
                "event",
                "effect",
                "blob",
                "operation_key",
                "queue",
            ] {
                let scans =
                    step == format!("SCAN {table}") || step.starts_with(&format!("SCAN {table} "));
                assert!(!scans, "`{step}` in the plan of {statement}");
            }
        }
    }
}
