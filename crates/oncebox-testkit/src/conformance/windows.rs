//! Windows: each handler can have its own, a message expires after all of its windows, and one process sweeps at a time.

use std::time::Duration;

use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{Accepted, Mark, SweepId, SweepParams, Swept};
use tokio::task::JoinSet;

use crate::fixture::{HOUR, RETENTION, dismissed, handler, inbox, inbox_named, offer_to};
use crate::{Harness, InspectTier, OperateTier, TransactionalTier};

const MOMENT: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);

/// Returns a sweep with windows for some handlers.
fn params(retention: Duration, windows: &[(&str, Duration)]) -> SweepParams {
    let mut params = SweepParams::new(inbox(), retention, 100);
    params.windows = windows.iter().map(|(name, window)| (handler(name), *window)).collect();
    params
}

impl<S: InspectTier> Harness<S> {
    /// Sweeps one page, which must be the last.
    async fn page(&self, params: &SweepParams) -> Swept {
        let mut page = self.store.sweep(params).await.expect("sweep");
        assert_eq!(page.next, None);
        page.looked = 0;
        page
    }

    async fn finish(&self, name: &str, outcome: Outcome) {
        let claim = self.claim_one(name).await;
        self.settle(&claim, outcome).await;
    }
}

pub async fn a_message_leaves_by_the_window_of_its_handler<S: InspectTier>(h: &Harness<S>) {
    let params = params(RETENTION, &[("short", HOUR), ("long", 30 * DAY)]);
    for name in ["short", "long", "other"] {
        h.first(offer_to(name, &[name])).await;
        h.finish(name, Outcome::Done).await;
    }
    h.advance(HOUR.saturating_sub(MOMENT));
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    h.advance(MOMENT);
    assert_eq!(h.page(&params).await.messages, 1);
    assert!(h.show("short").await.is_none());
    h.advance(RETENTION.saturating_sub(HOUR + MOMENT));
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    h.advance(MOMENT);
    assert_eq!(h.page(&params).await.messages, 1);
    assert!(h.show("other").await.is_none());
    h.advance((30 * DAY).saturating_sub(RETENTION + MOMENT));
    assert!(matches!(h.accept(offer_to("long", &["long"])).await, Accepted::Duplicate(_)), "FAULTS H1");
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    h.advance(MOMENT);
    assert_eq!(h.page(&params).await.messages, 1);
    assert_eq!(h.count().await.messages, 0);
}

// FAULTS H1: the key of a message is needed as long as any of its handlers needs it.
pub async fn the_longest_window_of_a_message_counts<S: InspectTier>(h: &Harness<S>) {
    let params = params(DAY, &[("short", HOUR), ("long", 10 * DAY)]);
    h.first(offer_to("1", &["short", "long", "other"])).await;
    for name in ["short", "long", "other"] {
        h.finish(name, Outcome::Done).await;
    }
    for _ in 0..9 {
        h.advance(DAY);
        assert_eq!(h.page(&params).await, Swept::NOTHING);
    }
    assert_eq!(h.show("1").await.expect("known").entries.len(), 3, "nothing of it has left");
    h.advance(DAY);
    assert_eq!(h.page(&params).await.messages, 1);
}

pub async fn a_window_counts_from_the_completion_of_its_handler<S: InspectTier>(h: &Harness<S>) {
    let params = params(10 * DAY, &[("a", HOUR), ("b", DAY)]);
    h.first(offer_to("1", &["a", "b"])).await;
    h.finish("b", dismissed()).await;
    h.advance(5 * DAY);
    assert_eq!(h.page(&params).await, Swept::NOTHING, "one of them is not finished");
    h.finish("a", Outcome::Done).await;
    h.advance(HOUR.saturating_sub(MOMENT));
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    h.advance(MOMENT);
    assert_eq!(h.page(&params).await.messages, 1);
}

pub async fn a_replayed_entry_has_its_window_again<S: OperateTier>(h: &Harness<S>) {
    let params = params(10 * DAY, &[("h", HOUR)]);
    h.completed("1").await;
    h.advance(HOUR.saturating_sub(MOMENT));
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    h.finish("h", Outcome::Done).await;
    h.advance(MOMENT);
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    h.advance(HOUR);
    assert_eq!(h.page(&params).await.messages, 1);
}

// FAULTS H2, H5: with any windows.
pub async fn no_window_ends_what_is_not_finished<S: InspectTier>(h: &Harness<S>) {
    h.poisoned("poisoned").await;
    h.first(offer_to("pending", &["other"])).await;
    h.running("running").await;
    h.accept(crate::fixture::offer_message(
        oncebox::Message::new("pending", "other", "x").with_source("shop"),
    ))
    .await;
    h.advance(100 * RETENTION);
    let params = params(Duration::ZERO, &[("h", Duration::ZERO), ("other", Duration::ZERO)]);
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    assert_eq!(h.entry("poisoned", "h").await.status, Status::Poisoned);
    assert_eq!((h.count().await.messages, h.count().await.quarantined), (3, 1));
}

pub async fn without_entries_the_window_of_the_inbox_counts<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_to("1", &[])).await;
    let params = params(RETENTION, &[("h", HOUR)]);
    h.advance(RETENTION.saturating_sub(MOMENT));
    assert_eq!(h.page(&params).await, Swept::NOTHING);
    h.advance(MOMENT);
    assert_eq!(h.page(&params).await.messages, 1);
}

pub async fn for_ever_is_a_window_too<S: TransactionalTier>(h: &Harness<S>) {
    for name in ["kept", "short"] {
        h.first(offer_to(name, &[name])).await;
        h.finish(name, Outcome::Done).await;
        assert_eq!(h.mark(name, name).await, Mark::First);
    }
    h.first(offer_to("unrouted", &[])).await;
    h.advance(1_000 * DAY);
    let swept = h.page(&params(Duration::MAX, &[("short", HOUR)])).await;
    assert_eq!((swept.messages, swept.marks), (1, 1));
    let swept = h.page(&params(HOUR, &[("kept", Duration::MAX)])).await;
    assert_eq!((swept.messages, swept.marks), (1, 0));
    assert!(h.show("kept").await.is_some());
    assert_eq!(h.mark("kept", "kept").await, Mark::Duplicate);
}

// FAULTS H1, H6
pub async fn marks_leave_by_the_window_of_their_handler<S: TransactionalTier>(h: &Harness<S>) {
    let mut params = params(DAY, &[("long", 10 * DAY), ("short", HOUR)]);
    // Small pages: messages that stay must not keep others.
    params.limit = 2;
    for n in 0..3 {
        for name in ["a", "long", "short", "z"] {
            assert_eq!(h.mark(&n.to_string(), name).await, Mark::First);
        }
    }
    let sweep = async || {
        let (mut params, mut marks) = (params.clone(), 0);
        for _ in 0..100 {
            let page = h.store.sweep(&params).await.expect("sweep");
            assert!(page.marks <= 2, "a bounded number at a time");
            marks += page.marks;
            match page.next {
                None => return marks,
                next => params.after = next,
            }
        }
        panic!("a sweep goes on for ever");
    };
    h.advance(HOUR.saturating_sub(MOMENT));
    assert_eq!(sweep().await, 0);
    h.advance(MOMENT);
    assert_eq!(sweep().await, 3, "those of the short window");
    assert_eq!(h.mark("0", "short").await, Mark::First);
    h.advance(DAY);
    assert_eq!(sweep().await, 7, "the others but those of the long window");
    assert_eq!(h.mark("0", "long").await, Mark::Duplicate);
    h.advance(9 * DAY);
    assert_eq!(sweep().await, 3);
}

/// Stores messages for several pages of one.
async fn for_three_pages<S: InspectTier>(h: &Harness<S>) -> (SweepParams, SweepParams) {
    for n in 0..3 {
        h.first(offer_to(n.to_string(), &[])).await;
    }
    h.advance(RETENTION);
    let mut one = SweepParams::new(inbox(), RETENTION, 1);
    one.lease = HOUR;
    let mut other = one.clone();
    other.sweep_id = SweepId::fresh();
    (one, other)
}

// FAULTS H4
pub async fn one_sweeps_at_a_time<S: InspectTier>(h: &Harness<S>) {
    let (mut one, mut other) = for_three_pages(h).await;
    loop {
        let page = h.store.sweep(&one).await.expect("sweep");
        match page.next {
            None => break,
            next => one.after = next,
        }
        assert_eq!(page.messages, 1);
        h.advance(HOUR);
        assert_eq!(h.store.sweep(&other).await.expect("sweep"), Swept::NOTHING, "another process sweeps");
    }
    assert_eq!(h.count().await.messages, 0);
    h.first(offer_to("more", &[])).await;
    other.retention = Duration::ZERO;
    assert_eq!(h.store.sweep(&other).await.expect("sweep").messages, 1, "the first one is done, and says so");
}

pub async fn the_other_inboxes_are_swept_meanwhile<S: InspectTier>(h: &Harness<S>) {
    let (one, mut other) = for_three_pages(h).await;
    assert!(h.store.sweep(&one).await.expect("sweep").next.is_some());
    other.inbox = inbox_named("other");
    h.first(crate::fixture::moved_to(&other.inbox, &offer_to("there", &[]))).await;
    h.advance(RETENTION);
    other.limit = 10;
    assert_eq!(h.store.sweep(&other).await.expect("sweep").messages, 1);
}

// FAULTS H4
pub async fn a_sweeper_that_died_is_followed_by_another<S: InspectTier>(h: &Harness<S>) {
    let (mut one, mut other) = for_three_pages(h).await;
    one.after = h.store.sweep(&one).await.expect("sweep").next;
    h.advance(HOUR + MOMENT);
    other.limit = 10;
    assert_eq!(h.store.sweep(&other).await.expect("sweep").messages, 2);
    assert_eq!(h.store.sweep(&one).await.expect("sweep"), Swept::NOTHING, "there is nothing left");
}

pub async fn a_sweeper_that_was_overtaken_stops<S: InspectTier>(h: &Harness<S>) {
    let (mut one, mut other) = for_three_pages(h).await;
    one.after = h.store.sweep(&one).await.expect("sweep").next;
    h.advance(HOUR + MOMENT);
    other.after = h.store.sweep(&other).await.expect("sweep").next;
    assert!(other.after.is_some());
    assert_eq!(h.store.sweep(&one).await.expect("sweep"), Swept::NOTHING);
    assert_eq!(h.store.sweep(&other).await.expect("sweep").messages, 1);
}

pub async fn many_sweepers_leave_nothing_behind<S: InspectTier>(h: &Harness<S>) {
    for round in 0..5 {
        let batch: Vec<_> = (0..60).map(|n| offer_to(format!("{round} {n}"), &[])).collect();
        h.accept_all(&batch).await;
        h.advance(RETENTION);
        let mut sweepers = JoinSet::new();
        for _ in 0..6 {
            let store = h.store.clone();
            sweepers.spawn(async move {
                let mut params = SweepParams::new(inbox(), RETENTION, 7);
                let mut removed = 0;
                loop {
                    let page = store.sweep(&params).await.expect("sweep");
                    removed += page.messages;
                    match page.next {
                        None => return removed,
                        next => params.after = next,
                    }
                }
            });
        }
        let removed: usize = sweepers.join_all().await.into_iter().sum();
        assert_eq!((removed, h.count().await.messages), (60, 0));
    }
    // The last sweeper left nothing that delays this one.
    h.first(offer_to("more", &[])).await;
    assert_eq!(h.sweep(Duration::ZERO).await.messages, 1);
}
