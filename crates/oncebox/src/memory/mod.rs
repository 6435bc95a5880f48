//! In-memory store, for tests and for work that may be lost with the process. Tests: `tests/memory.rs`.

mod accept;
mod accept_in;
mod admin;
mod claim;
mod erase;
mod history;
mod index;
mod names;
mod operations;
mod settle;
mod sweep;
mod tables;
mod transaction;

pub use transaction::MemoryTx;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::Result;
use crate::state::Settlement;
use crate::store::{
    Accepted, Backlog, BacklogParams, Capabilities, ClaimParams, Claimed, DuplicateCount, NewMessage, Orphan,
    OrphanParams, RegisterParams, RenewParams, Renewed, RescueParams, Settled, Store, SweepParams, Swept,
    Wakeup, Wakeups,
};
use crate::time::{SharedClock, SystemClock, Timestamp};
use tables::MemoryTables;

/// Store in the memory of the process. A clone is another handle to the same data, so inboxes and workers can share it.
///
/// It keeps every rule of the other stores until the process ends. It has no database: its transactions cover marks and
/// completions, never a handler's own writes.
///
/// ```
/// use oncebox::{Memory, store::Store};
///
/// let store = Memory::new().capacity(10_000);
/// assert!(!store.capabilities().durable);
/// ```
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    clock: SharedClock,
    tables: Mutex<MemoryTables>,
    /// Number of times that work became claimable.
    work: watch::Sender<u64>,
}

impl Memory {
    /// Default of [`capacity`](Self::capacity).
    pub const CAPACITY: usize = 1_000_000;

    /// Returns an empty store on the system clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock::shared())
    }

    /// Returns an empty store on the given clock.
    pub fn with_clock(clock: SharedClock) -> Self {
        let tables = Mutex::new(MemoryTables::new(Self::CAPACITY));
        Self { shared: Arc::new(Shared { clock, tables, work: watch::Sender::new(0) }) }
    }

    /// Sets the maximum number of messages, quarantined ones included. The store refuses a batch that does not fit, with
    /// [`ErrorKind::Full`](crate::ErrorKind::Full), and never evicts a message.
    pub fn capacity(self, messages: usize) -> Self {
        self.shared.tables.lock().capacity = messages;
        self
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Shared {
    /// Makes one atomic change. If work became claimable, it wakes listeners after it has released the lock.
    fn change<T>(&self, change: impl FnOnce(&mut MemoryTables, Timestamp) -> T) -> T {
        let mut tables = self.tables.lock();
        let now = self.clock.now();
        let result = change(&mut tables, now);
        let work = tables.take_work();
        drop(tables);
        if work {
            self.work.send_modify(|count| *count = count.wrapping_add(1));
        }
        result
    }
}

#[async_trait]
impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory")
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        self.shared.change(|tables, now| tables.accept(batch, now))
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        Ok(self.shared.change(|tables, now| tables.claim(params, now)))
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        Ok(self.shared.change(|tables, now| batch.iter().map(|one| tables.settle(one, now)).collect()))
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        Ok(self.shared.change(|tables, now| {
            let until = now.after(params.lease);
            params.claims.iter().map(|claim| tables.renew(claim, until)).collect()
        }))
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        Ok(self.shared.change(|tables, now| tables.rescue(params, now)))
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.shared.change(|tables, now| tables.scope(&params.inbox).register(params, now))
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        Ok(self.shared.change(|tables, now| tables.sweep(params, now)))
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        Ok(self.shared.change(|tables, now| tables.orphans(params, now)))
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        self.shared.change(|tables, _| tables.count_duplicates(batch));
        Ok(())
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        Ok(self.shared.change(|tables, now| tables.backlog(params, now)))
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        Some(self)
    }
}

impl Wakeups for Memory {
    fn subscribe(&self) -> Wakeup {
        oncebox_tokio::wakeup(self.shared.work.subscribe())
    }
}
