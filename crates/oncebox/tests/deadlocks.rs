//! Deadlocks: a transaction that the database rolls back for another one counts no failure.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::state::Status;
use oncebox::{BoxError, Context, Error, ErrorKind, Message, Processed, Retry, handler};
use oncebox_testkit::{Deadlock, StoreFault, StoreVerb};
use support::{FaultyMemory, SECOND, Testbed, in_time, message};

/// Number of runs that still meet a deadlock, and of all runs.
#[derive(Default)]
struct DeadlockScript {
    deadlocks: AtomicUsize,
    runs: AtomicUsize,
}

impl DeadlockScript {
    fn deadlocks(deadlocks: usize) -> Arc<Self> {
        Arc::new(Self { deadlocks: AtomicUsize::new(deadlocks), ..Self::default() })
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

/// An error of the program around that of the database.
#[derive(Debug)]
struct BookingError(Deadlock);

impl std::fmt::Display for BookingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot book")
    }
}

impl std::error::Error for BookingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

async fn book(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    let play = cx.data::<Arc<DeadlockScript>>()?;
    play.runs.fetch_add(1, Ordering::Relaxed);
    cx.tx().await?;
    let left = play.deadlocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left.is_ok() { Err(Box::new(BookingError(Deadlock))) } else { Ok(()) }
}

fn durable(play: &Arc<DeadlockScript>) -> Testbed {
    Testbed::new(|inbox, _| inbox.data(Arc::clone(play)).on("t", handler("h", book)))
}

fn inline(play: &Arc<DeadlockScript>) -> Testbed {
    Testbed::new(|inbox, _| inbox.data(Arc::clone(play)).on("t", handler("h", book).inline()))
}

// FAULTS E7: a deadlock burns neither counter, and does not spin.
#[tokio::test]
async fn a_deadlock_of_a_stored_message_burns_no_attempt() {
    let play = DeadlockScript::deadlocks(20);
    let setup = durable(&play);
    setup.accept("1", "").await;
    for run in 1..=20 {
        assert_eq!(in_time(setup.inbox.drain()).await.unwrap(), 1, "once, then it waits");
        assert_eq!(play.runs(), run);
        let entry = setup.entry("1", "h").await;
        assert_eq!((entry.status, entry.attempts, entry.suspicion.stored()), (Status::Pending, 0, 0));
        setup.clock.advance(SECOND);
    }
    setup.inbox.drain().await.unwrap();
    let entry = setup.entry("1", "h").await;
    assert_eq!((entry.status, entry.attempts), (Status::Completed, 0));
}

// One that meets a deadlock every time does not run for ever.
#[tokio::test]
async fn a_deadlock_that_never_ends_is_a_failure_in_the_end() {
    let play = DeadlockScript::deadlocks(usize::MAX);
    let setup = Testbed::new(|inbox, _| {
        inbox.data(Arc::clone(&play)).on("t", handler("h", book).retry(Retry::new(2, SECOND, SECOND)))
    });
    setup.accept("1", "").await;
    for attempts in [0, 1] {
        for _ in 0..20 {
            assert_eq!(setup.entry("1", "h").await.attempts, attempts);
            assert_eq!(in_time(setup.inbox.drain()).await.unwrap(), 1);
            setup.clock.advance(SECOND);
        }
        assert_eq!(in_time(setup.inbox.drain()).await.unwrap(), 1);
        setup.clock.advance(SECOND);
    }
    let entry = setup.entry("1", "h").await;
    assert_eq!((entry.status, entry.attempts), (Status::Poisoned, 2));
    assert!(entry.error.unwrap().as_str().contains("cannot book"), "what the database said is kept");
    assert_eq!(play.runs(), 42);
}

// FAULTS E7: the same in a transaction that several runs share: the others are not held up.
#[tokio::test]
async fn a_deadlock_in_a_shared_transaction_burns_no_attempt() {
    let play = DeadlockScript::deadlocks(1);
    let setup =
        Testbed::new(|inbox, _| inbox.data(Arc::clone(&play)).on("t", handler("h", book).share_commit(8)));
    for id in ["1", "2", "3"] {
        setup.accept(id, "").await;
    }
    let running = setup.inbox.start();
    setup.pass_until(async || setup.count(Status::Completed).await == 3).await;
    for id in ["1", "2", "3"] {
        assert_eq!(setup.entry(id, "h").await.attempts, 0);
    }
    assert_eq!(play.runs(), 4);
    in_time(running.shutdown()).await;
}

// FAULTS E7: a delivery that is held is not given back to the broker for it.
#[tokio::test]
async fn an_inline_run_is_made_again_after_a_short_pause() {
    let play = DeadlockScript::deadlocks(3);
    let setup = inline(&play);
    let inbox = setup.inbox.clone();
    let delivery = tokio::spawn(async move { inbox.process(message("1", "")).await });
    let mut waited = std::time::Duration::ZERO;
    for run in 1..=3 {
        in_time(setup.clock.wait_for_sleepers(1)).await;
        assert_eq!(play.runs(), run);
        let pause = setup.clock.next_due().unwrap();
        waited += pause;
        setup.clock.advance(pause);
        support::quiet().await;
    }
    assert_eq!(in_time(delivery).await.unwrap().unwrap(), Processed::Done);
    assert!(waited >= 3 * SECOND / 100 && waited <= SECOND, "{waited:?}");
    assert_eq!(setup.store().faults().calls(StoreVerb::Begin), 4);
}

// FAULTS A4: an unknown commit is an error even if a deadlock is said to be its cause.
#[tokio::test]
async fn an_unknown_commit_is_not_repeated_whatever_its_cause() {
    async fn unknown(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
        cx.data::<Arc<DeadlockScript>>()?.runs.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(ErrorKind::CommitUnknown, "no answer").caused_by(Deadlock).into())
    }
    let play = DeadlockScript::deadlocks(0);
    let setup =
        Testbed::new(|inbox, _| inbox.data(Arc::clone(&play)).on("t", handler("h", unknown).inline()));
    let processed = in_time(setup.inbox.process(message("1", ""))).await.unwrap();
    assert!(matches!(processed, Processed::Failed(_)));
    assert_eq!(play.runs(), 1);
}

// A store that cannot begin has waited already.
#[tokio::test]
async fn a_deadlock_before_the_transaction_is_an_error_at_once() {
    let play = DeadlockScript::deadlocks(0);
    let setup = inline(&play);
    setup.store().faults().next(StoreVerb::Begin, StoreFault::Deadlock);
    let error = in_time(setup.inbox.process(message("1", ""))).await.unwrap_err();
    assert_eq!((error.kind(), play.runs()), (ErrorKind::Unavailable, 0));
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    async fn large(message: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
        cx.set_result(message.payload().to_vec())?;
        Ok(())
    }
    let setup = Testbed::new(|inbox, _| {
        inbox.on("t", handler("h", large).inline()).on("stored", handler("stored", large))
    });
    let fits = "x".repeat(64 << 10);
    let (processed, results) = setup.inbox.process_with_results(message("1", &fits)).await.unwrap();
    assert_eq!((processed, results.get("h").map(bytes::Bytes::len)), (Processed::Done, Some(64 << 10)));
    let processed = setup.inbox.process(message("2", &format!("{fits}x"))).await.unwrap();
    let said = format!("{processed:?}");
    assert!(said.contains("the result has 65537 bytes, the limit is 65536 (`limits.result`)"), "{said}");
    // No sender waits for the result of a stored message.
    setup.inbox.accept(Message::new("3", "stored", "x")).await.unwrap();
    setup.inbox.drain().await.unwrap();
    let error = setup.entry("3", "stored").await.error.unwrap();
    assert!(error.as_str().contains("only an inline handler can store a result"), "{error:?}");
}

#[tokio::test]
async fn results_come_by_handler() {
    async fn named(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
        let key = cx.idempotency_key("x");
        cx.set_result(key)?;
        Ok(())
    }
    async fn silent(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
        Ok(())
    }
    let setup = Testbed::new(|inbox, _| {
        inbox
            .on("t", handler("a", named).inline())
            .on("t", handler("b", named).inline())
            .on("t", handler("c", silent).inline())
    });
    let (first, told) = setup.inbox.process_with_results(message("1", "")).await.unwrap();
    let (second, again) = setup.inbox.process_with_results(message("1", "")).await.unwrap();
    assert_eq!((first, second), (Processed::Done, Processed::Duplicate));
    assert_eq!(told, again);
    assert_eq!(told.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(told.get("a") != told.get("b") && told.get("c").is_none());
}
