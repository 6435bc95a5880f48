//! A store under test, with its clock, and short methods for the tests' steps. Tests: the cases that use it.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use oncebox::state::{Operation, Outcome, Settlement, Status};
use oncebox::store::{
    AcceptIn, Accepted, Claim, ClaimParams, ClaimQuota, Claimed, EntryFilter, EntryView, Examine,
    InboxCounts, Inspect, Mark, MarkIn, MessageView, NewMessage, Operate, RenewParams, Renewed, RescueParams,
    Route, Seq, Settled, ShareIn, Store, SweepParams, Swept, Transactional,
};
use oncebox::time::{Clock as _, Timestamp};
use oncebox::{InboxName, Result};

use crate::fixture::{LEASE, handler, inbox, key, offer, policy, rejected, route};
use crate::{OperatorSteps as _, TestClock};

/// Store of tier 0: the verbs of an inbox.
pub trait StoreTier: Store + Clone {}

impl<S: Store + Clone> StoreTier for S {}

/// Store of tier 1: it shows what it holds.
pub trait InspectTier: StoreTier + Inspect {}

impl<S: StoreTier + Inspect> InspectTier for S {}

/// Store of tier 2: operators change it, and it examines itself.
pub trait OperateTier: InspectTier + Operate + Examine {}

impl<S: InspectTier + Operate + Examine> OperateTier for S {}

/// Store of tier 3: handlers share its transactions.
pub trait TransactionalTier:
    OperateTier + Transactional + MarkIn<<Self as Transactional>::Tx> + AcceptIn<<Self as Transactional>::Tx>
{
}

impl<S> TransactionalTier for S where
    S: OperateTier + Transactional + MarkIn<<S as Transactional>::Tx> + AcceptIn<<S as Transactional>::Tx>
{
}

/// Store of tier 4: several runs share one transaction.
pub trait ShareTier: TransactionalTier + ShareIn<<Self as Transactional>::Tx> {}

impl<S: TransactionalTier + ShareIn<<S as Transactional>::Tx>> ShareTier for S {}

type StoreOpener<S> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = S> + Send>> + Send + Sync>;

/// A new, empty store and its clock.
pub struct Harness<S> {
    /// Store under test.
    pub store: S,
    /// Clock of the store.
    pub clock: TestClock,
    /// Number of random sequences of operations that are compared with the model.
    pub(crate) sequences: u64,
    /// Opens the same data again, as another process would.
    open: Option<StoreOpener<S>>,
    /// Maximum operations in a sequence.
    pub(crate) steps: usize,
    /// Dropped last: resources of the store.
    guard: Option<Box<dyn Any + Send>>,
}

impl<S> Harness<S> {
    /// Returns a harness for a store on a clock.
    pub fn new(store: S, clock: TestClock) -> Self {
        Self { store, clock, sequences: 256, steps: 40, open: None, guard: None }
    }

    /// Sets the number of random sequences. Default: 256. Slow stores use fewer. `ONCEBOX_SEQUENCES` in the environment overrides
    /// it.
    pub fn sequences(mut self, sequences: u64) -> Self {
        self.sequences = sequences;
        self
    }

    /// Sets a function that opens the same data again, as another process would.
    pub fn opening<Opening>(mut self, open: impl Fn() -> Opening + Send + Sync + 'static) -> Self
    where
        Opening: Future<Output = S> + Send + 'static,
    {
        self.open = Some(Box::new(move || Box::pin(open())));
        self
    }

    /// Sets the maximum operations in a random sequence. Default: 40.
    pub fn steps(mut self, steps: usize) -> Self {
        self.steps = steps;
        self
    }

    /// Keeps a value until the store is dropped: a temporary directory, a server.
    pub fn keeping(mut self, guard: impl Any + Send) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }
}

impl<S> fmt::Debug for Harness<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("clock", &self.clock)
            .field("guarded", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}

/// Everything that an operator can see of an inbox, to find out whether a call changed anything.
#[derive(Debug, PartialEq)]
pub(crate) struct Snapshot {
    counts: InboxCounts,
    entries: Vec<EntryView>,
}

impl<S: StoreTier> Harness<S> {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Returns another store on the same data: another instance if possible, else another handle.
    pub(crate) async fn another(&self) -> S {
        match &self.open {
            Some(open) => open().await,
            None => self.store.clone(),
        }
    }

    pub(crate) async fn accept(&self, new: NewMessage) -> Accepted {
        let [accepted] = self.accept_all(&[new]).await[..] else { panic!("one message, one answer") };
        accepted
    }

    pub(crate) async fn accept_all(&self, batch: &[NewMessage]) -> Vec<Accepted> {
        let accepted = self.store.accept(batch).await.expect("accept");
        assert_eq!(accepted.len(), batch.len(), "as many answers as messages");
        accepted
    }

    /// Accepts a message that must be new.
    pub(crate) async fn first(&self, new: NewMessage) -> Seq {
        match self.accept(new).await {
            Accepted::First(seq) => seq,
            other => panic!("expected a new message, got {other:?}"),
        }
    }

    pub(crate) async fn claim(&self, handler: &str, limit: usize) -> Vec<Claimed> {
        self.claim_routes(&[route(handler)], limit).await
    }

    pub(crate) async fn claim_routes(&self, routes: &[Route], limit: usize) -> Vec<Claimed> {
        self.store.claim(&claim_params(routes, limit)).await.expect("claim")
    }

    pub(crate) async fn claim_suspect(&self, handler: &str) -> Vec<Claimed> {
        self.store.claim(&claim_params(&[route(handler)], 10).suspect()).await.expect("claim")
    }

    /// Claims suspects for an idle worker.
    pub(crate) async fn claim_suspect_idle(&self, handler: &str) -> Vec<Claimed> {
        self.store.claim(&claim_params(&[route(handler)], 10).suspect().idle(true)).await.expect("claim")
    }

    /// Claims the only claimable entry of a handler.
    pub(crate) async fn claim_one(&self, handler: &str) -> Claim {
        let mut claimed = self.claim(handler, 2).await;
        assert_eq!(claimed.len(), 1, "exactly one claimable entry: {claimed:?}");
        claimed.remove(0).claim
    }

    /// Accepts a new message for `h`, and claims it.
    pub(crate) async fn running(&self, id: &str) -> Claim {
        self.first(offer(id)).await;
        self.claim_one("h").await
    }

    /// Accepts a new message for `h`, and poisons it.
    pub(crate) async fn poisoned(&self, id: &str) -> Claim {
        self.settled(id, rejected()).await
    }

    /// Accepts a new message for `h`, and completes it.
    pub(crate) async fn completed(&self, id: &str) -> Claim {
        self.settled(id, Outcome::Done).await
    }

    /// Accepts a new message for `h`, and settles it with this outcome.
    pub(crate) async fn settled(&self, id: &str, outcome: Outcome) -> Claim {
        let claim = self.running(id).await;
        assert_eq!(self.settle(&claim, outcome).await, Settled::Applied);
        claim
    }

    pub(crate) async fn settle(&self, claim: &Claim, outcome: Outcome) -> Settled {
        self.send(claim.settle(&policy(), outcome)).await
    }

    pub(crate) async fn send(&self, settlement: Settlement) -> Settled {
        let [settled] = self.send_all(&[settlement]).await[..] else { panic!("one settlement, one answer") };
        settled
    }

    pub(crate) async fn send_all(&self, batch: &[Settlement]) -> Vec<Settled> {
        self.store.settle(batch).await.expect("settle")
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> Renewed {
        let params = RenewParams::new(vec![claim.clone()], LEASE);
        let [renewed] = self.store.renew(&params).await.expect("renew")[..] else {
            panic!("one claim, one answer")
        };
        renewed
    }

    pub(crate) async fn rescue(&self, handler: &str, limit: usize) -> Vec<Claimed> {
        self.store.rescue(&rescue_params(&[route(handler)], limit)).await.expect("rescue")
    }

    /// Rescues the only entry of a handler with an expired lease.
    pub(crate) async fn rescue_one(&self, handler: &str) -> Claim {
        let mut rescued = self.rescue(handler, 2).await;
        assert_eq!(rescued.len(), 1, "exactly one entry to rescue: {rescued:?}");
        rescued.remove(0).claim
    }

    /// Sweeps all pages, and returns the sum.
    pub(crate) async fn sweep(&self, retention: Duration) -> Swept {
        self.sweep_pages(&inbox(), retention, 100).await
    }

    pub(crate) async fn sweep_pages(&self, inbox: &InboxName, retention: Duration, limit: usize) -> Swept {
        let mut sum = Swept::NOTHING;
        let mut params = SweepParams::new(inbox.clone(), retention, limit);
        for _ in 0..1_000 {
            let page = self.store.sweep(&params).await.expect("sweep");
            sum.add(&page);
            // Few tests need the number of messages that were read.
            sum.looked = 0;
            match page.next {
                None => return sum,
                next => params.after = next,
            }
        }
        panic!("a sweep goes on for ever");
    }
}

impl<S: InspectTier> Harness<S> {
    pub(crate) async fn show(&self, id: impl AsRef<[u8]>) -> Option<MessageView> {
        self.store.show(&inbox(), &key(id)).await.expect("show")
    }

    /// Returns the latest generation of an entry.
    pub(crate) async fn entry(&self, id: &str, handler_key: &str) -> EntryView {
        let view = self.show(id).await.unwrap_or_else(|| panic!("{id:?} is unknown"));
        let entries = view.entries.into_iter().filter(|entry| entry.handler == handler(handler_key));
        entries
            .max_by_key(|entry| entry.generation)
            .unwrap_or_else(|| panic!("{id:?} has no entry for {handler_key:?}"))
    }

    pub(crate) async fn status(&self, id: &str) -> Status {
        self.entry(id, "h").await.status
    }

    pub(crate) async fn count(&self) -> InboxCounts {
        self.store.count(&inbox(), None).await.expect("count")
    }

    pub(crate) async fn list(&self, inbox: &InboxName, status: Status, page: usize) -> Vec<EntryView> {
        let mut filter = EntryFilter::new(inbox.clone(), status);
        filter.limit = page;
        let mut entries = Vec::new();
        loop {
            let page = self.store.list(&filter).await.expect("list");
            entries.extend(page.entries);
            match page.next {
                None => return entries,
                next => filter.after = next,
            }
        }
    }

    pub(crate) async fn snapshot(&self) -> Snapshot {
        let mut counts = self.count().await;
        counts.entries.sort_by(|a, b| (&a.handler, a.status).cmp(&(&b.handler, b.status)));
        let mut entries = Vec::new();
        for status in Status::ALL {
            entries.extend(self.list(&inbox(), status, 500).await);
        }
        Snapshot { counts, entries }
    }
}

impl<S: OperateTier> Harness<S> {
    pub(crate) async fn operate(
        &self,
        id: &str,
        handler_key: &str,
        operation: Operation,
    ) -> Result<EntryView> {
        self.store.operate(&inbox(), &key(id), &handler(handler_key), operation).await
    }
}

impl<S: TransactionalTier> Harness<S> {
    /// Marks a key in its own transaction, and commits if the mark is the first.
    pub(crate) async fn mark(&self, id: &str, handler_key: &str) -> Mark {
        mark(&self.store, id, handler_key).await.expect("mark")
    }

    /// Completes a claim in its own transaction, and commits if the claim holds.
    pub(crate) async fn complete(&self, claim: &Claim) -> Settled {
        let tx = self.store.begin().await.expect("begin");
        self.store.finish(tx, claim).await.expect("finish")
    }
}

/// Marks a key in its own transaction, and commits if the mark is the first.
pub(crate) async fn mark<S: TransactionalTier>(store: &S, id: &str, handler_key: &str) -> Result<Mark> {
    let mut tx = store.begin().await?;
    let mark = store.mark(&mut tx, &inbox(), &key(id), &handler(handler_key), None).await?;
    if mark == Mark::First {
        // Stands for the work, during which other tasks can see the open mark.
        tokio::task::yield_now().await;
        store.commit(tx).await?;
    }
    Ok(mark)
}

pub(crate) fn claim_params(routes: &[Route], limit: usize) -> ClaimParams {
    let wants = routes.iter().map(|route| ClaimQuota { route: route.clone(), limit }).collect();
    ClaimParams::new(inbox(), wants, LEASE)
}

pub(crate) fn rescue_params(routes: &[Route], limit: usize) -> RescueParams {
    RescueParams::new(inbox(), routes.to_vec(), LEASE, limit)
}
