//! The database library's errors, classified once.

use sqlx::error::ErrorKind;

use crate::error::{ErrorClass, StoreError};

/// SQLite's primary result codes (<https://www.sqlite.org/rescode.html>).
mod code {
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const INTERRUPT: u32 = 9;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const NOTADB: u32 = 26;
}

fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    // Extended codes carry the primary one in their low byte.
    code.parse::<u32>().ok().map(|code| code & 0xff)
}

/// Whether someone else holds the lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(code::BUSY | code::LOCKED))
}

/// Wraps an error of the library with what was being done.
pub(super) fn during(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let constraint = error
            .as_database_error()
            .is_some_and(|known| !matches!(known.kind(), ErrorKind::Other));
        let class = match primary_code(&error) {
            _ if constraint => ErrorClass::Conflict,
            // Without a code it is the connection: a pool's time limit, a closed worker.
            None
            | Some(
                code::BUSY
                | code::LOCKED
                | code::INTERRUPT
                | code::IOERR
                | code::FULL
                | code::CANTOPEN,
            ) => ErrorClass::Transient,
            Some(code::CORRUPT | code::NOTADB) => ErrorClass::Corrupt,
            Some(_) => ErrorClass::Permanent,
        };
        // SQLite's messages name tables, columns and constraints, never values.
        StoreError::Database {
            doing,
            reason: error.to_string(),
            class,
        }
    }
}
