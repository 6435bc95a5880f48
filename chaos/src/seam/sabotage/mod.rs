//! Planted bugs: real mistakes of inboxes, made at the seam of the product's store. The checker must detect every one.
//! Compiled only with the feature `sabotage`, which no other crate can turn on. Tests: `cargo xtask chaos sabotage`.

mod tinker;
mod tx;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use oncebox::state::{EntryEvent, NextState, Settlement, Suspicion};
use oncebox::store::{
    Accepted, Acted, Action, Backlog, BacklogParams, Capabilities, ClaimParams, ClaimQuota, Claimed,
    DuplicateCount, EntryFilter, EntryPage, Failover, NewMessage, Orphan, OrphanParams, RegisterParams,
    RenewParams, Renewed, RescueParams, Route, Seq, Settled, Store, SweepParams, Swept, Wakeups,
};
use oncebox::{BoxError, ErrorKind, Key, Result};

use super::{NewEffect, Rigged, pause};
use crate::bugs::Bug;
use crate::worker::WorkerJob;
use tinker::TableTamperer;

/// A store with one bug.
#[derive(Clone)]
pub(crate) struct Sabotaged<S> {
    store: S,
    bug: Option<Bug>,
    tinker: Arc<TableTamperer>,
}

impl<S> Sabotaged<S> {
    pub(crate) fn new(store: S, job: &WorkerJob) -> anyhow::Result<Self> {
        let bug = job
            .sabotage
            .as_deref()
            .map(|name| Bug::named(name).context("there is no such bug"))
            .transpose()?;
        Ok(Self { store, bug, tinker: Arc::new(TableTamperer::new(job.store.clone())) })
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// Returns another key, as if the message were another one.
fn another(key: Key) -> Key {
    let mut bytes = *key.as_bytes();
    bytes[..8].copy_from_slice(&fastrand::u64(..).to_le_bytes());
    Key::from_bytes(bytes)
}

impl<S: Store> Sabotaged<S>
where
    S: Clone,
{
    /// Reports everything as stored, and stores it slightly later.
    fn later(&self, batch: &[NewMessage]) -> Vec<Accepted> {
        let (store, batch) = (self.store.clone(), batch.to_vec());
        let answer = batch.iter().map(|_| Accepted::First(Seq(1))).collect();
        tokio::spawn(async move {
            pause(Duration::from_millis(30)).await;
            while store.accept(&batch).await.is_err() {
                pause(Duration::from_millis(5)).await;
            }
        });
        answer
    }
}

/// Returns each message under another key.
fn renamed(batch: &[NewMessage]) -> Vec<NewMessage> {
    let mut batch = batch.to_vec();
    for message in &mut batch {
        message.key = another(message.key);
    }
    batch
}

/// Returns each key of a handler as a separate handler.
fn each_key(route: &Route) -> Vec<Route> {
    route.keys().cloned().map(Route::new).collect()
}

/// Returns each message for the current keys alone.
fn forgotten(batch: &[NewMessage]) -> Vec<NewMessage> {
    let mut batch = batch.to_vec();
    for message in &mut batch {
        message.routes = message.routes.iter().map(|route| Route::new(route.key.clone())).collect();
    }
    batch
}

#[async_trait]
impl<S: Rigged + Clone> Store for Sabotaged<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        match self.bug {
            Some(Bug::AckBeforeCommit) => Ok(self.later(batch)),
            Some(Bug::KeyOfTheDelivery) => self.store.accept(&renamed(batch)).await,
            Some(Bug::RenameForgets) => self.store.accept(&forgotten(batch)).await,
            Some(Bug::UnknownIsOk) => match self.store.accept(batch).await {
                Err(error) if error.kind() == ErrorKind::CommitUnknown => {
                    Ok(batch.iter().map(|_| Accepted::First(Seq(1))).collect())
                }
                answer => answer,
            },
            Some(Bug::UnknownIsRolledBack) => match self.store.accept(batch).await {
                Err(error) if error.kind() == ErrorKind::CommitUnknown => {
                    self.store.accept(&renamed(batch)).await
                }
                answer => answer,
            },
            _ => self.store.accept(batch).await,
        }
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        if self.is(Bug::NoHeadCheck) {
            self.tinker.release_all().await;
        }
        if self.is(Bug::FenceGoesBack) && fastrand::u8(..) < 32 {
            self.tinker.turn_tokens_back().await;
        }
        if self.is(Bug::RenameForgets) {
            let mut params = params.clone();
            let apart = |want: ClaimQuota| {
                let limit = want.limit;
                each_key(&want.route).into_iter().map(move |route| ClaimQuota { route, limit })
            };
            params.wants = params.wants.into_iter().flat_map(apart).collect();
            return self.store.claim(&params).await;
        }
        self.store.claim(params).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let settled = self.store.settle(&self.changed(batch)).await;
        if self.is(Bug::DropsTheDenied)
            && settled.as_ref().is_err_and(|error| error.kind() == ErrorKind::Denied)
        {
            // Its lease expires, and it runs again.
            return Ok(batch.iter().map(|_| Settled::Applied).collect());
        }
        let settled = settled?;
        for (one, settled) in batch.iter().zip(&settled) {
            if *settled == Settled::Applied || one.next == NextState::Completed {
                continue;
            }
            match self.bug {
                Some(Bug::UnfencedFail) => self.tinker.reopen(&one.claim).await,
                Some(Bug::ReleaseWithoutOwner) => {
                    // Send it again for a while, as after an unreadable response.
                    let (tinker, claim) = (Arc::clone(&self.tinker), one.claim.clone());
                    tokio::spawn(async move {
                        for _ in 0..12 {
                            tinker.expire(&claim).await;
                            pause(Duration::from_millis(250)).await;
                        }
                    });
                }
                _ => {}
            }
        }
        Ok(settled)
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        if self.is(Bug::RenewalThatLies) {
            return Ok(params.claims.iter().map(|_| Renewed::Extended).collect());
        }
        self.store.renew(params).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        if self.is(Bug::RescueOfTheLiving) {
            self.tinker.expire_all().await;
        }
        if self.is(Bug::OwnerLockIgnored) {
            self.tinker.free_owner_locks();
        }
        if self.is(Bug::LossUnreported) {
            self.tinker.hide_losses().await;
        }
        if self.is(Bug::RenameForgets) {
            let mut params = params.clone();
            params.routes = params.routes.iter().flat_map(each_key).collect();
            return self.store.rescue(&params).await;
        }
        self.store.rescue(params).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        match self.bug {
            Some(Bug::SweepOfTheUnfinished) => self.tinker.drop_pending().await,
            Some(Bug::ForgetsEarly) => self.tinker.forget_finished().await,
            _ => {}
        }
        self.store.sweep(params).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        if self.is(Bug::RenameForgets) {
            let mut params = params.clone();
            params.routes = params.routes.iter().flat_map(each_key).collect();
            return self.store.register(&params).await;
        }
        self.store.register(params).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        self.store.count_duplicates(batch).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        self.store.backlog(params).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        self.store.orphans(params).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        if self.is(Bug::NoPoll) { None } else { self.store.wakeups() }
    }

    fn failover(&self) -> Option<Failover> {
        self.store.failover()
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.store.is_transient(error)
    }
}

impl<S> Sabotaged<S> {
    /// Applies the bug to settlements.
    fn changed(&self, batch: &[Settlement]) -> Vec<Settlement> {
        let mut batch = batch.to_vec();
        let failed = batch.iter().any(|one| one.event == EntryEvent::Fail);
        for one in &mut batch {
            match (self.bug, one.event) {
                (Some(Bug::ShutdownBurnsAttempts), EntryEvent::Release) => one.attempts += 1,
                (Some(Bug::NoCrashCounter), EntryEvent::Crash | EntryEvent::CrashOut) => {
                    one.suspicion = Suspicion::NONE;
                    one.next = NextState::Pending { delay: Duration::ZERO };
                    one.event = EntryEvent::Crash;
                }
                (Some(Bug::FailIsDone), EntryEvent::Fail) => {
                    (one.next, one.event) = (NextState::Completed, EntryEvent::Done);
                }
                (Some(Bug::BatchFailsInnocents), EntryEvent::Done) if failed => {
                    one.attempts += 1;
                    one.next = NextState::Pending { delay: Duration::from_millis(20) };
                    one.event = EntryEvent::Fail;
                }
                _ => {}
            }
        }
        batch
    }
}

impl<S: Rigged + Clone> Rigged for Sabotaged<S> {
    fn effect(
        tx: &mut Self::Tx,
        effect: NewEffect,
    ) -> impl Future<Output = std::result::Result<(), BoxError>> + Send {
        S::effect(tx, effect)
    }

    fn act(&self, action: &Action) -> impl Future<Output = Result<Acted>> + Send {
        self.store.act(action)
    }

    fn list(&self, filter: &EntryFilter) -> impl Future<Output = Result<EntryPage>> + Send {
        self.store.list(filter)
    }
}
