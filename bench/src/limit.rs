//! Hand-written loops with the same rows, one thread, big transactions, and nothing else.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use oncebox::{Fingerprint, InboxName, Key, Message};
use oncebox_sqlite::rusqlite::{Connection, TransactionBehavior, params};

use crate::{payload, rate};

/// Rows per transaction.
const BATCH: usize = 500;

/// A file with hand-written tables: the same columns and settings as the store's.
pub(crate) struct HandWrittenFile {
    connection: Connection,
    dedupe: bool,
}

impl HandWrittenFile {
    /// Opens the file. With `dedupe` it keeps each key once, with an ordinary unique index.
    pub(crate) fn open(dir: &Path, dedupe: bool) -> Result<Self> {
        let connection = Connection::open(dir.join("limit.db"))?;
        connection.execute_batch(include_str!("../sql/limit.sql"))?;
        Ok(Self { connection, dedupe })
    }

    /// Inserts message, key and entry, 500 messages a transaction.
    pub(crate) fn insert(&mut self, count: usize) -> Result<f64> {
        let (payload, inbox) = (payload(), InboxName::new("bench")?);
        let start = Instant::now();
        for first in (0..count).step_by(BATCH) {
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut proof = tx.prepare_cached("INSERT INTO proof VALUES (?1, ?2)")?;
                let mut message =
                    tx.prepare_cached("INSERT INTO message VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
                let mut entry = tx.prepare_cached("INSERT INTO entry VALUES (1, ?1, ?2, 0, 0, 0, 0)")?;
                for number in first..count.min(first + BATCH) {
                    let seq = i64::try_from(number)?;
                    let id = format!("0192f7a0-0000-7000-8000-{number:012}");
                    let key = Key::new(&inbox, "bench", [b"id".as_slice(), id.as_bytes()]);
                    let print = Fingerprint::of(&Message::new(id.clone(), "bench", payload.clone()));
                    let (key, print) = (&key.as_bytes()[..], &print.as_bytes()[..]);
                    let now = 1_800_000_000_000_i64 + seq;
                    if self.dedupe {
                        proof.execute(params![key, seq])?;
                    }
                    message.execute(params![
                        seq,
                        key,
                        print,
                        now,
                        "bench",
                        id.as_bytes(),
                        "bench",
                        payload.as_bytes()
                    ])?;
                    entry.execute(params![now, seq])?;
                }
            }
            tx.commit()?;
        }
        Ok(rate(count, start))
    }

    /// Claims 500 entries with their messages in one transaction, deletes them in the next.
    pub(crate) fn claim_and_delete(&mut self, count: usize) -> Result<f64> {
        let start = Instant::now();
        let mut done = 0;
        while done < count {
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let claimed: Vec<(i64, i64, Vec<u8>)> = {
                let mut claim = tx.prepare_cached(
                    "SELECT e.due, e.seq, m.payload FROM entry e JOIN message m ON m.seq = e.seq \
                     WHERE e.handler = 1 AND e.lease = 0 ORDER BY e.due, e.seq LIMIT 500",
                )?;
                let rows = claim.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
                rows.collect::<oncebox_sqlite::rusqlite::Result<_>>()?
            };
            {
                let mut lease = tx.prepare_cached(
                    "UPDATE entry SET lease = ?3 WHERE handler = 1 AND due = ?1 AND seq = ?2",
                )?;
                for (due, seq, _) in &claimed {
                    lease.execute(params![due, seq, 1_900_000_000_000_i64])?;
                }
            }
            tx.commit()?;
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut delete =
                    tx.prepare_cached("DELETE FROM entry WHERE handler = 1 AND due = ?1 AND seq = ?2")?;
                for (due, seq, _) in &claimed {
                    delete.execute(params![due, seq])?;
                }
            }
            tx.commit()?;
            done += claimed.len();
        }
        Ok(rate(count, start))
    }
}
