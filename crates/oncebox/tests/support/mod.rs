//! Fixtures of the runtime tests: an inbox on a test clock, over a store that fails on demand, and handlers that do what
//! their message says.
#![allow(dead_code, reason = "no test file needs all of it")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

pub(crate) mod books;
pub(crate) mod log_capture;
pub(crate) mod meter;
pub(crate) mod panicky;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::{Admin, EntryView, InboxCounts, Store};
use oncebox::{
    BoxError, Context, Discard, ErrorKind, Inbox, InboxBuilder, KeyStrategy, Memory, Message, Registration,
    Reject, RetryAfter, Running, Snooze, handler,
};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

/// The store of most tests.
pub(crate) type FaultyMemory = FaultyStore<Memory>;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An inbox over an empty memory store that fails on demand, with its clock and the script of its handlers.
pub(crate) struct Testbed {
    pub(crate) clock: TestClock,
    pub(crate) inbox: Inbox<FaultyMemory>,
    pub(crate) script: RunScript,
}

impl Testbed {
    /// `build` registers the handlers, which follow the script.
    pub(crate) fn new(
        build: impl FnOnce(InboxBuilder<FaultyMemory>, &RunScript) -> InboxBuilder<FaultyMemory>,
    ) -> Self {
        let clock = TestClock::new();
        Self::over(FaultyStore::new(Memory::with_clock(clock.shared())), clock, build)
    }

    /// The same over a store that others use too.
    pub(crate) fn over(
        store: FaultyMemory,
        clock: TestClock,
        build: impl FnOnce(InboxBuilder<FaultyMemory>, &RunScript) -> InboxBuilder<FaultyMemory>,
    ) -> Self {
        let script = RunScript::default();
        let builder = build(Inbox::builder("test", store), &script);
        let inbox = builder.clock(clock.shared()).build().unwrap();
        Self { clock, inbox, script }
    }

    pub(crate) fn store(&self) -> &FaultyMemory {
        self.inbox.store()
    }

    /// Lets a worker die with everything that it has in hand, and its leases run out. Nothing of it reaches the store any more.
    pub(crate) async fn die(&self, running: Running<FaultyMemory>, lease: Duration) {
        let away = StoreFault::ErrBefore(ErrorKind::Unavailable);
        for verb in [StoreVerb::Settle, StoreVerb::Renew] {
            self.store().faults().always(verb, away);
        }
        drop(running);
        quiet().await;
        self.clock.advance(lease + SECOND);
        quiet().await;
        self.store().faults().clear();
    }

    /// Accepts a message whose payload says what its handlers do.
    pub(crate) async fn accept(&self, id: &str, play: &str) {
        self.inbox.accept(message(id, play)).await.unwrap();
    }

    pub(crate) async fn entry(&self, id: &str, handler: &str) -> EntryView {
        entry(&self.inbox, id, handler).await
    }

    pub(crate) async fn status(&self, id: &str, handler: &str) -> Status {
        self.entry(id, handler).await.status
    }

    /// Returns the number of entries with a status.
    pub(crate) async fn count(&self, status: Status) -> u64 {
        counts(&self.inbox).await.with_status(status)
    }

    /// Advances the clock in small steps, and lets all tasks run at each.
    pub(crate) async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    /// Lets time pass until `holds`; panics after an hour.
    pub(crate) async fn pass_until(&self, holds: impl AsyncFn() -> bool) {
        let mut left = Duration::from_hours(1);
        while !holds().await {
            left = left.checked_sub(SECOND / 4).expect("what a test waits for happens within an hour");
            self.clock.advance(SECOND / 4);
            quiet().await;
        }
    }
}

/// A message of type `t`.
pub(crate) fn message(id: &str, payload: &str) -> Message {
    Message::new(id.to_owned(), "t", payload.to_owned())
}

pub(crate) async fn entry<S: Admin>(inbox: &Inbox<S>, id: &str, handler: &str) -> EntryView {
    let key = KeyStrategy::MessageId.key(inbox.name(), &message(id, "")).unwrap();
    let view = inbox.store().show(inbox.name(), &key).await.unwrap();
    let entries = view.unwrap_or_else(|| panic!("{id:?} is not stored")).entries;
    let found = entries.into_iter().rfind(|entry| entry.handler.as_str() == handler);
    found.unwrap_or_else(|| panic!("{id:?} has no entry for {handler:?}"))
}

pub(crate) async fn counts<S: Admin>(inbox: &Inbox<S>) -> InboxCounts {
    inbox.store().count(inbox.name(), None).await.unwrap()
}

/// Lets every task run until it waits. All tasks of these tests share one thread.
pub(crate) async fn quiet() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Advances the clock in steps of a quarter second, and lets all tasks run at each.
pub(crate) async fn pass(clock: &TestClock, time: Duration) {
    let mut left = time;
    quiet().await;
    while !left.is_zero() {
        let step = left.min(SECOND / 4);
        left -= step;
        clock.advance(step);
        quiet().await;
    }
}

/// A net under a whole test: what should happen by itself and does not is a failure, not a hang.
pub(crate) async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(3), test).await.expect("the test ends by itself")
}

/// Script of the handlers: it records every run, and holds those that wait.
#[derive(Clone)]
pub(crate) struct RunScript {
    shared: Arc<Shared>,
}

struct Shared {
    log: Mutex<Vec<String>>,
    plays: Mutex<HashMap<(String, String), String>>,
    started: watch::Sender<usize>,
    /// Runs that go on right now, and the most there ever were.
    running: Mutex<(usize, usize)>,
    /// Runs that were stopped from outside.
    cut: watch::Sender<usize>,
    go: Semaphore,
}

impl Default for RunScript {
    fn default() -> Self {
        log_capture::install();
        let shared = Shared {
            log: Mutex::default(),
            plays: Mutex::default(),
            started: watch::Sender::new(0),
            running: Mutex::default(),
            cut: watch::Sender::new(0),
            go: Semaphore::new(0),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl RunScript {
    /// A handler that does what the payload says: `ok`, `wait`, `fail why`, `panic why`, `reject why`, `discard why`,
    /// `snooze seconds`, `after seconds`. Several, separated by `;`, are for one attempt each.
    pub(crate) fn handler<S: Store>(&self, key: &'static str) -> Registration<S> {
        let script = self.clone();
        handler(key, move |message: Message, cx: &mut Context<S>| {
            script.clone().play(key, message, cx.attempt())
        })
    }

    /// Lets one handler do something else with a message than its payload says.
    pub(crate) fn says(&self, handler: &str, id: &str, play: &str) {
        self.shared.plays.lock().insert((handler.to_owned(), id.to_owned()), play.to_owned());
    }

    /// Every run so far, as `handler id attempt`.
    pub(crate) fn log(&self) -> Vec<String> {
        self.shared.log.lock().clone()
    }

    /// Returns the number of runs of a handler for a message.
    pub(crate) fn runs(&self, handler: &str, id: &str) -> usize {
        let start = format!("{handler} {id} ");
        self.log().iter().filter(|line| line.starts_with(&start)).count()
    }

    /// Completes when this many runs have begun.
    pub(crate) async fn started(&self, runs: usize) {
        let _ = self.shared.started.subscribe().wait_for(|started| *started >= runs).await;
    }

    /// Returns the number of active runs.
    pub(crate) fn running(&self) -> usize {
        self.shared.running.lock().0
    }

    /// The most runs there ever were at once.
    pub(crate) fn peak(&self) -> usize {
        self.shared.running.lock().1
    }

    /// Forgets the most there ever were.
    pub(crate) fn forget_most(&self) {
        let mut running = self.shared.running.lock();
        running.1 = running.0;
    }

    /// Returns the number of aborted runs.
    pub(crate) fn cut(&self) -> usize {
        *self.shared.cut.borrow()
    }

    /// Lets runs that wait go on, now or when they come to it.
    pub(crate) fn go(&self, runs: usize) {
        self.shared.go.add_permits(runs);
    }

    async fn play(self, handler: &'static str, message: Message, attempt: u32) -> Result<(), BoxError> {
        let id = String::from_utf8_lossy(message.id()).into_owned();
        self.shared.log.lock().push(format!("{handler} {id} {attempt}"));
        let mut run = RunGuard::new(&self.shared);
        let said = self.shared.plays.lock().get(&(handler.to_owned(), id)).cloned();
        let all = said.unwrap_or_else(|| String::from_utf8_lossy(message.payload()).into_owned());
        let turn = usize::try_from(attempt - 1).unwrap();
        let play = all.split(';').nth(turn).or_else(|| all.split(';').next_back()).unwrap().to_owned();
        self.shared.started.send_modify(|started| *started += 1);
        let (verb, rest) = play.split_once(' ').unwrap_or((&play, ""));
        let seconds = || Duration::from_secs(rest.parse().unwrap());
        if verb == "wait" {
            self.shared.go.acquire().await.unwrap().forget();
        }
        run.ended = true;
        match verb {
            "ok" | "wait" => Ok(()),
            "fail" => Err(rest.into()),
            "panic" => panic!("{rest}"),
            "reject" => Err(Reject(rest.into()).into()),
            "discard" => Err(Discard(rest.into()).into()),
            "snooze" => Err(Snooze(seconds()).into()),
            "after" => Err(RetryAfter(seconds(), "later".into()).into()),
            other => panic!("no handler can play {other:?}"),
        }
    }
}

/// Counts a run while it is active, and records an abort.
struct RunGuard<'a> {
    shared: &'a Shared,
    ended: bool,
}

impl<'a> RunGuard<'a> {
    fn new(shared: &'a Shared) -> Self {
        let mut running = shared.running.lock();
        running.0 += 1;
        running.1 = running.1.max(running.0);
        drop(running);
        Self { shared, ended: false }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.shared.running.lock().0 -= 1;
        if !self.ended {
            self.shared.cut.send_modify(|cut| *cut += 1);
        }
    }
}
