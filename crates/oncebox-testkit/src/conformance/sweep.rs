//! Sweep: removes finished messages after their retention, and nothing else.

use crate::OperatorSteps as _;
use std::time::Duration;

use oncebox::Message;
use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{Accepted, KnownMessage, Mark, NewMessage, QuarantineReason, SweepParams, Swept};
use oncebox::time::Timestamp;

use crate::fixture::{
    HOUR, RETENTION, SECOND, dismissed, handler, inbox, inbox_named, key, message, moved_to, offer,
    offer_message, offer_routed, offer_to,
};
use crate::{Harness, InspectTier, OperateTier, StoreTier, TransactionalTier};

const MOMENT: Duration = Duration::from_millis(1);

pub async fn an_empty_store_has_nothing_to_sweep<S: StoreTier>(h: &Harness<S>) {
    let page = h.store.sweep(&SweepParams::new(inbox(), Duration::ZERO, 10)).await.expect("sweep");
    assert_eq!(page, Swept::NOTHING);
}

pub async fn finished_messages_leave_after_their_retention<S: InspectTier>(h: &Harness<S>) {
    h.completed("completed").await;
    h.settled("discarded", dismissed()).await;
    h.advance(RETENTION.saturating_sub(MOMENT));
    assert_eq!(h.sweep(RETENTION).await, Swept::NOTHING);
    assert!(
        matches!(h.accept(offer("completed")).await, Accepted::Duplicate(_)),
        "FAULTS H1: still remembered"
    );
    h.advance(MOMENT);
    assert_eq!(h.sweep(RETENTION).await.messages, 2);
    assert_eq!(h.count().await, oncebox::store::InboxCounts::default());
    assert!(h.show("completed").await.is_none());
    assert!(matches!(h.accept(offer("completed")).await, Accepted::First(_)));
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

pub async fn retention_counts_from_completion<S: StoreTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.advance(RETENTION + HOUR);
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    h.advance(RETENTION.saturating_sub(MOMENT));
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    h.advance(MOMENT);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
}

// FAULTS H2, H5
pub async fn unfinished_work_is_never_swept<S: InspectTier>(h: &Harness<S>) {
    let mut pending = offer_to("pending", &["later"]);
    pending.delay = HOUR;
    h.first(pending).await;
    h.poisoned("poisoned").await;
    h.running("running").await;
    h.advance(100 * RETENTION);
    assert_eq!(h.sweep(Duration::ZERO).await.messages, 0);
    for (id, name, status) in [
        ("pending", "later", Status::Pending),
        ("running", "h", Status::Running),
        ("poisoned", "h", Status::Poisoned),
    ] {
        assert_eq!(h.entry(id, name).await.status, status);
        assert!(h.show(id).await.expect("known").stored.is_some());
    }
}

// FAULTS H2
pub async fn a_poisoned_message_is_never_swept<S: StoreTier>(h: &Harness<S>) {
    let poisoned = h.poisoned("1").await;
    h.advance(100 * RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    assert_eq!(h.accept(offer("1")).await.seq(), Some(poisoned.seq), "a duplicate");
}

// FAULTS H1
pub async fn each_sweep_moves_the_watermark<S: StoreTier>(h: &Harness<S>) {
    for n in 0..2 {
        let time = h.now();
        h.first(dated(&format!("swept {n}"), time)).await;
        let claim = h.claim_one("h").await;
        h.settle(&claim, Outcome::Done).await;
        h.advance(RETENTION + HOUR);
        assert_eq!(h.sweep(RETENTION).await.messages, 1);
        assert_eq!(h.accept(dated(&format!("late {n}"), time)).await, Accepted::Stale);
    }
}

pub async fn messages_without_entries_have_a_watermark<S: StoreTier>(h: &Harness<S>) {
    let time = h.now();
    let dated = |id: &str| offer_routed(message(id).with_time(time), []);
    h.first(dated("swept")).await;
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    assert_eq!(h.accept(dated("late")).await, Accepted::Stale);
}

pub async fn one_process_at_a_time_sweeps<S: StoreTier>(h: &Harness<S>) {
    for id in ["1", "2", "3"] {
        let claim = h.running(id).await;
        h.settle(&claim, Outcome::Done).await;
    }
    h.advance(RETENTION);
    let mut page = SweepParams::new(inbox(), RETENTION, 1);
    let first = h.store.sweep(&page).await.expect("sweep");
    assert_eq!(first.messages, 1);
    let other = h.another().await;
    let all = SweepParams::new(inbox(), RETENTION, 100);
    assert_eq!(other.sweep(&all).await.expect("sweep"), Swept::NOTHING);
    page.after = first.next;
    assert_eq!(h.store.sweep(&page).await.expect("sweep").messages, 1);
    h.advance(SweepParams::LEASE + SECOND);
    assert_eq!(other.sweep(&all).await.expect("sweep").messages, 1, "the first process died");
}

pub async fn one_unfinished_handler_keeps_the_message<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["a", "b"])).await;
    let claim = h.claim_one("a").await;
    h.settle(&claim, Outcome::Done).await;
    h.advance(2 * RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    assert_eq!(h.entry("1", "a").await.status, Status::Completed, "its history stays with it");
    let claim = h.claim_one("b").await;
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(h.sweep(RETENTION).await.messages, 0, "the last completion counts");
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
}

pub async fn a_replayed_entry_keeps_the_message<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    h.advance(2 * RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    assert!(h.show("1").await.is_none(), "every generation leaves");
}

pub async fn a_message_without_entries_leaves_by_its_arrival<S: StoreTier>(h: &Harness<S>) {
    h.first(offer_to("1", &[])).await;
    h.advance(RETENTION.saturating_sub(MOMENT));
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    h.advance(MOMENT);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
}

// FAULTS H5
pub async fn what_is_quarantined_is_never_swept<S: InspectTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.accept(offer_message(Message::new("1", "order.placed", "other").with_source("shop"))).await;
    h.advance(100 * RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    let view = h.show("1").await.expect("the quarantined message is known");
    assert!(view.stored.is_none() && view.entries.is_empty());
    assert_eq!(view.quarantined.len(), 1);
    assert_eq!(h.count().await.quarantined, 1);
}

// FAULTS H1: a message that the store may have forgotten does not run.
pub async fn older_than_the_memory_is_stale<S: InspectTier>(h: &Harness<S>) {
    let swept_at = sweep_one(h, "1").await;
    let stale = dated("1", swept_at.before(MOMENT));
    assert_eq!(h.accept(stale.clone()).await, Accepted::Stale);
    let view = h.show("1").await.expect("known");
    assert!(view.stored.is_none() && view.entries.is_empty());
    assert_eq!(view.quarantined[0].reason, QuarantineReason::Stale);
    assert_eq!((view.quarantined[0].received_at, &view.quarantined[0].message), (h.now(), &stale.message));
    assert!(h.claim("h", 10).await.is_empty(), "it does not run");
    assert!(matches!(h.accept(dated("3", swept_at.after(MOMENT))).await, Accepted::First(_)));
    assert!(matches!(h.accept(offer("4")).await, Accepted::First(_)), "without a time the store cannot tell");
}

// A message can be stored in the millisecond of its creation: this may be the very one that was swept.
pub async fn as_old_as_the_memory_is_stale<S: InspectTier>(h: &Harness<S>) {
    let swept_at = sweep_one(h, "1").await;
    assert_eq!(h.accept(dated("1", swept_at)).await, Accepted::Stale);
}

pub async fn stale_messages_do_not_pile_up<S: InspectTier>(h: &Harness<S>) {
    let old = sweep_one(h, "1").await.before(MOMENT);
    for _ in 0..3 {
        let batch = [dated("2", old), dated("2", old)];
        assert_eq!(h.accept_all(&batch).await, [Accepted::Stale, Accepted::Stale]);
    }
    assert_eq!(h.count().await.quarantined, 1);
}

pub async fn a_known_key_is_never_stale<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    let seq = h.first(dated("poisoned", start)).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, crate::fixture::rejected()).await;
    sweep_one(h, "1").await;
    let known = KnownMessage::new(seq, h.now().since(start));
    assert_eq!(h.accept(dated("poisoned", start)).await, Accepted::Duplicate(known));
}

pub async fn a_sweep_that_removes_nothing_forgets_nothing<S: StoreTier>(h: &Harness<S>) {
    h.first(offer("1")).await;
    h.advance(2 * RETENTION);
    assert_eq!(h.sweep(RETENTION).await, Swept::NOTHING);
    assert!(matches!(h.accept(dated("2", Timestamp::ZERO)).await, Accepted::First(_)));
}

pub async fn the_memory_never_moves_back<S: OperateTier>(h: &Harness<S>) {
    let poisoned_at = h.now();
    h.poisoned("old").await;
    h.advance(HOUR);
    let swept_at = sweep_one(h, "1").await;
    assert!(poisoned_at < swept_at);
    h.operate("old", "h", Operation::Discard).await.expect("discard");
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1, "an older message leaves later");
    assert_eq!(h.accept(dated("2", swept_at.before(MOMENT))).await, Accepted::Stale);
}

pub async fn inboxes_are_swept_apart<S: InspectTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    let mut there = offer_to("there", &[]);
    there = moved_to(&other, &there);
    h.first(there).await;
    let swept_at = sweep_one(h, "1").await;
    assert_eq!(h.store.count(&other, None).await.expect("count").messages, 1);
    assert!(
        matches!(h.accept(moved_to(&other, &dated("2", swept_at))).await, Accepted::First(_)),
        "one inbox forgot, not the other"
    );
    assert_eq!(h.sweep_pages(&other, RETENTION, 10).await.messages, 1);
}

// FAULTS B11, H4: a page of messages that must stay does not stop the sweep.
pub async fn pages_lead_through_everything<S: InspectTier>(h: &Harness<S>) {
    for n in 0..7 {
        h.poisoned(&format!("poisoned {n}")).await;
    }
    for n in 0..7 {
        h.completed(&format!("completed {n}")).await;
    }
    h.advance(RETENTION);
    for n in 0..3 {
        h.first(offer_to(format!("young {n}"), &[])).await;
    }
    let mut params = SweepParams::new(inbox(), RETENTION, 3);
    let first = h.store.sweep(&params).await.expect("sweep");
    assert_eq!((first.messages, first.next.is_some()), (0, true), "a bounded number is looked at");
    params.after = first.next;
    let mut removed = 0;
    for _ in 0..10 {
        let page = h.store.sweep(&params).await.expect("sweep");
        assert!(page.messages <= 3);
        removed += page.messages;
        params.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!((removed, params.after), (7, None));
    assert_eq!(h.count().await.messages, 10);
}

pub async fn a_sweep_counts_everything_it_removes<S: TransactionalTier>(h: &Harness<S>) {
    let counts = |swept: Swept| (swept.messages, swept.entries, swept.marks, swept.operations);
    h.first(offer_to("two", &["h", "g"])).await;
    for name in ["h", "g"] {
        let claim = h.claim_one(name).await;
        h.settle(&claim, Outcome::Done).await;
    }
    h.completed("one").await;
    h.first(offer_to("none", &[])).await;
    h.running("stays").await;
    for id in ["1", "2", "3"] {
        assert_eq!(h.mark(id, "h").await, Mark::First);
    }
    h.store.pause(&inbox(), &handler("g")).await.expect("pause");
    h.advance(RETENTION);
    assert_eq!(counts(h.sweep_pages(&inbox(), RETENTION, 2).await), (3, 3, 3, 0));
    assert_eq!(h.mark("4", "h").await, Mark::First);
    h.advance(RETENTION);
    assert_eq!(counts(h.sweep(RETENTION).await), (0, 0, 1, 0), "marks alone");
    h.advance(SweepParams::AUDIT);
    assert_eq!(counts(h.sweep(RETENTION).await), (0, 0, 0, 1), "a record of an operation");
    assert!(h.sweep(RETENTION).await.is_nothing());
}

pub async fn marks_leave_after_their_retention<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(h.mark("1", "h").await, Mark::First);
    h.advance(RETENTION.saturating_sub(MOMENT));
    assert_eq!(h.sweep(RETENTION).await.marks, 0);
    assert_eq!(h.mark("1", "h").await, Mark::Duplicate);
    assert_eq!(h.mark("2", "h").await, Mark::First);
    h.advance(2 * MOMENT);
    assert_eq!(h.sweep(RETENTION).await.marks, 1);
    assert_eq!(h.mark("1", "h").await, Mark::First);
    assert_eq!(h.mark("2", "h").await, Mark::Duplicate);
}

// FAULTS H6: an inbox with a short retention removes nothing of one with a long retention.
pub async fn marks_of_another_inbox_are_left_alone<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(h.mark("1", "h").await, Mark::First);
    h.advance(RETENTION);
    assert_eq!(h.sweep_pages(&inbox_named("other"), SECOND, 10).await.marks, 0);
    assert_eq!(h.mark("1", "h").await, Mark::Duplicate);
}

// With inline handlers only, no messages lead from page to page.
pub async fn no_old_mark_is_left_behind<S: TransactionalTier>(h: &Harness<S>) {
    for n in 0..7 {
        assert_eq!(h.mark(&n.to_string(), "h").await, Mark::First);
    }
    h.advance(RETENTION + MOMENT);
    assert_eq!(h.sweep_pages(&inbox(), RETENTION, 2).await.marks, 7);
}

pub async fn a_swept_key_can_be_used_again<S: InspectTier>(h: &Harness<S>) {
    let old = h.completed("1").await;
    h.advance(RETENTION);
    h.sweep(RETENTION).await;
    let new = h.running("1").await;
    assert!(new.seq > old.seq && new.token > old.token, "numbers are never used again");
    assert_eq!(h.settle(&old, Outcome::Done).await, oncebox::store::Settled::LeaseLost);
    assert_eq!(h.status("1").await, Status::Running);
}

/// Completes and sweeps a message, and returns its arrival.
async fn sweep_one<S: InspectTier>(h: &Harness<S>, id: &str) -> Timestamp {
    let received_at = h.now();
    h.completed(id).await;
    h.advance(RETENTION + SECOND);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    assert!(h.store.show(&inbox(), &key(id)).await.expect("show").is_none());
    received_at
}

/// Returns a message that its producer dates.
fn dated(id: &str, time: Timestamp) -> NewMessage {
    offer_message(message(id).with_time(time))
}
