//! Several inboxes and databases in one process: what happens to one is nothing to the others.

mod support;

use oncebox::state::Status;
use oncebox::{Accepted, Config, ErrorKind, HandlerKey, Inbox, Memory};
use oncebox_testkit::OperatorSteps as _;
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use support::{FaultyMemory, RunScript, SECOND, counts, entry, in_time, message, pass};

/// An inbox with its own script, and a handler `h`.
struct Side {
    inbox: Inbox<FaultyMemory>,
    script: RunScript,
}

impl Side {
    fn new(name: &str, store: &FaultyMemory, clock: &TestClock) -> Self {
        let script = RunScript::default();
        let inbox = Inbox::builder(name, store.clone())
            .config(Config { prefetch: 4, ..Config::default() })
            .on("t", script.handler("h"))
            .on("now", script.handler("now").inline())
            .clock(clock.shared());
        Self { inbox: inbox.build().expect("it works"), script }
    }

    async fn take(&self, id: &str, play: &str) {
        assert!(matches!(self.inbox.accept(message(id, play)).await.expect("it works"), Accepted::First(_)));
        let now = oncebox::Message::new(id.to_owned(), "now", "ok");
        assert_eq!(self.inbox.process(now).await.expect("it works"), oncebox::Processed::Done);
    }

    async fn status(&self, id: &str) -> Status {
        entry(&self.inbox, id, "h").await.status
    }
}

fn store(clock: &TestClock) -> FaultyMemory {
    FaultyStore::new(Memory::with_clock(clock.shared()))
}

// FAULTS G5: two on one store, one on another, with the same ids everywhere.
#[tokio::test]
async fn the_same_ids_in_three_inboxes_are_three_messages() {
    let clock = TestClock::new();
    let (shared, own) = (store(&clock), store(&clock));
    let [a, b, c] = [("a", &shared), ("b", &shared), ("c", &own)].map(|(n, s)| Side::new(n, s, &clock));
    let running = [&a, &b, &c].map(|side| side.inbox.start());
    for id in ["1", "2", "3"] {
        for side in [&a, &b, &c] {
            side.take(id, "ok").await;
        }
    }
    for running in &running {
        in_time(running.idle()).await;
    }
    for side in [&a, &b, &c] {
        assert_eq!(side.script.log().len(), 6, "{:?}", side.inbox);
        assert_eq!(counts(&side.inbox).await.messages, 3);
        assert!(matches!(side.inbox.accept(message("1", "ok")).await.unwrap(), Accepted::Duplicate(_)));
    }
}

#[tokio::test]
async fn an_inbox_that_fails_or_is_paused_keeps_no_other_from_its_work() {
    let clock = TestClock::new();
    let (shared, own) = (store(&clock), store(&clock));
    let [failing, paused, well] =
        [("a", &shared), ("b", &shared), ("c", &own)].map(|(n, s)| Side::new(n, s, &clock));
    shared.pause(paused.inbox.name(), &HandlerKey::new("h").unwrap()).await.unwrap();
    let running = [&failing, &paused, &well].map(|side| side.inbox.start());
    failing.take("1", "reject no").await;
    failing.take("2", "panic oh").await;
    for side in [&paused, &well] {
        side.take("1", "ok").await;
        side.take("2", "ok").await;
    }
    pass(&clock, 2 * SECOND).await;
    assert_eq!(failing.status("1").await, Status::Poisoned);
    assert_eq!(failing.status("2").await, Status::Pending);
    assert_eq!(paused.status("1").await, Status::Pending, "a pause is by inbox");
    assert_eq!(well.status("1").await, Status::Completed);
    assert_eq!(paused.script.runs("h", "1") + paused.script.runs("h", "2"), 0);
    shared.resume(paused.inbox.name(), &HandlerKey::new("h").unwrap()).await.unwrap();
    pass(&clock, SECOND).await;
    assert_eq!((paused.status("1").await, paused.status("2").await), (Status::Completed, Status::Completed));
    // An inbox that stops does not stop the others.
    let [failing_runs, paused_runs, well_runs] = running;
    in_time(failing_runs.shutdown()).await;
    for side in [&paused, &well] {
        side.take("3", "ok").await;
    }
    in_time(paused_runs.idle()).await;
    in_time(well_runs.idle()).await;
    assert_eq!((paused.status("3").await, well.status("3").await), (Status::Completed, Status::Completed));
}

#[tokio::test]
async fn a_store_that_is_full_or_away_is_nothing_to_an_inbox_on_another() {
    let clock = TestClock::new();
    let full = FaultyStore::new(Memory::with_clock(clock.shared()).capacity(2));
    let own = store(&clock);
    let [a, b, c] = [("a", &full), ("b", &full), ("c", &own)].map(|(n, s)| Side::new(n, s, &clock));
    let _running = [&a, &b, &c].map(|side| side.inbox.start());
    a.take("1", "ok").await;
    b.take("1", "ok").await;
    for side in [&a, &b] {
        let refused = side.inbox.accept(message("2", "ok")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full);
    }
    c.take("1", "ok").await;
    full.faults().always(StoreVerb::Claim, StoreFault::ErrBefore(ErrorKind::Unavailable));
    full.faults().always(StoreVerb::Accept, StoreFault::Panic);
    pass(&clock, 10 * SECOND).await;
    c.take("2", "ok").await;
    pass(&clock, SECOND).await;
    assert_eq!((c.status("1").await, c.status("2").await), (Status::Completed, Status::Completed));
    full.faults().clear();
    pass(&clock, 20 * SECOND).await;
    assert_eq!((a.status("1").await, b.status("1").await), (Status::Completed, Status::Completed));
}
