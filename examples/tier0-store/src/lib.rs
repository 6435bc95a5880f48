//! A complete store of tier 0: a model for authors of stores. It keeps its rows in the memory of the process. Tests:
//! `tests/conformance.rs`, `tests/inbox.rs`.
//!
//! | file | concern |
//! |---|---|
//! | `lib.rs` | the verbs; each is one atomic change |
//! | `rows.rs` | the rows, which a database has as tables |
//! | `handlers.rs` | all keys of a renamed handler are one handler |
//! | `accept.rs` | each message once per key |
//! | `claim.rs` | each entry to one worker at a time, ordered entries in their turn |
//! | `settle.rs` | the fence: only the worker with the claim writes |
//! | `sweep.rs` | expired messages, and the watermark that remembers them |
//!
//! It reads all entries of an inbox for each claim. A store for many messages has indexes instead.

mod accept;
mod claim;
mod handlers;
mod rows;
mod settle;
mod sweep;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use oncebox_core::error::{Error, ErrorKind, Result};
use oncebox_core::state::Settlement;
use oncebox_core::store::{
    Accepted, Capabilities, ClaimParams, Claimed, NewMessage, RegisterParams, RenewParams, Renewed,
    RescueParams, Settled, Store, SweepParams, Swept,
};
use oncebox_core::time::{SharedClock, Timestamp};

use rows::Rows;

/// Store of tier 0. A clone is another handle to the same data.
#[derive(Clone)]
pub struct SmallStore {
    /// All times come from this clock, so tests move it.
    clock: SharedClock,
    rows: Arc<Mutex<Rows>>,
}

impl SmallStore {
    /// Returns an empty store on a clock.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, rows: Arc::default() }
    }

    /// Makes one atomic change: the lock is its transaction. A database runs one transaction here.
    fn change<T>(&self, change: impl FnOnce(&mut Rows, Timestamp) -> T) -> Result<T> {
        // A panic in an earlier change may have left half of it, so no call may read the rows again.
        let mut rows = self.rows.lock().map_err(|_| {
            let what = "an earlier call panicked, so the rows may be incomplete; nothing was changed; restart the process";
            Error::new(ErrorKind::Unavailable, what)
        })?;
        // The clock is read under the lock, so times follow the order of the changes.
        let now = self.clock.now();
        Ok(change(&mut rows, now))
    }
}

#[async_trait]
impl Store for SmallStore {
    fn capabilities(&self) -> Capabilities {
        // Neither durable nor shared nor with transactions: `new` starts with none, and each must be true to be set.
        Capabilities::new("small")
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        self.change(|rows, now| batch.iter().map(|new| rows.accept(new, now)).collect())
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        self.change(|rows, now| rows.claim(params, now))
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        self.change(|rows, now| batch.iter().map(|one| rows.settle(one, now)).collect())
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        self.change(|rows, now| {
            let until = now.after(params.lease);
            params.claims.iter().map(|claim| rows.renew(claim, until)).collect()
        })
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        self.change(|rows, now| rows.rescue(params, now))
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.change(|rows, now| rows.inbox(&params.inbox).register(params, now))?
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        self.change(|rows, now| rows.inbox(&params.inbox).sweep(params, now))
    }
}

/// Compiles the programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/store-author.md")]
struct StoreAuthorGuide;
