//! A store with fault injection. Tests: below.

mod plan;

pub use plan::{FaultOdds, FaultPlan, StoreFault, StoreVerb};

use std::future::Future;

use async_trait::async_trait;
use bytes::Bytes;
use oncebox::state::Settlement;
use oncebox::store::{
    AcceptIn, Accepted, Acted, Action, ActionKind, AuditFilter, AuditPage, BackfillParams, Backfilled,
    Backlog, BacklogParams, BlockedKey, BlockedParams, Claim, ClaimParams, Claimed, DuplicateCount,
    EntryFilter, EntryPage, Examine, ExamineLayer, ExamineParams, Finding, InboxCounts, Inspect,
    InspectLayer, Layer, Mark, MarkIn, MessageHistory, MessageView, NewMessage, Operate, OperateLayer,
    OperationId, Orphan, OrphanParams, QuarantineFilter, QuarantinePage, RegisterParams, RenewParams,
    Renewed, RescueParams, SettleIn, Settled, ShareIn, Store, StoreLayer, SweepParams, Swept, Transactional,
    Wakeups,
};
use oncebox::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Result};

/// Wraps a store and injects the faults of its [`FaultPlan`]. Clones share their faults.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use oncebox::{ErrorKind, Memory, Store};
/// use oncebox_testkit::{StoreFault, FaultyStore, StoreVerb};
///
/// let store = FaultyStore::new(Memory::new());
/// store.faults().next(StoreVerb::Accept, StoreFault::ErrAfter);
/// assert_eq!(store.accept(&[]).await.unwrap_err().kind(), ErrorKind::CommitUnknown);
/// assert!(store.accept(&[]).await.is_ok());
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    store: S,
    faults: FaultPlan,
    mute: bool,
}

impl<S> FaultyStore<S> {
    /// Returns a store without faults.
    pub fn new(store: S) -> Self {
        Self { store, faults: FaultPlan::default(), mute: false }
    }

    /// Removes the store's wake-ups, so that only polling finds work.
    pub fn without_wakeups(mut self) -> Self {
        self.mute = true;
        self
    }

    /// Returns the faults.
    pub fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    /// Returns the wrapped store, which does not fail.
    pub fn inner(&self) -> &S {
        &self.store
    }

    async fn run<T>(&self, verb: StoreVerb, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.suffer(verb, self.faults.draw(verb), call).await
    }

    async fn suffer<T>(
        &self,
        verb: StoreVerb,
        fault: Option<StoreFault>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match fault {
            None => call.await,
            Some(StoreFault::ErrBefore(kind)) => {
                Err(Error::new(kind, format!("injected fault: {verb:?} was not done")))
            }
            Some(StoreFault::Deadlock) => {
                let what = format!("injected fault: {verb:?} was not done");
                Err(Error::new(ErrorKind::Unavailable, what).caused_by(Deadlock))
            }
            Some(StoreFault::ErrAfter) => {
                call.await?;
                let what = format!("injected fault: {verb:?} was done, and its answer lost");
                Err(Error::new(ErrorKind::CommitUnknown, what))
            }
            Some(StoreFault::Hang) => {
                self.faults.hang().await;
                call.await
            }
            Some(StoreFault::Panic) => panic!("injected fault: {verb:?} panics"),
        }
    }
}

/// Error of a database that ended a transaction because of a deadlock. A [`FaultyStore`] treats it as transient, as real stores do
/// with such errors. A handler can return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock;

impl std::fmt::Display for Deadlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("injected fault: a deadlock")
    }
}

impl std::error::Error for Deadlock {}

impl<S: Store> Layer for FaultyStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }
}

#[async_trait]
impl<S: Store> StoreLayer for FaultyStore<S> {
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        self.run(StoreVerb::Accept, self.store.accept(batch)).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        self.run(StoreVerb::Claim, self.store.claim(params)).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        self.run(StoreVerb::Settle, self.store.settle(batch)).await
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        self.run(StoreVerb::Renew, self.store.renew(params)).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        self.run(StoreVerb::Rescue, self.store.rescue(params)).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.run(StoreVerb::Register, self.store.register(params)).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        self.run(StoreVerb::Sweep, self.store.sweep(params)).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        self.run(StoreVerb::Orphans, self.store.orphans(params)).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        self.run(StoreVerb::CountDuplicates, self.store.count_duplicates(batch)).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        self.run(StoreVerb::Backlog, self.store.backlog(params)).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        if self.mute { None } else { self.store.wakeups() }
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        error.is::<Deadlock>() || self.store.is_transient(error)
    }
}

impl<S: Transactional> Transactional for FaultyStore<S> {
    type Tx = S::Tx;

    async fn begin(&self) -> Result<S::Tx> {
        self.run(StoreVerb::Begin, self.store.begin()).await
    }

    async fn commit(&self, tx: S::Tx) -> Result<()> {
        match self.faults.draw(StoreVerb::Commit) {
            // The transaction is over when the caller gets the error.
            fault @ Some(StoreFault::ErrBefore(_) | StoreFault::Deadlock) => {
                self.store.rollback(tx).await;
                self.suffer(StoreVerb::Commit, fault, async { Ok(()) }).await
            }
            fault => self.suffer(StoreVerb::Commit, fault, self.store.commit(tx)).await,
        }
    }

    async fn rollback(&self, tx: S::Tx) {
        self.store.rollback(tx).await;
    }
}

impl<Tx: ?Sized, S: MarkIn<Tx>> MarkIn<Tx> for FaultyStore<S> {
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send {
        self.run(StoreVerb::Mark, self.store.mark(tx, inbox, key, handler, fingerprint))
    }

    fn quarantine(&self, tx: &mut Tx, message: &NewMessage) -> impl Future<Output = Result<()>> + Send {
        self.run(StoreVerb::Quarantine, self.store.quarantine(tx, message))
    }

    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        self.run(StoreVerb::Record, self.store.record(tx, inbox, key, handler, result))
    }

    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        self.run(StoreVerb::Recall, self.store.recall(tx, inbox, key, handler))
    }

    fn is_marked(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.run(StoreVerb::IsMarked, self.store.is_marked(tx, inbox, key, handler))
    }
}

impl<Tx: ?Sized, S: AcceptIn<Tx>> AcceptIn<Tx> for FaultyStore<S> {
    fn accept_in(
        &self,
        tx: &mut Tx,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        self.run(StoreVerb::AcceptIn, self.store.accept_in(tx, batch))
    }
}

impl<Tx: ?Sized, S: SettleIn<Tx>> SettleIn<Tx> for FaultyStore<S> {
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        self.run(StoreVerb::Complete, self.store.complete(tx, claim))
    }
}

impl<Tx: ?Sized, S: ShareIn<Tx>> ShareIn<Tx> for FaultyStore<S> {
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.run(StoreVerb::Hold, self.store.hold(tx, claims))
    }

    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.run(StoreVerb::Savepoint, self.store.savepoint(tx))
    }

    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.run(StoreVerb::RollbackToSavepoint, self.store.rollback_to_savepoint(tx))
    }

    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.run(StoreVerb::CompleteAll, self.store.complete_all(tx, claims))
    }
}

#[async_trait]
impl<S: Inspect> InspectLayer for FaultyStore<S> {
    async fn count(&self, inbox: &InboxName, tenant: Option<&str>) -> Result<InboxCounts> {
        self.run(StoreVerb::Count, self.store.count(inbox, tenant)).await
    }

    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        self.run(StoreVerb::List, self.store.list(filter)).await
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        self.run(StoreVerb::Blocked, self.store.blocked(params)).await
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        self.run(StoreVerb::Show, self.store.show(inbox, key)).await
    }

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        self.run(StoreVerb::History, self.store.history(inbox, key)).await
    }

    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        self.run(StoreVerb::Quarantined, self.store.quarantined(filter)).await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        self.run(StoreVerb::Audit, self.store.audit(filter)).await
    }
}

#[async_trait]
impl<S: Operate> OperateLayer for FaultyStore<S> {
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        self.run(StoreVerb::Backfill, self.store.backfill(params)).await
    }

    /// Fails by the verb of the action.
    async fn act(&self, action: &Action) -> Result<Acted> {
        let verb = match action.kind {
            ActionKind::Pause { .. } | ActionKind::PauseKey { .. } => StoreVerb::Pause,
            ActionKind::Resume { .. } | ActionKind::ResumeKey { .. } => StoreVerb::Resume,
            ActionKind::Purge { .. } => StoreVerb::Purge,
            _ => StoreVerb::Operate,
        };
        self.run(verb, self.store.act(action)).await
    }

    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
        self.run(StoreVerb::Progress, self.store.progress(id, noted, progress)).await
    }
}

#[async_trait]
impl<S: Examine> ExamineLayer for FaultyStore<S> {
    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        self.run(StoreVerb::Examine, self.store.examine(params)).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncebox::store::{Accepted, ClaimParams, Inspect as _, RenewParams, Store as _};
    use oncebox::{ErrorKind, Memory};

    use super::{FaultOdds, FaultyStore, StoreFault, StoreVerb};
    use crate::fixture::{inbox, offer};

    #[tokio::test]
    async fn a_fault_before_is_not_done_and_a_fault_after_is() {
        let store = FaultyStore::new(Memory::new());
        store
            .faults()
            .next(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Full))
            .next(StoreVerb::Accept, StoreFault::ErrAfter);
        assert_eq!(store.accept(&[offer("1")]).await.unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(store.count(&inbox(), None).await.unwrap().messages, 0);
        assert_eq!(store.accept(&[offer("1")]).await.unwrap_err().kind(), ErrorKind::CommitUnknown);
        assert_eq!(store.count(&inbox(), None).await.unwrap().messages, 1);
        assert!(matches!(store.accept(&[offer("1")]).await.unwrap()[..], [Accepted::Duplicate(_)]));
        assert_eq!(store.faults().calls(StoreVerb::Accept), 3);
    }

    #[tokio::test]
    async fn a_call_hangs_until_it_is_released() {
        let store = FaultyStore::new(Memory::new());
        store.faults().next(StoreVerb::Accept, StoreFault::Hang);
        let call = tokio::spawn({
            let store = store.clone();
            async move { store.accept(&[offer("1")]).await }
        });
        store.faults().wait_for_hanging(1).await;
        assert_eq!(store.count(&inbox(), None).await.unwrap().messages, 0);
        store.faults().release();
        assert!(matches!(call.await.unwrap().unwrap()[..], [Accepted::First(_)]));
    }

    #[tokio::test]
    async fn a_seed_gives_the_same_faults_every_time() {
        let run = async |seed| {
            let store = FaultyStore::new(Memory::new());
            store.faults().seed(seed, FaultOdds { before: 0.3, after: 0.3 });
            let mut kinds = Vec::new();
            for _ in 0..50 {
                kinds.push(store.accept(&[]).await.map_err(|error| error.kind()));
            }
            kinds
        };
        let first = run(7).await;
        assert_eq!(first, run(7).await);
        assert_ne!(first, run(8).await);
        for kind in [ErrorKind::Unavailable, ErrorKind::CommitUnknown] {
            assert!(first.contains(&Err(kind)));
        }
        assert!(first.contains(&Ok(Vec::new())));
    }

    #[tokio::test]
    async fn a_script_names_the_calls_that_fail() {
        let store = FaultyStore::new(Memory::new());
        store.faults().script(StoreVerb::Claim, [None, Some(StoreFault::ErrAfter)]);
        store.faults().always(StoreVerb::Renew, StoreFault::ErrBefore(ErrorKind::Unavailable));
        let params = ClaimParams::new(inbox(), Vec::new(), Duration::from_secs(1));
        assert!(store.claim(&params).await.is_ok());
        assert!(store.claim(&params).await.is_err());
        assert!(store.claim(&params).await.is_ok());
        let renewal = RenewParams::new(Vec::new(), Duration::from_secs(1));
        for _ in 0..3 {
            assert!(store.renew(&renewal).await.is_err());
        }
        store.faults().clear();
        assert!(store.renew(&renewal).await.is_ok());
    }
}
