//! Runs that share one transaction of a handler, each in its own savepoint. Tests: `tests/share.rs`.

use std::future::{Future, ready};

use oncebox_core::Result;
use oncebox_core::store::{Claim, Settled, ShareIn};
use rusqlite::Connection;

use crate::Sqlite;
use crate::error::store_error;
use crate::settle::{complete, holds};
use crate::sql::SQL;
use crate::transaction::SqliteTx;

impl ShareIn<SqliteTx> for Sqlite {
    fn hold(&self, tx: &mut SqliteTx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        ready(claims.iter().map(|claim| holds(tx, claim)).collect())
    }

    fn savepoint(&self, tx: &mut SqliteTx) -> impl Future<Output = Result<()>> + Send {
        ready(begin_part(tx))
    }

    fn rollback_to_savepoint(&self, tx: &mut SqliteTx) -> impl Future<Output = Result<()>> + Send {
        ready(tx.check().and_then(|()| execute(tx, SQL.share_rollback)))
    }

    fn complete_all(
        &self,
        tx: &mut SqliteTx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        let now = self.inner.clock.now();
        ready(tx.check().and_then(|()| claims.iter().map(|claim| complete(tx, claim, now)).collect()))
    }
}

fn begin_part(tx: &mut SqliteTx) -> Result<()> {
    tx.check()?;
    if tx.in_part {
        execute(tx, SQL.share_release)?;
    }
    execute(tx, SQL.share_savepoint)?;
    tx.in_part = true;
    Ok(())
}

fn execute(connection: &Connection, sql: &'static str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(store_error)?;
    Ok(())
}
