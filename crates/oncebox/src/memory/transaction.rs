//! Transactions over marks, accepted messages and completions. A handler's own writes are never in them, because there is no database.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::accept_in::StagedAccepts;
use super::tables::{MemoryMark, MemoryTables};
use super::{Memory, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Fingerprint, Key};
use crate::name::{HandlerKey, InboxName};
use crate::state::Settlement;
use crate::store::{
    Claim, Mark, MarkIn, NewMessage, QuarantineReason, SettleIn, Settled, ShareIn, Transactional,
};
use crate::time::Timestamp;

/// Open transaction of a [`Memory`] store: its marks, accepted messages and completions become visible together. Dropping it rolls it back.
pub struct MemoryTx {
    store: Arc<Shared>,
    /// Open marks in the store, so that a concurrent mark has to wait.
    marks: Vec<(InboxName, (Key, HandlerKey))>,
    /// Results, each with the index of its mark in `marks`.
    results: Vec<(usize, Bytes)>,
    completions: Vec<Claim>,
    /// Messages for the quarantine.
    quarantined: Vec<NewMessage>,
    /// Accepted messages.
    pub(super) staged: StagedAccepts,
    savepoint: Savepoint,
}

/// Lengths at the last savepoint.
#[derive(Clone, Copy, Default)]
struct Savepoint {
    marks: usize,
    results: usize,
    completions: usize,
    quarantined: usize,
    staged: usize,
}

impl MemoryTx {
    pub(super) fn is_of(&self, store: &Memory) -> Result<()> {
        if Arc::ptr_eq(&self.store, &store.shared) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "the transaction belongs to another memory store"))
    }

    /// Removes all marks but the first `len`.
    fn unmark(&mut self, kept: usize) {
        if self.marks.len() <= kept {
            return;
        }
        let mut tables = self.store.tables.lock();
        for (inbox, mark) in self.marks.drain(kept..) {
            tables.scope(&inbox).marks.remove(&mark);
        }
    }

    /// Undoes all accepted messages but the first `kept`.
    fn unstage(&mut self, kept: usize) {
        if self.staged.len() > kept {
            self.staged.truncate(&mut self.store.tables.lock(), kept);
        }
    }

    /// Returns the index of a mark of this transaction.
    fn own(&self, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Option<usize> {
        self.marks.iter().position(|(of, (k, h))| of == inbox && k == key && h == handler)
    }

    fn result(&self, place: usize) -> Option<&Bytes> {
        self.results.iter().find(|(of, _)| *of == place).map(|(_, result)| result)
    }

    /// Adds a completion, if the claim holds. The commit checks it again.
    fn complete(&mut self, claim: &Claim) -> Settled {
        if self.completions.contains(claim) || !self.store.tables.lock().holds(claim) {
            return Settled::LeaseLost;
        }
        self.completions.push(claim.clone());
        Settled::Applied
    }

    fn apply(&mut self, tables: &mut MemoryTables, now: Timestamp) -> Result<()> {
        if let Some(lost) = self.completions.iter().find(|claim| !tables.holds(claim)) {
            let what = format!(
                "the claim of message {} for {:?} was lost before the commit",
                lost.seq, lost.handler
            );
            return Err(Error::new(ErrorKind::LeaseLost, what));
        }
        self.staged.commit(tables, now);
        for claim in self.completions.drain(..) {
            tables.settle(&Settlement::done(&claim), now);
        }
        for (place, (inbox, (key, handler))) in std::mem::take(&mut self.marks).into_iter().enumerate() {
            let scope = tables.scope(&inbox);
            scope.mark_ages.entry(handler.clone()).or_default().insert((now, key));
            let fingerprint = match scope.marks.get(&(key, handler.clone())) {
                Some(MemoryMark::Open(fingerprint) | MemoryMark::Done(fingerprint, _)) => *fingerprint,
                None => None,
            };
            scope.marks.insert((key, handler), MemoryMark::Done(fingerprint, self.result(place).cloned()));
        }
        for new in self.quarantined.drain(..) {
            tables.scope(&new.inbox).quarantine(&new, QuarantineReason::Conflict, now);
        }
        Ok(())
    }
}

impl Drop for MemoryTx {
    fn drop(&mut self) {
        self.unmark(0);
        self.unstage(0);
    }
}

impl fmt::Debug for MemoryTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTx")
            .field("marks", &self.marks.len())
            .field("completions", &self.completions.len())
            .finish_non_exhaustive()
    }
}

impl Transactional for Memory {
    type Tx = MemoryTx;

    async fn begin(&self) -> Result<MemoryTx> {
        let store = Arc::clone(&self.shared);
        Ok(MemoryTx {
            store,
            marks: Vec::new(),
            results: Vec::new(),
            completions: Vec::new(),
            quarantined: Vec::new(),
            staged: StagedAccepts::default(),
            savepoint: Savepoint::default(),
        })
    }

    async fn commit(&self, mut tx: MemoryTx) -> Result<()> {
        tx.is_of(self)?;
        self.shared.change(|tables, now| tx.apply(tables, now))
    }
}

impl MarkIn<MemoryTx> for Memory {
    async fn mark(
        &self,
        tx: &mut MemoryTx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        tx.is_of(self)?;
        let id = (*key, handler.clone());
        let mut tables = self.shared.tables.lock();
        let scope = tables.scope(inbox);
        Ok(match scope.marks.get(&id) {
            Some(MemoryMark::Done(known, _)) => Mark::of_known(*known, fingerprint),
            Some(MemoryMark::Open(known)) if tx.own(inbox, key, handler).is_some() => {
                Mark::of_known(*known, fingerprint)
            }
            Some(MemoryMark::Open(_)) => Mark::Busy,
            None => {
                scope.marks.insert(id.clone(), MemoryMark::Open(fingerprint));
                tx.marks.push((inbox.clone(), id));
                Mark::First
            }
        })
    }

    async fn quarantine(&self, tx: &mut MemoryTx, message: &NewMessage) -> Result<()> {
        tx.is_of(self)?;
        self.shared.tables.lock().check_room_in_quarantine(message)?;
        tx.quarantined.push(message.clone());
        Ok(())
    }

    async fn record(
        &self,
        tx: &mut MemoryTx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        tx.is_of(self)?;
        match tx.own(inbox, key, handler) {
            Some(place) if tx.result(place).is_none() => {
                tx.results.push((place, Bytes::copy_from_slice(result)));
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Refused, UNMARKED)),
        }
    }

    async fn recall(
        &self,
        tx: &mut MemoryTx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        tx.is_of(self)?;
        if let Some(place) = tx.own(inbox, key, handler) {
            return Ok(tx.result(place).cloned());
        }
        let mut tables = self.shared.tables.lock();
        Ok(match tables.scope(inbox).marks.get(&(*key, handler.clone())) {
            Some(MemoryMark::Done(_, result)) => result.clone(),
            Some(MemoryMark::Open(_)) | None => None,
        })
    }

    async fn is_marked(
        &self,
        tx: &mut MemoryTx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<bool> {
        tx.is_of(self)?;
        if tx.own(inbox, key, handler).is_some() {
            return Ok(true);
        }
        let mut tables = self.shared.tables.lock();
        let mark = tables.scope(inbox).marks.get(&(*key, handler.clone()));
        Ok(matches!(mark, Some(MemoryMark::Done(..))))
    }
}

const UNMARKED: &str = "a result needs a mark of the same transaction that has none yet";

impl SettleIn<MemoryTx> for Memory {
    async fn complete(&self, tx: &mut MemoryTx, claim: &Claim) -> Result<Settled> {
        tx.is_of(self)?;
        Ok(tx.complete(claim))
    }
}

impl ShareIn<MemoryTx> for Memory {
    /// Only reads: the commit refuses a claim that is lost later.
    async fn hold(&self, tx: &mut MemoryTx, claims: &[Claim]) -> Result<Vec<Settled>> {
        tx.is_of(self)?;
        let mut tables = self.shared.tables.lock();
        let held = |claim| if tables.holds(claim) { Settled::Applied } else { Settled::LeaseLost };
        Ok(claims.iter().map(held).collect())
    }

    async fn savepoint(&self, tx: &mut MemoryTx) -> Result<()> {
        tx.is_of(self)?;
        tx.savepoint = Savepoint {
            marks: tx.marks.len(),
            results: tx.results.len(),
            completions: tx.completions.len(),
            quarantined: tx.quarantined.len(),
            staged: tx.staged.len(),
        };
        Ok(())
    }

    async fn rollback_to_savepoint(&self, tx: &mut MemoryTx) -> Result<()> {
        tx.is_of(self)?;
        let Savepoint { marks, results, completions, quarantined, staged } = tx.savepoint;
        tx.quarantined.truncate(quarantined);
        tx.unmark(marks);
        tx.unstage(staged);
        tx.results.truncate(results);
        tx.completions.truncate(completions);
        Ok(())
    }

    async fn complete_all(&self, tx: &mut MemoryTx, claims: &[Claim]) -> Result<Vec<Settled>> {
        tx.is_of(self)?;
        Ok(claims.iter().map(|claim| tx.complete(claim)).collect())
    }
}
