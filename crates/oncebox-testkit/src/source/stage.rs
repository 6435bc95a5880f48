//! An inbox over a store that fails on demand, and handlers that say what they did.

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

/// The store of the suite.
pub type TestStore = FaultyStore<Memory>;

/// The type of messages that are stored first.
pub(super) const DURABLE: &str = "durable";
/// The type of messages that are handled while they are in hand.
pub(super) const INLINE: &str = "inline";
/// The payload of a message whose handler waits for [`SourceFixture::open_gate`].
pub(super) const SLOW: &str = "slow";
/// The payload of a message whose handler fails once.
pub(super) const FLAKY: &str = "flaky";
/// The payload of a message that its handler refuses for good.
pub(super) const BAD: &str = "bad";

/// A transport under test, and an inbox for it.
pub struct SourceFixture<T: Transport> {
    pub(super) transport: T,
    store: TestStore,
    log: Arc<HandlerLog>,
}

/// What handlers did.
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

    /// Starts an instance. All of them share the store, as the processes of one service do.
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

    pub(super) async fn send(&self, id: &str, kind: &str, payload: impl Into<Bytes>) {
        self.transport.send(Message::new(id.to_owned(), kind, payload)).await;
    }

    /// Messages of the durable type with the numbers of a range, each with a payload of its own.
    pub(super) async fn send_many(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.send(&format!("m{number}"), DURABLE, format!("payload {number}")).await;
        }
    }

    /// How often the message with this payload was handled.
    pub(super) fn runs(&self, payload: impl AsRef<[u8]>) -> usize {
        self.log.runs.lock().get(payload.as_ref()).copied().unwrap_or(0)
    }

    /// Whether the numbered messages were handled once each, and nothing else was.
    pub(super) fn each_ran_once(&self, count: usize) -> bool {
        let runs = self.log.runs.lock();
        runs.len() == count && runs.values().all(|runs| *runs == 1)
    }

    /// Lets slow handlers go on.
    pub(super) fn open_gate(&self) {
        self.log.gate.send_replace(true);
    }

    /// Waits until so many runs of handlers began.
    pub(super) async fn entered(&self, count: usize) {
        // The sender lives as long as the world.
        let _ = self.log.entered.subscribe().wait_for(|entered| *entered >= count).await;
    }

    pub(super) async fn books(&self) -> DeliveryLedger {
        self.transport.books().await
    }

    pub(super) async fn counts(&self) -> InboxCounts {
        let name = oncebox::InboxName::new("conformance").expect("a valid name");
        self.store.inner().count(&name).await.expect("the store inside does not fail")
    }

    /// Waits until something holds, while the transport brings again what it has to.
    pub(super) async fn until(&self, holds: impl AsyncFn(&Self) -> bool) {
        while !holds(self).await {
            self.transport.bring_again().await;
            #[expect(clippy::disallowed_methods, reason = "what is waited for happens in another process")]
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the transport believes that so many messages are done, so many rejected, and none is left.
    pub(super) async fn settled(&self, done: usize, rejected: usize) {
        self.until(async |world: &Self| {
            let books = world.books().await;
            assert!(books.done <= done && books.rejected <= rejected, "more than expected: {books:?}");
            books.waiting == 0 && books.done == done && books.rejected == rejected
        })
        .await;
    }

    /// What is known, for the message of a failure.
    pub(super) async fn account(&self) -> String {
        let pending = self.counts().await.with_status(Status::Pending);
        format!(
            "the transport has {:?}, {pending} entries are pending, runs: {:?}",
            self.books().await,
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
        f.debug_struct("World").field("log", &self.log).finish_non_exhaustive()
    }
}
