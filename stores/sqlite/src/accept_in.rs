//! Accept inside a transaction on any connection to the file: the caller's, or a handler's. Tests: `tests/accept_in.rs`.
//!
//! The writer of the process has the newest keys only in memory. A transaction of another connection reads them there,
//! and writes its own keys to `oncebox_proof` at once. Its later calls find them there, and a rollback removes them.
//! The writers of all processes read these keys from the message table after the commit, as they read messages of other
//! processes. The transaction takes SQLite's write lock first, which blocks all other writers until it ends. See
//! docs/adr/0030.

use std::future::{Future, ready};

use oncebox_core::store::{AcceptIn, Accepted, NewMessage};
use oncebox_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction};

use crate::Sqlite;
use crate::accept::accept;
use crate::connect::FileOpener;
use crate::error::store_error;
use crate::names::NameMap;
use crate::owner::Owner;
use crate::proof::{Pace, Tail};
use crate::sql::SQL;
use crate::transaction::SqliteTx;
use crate::writer::{CachedState, Counters, SharedState, WriteTx};

/// Keys that are not merged yet, for transactions that are not the writer's.
pub(crate) struct UnmergedKeys {
    known: SharedState,
    pace: Pace,
    /// Connection that reads committed keys. The transaction itself also sees its own uncommitted ones.
    reader: Mutex<Option<Connection>>,
}

impl UnmergedKeys {
    pub(crate) fn new(known: SharedState, pace: Pace) -> Self {
        Self { known, pace, reader: Mutex::default() }
    }

    /// Returns the keys of a batch that are stored, as a tail for the transaction. The caller has the write lock, so that no key
    /// can be added meanwhile.
    fn of(&self, opener: &FileOpener, connection: &Connection, batch: &[NewMessage]) -> Result<Tail> {
        let mut reader = self.reader.lock();
        let committed = match reader.take() {
            Some(committed) => committed,
            None => FileOpener { read_only: true, ..opener.clone() }.open()?,
        };
        let mut tail = Tail::new(self.pace);
        {
            let mut known = self.known.lock();
            let known = known.get_or_insert_with(|| CachedState::nothing(self.pace));
            known.tail.catch_up(&committed, &Counters::load(&committed).map_err(store_error)?)?;
            for new in batch {
                if let Some(recent) = known.tail.recent(&new.key) {
                    tail.expect(connection, &new.key, recent)?;
                }
            }
        }
        *reader = Some(committed);
        Ok(tail)
    }
}

impl Sqlite {
    /// Accepts on any connection. Stores the whole batch in its transaction, or nothing.
    fn accept_on(
        &self,
        connection: &Connection,
        batch: &[NewMessage],
        wake: &mut bool,
    ) -> Result<Vec<Accepted>> {
        self.check_file(connection)?;
        if connection.is_autocommit() {
            let what = "messages are accepted in a transaction, and this connection has none open; nothing was stored; begin one, best with `IMMEDIATE`";
            return Err(Error::new(ErrorKind::Refused, what));
        }
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let execute = |sql: &'static str| {
            connection
                .prepare_cached(sql)
                .and_then(|mut statement| statement.execute([]))
                .map_err(store_error)
        };
        execute(SQL.accept_begin_part)?;
        let accepted = self.accept_part(connection, batch, wake);
        if accepted.is_err() {
            // After some errors, SQLite has rolled back by itself. Then there is no savepoint to undo.
            let undone = execute(SQL.accept_undo_part);
            undone.or_else(|error| if connection.is_autocommit() { Ok(0) } else { Err(error) })?;
        }
        if !connection.is_autocommit() {
            execute(SQL.accept_end_part)?;
        }
        accepted
    }

    fn accept_part(
        &self,
        connection: &Connection,
        batch: &[NewMessage],
        wake: &mut bool,
    ) -> Result<Vec<Accepted>> {
        let inner = &self.inner;
        connection
            .prepare_cached(SQL.accept_take_lock)
            .and_then(|mut statement| statement.execute([]))
            .map_err(store_error)?;
        let mut tail = inner.recent.of(&inner.opener, connection, batch)?;
        let mut names = NameMap::load(connection)?;
        let before = Counters::load(connection).map_err(store_error)?;
        let (mut counters, mut owner) = (before, Owner::without_claims());
        let mut work = WriteTx {
            connection,
            now: inner.clock.now(),
            names: &mut names,
            tail: &mut tail,
            counters: &mut counters,
            wake,
            max_bytes: inner.opener.max_bytes,
            owner: &mut owner,
        };
        let accepted = accept(&mut work, batch)?;
        tail.prove(connection, &mut counters)?;
        if counters != before {
            counters.save(connection).map_err(store_error)?;
        }
        Ok(accepted)
    }
}

impl AcceptIn<SqliteTx> for Sqlite {
    fn accept_in(
        &self,
        tx: &mut SqliteTx,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        let mut wake = false;
        let accepted = tx.check().and_then(|()| self.accept_on(tx, batch, &mut wake));
        tx.wakes |= wake;
        ready(accepted)
    }
}

// The caller's own connection is not `Send` across an await, so the returned future is already complete. The commit
// wakes the workers of all processes within moments: each watches the file for writes of other connections.
impl AcceptIn<Connection> for Sqlite {
    fn accept_in(
        &self,
        tx: &mut Connection,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        ready(self.accept_on(tx, batch, &mut false))
    }
}

impl AcceptIn<Transaction<'_>> for Sqlite {
    fn accept_in(
        &self,
        tx: &mut Transaction<'_>,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        ready(self.accept_on(tx, batch, &mut false))
    }
}
