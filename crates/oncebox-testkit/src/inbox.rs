//! An inbox for tests of handlers, without background work, and with a clock that the test moves. Tests: below.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncebox::state::{Outcome, Settlement, Status};
use oncebox::store::{Accepted, Admin, EntryFilter, EntryView, RescueParams, Route, Store};
use oncebox::time::Clock as _;
use oncebox::{
    Context, Error, ErrorKind, Inbox, InboxBuilder, InboxName, KeyStrategy, Memory, Message, Policy,
    Registration, Result, handler,
};

use crate::TestClock;

/// Real time that [`TestInbox::wait_for`] waits at most.
const PATIENCE: Duration = Duration::from_mins(1);

/// Name of the inbox.
const NAME: &str = "test";

/// Message type and handler key of the message that makes a run crash.
const CRASH: &str = "oncebox-testkit/crash";

/// Inbox whose handlers run when the test calls it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use oncebox::{Context, Memory, Message, Status, handler};
/// use oncebox_testkit::TestInbox;
///
/// async fn ship(message: Message, cx: &mut Context<Memory>) -> Result<(), String> {
///     if cx.attempt() == 1 { Err("no truck".into()) } else { Ok(()) }
/// }
///
/// let inbox = TestInbox::new(|inbox| inbox.on("order.placed", handler("ship", ship)));
/// let message = Message::new("evt_1", "order.placed", "{}");
/// inbox.deliver(message.clone()).await;
/// inbox.drain().await;
/// assert_eq!(inbox.status(&message, "ship").await, Some(Status::Pending));
/// inbox.advance_and_drain(Duration::from_secs(4)).await;
/// assert_eq!(inbox.status(&message, "ship").await, Some(Status::Completed));
/// # });
/// ```
pub struct TestInbox<S: Store = Memory> {
    inbox: Inbox<S>,
    clock: TestClock,
    crashes: Arc<Crashes>,
}

impl TestInbox<Memory> {
    /// Returns an inbox with an empty memory store. `build` registers the handlers.
    pub fn new(build: impl FnOnce(InboxBuilder<Memory>) -> InboxBuilder<Memory>) -> Self {
        let clock = TestClock::new();
        Self::over(Memory::with_clock(clock.shared()), clock, build)
    }
}

impl<S: Admin + Clone> TestInbox<S> {
    /// Returns an inbox with a store on `clock`. `build` registers the handlers. It may set everything else except the clock.
    pub fn over(store: S, clock: TestClock, build: impl FnOnce(InboxBuilder<S>) -> InboxBuilder<S>) -> Self {
        let crashes = Arc::<Crashes>::default();
        let crash = crash_handler(store.clone(), clock.clone(), Arc::clone(&crashes));
        // Registered first, so that it runs before the handlers whose claims it takes.
        let builder = Inbox::builder(NAME, store).on(CRASH, crash);
        let inbox = build(builder).clock(clock.shared()).build().expect("a test builds a valid inbox");
        Self { inbox, clock, crashes }
    }

    /// Returns the inbox.
    pub fn inbox(&self) -> &Inbox<S> {
        &self.inbox
    }

    /// Returns the clock of the inbox and its store.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// Delivers a message, as a broker would.
    pub async fn deliver(&self, message: Message) -> Accepted {
        self.inbox.accept(message).await.expect("the message is accepted")
    }

    /// Runs all due entries, and returns their number.
    pub async fn drain(&self) -> usize {
        self.inbox.drain().await.expect("everything due is run")
    }

    /// Moves the clock, runs all due entries, and returns their number.
    pub async fn advance_and_drain(&self, by: Duration) -> usize {
        self.clock.advance(by);
        self.drain().await
    }

    /// Returns the entries of a message, by handler and generation. Its key is its source and id.
    pub async fn entries(&self, message: &Message) -> Vec<EntryView> {
        let key = KeyStrategy::MessageId.key(self.inbox.name(), message).expect("the message has an id");
        let view = self.inbox.store().show(self.inbox.name(), &key).await.expect("the store answers");
        view.map(|view| view.entries).unwrap_or_default()
    }

    /// Returns the status of a message for a handler. `None` if it was never stored for it.
    pub async fn status(&self, message: &Message, handler: &str) -> Option<Status> {
        let entries = self.entries(message).await;
        entries.iter().rfind(|entry| entry.handler.as_str() == handler).map(|entry| entry.status)
    }

    /// Waits until `holds` succeeds, for tests with a [started](Inbox::start) inbox. Panics with its error after a timeout.
    pub async fn wait_for(&self, reason: &str, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "what is waited for happens outside of the test clock"
                )]
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(ended.is_ok(), "waited {PATIENCE:?} for this: {reason}");
    }

    /// Makes the worker of the next [`drain`](Self::drain) crash at the worst time: handlers run to their end, but lose their
    /// claims before the completion is written, so they run again. Call it before the message is delivered.
    pub async fn crash_next_drain(&self) {
        let number = self.crashes.requested.fetch_add(1, Ordering::SeqCst).to_string();
        // A source of its own, because the test's messages may have any id.
        let crash = Message::new(number.clone(), CRASH, number).with_source(CRASH);
        let accepted = match self.inbox.accept(crash.clone()).await {
            // The inbox requires a tenant.
            Err(error) if error.kind() == ErrorKind::Tenant => self.deliver(crash.with_tenant(CRASH)).await,
            accepted => accepted.expect("the message is accepted"),
        };
        assert!(matches!(accepted, Accepted::First(_)), "the crash was not prepared: {accepted:?}");
    }

    /// Returns the number of crashed runs.
    pub fn crashed(&self) -> usize {
        self.crashes.done.load(Ordering::SeqCst)
    }
}

impl<S: Store> fmt::Debug for TestInbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestInbox").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

/// Maximum attempts to take claims that the drain renews.
const TAKEOVERS: usize = 50;

#[derive(Default)]
struct Crashes {
    requested: AtomicUsize,
    done: AtomicUsize,
}

/// Handler that takes the claims of all others, as if their worker had hung past its lease.
fn crash_handler<S: Admin + Clone>(store: S, clock: TestClock, crashes: Arc<Crashes>) -> Registration<S> {
    handler(CRASH, move |_: Message, _: &mut Context<S>| {
        let (store, clock, crashes) = (store.clone(), clock.clone(), Arc::clone(&crashes));
        async move {
            // The drain renews its claims when time moves, and may be first.
            let mut taken = 0;
            for _ in 0..TAKEOVERS {
                taken = take_claims(&store, &clock).await?;
                if taken > 0 {
                    break;
                }
            }
            crashes.done.fetch_add(taken, Ordering::SeqCst);
            Ok::<(), Error>(())
        }
    })
}

/// Moves time past all leases, settles running entries as crashed, and returns their number.
async fn take_claims<S: Admin>(store: &S, clock: &TestClock) -> Result<usize> {
    let inbox = InboxName::new(NAME)?;
    let mut running = EntryFilter::new(inbox.clone(), Status::Running);
    running.limit = usize::from(u16::MAX);
    let running = store.list(&running).await?.entries;
    let Some(last) = running.iter().map(|entry| entry.at).max() else {
        return Ok(0);
    };
    clock.advance(last.since(clock.now()) + Duration::from_millis(1));
    let routes: Vec<Route> = running
        .iter()
        .filter(|entry| entry.handler.as_str() != CRASH)
        .map(|entry| Route::new(entry.handler.clone()))
        .collect();
    let rescue = RescueParams::new(inbox, routes, Duration::from_mins(1), running.len());
    let rescued = store.rescue(&rescue).await?;
    let crashed: Vec<Settlement> =
        rescued.iter().map(|rescued| rescued.claim.settle(&Policy::default(), Outcome::Crashed)).collect();
    store.settle(&crashed).await?;
    Ok(crashed.len())
}

/// Asserts that handlers have the same effects for a single delivery, for three deliveries, and after a crash of the worker between
/// the end of a handler and its completion.
///
/// `fixture` returns a new inbox and a function that returns the effects. It is called once for each case.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::collections::BTreeSet;
/// use std::sync::{Arc, Mutex};
/// use oncebox::{Context, Memory, Message, handler};
/// use oncebox_testkit::{TestInbox, assert_idempotent};
///
/// type Charged = Arc<Mutex<BTreeSet<String>>>;
///
/// // The other service recognises a repeat by its key.
/// async fn charge(_order: Message, cx: &mut Context<Memory>) -> Result<(), std::convert::Infallible> {
///     let key = cx.idempotency_key("charge");
///     cx.data::<Charged>().unwrap().lock().unwrap().insert(key);
///     Ok(())
/// }
///
/// assert_idempotent(Message::new("evt_1", "order.placed", "{}"), async || {
///     let charged = Charged::default();
///     let inbox = TestInbox::new(|inbox| {
///         inbox.data(Arc::clone(&charged)).on("order.placed", handler("charge", charge))
///     });
///     (inbox, async move || charged.lock().unwrap().clone())
/// })
/// .await;
/// # });
/// ```
pub async fn assert_idempotent<S, E, T>(message: Message, fixture: impl AsyncFn() -> (TestInbox<S>, E))
where
    S: Admin + Clone,
    E: AsyncFn() -> T,
    T: PartialEq + fmt::Debug,
{
    let (inbox, effects) = fixture().await;
    inbox.deliver(message.clone()).await;
    assert!(inbox.drain().await > 0, "no handler ran for the message");
    let once = effects().await;

    let (inbox, effects) = fixture().await;
    for _ in 0..3 {
        inbox.deliver(message.clone()).await;
        inbox.drain().await;
    }
    assert_eq!(effects().await, once, "the effects of a message that came three times");

    let (inbox, effects) = fixture().await;
    inbox.crash_next_drain().await;
    inbox.deliver(message).await;
    inbox.drain().await;
    assert!(inbox.crashed() > 0, "the store ran the message before the crash");
    assert_eq!(effects().await, once, "the effects of a handler that ran again after a crash");
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use oncebox::Snooze;
    use parking_lot::Mutex;

    use super::*;

    type RunLog = Arc<Mutex<Vec<String>>>;

    async fn write(message: Message, cx: &mut Context<Memory>) -> Result<(), Infallible> {
        let log = cx.data::<RunLog>().unwrap();
        log.lock().push(String::from_utf8_lossy(message.payload()).into_owned());
        Ok(())
    }

    async fn nap(_: Message, _: &mut Context<Memory>) -> Result<(), Snooze> {
        Err(Snooze(Duration::from_hours(1)))
    }

    fn logging(log: &RunLog) -> TestInbox {
        TestInbox::new(|inbox| inbox.data(Arc::clone(log)).on("note", handler("write", write)))
    }

    fn note() -> Message {
        Message::new("1", "note", "hello")
    }

    #[tokio::test]
    async fn handlers_run_when_the_test_says_so() {
        let log = RunLog::default();
        let inbox = logging(&log);
        inbox.deliver(note()).await;
        assert_eq!((inbox.status(&note(), "write").await, log.lock().len()), (Some(Status::Pending), 0));
        assert_eq!(inbox.drain().await, 1);
        assert_eq!((inbox.status(&note(), "write").await, log.lock().len()), (Some(Status::Completed), 1));
        assert_eq!(inbox.status(&note(), "other").await, None);
        assert_eq!(inbox.drain().await, 0);
    }

    #[tokio::test]
    async fn time_passes_when_the_test_says_so() {
        let inbox = TestInbox::new(|inbox| inbox.on("note", handler("nap", nap)));
        inbox.deliver(note()).await;
        assert_eq!(inbox.drain().await, 1);
        assert_eq!(inbox.advance_and_drain(Duration::from_secs(3599)).await, 0);
        assert_eq!(inbox.advance_and_drain(Duration::from_secs(1)).await, 1);
    }

    #[tokio::test]
    async fn a_started_inbox_can_be_waited_for() {
        let log = RunLog::default();
        let inbox = logging(&log);
        let running = inbox.inbox().start();
        inbox.deliver(note()).await;
        inbox.wait_for("the note is written", async || log.lock().len() == 1).await;
        running.shutdown().await;
    }

    #[tokio::test]
    async fn a_crash_lets_the_handler_run_again() {
        let log = RunLog::default();
        let inbox = logging(&log);
        for round in 1..=2 {
            let message = Message::new(round.to_string(), "note", "hello");
            inbox.crash_next_drain().await;
            inbox.deliver(message.clone()).await;
            inbox.drain().await;
            assert_eq!((inbox.crashed(), log.lock().len()), (round, 2 * round));
            assert_eq!(inbox.status(&message, "write").await, Some(Status::Completed));
            assert_eq!(inbox.entries(&message).await[0].suspicion.stored(), 1);
        }
    }

    #[tokio::test]
    async fn a_crash_needs_no_tenant_of_the_test() {
        let mut config = oncebox::Config::default();
        config.tenants = oncebox::config::Tenants::Required;
        assert_idempotent(note().with_tenant("a"), async || {
            let log = RunLog::default();
            let inbox = TestInbox::new(|inbox| {
                let noted = handler("write", write);
                inbox.config(config.clone()).data(Arc::clone(&log)).on("note", noted)
            });
            (inbox, async move || !log.lock().is_empty())
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "ran again after a crash")]
    async fn a_handler_that_is_not_idempotent_is_found() {
        assert_idempotent(note(), async || {
            let log = RunLog::default();
            let inbox = logging(&log);
            (inbox, async move || log.lock().clone())
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "no handler ran")]
    async fn a_message_without_a_handler_proves_nothing() {
        assert_idempotent(Message::new("1", "unknown", ""), async || {
            (logging(&RunLog::default()), async || ())
        })
        .await;
    }
}
