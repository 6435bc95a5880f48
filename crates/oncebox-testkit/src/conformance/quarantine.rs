//! Conflicts with marks: another message under a key that was handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::config::OnConflict;
use oncebox::store::{Mark, NewMessage, QuarantineFilter, QuarantineReason};
use oncebox::{BoxError, Config, Context, Fingerprint, Inbox, Message, Processed, Receipt, Result, handler};
use tokio::task::JoinSet;

use crate::fixture::{HOUR, handler as handler_key, inbox, inbox_named, key, message, offer, offer_message};
use crate::fixture::{key_in, moved_to};
use crate::{Harness, ShareTier, TransactionalTier};

/// Returns the message with an id, with another payload.
fn other(id: &str, payload: &str) -> Message {
    Message::new(id.to_owned(), "order.placed", payload.to_owned()).with_source("shop")
}

async fn try_mark<S: TransactionalTier>(store: &S, message: &Message) -> Result<Mark> {
    let mut tx = store.begin().await?;
    let (inbox, print) = (inbox(), Some(Fingerprint::of(message)));
    let mark = store.mark(&mut tx, &inbox, &key_in(&inbox, message), &handler_key("h"), print).await?;
    if mark == Mark::First {
        // Other tasks can see the open mark now.
        tokio::task::yield_now().await;
        store.commit(tx).await?;
    }
    Ok(mark)
}

/// Marks the key of a message in its own transaction.
async fn mark<S: TransactionalTier>(h: &Harness<S>, message: &Message) -> Mark {
    try_mark(&h.store, message).await.expect("mark")
}

fn is_conflict(mark: Mark) -> bool {
    matches!(mark, Mark::Conflict(_))
}

/// Marks the key of a conflicting message, quarantines the message, and commits.
async fn quarantine<S: TransactionalTier>(h: &Harness<S>, new: &NewMessage) {
    let mut tx = h.store.begin().await.expect("begin");
    let marked = h.store.mark(&mut tx, &new.inbox, &new.key, &handler_key("h"), Some(new.fingerprint)).await;
    assert!(is_conflict(marked.expect("mark")));
    h.store.quarantine(&mut tx, new).await.expect("quarantine");
    h.store.commit(tx).await.expect("commit");
}

// FAULTS A10
pub async fn another_message_under_a_mark_is_in_conflict<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(mark(h, &message("1")).await, Mark::First);
    assert_eq!(mark(h, &message("1")).await, Mark::Duplicate);
    let Mark::Conflict(known) = mark(h, &other("1", "another thing")).await else { panic!("a conflict") };
    assert!(known.is_same_type(&Fingerprint::of(&message("1"))));
    let another_type = Message::new("1", "order.cancelled", "1").with_source("shop");
    let Mark::Conflict(known) = mark(h, &another_type).await else { panic!("a conflict") };
    assert!(!known.is_same_type(&Fingerprint::of(&another_type)));
    assert_eq!(mark(h, &message("1")).await, Mark::Duplicate, "a conflict changes nothing");
    assert_eq!(mark(h, &other("2", "another thing")).await, Mark::First, "another key");
}

pub async fn a_mark_without_a_fingerprint_compares_nothing<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(h.mark("1", "h").await, Mark::First);
    assert_eq!(mark(h, &other("1", "x")).await, Mark::Duplicate);
    assert_eq!(mark(h, &message("2")).await, Mark::First);
    assert_eq!(h.mark("2", "h").await, Mark::Duplicate);
}

pub async fn a_conflict_is_seen_by_its_own_transaction<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    let mut answers = Vec::new();
    for message in [message("1"), other("1", "x"), message("1")] {
        let print = Some(Fingerprint::of(&message));
        answers
            .push(h.store.mark(&mut tx, &inbox(), &key("1"), &handler_key("h"), print).await.expect("mark"));
    }
    assert!(matches!(answers[..], [Mark::First, Mark::Conflict(_), Mark::Duplicate]), "{answers:?}");
}

// FAULTS A9, A10: a message that loses a race gets the same result as one that comes later.
pub async fn of_rivals_with_other_messages_none_is_a_duplicate<S: TransactionalTier>(h: &Harness<S>) {
    let mut tasks = JoinSet::new();
    for rival in 0..8 {
        let store = h.store.clone();
        tasks.spawn(async move {
            let mut marks = Vec::new();
            for n in 0..20 {
                let message = other(&n.to_string(), &format!("of rival {rival}"));
                marks.push(loop {
                    match try_mark(&store, &message).await {
                        Ok(Mark::Busy) => {}
                        Ok(mark) => break mark,
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                    tokio::task::yield_now().await;
                });
            }
            marks
        });
    }
    let all = tasks.join_all().await;
    for n in 0..20 {
        let marks: Vec<Mark> = all.iter().map(|marks| marks[n]).collect();
        let firsts = marks.iter().filter(|mark| **mark == Mark::First).count();
        let conflicts = marks.iter().filter(|mark| is_conflict(**mark)).count();
        assert_eq!((firsts, conflicts), (1, 7), "{marks:?}");
    }
}

// FAULTS A10
pub async fn what_is_in_conflict_with_a_mark_is_quarantined<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(mark(h, &message("1")).await, Mark::First);
    let conflicting = offer_message(other("1", "x").with_header("a", "b"));
    for _ in 0..3 {
        quarantine(h, &conflicting).await;
    }
    quarantine(h, &offer_message(other("1", "y"))).await;
    let counts = h.count().await;
    assert_eq!((counts.quarantined, counts.conflicts, counts.messages), (2, 2, 0), "one for each payload");
    let view = h.show("1").await.expect("known");
    assert_eq!((view.quarantined.len(), view.entries.len()), (2, 0));
    let item = view.quarantined.iter().find(|item| item.message == conflicting.message).expect("it is shown");
    assert_eq!((item.reason, item.received_at), (QuarantineReason::Conflict, h.now()));
    let page = h.store.quarantined(&QuarantineFilter::new(inbox())).await.expect("a page");
    assert_eq!(page.quarantined.len(), 2);
    h.advance(1_000 * HOUR);
    h.sweep(HOUR).await;
    assert_eq!(h.count().await.quarantined, 2, "it waits for a person");
}

pub async fn a_quarantine_is_undone_with_its_transaction<S: ShareTier>(h: &Harness<S>) {
    assert_eq!(mark(h, &message("1")).await, Mark::First);
    let mut tx = h.store.begin().await.expect("begin");
    h.store.quarantine(&mut tx, &offer_message(other("1", "x"))).await.expect("quarantine");
    h.store.rollback(tx).await;
    assert_eq!(h.count().await.quarantined, 0);
    let mut tx = h.store.begin().await.expect("begin");
    h.store.quarantine(&mut tx, &offer_message(other("1", "x"))).await.expect("quarantine");
    h.store.savepoint(&mut tx).await.expect("savepoint");
    h.store.quarantine(&mut tx, &offer_message(other("1", "y"))).await.expect("quarantine");
    h.store.rollback_to_savepoint(&mut tx).await.expect("undone");
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.count().await.quarantined, 1, "that of the part that was undone is gone");
}

/// With `once` alone, a conflict may be the first call that names the inbox to the store.
pub async fn an_inbox_of_marks_alone_can_quarantine<S: TransactionalTier>(h: &Harness<S>) {
    let name = inbox_named("marks-alone");
    for payload in ["x", "y"] {
        let new = moved_to(&name, &offer_message(other("1", payload)));
        let mut tx = h.store.begin().await.expect("begin");
        h.store.quarantine(&mut tx, &new).await.expect("quarantine");
        h.store.commit(tx).await.expect("commit");
    }
    let counts = h.store.count(&name, None).await.expect("counts");
    assert_eq!((counts.quarantined, counts.messages), (2, 0));
    let first = moved_to(&name, &offer("2"));
    assert_eq!(h.accept(first).await.as_str(), "first", "the inbox is the same for all who name it");
    assert_eq!(h.store.count(&name, None).await.expect("counts").messages, 1);
    assert_eq!(h.count().await.quarantined, 0, "another inbox");
}

async fn run<S: TransactionalTier>(_: Message, cx: &mut Context<S>) -> std::result::Result<(), BoxError> {
    cx.data::<Arc<AtomicUsize>>()?.fetch_add(1, Ordering::Relaxed);
    cx.tx().await?;
    Ok(())
}

fn inline<S: TransactionalTier>(
    h: &Harness<S>,
    on_conflict: Option<OnConflict>,
) -> (Inbox<S>, Arc<AtomicUsize>) {
    let runs = Arc::<AtomicUsize>::default();
    let inbox = Inbox::builder("orders", h.store.clone())
        .config(Config { on_conflict, ..Config::default() })
        .data(Arc::clone(&runs))
        .clock(h.clock.shared())
        .on("*", handler("h", run::<S>).inline())
        .build();
    (inbox.expect("an inbox"), runs)
}

// FAULTS A10: result and record are those of `accept`.
pub async fn another_message_is_not_run_inline_and_quarantined<S: TransactionalTier>(h: &Harness<S>) {
    let (inbox, runs) = inline(h, None);
    let process = async |message: Message| inbox.process(message).await.expect("an answer");
    assert_eq!(process(message("1")).await, Processed::Done);
    assert_eq!(process(message("1")).await, Processed::Duplicate);
    for _ in 0..2 {
        assert_eq!(process(other("1", "another thing")).await, Processed::Conflict);
    }
    let another_type = Message::new("1", "order.cancelled", "1").with_source("shop");
    assert_eq!(process(another_type.clone()).await, Processed::Conflict);
    let receipt = inbox.receive(another_type).await.expect("a receipt");
    assert_eq!(receipt, Receipt::Done, "as after accept");
    assert_eq!(process(message("1")).await, Processed::Duplicate);
    assert_eq!(process(other("2", "another thing")).await, Processed::Done);
    assert_eq!((h.count().await.conflicts, runs.load(Ordering::Relaxed)), (2, 2));

    let (inbox, runs) = inline(h, Some(OnConflict::FirstWins));
    let process = async |message: Message| inbox.process(message).await.expect("an answer");
    assert_eq!(process(message("3")).await, Processed::Done);
    assert_eq!(process(other("3", "another thing")).await, Processed::Duplicate);
    let another_type = Message::new("3", "order.cancelled", "3").with_source("shop");
    assert_eq!(process(another_type).await, Processed::Conflict);
    assert_eq!((h.count().await.conflicts, runs.load(Ordering::Relaxed)), (3, 1));
}

pub async fn once_quarantines_another_message<S: TransactionalTier>(h: &Harness<S>) {
    let (inbox, _) = inline(h, None);
    let once = async |message: Message| {
        let mut tx = h.store.begin().await.expect("begin");
        let mark = inbox.once(&mut tx, &message, "charge").await.expect("mark");
        h.store.commit(tx).await.expect("commit");
        mark
    };
    assert_eq!(once(message("1")).await, Mark::First);
    assert_eq!(once(message("1")).await, Mark::Duplicate);
    assert!(is_conflict(once(other("1", "x")).await));
    assert_eq!((h.count().await.conflicts, h.show("1").await.expect("known").quarantined.len()), (1, 1));
    let (inbox, _) = inline(h, Some(OnConflict::FirstWins));
    let mut tx = h.store.begin().await.expect("begin");
    let mark = inbox.once(&mut tx, &other("1", "y"), "charge").await.expect("mark");
    assert_eq!((mark, h.count().await.conflicts), (Mark::Duplicate, 1));
}
