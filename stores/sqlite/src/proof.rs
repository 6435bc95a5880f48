//! The proof: a log-structured index of known keys. Tests: `proof/tests.rs`, `tests/proof.rs`.
//!
//! Digests are random, so an ordinary unique index writes one page per message. Here the newest digests are only in
//! memory. The append-only message table is their log: the store reads them from it at start, or after another process
//! wrote. From time to time the store merges them into `oncebox_proof`, slice by slice in digest order, so that many of
//! them share each written page. See docs/adr/0005.

use std::collections::HashMap;

use oncebox_core::{Key, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::store_error;
use crate::sql::SQL;
use crate::writer::Counters;

/// Slices of the digest space, by the first byte.
const SLICES: usize = 256;

/// Growth of the tail before a merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Minimum messages per pass. A pass takes a third of the merged keys if that is more, so that each written page
    /// gets several digests.
    least: i64,
    /// Maximum messages per pass. On average half of them are unmerged, and each takes about 60 bytes of memory.
    max: i64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { least: 32_768, max: 655_360 }
    }
}

/// The unmerged digests, as this process knows them.
pub(crate) struct Tail {
    pace: Pace,
    slices: Vec<HashMap<[u8; 32], i64>>,
    len: i64,
    /// All messages up to this number were read.
    seen: i64,
    /// All messages up to this number are known to be merged.
    merged: i64,
    /// Keys added by the open transaction.
    added: HashMap<[u8; 32], i64>,
    /// Slices merged by the open transaction, with the last merged number of each.
    drained: Vec<(usize, i64)>,
    /// Merge work that accepted messages have paid for, in slices.
    credit: f64,
}

impl Tail {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            slices: vec![HashMap::new(); SLICES],
            len: 0,
            seen: 0,
            merged: 0,
            added: HashMap::new(),
            drained: Vec::new(),
            credit: 0.0,
        }
    }

    /// Reads the writes of other connections. Runs inside the write transaction, so that no write can happen in
    /// between.
    pub(crate) fn catch_up(&mut self, connection: &Connection, counters: &Counters) -> Result<()> {
        if counters.merged > self.merged {
            self.merged = counters.merged;
            for slice in &mut self.slices {
                slice.retain(|_, seq| *seq > counters.merged);
            }
            self.len = self.slices.iter().map(len).sum();
        }
        let mut statement = connection.prepare_cached(SQL.proof_tail).map_err(store_error)?;
        let mut rows = statement.query([self.seen.max(self.merged)]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let (seq, digest) = (row.get(0).map_err(store_error)?, row.get(1).map_err(store_error)?);
            self.insert(digest, seq);
            self.seen = self.seen.max(seq);
        }
        Ok(())
    }

    /// Drops the part that this or another process has merged.
    fn drop_merged(&mut self, merged: i64) {
        if merged > self.merged {
            self.merged = merged;
            for slice in &mut self.slices {
                slice.retain(|_, seq| *seq > merged);
            }
            self.len = self.slices.iter().map(len).sum();
        }
    }

    fn insert(&mut self, digest: [u8; 32], seq: i64) {
        if self.slices[usize::from(digest[0])].insert(digest, seq).is_none() {
            self.len += 1;
        }
    }

    /// The sequence a key was last stored under. Its message may have been swept since.
    pub(crate) fn find(&self, connection: &Connection, key: &Key) -> Result<Option<i64>> {
        let digest = key.as_bytes();
        let known = self.added.get(digest).or_else(|| self.slices[usize::from(digest[0])].get(digest));
        if let Some(seq) = known {
            return Ok(Some(*seq));
        }
        let mut statement = connection.prepare_cached(SQL.proof_find).map_err(store_error)?;
        statement.query_row([&digest[..]], |row| row.get(0)).optional().map_err(store_error)
    }

    /// The sequence of a key that is not merged yet, without what an open transaction added.
    pub(crate) fn recent(&self, key: &Key) -> Option<i64> {
        self.slices[usize::from(key.as_bytes()[0])].get(key.as_bytes()).copied()
    }

    /// Remembers a recent key for a transaction that may itself have stored a newer message under it.
    pub(crate) fn expect(&mut self, connection: &Connection, key: &Key, recent: i64) -> Result<()> {
        let proved = self.find(connection, key)?;
        self.insert(*key.as_bytes(), proved.map_or(recent, |proved| proved.max(recent)));
        Ok(())
    }

    /// Writes the keys that were added to the proof at once.
    pub(crate) fn prove(&mut self, connection: &Connection, counters: &mut Counters) -> Result<()> {
        let mut merge = connection.prepare_cached(SQL.proof_merge).map_err(store_error)?;
        for (digest, seq) in std::mem::take(&mut self.added) {
            let new = merge.execute(params![&digest[..], seq]).map_err(store_error)?;
            counters.proofs += i64::try_from(new).unwrap_or(0);
        }
        Ok(())
    }

    /// Adds a key. A rollback of the transaction removes it.
    pub(crate) fn add(&mut self, key: &Key, seq: i64) {
        self.added.insert(*key.as_bytes(), seq);
    }

    /// Merges in proportion to the messages of this transaction.
    pub(crate) fn merge(&mut self, connection: &Connection, counters: &mut Counters) -> Result<()> {
        let goal = (counters.proofs / 3).clamp(self.pace.least, self.pace.max);
        if counters.pass_slice == 0 {
            // Between passes that follow each other, half a pass is unmerged on average.
            if self.len < goal / 2 {
                return Ok(());
            }
            counters.pass_upto = self.seen;
        }
        // A pass lasts for `goal` messages. Each of them pays the same small part, and each slice has collected as many
        // keys as possible when it is merged.
        #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
        let step = (SLICES * self.added.len()) as f64 / goal as f64;
        self.credit += step;
        while self.credit >= 1.0 {
            self.credit -= 1.0;
            self.merge_slice(connection, counters)?;
            if counters.pass_slice == 0 {
                self.credit = 0.0;
                break;
            }
        }
        Ok(())
    }

    fn merge_slice(&mut self, connection: &Connection, counters: &mut Counters) -> Result<()> {
        let slice = usize::try_from(counters.pass_slice).unwrap_or(0);
        // Merge all known keys of the slice, also those added after the pass began: the pages are written anyway.
        let mut digests: Vec<(&[u8; 32], i64)> =
            self.slices[slice].iter().map(|(digest, seq)| (digest, *seq)).collect();
        digests.sort_unstable();
        {
            let mut merge = connection.prepare_cached(SQL.proof_merge).map_err(store_error)?;
            for (digest, seq) in &digests {
                // The key is not new if another process merged it, or if it was merged before this process opened the
                // file in the middle of a pass.
                let new = merge.execute(params![&digest[..], seq]).map_err(store_error)?;
                counters.proofs += i64::try_from(new).unwrap_or(0);
            }
        }
        if counters.swept > 0 {
            let (low, high) = bounds(slice);
            let forgotten = connection
                .prepare_cached(SQL.proof_forget)
                .and_then(|mut forget| forget.execute(params![low, high, counters.swept]))
                .map_err(store_error)?;
            counters.proofs -= i64::try_from(forgotten).unwrap_or(0);
        }
        self.drained.push((slice, self.seen));
        counters.pass_slice = i64::try_from((slice + 1) % SLICES).unwrap_or(0);
        if counters.pass_slice == 0 {
            counters.merged = counters.pass_upto;
        }
        Ok(())
    }

    /// Applies the changes of a committed transaction to memory.
    pub(crate) fn committed(&mut self, counters: &Counters) {
        for (slice, upto) in std::mem::take(&mut self.drained) {
            let before = len(&self.slices[slice]);
            self.slices[slice].retain(|_, seq| *seq > upto);
            self.len -= before - len(&self.slices[slice]);
        }
        self.drop_merged(counters.merged);
        for (digest, seq) in std::mem::take(&mut self.added) {
            self.insert(digest, seq);
        }
        // No other connection wrote since `catch_up`, so this process wrote or read every number up to this one.
        self.seen = self.seen.max(counters.seq);
    }

    /// Discards the changes of a transaction that was rolled back.
    pub(crate) fn rolled_back(&mut self) {
        self.added.clear();
        self.drained.clear();
    }
}

fn len(slice: &HashMap<[u8; 32], i64>) -> i64 {
    i64::try_from(slice.len()).unwrap_or(i64::MAX)
}

/// Returns the first digest of a slice, and the end after its last one.
fn bounds(slice: usize) -> (Vec<u8>, Vec<u8>) {
    let first = u8::try_from(slice).unwrap_or(u8::MAX);
    // One byte longer than any digest, so it sorts after all of them.
    let end = first.checked_add(1).map_or_else(|| vec![u8::MAX; 33], |next| vec![next]);
    (vec![first], end)
}

#[cfg(test)]
mod tests;
