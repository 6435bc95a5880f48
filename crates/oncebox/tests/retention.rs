//! Messages over time: windows of handlers, sweeps that fail, handlers that come late, and advice.

mod support;

use std::time::Duration;

use oncebox::store::{Accepted, Mark, MarkIn as _, Transactional as _};
use oncebox::time::Clock as _;
use oncebox::{Config, Dedupe, ErrorKind, HandlerKey, Inbox, KeyStrategy, Memory, Message, Processed};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use support::{RunScript, SECOND, Testbed, counts, in_time, message, quiet};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

async fn messages(setup: &Testbed) -> u64 {
    counts(&setup.inbox).await.messages
}

/// Runs a message of a type through its handlers.
async fn finish(setup: &Testbed, id: &str, kind: &str) {
    setup.inbox.accept(Message::new(id.to_owned(), kind, "ok")).await.expect("accept");
    setup.inbox.drain().await.expect("drain");
}

/// Lets hours pass in a few steps, and everybody act at each.
async fn hours(setup: &Testbed, hours: usize) {
    quiet().await;
    for _ in 0..hours * 12 {
        setup.clock.advance(HOUR / 12);
        quiet().await;
    }
}

#[tokio::test]
async fn each_handler_has_its_window() {
    let setup = Testbed::new(|inbox, script| {
        let short = script.handler("short").retention(HOUR);
        let long = script.handler("long").retention(30 * DAY);
        inbox.on(["s", "both"], short).on(["l", "both"], long).on("t", script.handler("h"))
    });
    for (id, kind) in [("1", "s"), ("2", "l"), ("3", "t"), ("4", "both")] {
        finish(&setup, id, kind).await;
    }
    for (passes, left) in [(HOUR, 3), (7 * DAY, 2), (22 * DAY, 2), (DAY, 0)] {
        setup.clock.advance(passes);
        setup.inbox.sweep().await.unwrap();
        assert_eq!(messages(&setup).await, left, "after another {passes:?}");
    }
}

// FAULTS I1: what was stored under a former name is remembered for as long.
#[tokio::test]
async fn former_keys_have_the_window_of_their_handler() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let before =
        Testbed::over(store.clone(), clock.clone(), |inbox, script| inbox.on("t", script.handler("old")));
    finish(&before, "1", "t").await;
    let after = Testbed::over(store, clock, |inbox, script| {
        inbox.on("t", script.handler("new").legacy("old").retention(30 * DAY))
    });
    after.clock.advance(29 * DAY);
    assert_eq!(after.inbox.sweep().await.unwrap().messages, 0);
    after.clock.advance(DAY);
    assert_eq!(after.inbox.sweep().await.unwrap().messages, 1);
}

// FAULTS H1, H6: two versions of a program on one store, of which one does not know the handler of the other.
#[tokio::test]
async fn a_process_that_does_not_know_a_handler_forgets_nothing_of_it() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let knows = Testbed::over(store.clone(), clock.clone(), |inbox, script| {
        inbox
            .on("t", script.handler("long").retention(30 * DAY))
            .on("i", script.handler("i").inline().retention(30 * DAY))
    });
    let other = Testbed::over(store, clock.clone(), |inbox, script| inbox.on("u", script.handler("h")));
    // Neither has ever swept or started when the first message comes.
    finish(&knows, "1", "t").await;
    let inline = || Message::new("1", "i", "ok");
    assert_eq!(knows.inbox.process(inline()).await.unwrap(), Processed::Done);
    finish(&other, "2", "u").await;
    for day in 0..29 {
        clock.advance(DAY);
        assert_eq!(other.inbox.sweep().await.unwrap().messages, usize::from(day == 6), "day {day}");
    }
    let again = knows.inbox.accept(Message::new("1", "t", "ok")).await.unwrap();
    assert!(matches!(again, Accepted::Duplicate(_)));
    assert_eq!(knows.inbox.process(inline()).await.unwrap(), Processed::Duplicate);
    clock.advance(DAY);
    assert_eq!(other.inbox.sweep().await.unwrap().messages, 1);
}

// A running process says it again and again, also if it never sweeps anything.
#[tokio::test]
async fn a_running_process_keeps_what_it_registered() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let longer = Testbed::over(store.clone(), clock.clone(), |inbox, script| {
        let inbox = inbox.config(Config { retention: None, ..Config::default() });
        inbox.on("t", script.handler("h"))
    });
    let shorter = Testbed::over(store, clock, |inbox, script| inbox.on("t", script.handler("h")));
    finish(&longer, "1", "t").await;
    let running = longer.inbox.start();
    for _ in 0..30 {
        hours(&longer, 24).await;
        assert_eq!(shorter.inbox.sweep().await.unwrap().messages, 0);
    }
    in_time(running.shutdown()).await;
    longer.clock.advance(2 * DAY);
    assert_eq!(shorter.inbox.sweep().await.unwrap().messages, 1, "no process relies on it any more");
}

// A process that accepts and leaves the work to others never sweeps.
#[tokio::test]
async fn an_accepting_process_keeps_what_it_registered() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let gateway = Testbed::over(store.clone(), clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("h").retention(30 * DAY))
    });
    let worker = Testbed::over(store.clone(), clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("h").retention(7 * DAY))
    });
    gateway.accept("first", "ok").await;
    assert_eq!(worker.inbox.drain().await.unwrap(), 1);
    for third in 0..3 * 29 {
        clock.advance(DAY / 3);
        // Once in a while the store cannot be told: what was said before counts.
        if third % 6 == 1 {
            store.faults().next(StoreVerb::Register, StoreFault::ErrBefore(ErrorKind::Unavailable));
        }
        gateway.accept(&third.to_string(), "ok").await;
        gateway.accept(&format!("{third} again"), "ok").await;
        assert_eq!(worker.inbox.drain().await.unwrap(), 2);
        assert_eq!(worker.inbox.sweep().await.unwrap().messages, 0, "day {}", third / 3);
    }
    let again = gateway.inbox.accept(message("first", "ok")).await.unwrap();
    assert!(matches!(again, Accepted::Duplicate(_)), "FAULTS H1");
}

// What cannot be told to the store is told to the caller: nothing is stored that others may forget too early.
#[tokio::test]
async fn nothing_is_stored_before_its_window_is_known() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").retention(30 * DAY)));
    setup.store().faults().next(StoreVerb::Register, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let error = setup.inbox.accept(message("1", "ok")).await.unwrap_err();
    assert_eq!((error.kind(), messages(&setup).await), (ErrorKind::Unavailable, 0));
    finish(&setup, "1", "t").await;
    finish(&setup, "2", "t").await;
    assert_eq!(setup.store().faults().calls(StoreVerb::Register), 2, "once is enough");
}

// A message that is compared with nothing cannot have been forgotten.
#[tokio::test]
async fn what_is_not_compared_is_never_stale() {
    let setup = Testbed::new(|inbox, script| {
        let off = script.handler("off").dedupe(Dedupe::Off);
        inbox.on("t", script.handler("h")).on("o", off).on("both", script.handler("too").dedupe(Dedupe::Off))
    });
    let start = setup.clock.now();
    finish(&setup, "1", "t").await;
    finish(&setup, "1", "o").await;
    setup.clock.advance(7 * DAY);
    assert_eq!(setup.inbox.sweep().await.unwrap().messages, 2);
    let dated = |kind: &str| Message::new("1", kind, "ok").with_time(start);
    assert_eq!(setup.inbox.accept(dated("t")).await.unwrap(), Accepted::Stale);
    assert!(matches!(setup.inbox.accept(dated("o")).await.unwrap(), Accepted::First(_)));
    assert_eq!(setup.inbox.drain().await.unwrap(), 1);
}

#[tokio::test]
async fn a_window_works_beside_for_ever() {
    let setup = Testbed::new(|inbox, script| {
        let inbox = inbox.config(Config { retention: None, ..Config::default() });
        inbox.on("s", script.handler("short").retention(HOUR)).on("t", script.handler("h"))
    });
    finish(&setup, "1", "s").await;
    finish(&setup, "2", "t").await;
    let running = setup.inbox.start();
    hours(&setup, 2).await;
    assert_eq!(messages(&setup).await, 1);
    setup.clock.advance(1_000 * DAY);
    assert_eq!(setup.inbox.sweep().await.unwrap().messages, 0);
    running.shutdown().await;
}

// FAULTS H1: marks of inline handlers, and of `once`.
#[tokio::test]
async fn marks_have_the_window_of_their_handler() {
    let setup =
        Testbed::new(|inbox, script| inbox.on("t", script.handler("long").inline().retention(30 * DAY)));
    let mark = async |name: &str| {
        let key = KeyStrategy::MessageId.key(setup.inbox.name(), &message("1", "")).unwrap();
        let mut tx = setup.store().begin().await.unwrap();
        let handler = HandlerKey::new(name).unwrap();
        let mark = setup.store().mark(&mut tx, setup.inbox.name(), &key, &handler, None).await.unwrap();
        setup.store().commit(tx).await.unwrap();
        mark
    };
    setup.inbox.process(message("1", "ok")).await.unwrap();
    assert_eq!(mark("other").await, Mark::First);
    setup.clock.advance(29 * DAY);
    setup.inbox.sweep().await.unwrap();
    assert_eq!((mark("long").await, mark("other").await), (Mark::Duplicate, Mark::First));
    setup.clock.advance(DAY);
    setup.inbox.sweep().await.unwrap();
    assert_eq!(mark("long").await, Mark::First);
}

#[test]
fn a_window_that_is_too_short_is_refused_at_start() {
    let build = |window, lease| {
        let script = RunScript::default();
        let config = Config { lease, ..Config::default() };
        let h = script.handler("h").legacy("before").retention(window);
        Inbox::builder("test", Memory::new()).config(config).on("t", h).build()
    };
    let error = build(SECOND, Duration::from_mins(5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidHandler);
    for part in ["`retention` of the handler \"h\"", "1s is less than 300s", "make it 300s or more"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    build(SECOND, SECOND).unwrap();
    let config = Config { retention: Some(SECOND), ..Config::default() };
    let error = config.validate().unwrap_err();
    for part in ["`retention` is shorter than `lease`", "1s is less than 30s", "make it 30s or more"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

// FAULTS H4
#[tokio::test]
async fn a_sweeper_survives_its_own_failures() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").retention(HOUR)));
    finish(&setup, "1", "t").await;
    let faults = setup.store().faults();
    let broken = StoreFault::ErrBefore(ErrorKind::Corrupt);
    faults.script(StoreVerb::Sweep, [broken, StoreFault::Panic, StoreFault::ErrAfter, broken].map(Some));
    let running = setup.inbox.start();
    hours(&setup, 8).await;
    assert_eq!(messages(&setup).await, 0);
    assert!(faults.calls(StoreVerb::Sweep) > 4, "it goes on");
    in_time(running.shutdown()).await;
}

// FAULTS H4: an error in the middle of a sweep does not keep the next one of the same process away.
#[tokio::test]
async fn a_sweep_that_was_broken_off_is_taken_up_again() {
    let setup = Testbed::new(|inbox, _| inbox);
    let batch = (0..10_001).map(|n| message(&n.to_string(), "")).collect::<Vec<_>>();
    setup.inbox.accept_batch(batch).await.unwrap();
    setup.clock.advance(7 * DAY);
    let broken = StoreFault::ErrBefore(ErrorKind::Unavailable);
    setup.store().faults().script(StoreVerb::Sweep, [None, Some(broken)]);
    assert_eq!(setup.inbox.sweep().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(messages(&setup).await, 1);
    let other = Testbed::over(setup.store().clone(), setup.clock.clone(), |inbox, _| inbox);
    assert_eq!(other.inbox.sweep().await.unwrap().messages, 0, "another process sweeps");
    assert_eq!(setup.inbox.sweep().await.unwrap().messages, 1);
}

// FAULTS I2
#[tokio::test]
async fn a_handler_that_was_added_later_gets_what_is_stored() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let before =
        Testbed::over(store.clone(), clock.clone(), |inbox, script| inbox.on("t", script.handler("h")));
    for n in 0..1_500 {
        before.accept(&n.to_string(), "ok").await;
    }
    before.inbox.accept(Message::new("another", "u", "ok")).await.unwrap();
    before.inbox.drain().await.unwrap();
    let setup = Testbed::over(store, clock, |inbox, script| {
        let new = script.handler("new").legacy("never");
        inbox.on("t", script.handler("h")).on(["t", "v"], new).on("t", script.handler("inline").inline())
    });
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 0, "not by itself");
    // The answer to the second page is lost.
    setup.store().faults().script(StoreVerb::Backfill, [None, Some(StoreFault::ErrAfter)]);
    assert_eq!(setup.inbox.backfill("new").await.unwrap_err().kind(), ErrorKind::CommitUnknown);
    assert_eq!(setup.inbox.backfill("new").await.unwrap(), 0, "all was done but the answer");
    in_time(setup.script.started(1_500)).await;
    in_time(running.idle()).await;
    assert!(setup.script.log().iter().all(|line| line.starts_with("new ")));
    assert_eq!(setup.script.log().len(), 1_500);
    for (key, what) in [("never", "use its current key"), ("absent", "no handler"), ("inline", "is inline")] {
        let error = setup.inbox.backfill(key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        assert!(error.to_string().contains(what), "{error}");
    }
    in_time(running.shutdown()).await;
}

#[tokio::test]
async fn what_is_stored_under_several_keys_is_not_backfilled() {
    let setup = Testbed::new(|inbox, script| {
        let by_content = script.handler("content").dedupe(Dedupe::By(KeyStrategy::Content));
        inbox.on("t", script.handler("h")).on("t", by_content)
    });
    setup.accept("1", "ok").await;
    setup.inbox.drain().await.unwrap();
    let error = setup.inbox.backfill("h").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidHandler);
    assert!(error.to_string().contains("go by several keys"), "{error}");
    assert_eq!(setup.inbox.drain().await.unwrap(), 0, "nothing runs a second time");
}

#[tokio::test]
async fn advice_is_about_what_came() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("h")).on("u", script.handler("long").retention(30 * DAY))
    });
    let advice = setup.inbox.retention_advice();
    assert_eq!((advice.duplicates, advice.window, advice.covered), (0, Some(7 * DAY), true));
    finish(&setup, "1", "t").await;
    for _ in 0..3 {
        setup.clock.advance(HOUR);
        assert!(matches!(setup.inbox.accept(message("1", "ok")).await.unwrap(), Accepted::Duplicate(_)));
    }
    setup.inbox.accept_batch([message("1", "ok"), message("2", "ok")]).await.unwrap();
    setup.inbox.receive(message("1", "ok")).await.unwrap();
    let advice = setup.inbox.retention_advice();
    assert_eq!((advice.duplicates, advice.latest), (5, 3 * HOUR), "whichever way they came");
    assert_eq!(
        advice.to_string(),
        "the latest of 5 duplicates came 3 h after the first; the window of 7 days covers it 56 times"
    );
    setup.clock.advance(4 * DAY);
    setup.inbox.accept(message("1", "ok")).await.unwrap();
    assert!(!setup.inbox.retention_advice().covered, "a later one may not have been recognised");
}

// A short window is not kept for an hour longer; a set interval counts.
#[tokio::test]
async fn how_often_is_swept_goes_by_the_shortest_window() {
    let lease = 10 * SECOND;
    let short = |retention, sweep| Config { lease, retention, sweep, ..Config::default() };
    for (config, own, gone_after, calls) in [
        (short(Some(20 * SECOND), None), None, 20 * SECOND, 10),
        (short(Some(DAY), None), Some(20 * SECOND), 20 * SECOND, 10),
        (short(Some(20 * SECOND), Some(30 * SECOND)), None, 30 * SECOND, 1),
        (short(Some(10 * SECOND), None), None, 10 * SECOND, 10),
        (short(Some(DAY), None), None, DAY, 24),
    ] {
        let setup = Testbed::new(|inbox, script| {
            let handler = script.handler("h");
            let handler = if let Some(own) = own { handler.retention(own) } else { handler };
            inbox.config(config.clone()).on("t", handler)
        });
        finish(&setup, "1", "t").await;
        let running = setup.inbox.start();
        quiet().await;
        let step = gone_after / u32::try_from(calls).unwrap();
        for _ in 0..calls {
            assert_eq!(messages(&setup).await, 1, "{config:?}");
            setup.clock.advance(step);
            quiet().await;
        }
        assert_eq!(
            (messages(&setup).await, setup.store().faults().calls(StoreVerb::Sweep)),
            (0, calls),
            "{config:?}"
        );
        in_time(running.shutdown()).await;
    }
}
