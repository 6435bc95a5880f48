//! Transactions over marks and completions. There is no database here, so a handler's own writes are never in them.

use std::fmt;
use std::sync::Arc;

use super::tables::{MarkRow, Tables};
use super::{Memory, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::Settlement;
use crate::store::{Claim, Mark, MarkIn, SettleIn, Settled, Transactional};
use crate::time::Timestamp;

/// An open transaction of a [`Memory`] store: marks and completions that become visible together. Dropping it rolls
/// it back.
pub struct MemoryTx {
    store: Arc<Shared>,
    /// Held in the store until the transaction ends, so that a concurrent mark is told to wait.
    marks: Vec<(InboxName, (Key, HandlerKey))>,
    completions: Vec<Claim>,
}

impl MemoryTx {
    fn is_of(&self, store: &Memory) -> Result<()> {
        if Arc::ptr_eq(&self.store, &store.shared) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "the transaction belongs to another memory store"))
    }

    fn apply(&mut self, tables: &mut Tables, now: Timestamp) -> Result<()> {
        if let Some(lost) = self.completions.iter().find(|claim| !tables.holds(claim)) {
            let what = format!(
                "the claim of message {} for {:?} was lost before the commit",
                lost.seq, lost.handler
            );
            return Err(Error::new(ErrorKind::LeaseLost, what));
        }
        for claim in self.completions.drain(..) {
            tables.settle(&Settlement::done(&claim), now);
        }
        for (inbox, (key, handler)) in self.marks.drain(..) {
            let scope = tables.scope(&inbox);
            scope.mark_ages.insert((now, key, handler.clone()));
            scope.marks.insert((key, handler), MarkRow::Done);
        }
        Ok(())
    }
}

impl Drop for MemoryTx {
    fn drop(&mut self) {
        if self.marks.is_empty() {
            return;
        }
        let mut tables = self.store.tables.lock();
        for (inbox, mark) in self.marks.drain(..) {
            tables.scope(&inbox).marks.remove(&mark);
        }
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
        Ok(MemoryTx { store: Arc::clone(&self.shared), marks: Vec::new(), completions: Vec::new() })
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
    ) -> Result<Mark> {
        tx.is_of(self)?;
        let id = (*key, handler.clone());
        let mut tables = self.shared.tables.lock();
        let scope = tables.scope(inbox);
        Ok(match scope.marks.get(&id) {
            Some(MarkRow::Done) => Mark::Duplicate,
            Some(MarkRow::Open) if tx.marks.iter().any(|(of, mine)| of == inbox && *mine == id) => {
                Mark::Duplicate
            }
            Some(MarkRow::Open) => Mark::Busy,
            None => {
                scope.marks.insert(id.clone(), MarkRow::Open);
                tx.marks.push((inbox.clone(), id));
                Mark::First
            }
        })
    }
}

impl SettleIn<MemoryTx> for Memory {
    async fn complete(&self, tx: &mut MemoryTx, claim: &Claim) -> Result<Settled> {
        tx.is_of(self)?;
        if tx.completions.contains(claim) || !self.shared.tables.lock().holds(claim) {
            return Ok(Settled::LeaseLost);
        }
        tx.completions.push(claim.clone());
        Ok(Settled::Applied)
    }
}
