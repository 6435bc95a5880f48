//! Common interface to a transaction of each driver. Tests: `tests/accept_in.rs`, `tests/accept_in_tokio.rs`.

use std::future::Future;
use std::sync::Arc;

use oncebox_core::Result;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::error::{TxPhase, store_error, unreadable};
use crate::session::query;

/// A value of a statement.
#[derive(Debug)]
pub(crate) enum SqlValue {
    Int2(i16),
    Int4(i32),
    Int8(Option<i64>),
    Text(Option<String>),
    Bytea(Option<Vec<u8>>),
    Int2s(Vec<i16>),
    Int4s(Vec<i32>),
    Int8s(Vec<Option<i64>>),
    Texts(Option<Vec<Option<String>>>),
    Byteas(Vec<Option<Vec<u8>>>),
}

/// A connection with an open transaction. A failed transaction stores nothing.
pub(crate) trait TxConnection: Send {
    /// Runs a statement, and returns its rows.
    fn rows(
        &mut self,
        sql: &Arc<str>,
        values: Vec<SqlValue>,
    ) -> impl Future<Output = Result<Vec<TxRow>>> + Send;
}

/// A row of either driver.
pub(crate) enum TxRow {
    Sqlx(PgRow),
    #[cfg(feature = "tokio-postgres")]
    Tokio(tokio_postgres::Row),
}

/// A value that both drivers can read.
pub(crate) trait TxColumn: Sized {
    fn of_sqlx(row: &PgRow, column: usize) -> Result<Self>;

    #[cfg(feature = "tokio-postgres")]
    fn of_tokio(row: &tokio_postgres::Row, column: usize) -> Result<Self>;
}

macro_rules! columns {
    ($($value:ty),*) => {
        $(impl TxColumn for $value {
            fn of_sqlx(row: &PgRow, column: usize) -> Result<Self> {
                row.try_get(column).map_err(unreadable)
            }

            #[cfg(feature = "tokio-postgres")]
            fn of_tokio(row: &tokio_postgres::Row, column: usize) -> Result<Self> {
                row.try_get(column).map_err(crate::tokio_pg::store_error)
            }
        })*
    };
}

columns!(bool, i16, i32, i64, Vec<u8>, Option<bool>, Option<i64>, Option<String>, Option<Vec<u8>>);

impl TxRow {
    /// Returns a column's value.
    pub(crate) fn get<T: TxColumn>(&self, column: usize) -> Result<T> {
        match self {
            Self::Sqlx(row) => T::of_sqlx(row, column),
            #[cfg(feature = "tokio-postgres")]
            Self::Tokio(row) => T::of_tokio(row, column),
        }
    }
}

/// A connection of `sqlx`.
pub(crate) struct SqlxTx<'a> {
    pub(crate) connection: &'a mut PgConnection,
    /// True if it keeps prepared statements.
    pub(crate) persistent: bool,
}

impl TxConnection for SqlxTx<'_> {
    async fn rows(&mut self, sql: &Arc<str>, values: Vec<SqlValue>) -> Result<Vec<TxRow>> {
        let mut query = query(sql).persistent(self.persistent);
        for value in values {
            query = match value {
                SqlValue::Int2(value) => query.bind(value),
                SqlValue::Int4(value) => query.bind(value),
                SqlValue::Int8(value) => query.bind(value),
                SqlValue::Text(value) => query.bind(value),
                SqlValue::Bytea(value) => query.bind(value),
                SqlValue::Int2s(value) => query.bind(value),
                SqlValue::Int4s(value) => query.bind(value),
                SqlValue::Int8s(value) => query.bind(value),
                SqlValue::Texts(value) => query.bind(value),
                SqlValue::Byteas(value) => query.bind(value),
            };
        }
        let rows = query.fetch_all(&mut *self.connection).await;
        let rows = rows.map_err(|error| store_error(error, TxPhase::Before))?;
        Ok(rows.into_iter().map(TxRow::Sqlx).collect())
    }
}

/// A transaction of `tokio-postgres`.
#[cfg(feature = "tokio-postgres")]
pub(crate) struct TokioTx<'a, 'c>(pub(crate) &'a tokio_postgres::Transaction<'c>);

#[cfg(feature = "tokio-postgres")]
impl TxConnection for TokioTx<'_, '_> {
    async fn rows(&mut self, sql: &Arc<str>, values: Vec<SqlValue>) -> Result<Vec<TxRow>> {
        let typed: Vec<_> = values.iter().map(SqlValue::typed).collect();
        // With explicit types, the statement needs one round trip, and leaves nothing on a connection that a pooler may
        // share.
        let rows = self.0.query_typed(sql, &typed).await.map_err(crate::tokio_pg::store_error)?;
        Ok(rows.into_iter().map(TxRow::Tokio).collect())
    }
}

#[cfg(feature = "tokio-postgres")]
impl SqlValue {
    fn typed(&self) -> (&(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type) {
        use tokio_postgres::types::Type;
        match self {
            Self::Int2(value) => (value, Type::INT2),
            Self::Int4(value) => (value, Type::INT4),
            Self::Int8(value) => (value, Type::INT8),
            Self::Text(value) => (value, Type::TEXT),
            Self::Bytea(value) => (value, Type::BYTEA),
            Self::Int2s(value) => (value, Type::INT2_ARRAY),
            Self::Int4s(value) => (value, Type::INT4_ARRAY),
            Self::Int8s(value) => (value, Type::INT8_ARRAY),
            Self::Texts(value) => (value, Type::TEXT_ARRAY),
            Self::Byteas(value) => (value, Type::BYTEA_ARRAY),
        }
    }
}
