//! An inbox with fault injection, and handlers that record their runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncebox::state::Status;
use oncebox::store::{Admin as _, InboxCounts};
use oncebox::{BoxError, Config, Context, Inbox, Memory, Message, Registration, Reject, Retry, handler};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{DeliveryLedger, Transport};
use crate::{FaultPlan, FaultyStore};

/// Store of the suite.
pub type TestStore = FaultyStore<Memory>;

/// Type of messages that are stored first.
pub(super) const DURABLE: &str = "durable";
/// Type of messages that are handled before they are acknowledged.
pub(super) const INLINE: &str = "inline";
/// Payload of a message whose handler waits for [`SourceFixture::open_gate`].
pub(super) const SLOW: &str = "slow";
/// Payload of a message whose handler fails once.
pub(super) const FLAKY: &str = "flaky";
/// Payload of a message that its handler rejects.
pub(super) const BAD: &str = "bad";

/// Transport under test, and an inbox for it.
pub struct SourceFixture<T: Transport> {
    pub(super) transport: T,
    store: TestStore,
    log: Arc<HandlerLog>,
}

/// Runs of handlers.
#[derive(Debug)]
struct HandlerLog {
    runs: Mutex<BTreeMap<Bytes, usize>>,
    entered: watch::Sender<usize>,
    gate: watch::Sender<bool>,
}

impl<T: Transport> SourceFixture<T> {
    pub(super) fn new(transport: T) -> Self {
        let log = HandlerLog {
            runs: Mutex::default(),
            entered: watch::Sender::new(0),
            gate: watch::Sender::new(false),
        };
        Self { transport, store: FaultyStore::new(Memory::new()), log: Arc::new(log) }
    }

    pub(super) fn faults(&self) -> &FaultPlan {
        self.store.faults()
    }

    /// Starts an instance. All instances share the store, as the processes of one service do.
    pub(super) async fn start(&self) -> T::Running {
        let inbox = Inbox::builder("conformance", self.store.clone())
            .config(Config { poll: Duration::from_millis(50), ..Config::default() })
            .on(DURABLE, self.registration("durable"))
            .on(INLINE, self.registration("inline").inline())
            .build()
            .expect("the suite builds a valid inbox");
        self.transport.start(&inbox).await
    }

    fn registration(&self, name: &str) -> Registration<TestStore> {
        let log = Arc::clone(&self.log);
        let run = move |message: Message, _: &mut Context<TestStore>| {
            let log = Arc::clone(&log);
            async move { log.run(&message).await }
        };
        handler(name, run).retry(Retry::fixed(20, Duration::from_millis(20)))
    }

    pub(super) async fn send(&self, id: &str, message_type: &str, payload: impl Into<Bytes>) {
        self.transport.send(Message::new(id.to_owned(), message_type, payload)).await;
    }

    /// Sends messages of the durable type with the numbers of a range, each with its own payload.
    pub(super) async fn send_many(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.send(&format!("m{number}"), DURABLE, format!("payload {number}")).await;
        }
    }

    /// Returns the number of runs for this payload.
    pub(super) fn runs(&self, payload: impl AsRef<[u8]>) -> usize {
        self.log.runs.lock().get(payload.as_ref()).copied().unwrap_or(0)
    }

    /// Returns true if each numbered message ran once, and nothing else did.
    pub(super) fn each_ran_once(&self, count: usize) -> bool {
        let runs = self.log.runs.lock();
        runs.len() == count && runs.values().all(|runs| *runs == 1)
    }

    /// Lets slow handlers continue.
    pub(super) fn open_gate(&self) {
        self.log.gate.send_replace(true);
    }

    /// Waits until `count` runs have begun.
    pub(super) async fn entered(&self, count: usize) {
        // The sender lives as long as the fixture.
        let _ = self.log.entered.subscribe().wait_for(|entered| *entered >= count).await;
    }

    pub(super) async fn ledger(&self) -> DeliveryLedger {
        self.transport.ledger().await
    }

    pub(super) async fn counts(&self) -> InboxCounts {
        let name = oncebox::InboxName::new("conformance").expect("a valid name");
        self.store.inner().count(&name).await.expect("the store inside does not fail")
    }

    /// Waits until `holds` returns true, and makes the transport redeliver meanwhile.
    pub(super) async fn until(&self, holds: impl AsyncFn(&Self) -> bool) {
        while !holds(self).await {
            self.transport.bring_again().await;
            #[expect(clippy::disallowed_methods, reason = "what is waited for happens in another process")]
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the transport counts so many messages as done and as rejected, and none as waiting.
    pub(super) async fn settled(&self, done: usize, rejected: usize) {
        self.until(async |fixture: &Self| {
            let ledger = fixture.ledger().await;
            assert!(ledger.done <= done && ledger.rejected <= rejected, "more than expected: {ledger:?}");
            ledger.waiting == 0 && ledger.done == done && ledger.rejected == rejected
        })
        .await;
    }

    /// Returns the state, for the message of a failure.
    pub(super) async fn account(&self) -> String {
        let pending = self.counts().await.with_status(Status::Pending);
        format!(
            "the transport has {:?}, {pending} entries are pending, runs: {:?}",
            self.ledger().await,
            self.log.runs.lock()
        )
    }
}

impl HandlerLog {
    async fn run(&self, message: &Message) -> Result<(), BoxError> {
        let payload = message.payload().clone();
        let runs = {
            let mut runs = self.runs.lock();
            let runs = runs.entry(payload.clone()).or_default();
            *runs += 1;
            *runs
        };
        self.entered.send_modify(|entered| *entered += 1);
        if payload == SLOW {
            // The sender lives in `self`.
            let _ = self.gate.subscribe().wait_for(|open| *open).await;
        }
        match () {
            () if payload == FLAKY && runs == 1 => Err("the first attempt fails".into()),
            () if payload == BAD => Err(Reject("it is bad".into()).into()),
            () => Ok(()),
        }
    }
}

impl<T: Transport> std::fmt::Debug for SourceFixture<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceFixture").field("log", &self.log).finish_non_exhaustive()
    }
}
