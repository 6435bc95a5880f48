//! Inline handlers of an inbox on the store: one transaction for mark, work and result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::state::Outcome;
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, Processed, handler};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::faulty::{Deadlock, FaultyStore, StoreFault, StoreVerb};
use crate::fixture::{SECOND, message};
use crate::{Harness, StoreTier, TestClock, TransactionalTier};

/// State that the handler shares with the test.
#[derive(Default)]
struct InlinePlan {
    runs: AtomicUsize,
    /// Numbers of runs that meet a deadlock and that fail.
    deadlocks: AtomicUsize,
    failures: AtomicUsize,
    /// Notified when a waiting run has begun.
    begun: Notify,
    /// Number of waiting runs that may end, if runs wait at all.
    go: Option<Semaphore>,
}

/// Counts `left` down. Returns true if it was not zero.
fn one_more(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

async fn play<S: TransactionalTier>(
    message: Message,
    cx: &mut Context<FaultyStore<S>>,
) -> Result<(), BoxError> {
    let play = cx.data::<Arc<InlinePlan>>()?;
    let run = play.runs.fetch_add(1, Ordering::Relaxed) + 1;
    cx.tx().await?;
    cx.set_result(format!("{} in run {run}", String::from_utf8_lossy(message.id())))?;
    if let Some(go) = &play.go {
        play.begun.notify_one();
        go.acquire().await?.forget();
    }
    if one_more(&play.deadlocks) {
        return Err(Box::new(Deadlock));
    }
    if one_more(&play.failures) {
        return Err("not this time".into());
    }
    Ok(())
}

fn inbox<S: TransactionalTier>(h: &Harness<S>, play_with: &Arc<InlinePlan>) -> Inbox<FaultyStore<S>> {
    Inbox::builder("orders", FaultyStore::new(h.store.clone()))
        .data(Arc::clone(play_with))
        .clock(h.clock.shared())
        .on("order.placed", handler("h", play::<S>).inline())
        .build()
        .expect("an inbox")
}

/// Processes a message. Returns the result and the stored result of its handler.
async fn process<S: StoreTier>(inbox: &Inbox<FaultyStore<S>>, id: &str) -> (Processed, Option<String>) {
    let (processed, results) = inbox.process_with_results(message(id)).await.expect("the store answers");
    (processed, results.get("h").map(|result| String::from_utf8_lossy(result).into_owned()))
}

/// Moves time whenever a task sleeps.
async fn passing<T>(clock: &TestClock, work: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            clock.wait_for_sleepers(1).await;
            clock.advance(SECOND);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = work => done,
        () = time => unreachable!("time never ends"),
    }
}

pub async fn a_duplicate_gets_the_result_of_the_first<S: TransactionalTier>(h: &Harness<S>) {
    let inbox = inbox(h, &Arc::default());
    let result = Some("1 in run 1".to_owned());
    assert_eq!(process(&inbox, "1").await, (Processed::Done, result.clone()));
    // Many times, because one duplicate must not delay the next.
    for _ in 0..20 {
        assert_eq!(process(&inbox, "1").await, (Processed::Duplicate, result.clone()));
    }
    assert_eq!(inbox.process(message("1")).await.expect("an answer"), Processed::Duplicate);
    assert_eq!(process(&inbox, "2").await, (Processed::Done, Some("2 in run 2".into())));
}

// DESIGN rules 1 and 2, FAULTS A9: the other learns that it is a duplicate or has to wait, never that the handler failed.
pub async fn of_duplicates_at_once_one_body_runs<S: TransactionalTier>(h: &Harness<S>) {
    let play = Arc::new(InlinePlan { go: Some(Semaphore::new(0)), ..InlinePlan::default() });
    let inbox = inbox(h, &play);
    let mut rivals = JoinSet::new();
    let deliver = || {
        let inbox = inbox.clone();
        async move { inbox.process(message("1")).await }
    };
    rivals.spawn(deliver());
    play.begun.notified().await;
    for _ in 0..4 {
        rivals.spawn(deliver());
    }
    // The rivals run while the first works.
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    play.go.as_ref().expect("runs wait").add_permits(1);
    let mut done = 0;
    for answer in rivals.join_all().await {
        match answer {
            Ok(Processed::Done) => done += 1,
            Ok(Processed::Duplicate | Processed::Busy) => {}
            Err(error) => assert!(error.kind() == ErrorKind::Unavailable, "{error}"),
            Ok(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((done, play.runs.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(process(&inbox, "1").await, (Processed::Duplicate, Some("1 in run 1".into())));
}

// FAULTS E7: the library repeats the transaction, and the handler with it.
pub async fn a_deadlock_runs_the_unit_again<S: TransactionalTier>(h: &Harness<S>) {
    let play = Arc::new(InlinePlan { deadlocks: AtomicUsize::new(2), ..InlinePlan::default() });
    let inbox = inbox(h, &play);
    let answer = passing(&h.clock, process(&inbox, "handler")).await;
    assert_eq!(answer, (Processed::Done, Some("handler in run 3".into())));
    for (verb, run) in [(StoreVerb::Mark, 4), (StoreVerb::Record, 6), (StoreVerb::Commit, 8)] {
        inbox.store().faults().next(verb, StoreFault::Deadlock);
        let id = format!("{verb:?}");
        let answer = passing(&h.clock, process(&inbox, &id)).await;
        assert_eq!(answer, (Processed::Done, Some(format!("{id} in run {run}"))));
        assert_eq!(process(&inbox, &id).await, (Processed::Duplicate, Some(format!("{id} in run {run}"))));
    }
}

// FAULTS E7: repeats are limited, and the handler did not fail.
pub async fn a_handler_that_always_deadlocks_is_given_up<S: TransactionalTier>(h: &Harness<S>) {
    let play = Arc::new(InlinePlan { deadlocks: AtomicUsize::new(4), ..InlinePlan::default() });
    let inbox = inbox(h, &play);
    let (processed, result) = passing(&h.clock, process(&inbox, "1")).await;
    assert!(matches!(processed, Processed::Failed(Outcome::Snooze { .. })), "{processed:?}");
    assert_eq!((result, play.runs.load(Ordering::Relaxed)), (None, 4));
    assert_eq!(process(&inbox, "1").await, (Processed::Done, Some("1 in run 5".into())));
    // The same for other errors of the store, which keep their kind.
    inbox.store().faults().always(StoreVerb::Commit, StoreFault::Deadlock);
    let error = passing(&h.clock, inbox.process(message("2"))).await.expect_err("a deadlock");
    assert_eq!((error.kind(), play.runs.load(Ordering::Relaxed)), (ErrorKind::Unavailable, 9));
}

// FAULTS A4: it may have happened. The next delivery finds out.
pub async fn an_unknown_commit_is_never_made_again<S: TransactionalTier>(h: &Harness<S>) {
    let play = Arc::new(InlinePlan::default());
    let inbox = inbox(h, &play);
    inbox.store().faults().next(StoreVerb::Commit, StoreFault::ErrAfter);
    let error = inbox.process(message("1")).await.expect_err("the answer was lost");
    assert_eq!((error.kind(), play.runs.load(Ordering::Relaxed)), (ErrorKind::CommitUnknown, 1));
    assert_eq!(process(&inbox, "1").await, (Processed::Duplicate, Some("1 in run 1".into())));
}

pub async fn what_fails_leaves_neither_mark_nor_result<S: TransactionalTier>(h: &Harness<S>) {
    let play = Arc::new(InlinePlan { failures: AtomicUsize::new(1), ..InlinePlan::default() });
    let inbox = inbox(h, &play);
    let (processed, result) = process(&inbox, "1").await;
    assert!(matches!(processed, Processed::Failed(Outcome::Retry { .. })), "{processed:?}");
    assert_eq!(result, None);
    assert_eq!(process(&inbox, "1").await, (Processed::Done, Some("1 in run 2".into())));
}
