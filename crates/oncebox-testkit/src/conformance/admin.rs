//! Operator views and operations.

use crate::OperatorSteps as _;
use std::time::Duration;

use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{
    Accepted, EntryFilter, EntryView, InboxCounts, MessageLabel, QuarantineFilter, QuarantineReason, Settled,
};
use oncebox::{ErrorKind, HandlerKey, Message};

use crate::fixture::{
    HOUR, PAST_LEASE, RETENTION, SECOND, dismissed, failed, handler, inbox, inbox_named, key, key_in,
    message, moved_to, offer, offer_message, offer_to,
};
use crate::{Harness, InspectTier, OperateTier, StoreTier};

pub async fn an_unknown_inbox_is_empty<S: InspectTier>(h: &Harness<S>) {
    assert_eq!(h.count().await, InboxCounts::default());
    for status in Status::ALL {
        assert!(h.list(&inbox(), status, 10).await.is_empty());
    }
    assert!(h.show("1").await.is_none());
}

pub async fn counts_are_by_handler_and_status<S: InspectTier>(h: &Harness<S>) {
    one_of_each(h).await;
    h.first(offer_to("more", &["a", "b"])).await;
    let counts = h.count().await;
    let of = |name: &str, status: Status| {
        let wanted =
            |entry: &&oncebox::store::HandlerCount| entry.handler == handler(name) && entry.status == status;
        counts.entries.iter().find(wanted).map_or(0, |entry| entry.count)
    };
    for status in Status::ALL {
        assert_eq!(of("h", status), 1, "{status}");
    }
    assert_eq!((of("a", Status::Pending), of("b", Status::Pending)), (1, 1));
    assert_eq!((counts.with_status(Status::Pending), counts.messages), (3, 6));
    assert!(counts.entries.iter().all(|entry| entry.count > 0), "what is zero is left out");
}

pub async fn lists_are_by_status<S: InspectTier>(h: &Harness<S>) {
    one_of_each(h).await;
    for status in Status::ALL {
        let listed = h.list(&inbox(), status, 10).await;
        assert_eq!(listed, [h.entry(status.as_str(), "h").await], "{status}");
    }
}

pub async fn a_message_is_shown_by_handler_key<S: InspectTier>(h: &Harness<S>) {
    // Known before the others.
    h.first(offer_to("0", &["z"])).await;
    h.first(offer_to("1", &["z", "m", "a"])).await;
    h.claim_one("m").await;
    let shown = h.show("1").await.expect("it is stored").entries;
    let keys: Vec<_> = shown.iter().map(|entry| entry.handler.as_str()).collect();
    assert_eq!(keys, ["a", "m", "z"]);
}

pub async fn pages_hold_every_entry_once<S: InspectTier>(h: &Harness<S>) {
    for n in 0..7 {
        h.first(offer_to(n.to_string(), &["c", "a", "b"])).await;
    }
    let all = h.list(&inbox(), Status::Pending, 100).await;
    let id = |entry: &EntryView| (entry.seq, entry.handler.clone());
    assert_eq!(all.len(), 21);
    assert!(all.is_sorted_by(|a, b| id(a) < id(b)), "by sequence, then handler");
    for page in [1, 2, 4, 20, 21] {
        assert_eq!(h.list(&inbox(), Status::Pending, page).await, all, "pages of {page}");
    }
    let mut filter = EntryFilter::new(inbox(), Status::Pending);
    (filter.handler, filter.limit) = (Some(handler("b")), 3);
    let mut of_b = 0;
    loop {
        let page = h.store.list(&filter).await.expect("list");
        assert!(page.entries.len() <= 3 && page.entries.iter().all(|entry| entry.handler == handler("b")));
        of_b += page.entries.len();
        filter.after = page.next;
        if filter.after.is_none() {
            break;
        }
    }
    assert_eq!(of_b, 7);
}

pub async fn finished_entries_are_listed_page_by_page<S: InspectTier>(h: &Harness<S>) {
    for n in 0..5 {
        h.completed(&n.to_string()).await;
    }
    let all = h.list(&inbox(), Status::Completed, 100).await;
    assert_eq!(all.len(), 5);
    assert_eq!(h.list(&inbox(), Status::Completed, 2).await, all);
}

pub async fn inboxes_are_shown_apart<S: OperateTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.poisoned("1").await;
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    assert_eq!(h.store.count(&other, None).await.expect("count"), InboxCounts::default());
    assert!(h.list(&other, Status::Poisoned, 10).await.is_empty());
    assert!(h.store.show(&other, &key("1")).await.expect("show").is_none());
    let refused = h.store.operate(&other, &key("1"), &handler("h"), Operation::Retry).await;
    assert_eq!(refused.expect_err("another inbox").kind(), ErrorKind::NotFound);
    h.store.resume(&other, &handler("h")).await.expect("resume");
    assert_eq!(h.count().await.paused, [handler("h")]);
}

pub async fn the_unknown_is_not_found<S: OperateTier>(h: &Harness<S>) {
    h.poisoned("1").await;
    let before = h.snapshot().await;
    for operation in Operation::ALL {
        for (id, name) in [("unknown", "h"), ("1", "unknown")] {
            let error = h.operate(id, name, operation).await.expect_err("nothing to act on");
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
    assert_eq!(h.snapshot().await, before);
}

/// Returns an entry as an operation returns it: without the text of its error, which the record does not hold.
fn answered(mut entry: EntryView) -> EntryView {
    entry.error = None;
    entry
}

pub async fn a_retry_forgets_attempts_and_crashes<S: OperateTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.settle(&claim, failed()).await;
    h.advance(5 * SECOND);
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Crashed).await;
    let claim = h.claim_suspect("h").await.remove(0).claim;
    assert_eq!((claim.attempts, claim.suspicion.stored()), (1, 1));
    h.settle(&claim, crate::fixture::rejected()).await;
    h.advance(HOUR);
    let view = h.operate("1", "h", Operation::Retry).await.expect("retry");
    assert_eq!(view, answered(h.entry("1", "h").await));
    assert_eq!((view.status, view.at, view.reason), (Status::Pending, h.now(), None));
    assert_eq!((view.attempts, view.suspicion.stored(), view.generation), (0, 0, 0));
    let claim = h.claim_one("h").await;
    assert_eq!((claim.attempts, claim.suspicion.stored()), (0, 0), "it is no suspect any more");
    assert_eq!(h.settle(&claim, Outcome::Done).await, Settled::Applied);
}

pub async fn a_discard_ends_what_waits_or_is_poisoned<S: OperateTier>(h: &Harness<S>) {
    h.poisoned("poisoned").await;
    h.first(offer("pending")).await;
    h.advance(SECOND);
    for id in ["poisoned", "pending"] {
        let view = h.operate(id, "h", Operation::Discard).await.expect("discard");
        assert_eq!(view, answered(h.entry(id, "h").await));
        assert_eq!((view.status, view.at), (Status::Discarded, h.now()));
    }
    assert!(h.claim("h", 10).await.is_empty());
    assert_eq!(h.list(&inbox(), Status::Discarded, 10).await.len(), 2);
    assert!(matches!(h.accept(offer("pending")).await, Accepted::Duplicate(_)), "its key is remembered");
}

// FAULTS J2
pub async fn a_replay_is_a_new_generation<S: OperateTier>(h: &Harness<S>) {
    let first = h.completed("1").await;
    h.advance(SECOND);
    for generation in 1..=3 {
        let view = h.operate("1", "h", Operation::Replay).await.expect("replay");
        assert_eq!((view.status, view.generation, view.at), (Status::Pending, generation, h.now()));
        assert_eq!((view.attempts, view.suspicion.stored()), (0, 0));
        assert!(matches!(h.accept(offer("1")).await, Accepted::Duplicate(_)), "dedupe is not confused");
        let claim = h.claim_one("h").await;
        assert_eq!((claim.seq, claim.generation, claim.key), (first.seq, generation, key("1")));
        assert_ne!(h.settle(&first, Outcome::Released).await, Settled::Applied, "the old claim is stale");
        assert_eq!(h.status("1").await, Status::Running);
        let outcome = if generation == 2 { dismissed() } else { Outcome::Done };
        assert_eq!(h.settle(&claim, outcome).await, Settled::Applied);
    }
    let entries = h.show("1").await.expect("known").entries;
    let seen: Vec<_> = entries.iter().map(|entry| (entry.generation, entry.status)).collect();
    let (done, dismissed) = (Status::Completed, Status::Discarded);
    assert_eq!(seen, [(0, done), (1, done), (2, dismissed), (3, done)], "the history is kept");
}

// Operators only have the list: it must lead to the entry.
pub async fn what_is_listed_can_be_acted_on<S: OperateTier>(h: &Harness<S>) {
    h.poisoned("1").await;
    h.completed("2").await;
    let listed = async |status| {
        let page = h.store.list(&EntryFilter::new(inbox(), status)).await.expect("list");
        let [entry] = &page.entries[..] else { panic!("one entry is {status}: {page:?}") };
        entry.clone()
    };
    for (status, operation) in [(Status::Poisoned, Operation::Retry), (Status::Completed, Operation::Replay)]
    {
        let entry = listed(status).await;
        let operated =
            h.store.operate(&inbox(), &entry.key, &entry.handler, operation).await.expect("operate");
        assert_eq!((operated.seq, operated.key), (entry.seq, entry.key));
        let shown = h.store.show(&inbox(), &entry.key).await.expect("show").expect("known");
        assert!(shown.entries.iter().all(|shown| shown.key == entry.key), "{shown:?}");
    }
}

// FAULTS J9: an entry counts once, whatever operations came before.
pub async fn a_replayed_entry_is_counted_once<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.completed("2").await;
    let count = async |status| h.count().await.with_status(status);
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    assert_eq!((count(Status::Completed).await, count(Status::Pending).await), (1, 1));
    let claim = h.claim_one("h").await;
    assert_eq!((count(Status::Completed).await, count(Status::Running).await), (1, 1));
    h.settle(&claim, crate::fixture::rejected()).await;
    assert_eq!((count(Status::Completed).await, count(Status::Poisoned).await), (1, 1));
    h.operate("1", "h", Operation::Discard).await.expect("discard");
    assert_eq!((count(Status::Completed).await, count(Status::Discarded).await), (1, 1));
}

// FAULTS J1, J3: an operation never changes a leased entry, and nothing happens twice.
pub async fn what_is_not_allowed_is_refused_and_changes_nothing<S: OperateTier>(h: &Harness<S>) {
    one_of_each(h).await;
    for status in Status::ALL {
        for operation in Operation::ALL {
            if oncebox::state::operate(status, None, operation).is_ok() {
                continue;
            }
            let before = h.snapshot().await;
            let error = h.operate(status.as_str(), "h", operation).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Refused, "{operation:?} of {status}");
            assert_eq!(h.snapshot().await, before, "{operation:?} of {status}");
        }
    }
}

pub async fn the_latest_generation_decides<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    let error = h.operate("1", "h", Operation::Replay).await.expect_err("it waits already");
    assert_eq!(error.kind(), ErrorKind::Refused);
    h.operate("1", "h", Operation::Discard).await.expect("discard of what waits");
    let view = h.operate("1", "h", Operation::Replay).await.expect("replay of what was discarded");
    assert_eq!(view.generation, 2);
}

pub async fn pauses_are_listed<S: OperateTier>(h: &Harness<S>) {
    let paused = async || {
        let mut paused: Vec<HandlerKey> = h.count().await.paused;
        paused.sort();
        paused
    };
    for _ in 0..2 {
        h.store.pause(&inbox(), &handler("a")).await.expect("pause");
    }
    h.store.pause(&inbox(), &handler("never-registered")).await.expect("pause");
    assert_eq!(paused().await, [handler("a"), handler("never-registered")]);
    for _ in 0..2 {
        h.store.resume(&inbox(), &handler("a")).await.expect("resume");
    }
    h.store.resume(&inbox(), &handler("never-paused")).await.expect("resume");
    assert_eq!(paused().await, [handler("never-registered")]);
}

pub async fn a_purge_removes_old_quarantined_messages_only<S: OperateTier>(h: &Harness<S>) {
    one_of_each(h).await;
    let conflict =
        |id: &str| offer_message(Message::new(id.to_owned(), "order.placed", "x").with_source("shop"));
    for status in Status::ALL {
        h.accept(conflict(status.as_str())).await;
    }
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer("1"))).await;
    h.accept(moved_to(&other, &conflict("1"))).await;
    let entries = h.snapshot().await;
    h.advance(HOUR.saturating_sub(Duration::from_millis(1)));
    assert_eq!(h.store.purge(&inbox(), HOUR, 100).await.expect("purge"), 0);
    assert_eq!(h.snapshot().await, entries);
    h.advance(Duration::from_millis(1));
    for expected in [2, 2, 1, 0] {
        assert_eq!(h.store.purge(&inbox(), HOUR, 2).await.expect("purge"), expected);
    }
    let counts = h.count().await;
    assert_eq!((counts.quarantined, counts.messages), (0, 5));
    for status in Status::ALL {
        assert_eq!(h.status(status.as_str()).await, status);
    }
    let there = h.store.show(&other, &key_in(&other, &message("1"))).await.expect("show").expect("known");
    assert_eq!(there.quarantined.len(), 1, "another inbox is left alone");
}

pub async fn what_is_quarantined_is_listed_page_by_page<S: InspectTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(offer("1")).await;
    h.first(moved_to(&other, &offer("1"))).await;
    let conflict = |n: u8| {
        let message =
            Message::new("1", "order.placed", vec![n; 1 + 100 * usize::from(n)]).with_source("shop");
        offer_message(message.with_header("trace", vec![n]).with_ordering_key("k"))
    };
    for n in 0..5 {
        h.advance(SECOND);
        h.accept(conflict(n)).await;
    }
    h.accept(moved_to(&other, &conflict(0))).await;
    let mut filter = QuarantineFilter::new(inbox());
    filter.limit = 2;
    let mut listed = Vec::new();
    loop {
        let page = h.store.quarantined(&filter).await.expect("quarantined");
        assert!(page.quarantined.len() <= 2);
        listed.extend(page.quarantined);
        match page.next {
            None => break,
            next => filter.after = next,
        }
    }
    assert_eq!(listed.len(), 5, "each once, and none of another inbox");
    assert!(listed.is_sorted_by(|a, b| a.id < b.id));
    let start = h.now().before(4 * SECOND);
    for (n, item) in (0u8..).zip(&listed) {
        assert_eq!((item.reason, item.key), (QuarantineReason::Conflict, key("1")));
        assert_eq!(item.received_at, start.after(u32::from(n) * SECOND));
        assert_eq!(item.label, MessageLabel::of(&conflict(n).message));
        assert_eq!(item.payload_bytes - listed[0].payload_bytes, 100 * u64::from(n), "its size");
    }
    filter = QuarantineFilter::new(inbox());
    assert!(h.store.quarantined(&filter).await.expect("quarantined").next.is_none());
    filter.limit = 0;
    assert!(h.store.quarantined(&filter).await.expect("quarantined").quarantined.is_empty());
    let unknown =
        h.store.quarantined(&QuarantineFilter::new(inbox_named("unknown"))).await.expect("quarantined");
    assert!(unknown.quarantined.is_empty() && unknown.next.is_none());
}

// FAULTS H5
pub async fn quarantined_messages_are_counted_and_listed_by_reason<S: OperateTier>(h: &Harness<S>) {
    let start = h.now();
    h.completed("old").await;
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    h.first(offer("1")).await;
    h.first(offer_to("unrouted", &[])).await;
    for n in 0..3 {
        h.accept(offer_message(Message::new("1", "order.placed", vec![n]).with_source("shop"))).await;
    }
    assert_eq!(h.accept(offer_message(message("stale").with_time(start))).await, Accepted::Stale);
    let counts = h.count().await;
    assert_eq!((counts.quarantined, counts.conflicts, counts.stale), (4, 3, 1));
    assert_eq!((counts.messages, counts.unrouted), (2, 1));
    let mut filter = QuarantineFilter::new(inbox());
    for (reason, expected) in [(QuarantineReason::Conflict, 3), (QuarantineReason::Stale, 1)] {
        filter.reason = Some(reason);
        let page = h.store.quarantined(&filter).await.expect("quarantined");
        assert_eq!(page.quarantined.len(), expected, "{reason:?}");
        assert!(page.quarantined.iter().all(|item| item.reason == reason));
    }
    h.advance(SECOND);
    assert_eq!(h.store.purge(&inbox(), SECOND, 100).await.expect("purge"), 4);
    assert!(
        h.store
            .quarantined(&QuarantineFilter::new(inbox()))
            .await
            .expect("quarantined")
            .quarantined
            .is_empty()
    );
    let counts = h.count().await;
    assert_eq!((counts.quarantined, counts.conflicts, counts.stale), (0, 0, 0));
}

pub async fn times_are_those_of_the_store<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    h.first(offer("1")).await;
    assert_eq!(h.entry("1", "h").await.at, start);
    h.advance(SECOND);
    let claim = h.claim_one("h").await;
    assert_eq!(h.entry("1", "h").await.at, start.after(SECOND + crate::fixture::LEASE));
    h.advance(PAST_LEASE);
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(h.entry("1", "h").await.at, start.after(SECOND + PAST_LEASE));
    let (_, received_at, _) = h.show("1").await.expect("known").stored.expect("stored");
    assert_eq!(received_at, start);
}

/// Stores one message in each status, with the word for the status as its id.
async fn one_of_each<S: StoreTier>(h: &Harness<S>) {
    h.completed(Status::Completed.as_str()).await;
    h.poisoned(Status::Poisoned.as_str()).await;
    h.settled(Status::Discarded.as_str(), dismissed()).await;
    h.running(Status::Running.as_str()).await;
    h.first(offer(Status::Pending.as_str())).await;
}
