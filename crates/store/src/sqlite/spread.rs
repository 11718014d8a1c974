//! One statement over many rows, which are bound value by value.
//!
//! A statement says `(:rows)` where its rows go: `WITH new(job, epoch) AS (:rows)
//! UPDATE … FROM new …`. Values are bound as they are; written as JSON and taken
//! apart by `json_each` each value would be printed and parsed anew for each
//! column (decision 16 of `docs/adr`). Lists of bare ids are still JSON: one value a row.

use std::sync::OnceLock;

use fencepost_core::id::JobId;
use sqlx::Arguments as _;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};

use super::error::during;
use crate::error::StoreError;

/// Rows of one execution. A batch takes the next size and leaves the rest of it
/// unbound, so that few texts are parsed and kept; what is longer than the last is
/// cut up.
const SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// A statement over rows of a number of columns. Rows that are not bound are NULL
/// in every column and must match nothing.
#[derive(Debug)]
pub(super) struct Spread {
    statement: &'static str,
    columns: usize,
    texts: [OnceLock<String>; SIZES.len()],
}

impl Spread {
    pub(super) const fn new(columns: usize, statement: &'static str) -> Self {
        Self {
            statement,
            columns,
            texts: [const { OnceLock::new() }; SIZES.len()],
        }
    }

    /// Its text for at least so many rows.
    pub(super) fn text(&'static self, rows: usize) -> &'static str {
        let place = SIZES.partition_point(|size| *size < rows);
        let place = place.min(SIZES.len() - 1);
        let (size, text) = match (SIZES.get(place), self.texts.get(place)) {
            (Some(size), Some(text)) => (*size, text),
            _ => return self.statement,
        };
        text.get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(","));
            let rows = format!("VALUES {}", vec![row.as_str(); size].join(","));
            self.statement.replacen(":rows", &rows, 1)
        })
    }

    /// Runs it over rows, each of which binds its columns in order; the rows that
    /// it changed. Nothing for no rows.
    pub(super) async fn execute<T>(
        &'static self,
        connection: &mut SqliteConnection,
        doing: &'static str,
        rows: impl IntoIterator<Item = T>,
        bind: impl Fn(&mut Cells, T),
    ) -> Result<u64, StoreError> {
        let mut changed = 0;
        for (text, arguments) in self.cut(rows, bind) {
            let done = sqlx::query_with(text, arguments)
                .execute(&mut *connection)
                .await
                .map_err(during(doing))?;
            changed += done.rows_affected();
        }
        Ok(changed)
    }

    /// Runs it over rows, as [`Spread::execute`] does, and returns what it answers.
    pub(super) async fn fetch<T>(
        &'static self,
        connection: &mut SqliteConnection,
        doing: &'static str,
        rows: impl IntoIterator<Item = T>,
        bind: impl Fn(&mut Cells, T),
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut answer = Vec::new();
        for (text, arguments) in self.cut(rows, bind) {
            let rows = sqlx::query_with(text, arguments)
                .fetch_all(&mut *connection)
                .await
                .map_err(during(doing))?;
            answer.extend(rows);
        }
        Ok(answer)
    }

    fn cut<T>(
        &'static self,
        rows: impl IntoIterator<Item = T>,
        bind: impl Fn(&mut Cells, T),
    ) -> Vec<(&'static str, SqliteArguments)> {
        let longest = SIZES.last().copied().unwrap_or(1);
        let mut rows = rows.into_iter().peekable();
        let mut parts = Vec::new();
        while rows.peek().is_some() {
            let mut cells = Cells(SqliteArguments::default());
            let mut count = 0;
            for row in rows.by_ref().take(longest) {
                bind(&mut cells, row);
                count += 1;
                // Fewer would be NULL in silence, and move every later row.
                assert_eq!(
                    cells.0.len(),
                    count * self.columns,
                    "a row has the statement's columns"
                );
            }
            parts.push((self.text(count), cells.0));
        }
        parts
    }
}

/// The values of a row, in the order of the statement's columns.
#[derive(Debug)]
pub(super) struct Cells(SqliteArguments);

impl Cells {
    pub(super) fn add<'q, T>(&mut self, value: T) -> &mut Self
    where
        T: sqlx::Encode<'q, Sqlite> + sqlx::Type<Sqlite>,
    {
        let added = self.0.add(value);
        assert!(added.is_ok(), "integers, text and bytes can be bound");
        self
    }

    pub(super) fn job(&mut self, job: JobId) -> &mut Self {
        self.add(job.0.as_bytes().as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{Connection as _, Row as _};

    static PAIRS: Spread = Spread::new(
        2,
        "WITH new(a, b) AS (:rows) SELECT a, b FROM new WHERE a IS NOT NULL",
    );

    #[tokio::test]
    async fn every_row_arrives_once_whatever_their_number() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        for count in [0, 1, 2, 3, 5, 64, 127, 128, 129, 300] {
            let rows: Vec<i64> = (0..count).collect();
            let bind = |cells: &mut Cells, row: &i64| {
                cells.add(*row).add(format!("text {row}"));
            };
            let answer = PAIRS
                .fetch(&mut connection, "reading pairs", &rows, bind)
                .await
                .unwrap();
            let seen: Vec<(i64, String)> =
                answer.iter().map(|row| (row.get(0), row.get(1))).collect();
            let sent: Vec<_> = rows
                .iter()
                .map(|row| (*row, format!("text {row}")))
                .collect();
            assert_eq!(seen, sent);
        }
    }

    #[tokio::test]
    #[should_panic(expected = "a row has the statement's columns")]
    async fn a_row_that_lacks_a_column_is_a_mistake_of_the_program() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let bind = |cells: &mut Cells, row: i64| {
            cells.add(row);
        };
        drop(
            PAIRS
                .fetch(&mut connection, "reading pairs", [1], bind)
                .await,
        );
    }
}
