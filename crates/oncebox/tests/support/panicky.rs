//! A store that panics on demand, and that may have no wakeups or return one entry at a time.
#![allow(dead_code, reason = "no test file needs all of it")]

use std::sync::Arc;

use async_trait::async_trait;
use oncebox::state::Settlement;
use oncebox::store::{
    Accepted, Backlog, BacklogParams, ClaimParams, Claimed, Layer, NewMessage, Orphan, OrphanParams,
    RegisterParams, RenewParams, Renewed, RescueParams, Settled, Store, StoreLayer, SweepParams, Swept,
    Wakeups,
};
use oncebox::{Memory, Result};
use oncebox_testkit::StoreVerb;
use parking_lot::Mutex;

#[derive(Clone)]
pub(crate) struct Panicky {
    pub(crate) memory: Memory,
    next: Arc<Mutex<Vec<StoreVerb>>>,
    mute: bool,
    thrifty: bool,
}

impl Panicky {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, next: Arc::default(), mute: false, thrifty: false }
    }

    /// Has no wake-ups.
    pub(crate) fn mute(mut self) -> Self {
        self.mute = true;
        self
    }

    /// Hands out one entry at a time, whatever is asked for.
    pub(crate) fn thrifty(mut self) -> Self {
        self.thrifty = true;
        self
    }

    /// Lets the next call of a verb panic.
    pub(crate) fn panic_at(&self, verb: StoreVerb) {
        self.next.lock().push(verb);
    }

    fn may_panic(&self, verb: StoreVerb) {
        let mut next = self.next.lock();
        if let Some(index) = next.iter().position(|one| *one == verb) {
            next.remove(index);
            drop(next);
            panic!("the store has a bug in {verb:?}");
        }
    }
}

impl Layer for Panicky {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.memory
    }
}

#[async_trait]
impl StoreLayer for Panicky {
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        self.may_panic(StoreVerb::Accept);
        self.memory.accept(batch).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        self.may_panic(StoreVerb::Claim);
        let mut params = params.clone();
        for want in params.wants.iter_mut().filter(|_| self.thrifty) {
            want.limit = want.limit.min(1);
        }
        self.memory.claim(&params).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        self.may_panic(StoreVerb::Settle);
        self.memory.settle(batch).await
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        self.may_panic(StoreVerb::Renew);
        self.memory.renew(params).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        self.may_panic(StoreVerb::Rescue);
        self.memory.rescue(params).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.may_panic(StoreVerb::Register);
        self.memory.register(params).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        self.may_panic(StoreVerb::Sweep);
        self.memory.sweep(params).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        self.may_panic(StoreVerb::Orphans);
        self.memory.orphans(params).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        self.may_panic(StoreVerb::Backlog);
        self.memory.backlog(params).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        if self.mute { None } else { self.memory.wakeups() }
    }
}
