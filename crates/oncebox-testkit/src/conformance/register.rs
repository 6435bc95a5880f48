//! Register: the store knows all windows, so that no process removes what another one relies on. Watermarks are kept by handler.

use std::time::Duration;

use oncebox::state::{Operation, Outcome};
use oncebox::store::{Accepted, Mark, NewMessage, RegisterParams, SweepParams, Swept};
use oncebox::time::Timestamp;

use crate::fixture::{
    HOUR, RETENTION, handler, inbox, inbox_named, message, moved_to, offer_routed, offer_to, rejected,
    renamed, route,
};
use crate::{Harness, InspectTier, OperateTier, TransactionalTier};

const MOMENT: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);

impl<S: InspectTier> Harness<S> {
    /// Registers the windows of some handlers for a process.
    async fn register(&self, windows: &[(&str, Duration)]) {
        let mut params = RegisterParams::new(inbox(), RETENTION);
        params.windows = windows.iter().map(|(name, window)| (handler(name), *window)).collect();
        self.store.register(&params).await.expect("register");
    }

    /// Sweeps as another process, which knows no handler. Returns the number of removed messages.
    async fn other_process_sweeps(&self) -> usize {
        let other = self.another().await;
        let mut params = SweepParams::new(inbox(), RETENTION, 100);
        let mut removed = 0;
        loop {
            let page = other.sweep(&params).await.expect("sweep");
            removed += page.messages;
            match page.next {
                None => return removed,
                next => params.after = next,
            }
        }
    }

    /// Stores a new message that its handlers have completed.
    async fn done(&self, id: &str, handlers: &[&str]) {
        self.first(offer_to(id, handlers)).await;
        for name in handlers {
            let claim = self.claim_one(name).await;
            self.settle(&claim, Outcome::Done).await;
        }
    }

    /// Sweeps everything as a process that knows no handler.
    async fn looked(&self) -> Swept {
        let mut params = SweepParams::new(inbox(), RETENTION, 1_000);
        let mut all = Swept::NOTHING;
        loop {
            let page = self.store.sweep(&params).await.expect("sweep");
            all.add(&page);
            match page.next {
                None => return all,
                next => params.after = next,
            }
        }
    }
}

fn dated(id: &str, handlers: &[&str], time: Timestamp) -> NewMessage {
    offer_routed(message(id).with_time(time), handlers.iter().copied().map(route))
}

// FAULTS H1, H6: a sweep uses the windows of the processes that know the handler, even long after their registration.
pub async fn a_handler_that_the_sweeper_does_not_know_keeps_its_window<S: TransactionalTier>(h: &Harness<S>) {
    h.register(&[("long", 30 * DAY), ("short", HOUR), ("ever", Duration::MAX)]).await;
    h.done("1", &["long"]).await;
    h.done("2", &["short"]).await;
    h.done("3", &["ever"]).await;
    assert_eq!(h.mark("1", "long").await, Mark::First);
    h.advance(HOUR);
    assert_eq!(h.other_process_sweeps().await, 1, "a shorter one counts, too");
    h.advance((30 * DAY).saturating_sub(HOUR + MOMENT));
    assert_eq!(h.other_process_sweeps().await, 0);
    assert!(matches!(h.accept(offer_to("1", &["long"])).await, Accepted::Duplicate(_)));
    assert_eq!(h.mark("1", "long").await, Mark::Duplicate);
    h.advance(MOMENT);
    assert_eq!(h.other_process_sweeps().await, 1);
    assert_eq!(h.mark("1", "long").await, Mark::First);
    h.advance(1_000 * DAY);
    assert_eq!(h.other_process_sweeps().await, 0);
    assert!(h.show("3").await.is_some());
}

// FAULTS H6: one process registers an hour, another ten days.
pub async fn the_longest_window_of_all_processes_counts<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("h", 10 * DAY)]).await;
    h.register(&[("h", HOUR)]).await;
    h.done("1", &["h"]).await;
    let mut own = SweepParams::new(inbox(), HOUR, 100);
    own.windows = vec![(handler("h"), HOUR)];
    for _ in 0..2 {
        h.advance(DAY.saturating_sub(MOMENT));
        assert_eq!(h.store.sweep(&own).await.expect("sweep").messages, 0, "another process relies on it");
        h.register(&[("h", 10 * DAY)]).await;
    }
    h.register(&[("h", HOUR)]).await;
    h.advance(DAY + MOMENT);
    h.register(&[("h", HOUR)]).await;
    assert_eq!(
        h.store.sweep(&own).await.expect("sweep").messages,
        1,
        "the registration of ten days has expired"
    );
}

// FAULTS H6
pub async fn the_longest_window_of_the_inbox_counts<S: InspectTier>(h: &Harness<S>) {
    h.store.register(&RegisterParams::new(inbox(), 10 * DAY)).await.expect("register");
    h.store.register(&RegisterParams::new(inbox_named("other"), 100 * DAY)).await.expect("register");
    h.done("1", &["h"]).await;
    h.first(offer_to("2", &[])).await;
    h.advance(HOUR);
    assert_eq!(h.sweep(HOUR).await.messages, 0);
    h.advance(DAY);
    assert_eq!(h.sweep(HOUR).await.messages, 2, "its time is over, and the sweeper says an hour");
}

pub async fn a_window_can_be_made_longer_at_once<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("h", HOUR)]).await;
    h.done("1", &["h"]).await;
    assert_eq!(h.other_process_sweeps().await, 0);
    h.register(&[("h", 10 * DAY)]).await;
    h.advance(9 * DAY);
    assert_eq!(h.other_process_sweeps().await, 0);
    h.advance(DAY);
    assert_eq!(h.other_process_sweeps().await, 1);
}

pub async fn a_window_can_be_made_shorter_after_a_day<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("h", 100 * DAY), ("other", DAY)]).await;
    h.done("1", &["h"]).await;
    h.done("2", &["other"]).await;
    // The cursors passed it under the earlier windows.
    h.advance(2 * DAY);
    assert_eq!(h.other_process_sweeps().await, 1);
    h.register(&[("h", DAY)]).await;
    assert_eq!(h.other_process_sweeps().await, 1, "the longer one was not said for a day");
}

// FAULTS H1: one handler forgets soon. The memory of the others is not in doubt.
pub async fn what_one_handler_forgot_is_stale_for_it_alone<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("short", HOUR), ("long", 30 * DAY)]).await;
    let start = h.now();
    h.done("1", &["short"]).await;
    h.done("2", &["long"]).await;
    h.advance(HOUR);
    assert_eq!(h.other_process_sweeps().await, 1);
    assert_eq!(h.accept(dated("1", &["short"], start)).await, Accepted::Stale);
    assert_eq!(h.accept(dated("3", &["long", "short"], start)).await, Accepted::Stale);
    for handlers in [&["long"][..], &["new"], &[]] {
        let id = format!("{handlers:?}");
        assert!(matches!(h.accept(dated(&id, handlers, start)).await, Accepted::First(_)), "{id}");
    }
    // In one batch, with and without a time, in the same order as others.
    let batch = [
        dated("a", &["long"], start),
        dated("b", &["short"], start),
        offer_to("c", &["short"]),
        dated("d", &[], start),
        offer_routed(message("e").with_time(start).with_ordering_key("k"), [route("short")]),
        offer_routed(message("f").with_time(start).with_ordering_key("k"), [route("long")]),
    ];
    let stale: Vec<bool> = h.accept_all(&batch).await.iter().map(|one| *one == Accepted::Stale).collect();
    assert_eq!(stale, [false, true, false, false, true, false]);
}

pub async fn messages_without_entries_are_forgotten_by_themselves<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    h.first(offer_to("1", &[])).await;
    h.advance(RETENTION);
    assert_eq!(h.other_process_sweeps().await, 1);
    assert_eq!(h.accept(dated("2", &[], start)).await, Accepted::Stale);
    assert!(matches!(h.accept(dated("3", &["h"], start)).await, Accepted::First(_)), "no handler has run it");
}

// FAULTS I1
pub async fn what_a_former_key_forgot_is_stale_for_the_new_one<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("old", 2 * DAY)]).await;
    let start = h.now();
    h.done("1", &["old"]).await;
    h.advance(DAY);
    // The new version knows the key as a former one, with a longer window.
    h.register(&[("new", 4 * DAY), ("old", 4 * DAY)]).await;
    h.advance(2 * DAY);
    assert_eq!(h.other_process_sweeps().await, 0);
    let again = |id: &str| offer_routed(message(id).with_time(start), [renamed("new", &["old"])]);
    assert!(matches!(h.accept(again("1")).await, Accepted::Duplicate(_)));
    h.advance(DAY);
    assert_eq!(h.other_process_sweeps().await, 1);
    assert_eq!(h.accept(again("1")).await, Accepted::Stale);
    for key in ["old", "new"] {
        assert_eq!(h.accept(dated("1", &[key], start)).await, Accepted::Stale, "{key}");
    }
    assert!(matches!(h.accept(dated("2", &["other"], start)).await, Accepted::First(_)));
}

// FAULTS H1: it was redelivered for another handler after this one had forgotten it.
pub async fn a_handler_is_not_given_again_what_it_forgot<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("short", HOUR)]).await;
    let start = h.now();
    h.done("1", &["short"]).await;
    h.done("2", &["short"]).await;
    h.advance(HOUR);
    assert_eq!(h.other_process_sweeps().await, 2);
    for id in ["1", "2"] {
        assert!(matches!(h.accept(dated(id, &["other"], start)).await, Accepted::First(_)));
    }
    assert_eq!(h.accept(dated("1", &["other", "short"], start)).await, Accepted::Stale);
    assert_eq!(h.accept(dated("1", &["other", "short"], start)).await, Accepted::Stale);
    assert!(h.claim("short", 10).await.is_empty(), "it does not run");
    let view = h.show("1").await.expect("known");
    assert_eq!((view.entries.len(), view.quarantined.len()), (1, 1));
    let undated = offer_to("2", &["other", "short"]);
    assert!(
        matches!(h.accept(undated).await, Accepted::HandlersAdded(_, 1)),
        "without a time the store cannot tell"
    );
}

pub async fn what_is_compared_with_nothing_is_never_stale<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    h.done("1", &["h"]).await;
    h.advance(RETENTION);
    assert_eq!(h.other_process_sweeps().await, 1);
    let batch = ["2", "3", "4"].map(|id| {
        let mut new = dated(id, &["h"], start);
        new.compared = id == "3";
        new
    });
    let answers = h.accept_all(&batch).await;
    assert!(matches!(answers[..], [Accepted::First(_), Accepted::Stale, Accepted::First(_)]), "{answers:?}");
    let mut alone = dated("5", &["h"], start);
    alone.compared = false;
    h.first(alone).await;
}

// A year of history beside an hour: each sweep reads only messages that may have expired since the last one.
pub async fn a_sweep_does_not_read_history_again<S: InspectTier>(h: &Harness<S>) {
    h.register(&[("short", HOUR), ("long", 365 * DAY), ("ever", Duration::MAX)]).await;
    let mut work = Vec::new();
    for round in 0..12 {
        let batch: Vec<_> = (0..40).map(|n| offer_to(format!("{round} {n}"), &["long", "ever"])).collect();
        h.accept_all(&batch).await;
        let kept: Vec<_> = (0..20).map(|n| offer_to(format!("kept {round} {n}"), &["long"])).collect();
        h.accept_all(&kept).await;
        h.done(&format!("short {round}"), &["short"]).await;
        h.advance(DAY);
        let swept = h.looked().await;
        assert_eq!(swept.messages, 1);
        work.push(swept.looked);
    }
    // Two cursors pass each message: those of an hour and of the inbox. The messages of a year have not expired in any window.
    assert!(work.iter().skip(8).all(|looked| *looked <= 2 * 61), "{work:?}");
    let idle = h.looked().await;
    assert_eq!((idle.messages, idle.looked), (0, 0), "nothing is due");
}

// FAULTS H2, H5: an unfinished message that a sweep passed is removed after it has finished.
pub async fn what_a_sweep_passed_leaves_later<S: OperateTier>(h: &Harness<S>) {
    h.register(&[("h", HOUR), ("long", 30 * DAY), ("other", 30 * DAY)]).await;
    h.first(offer_to("poisoned", &["h"])).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, rejected()).await;
    h.first(offer_to("late", &["h", "long"])).await;
    h.first(offer_to("pending", &["h"])).await;
    let claims = h.claim("h", 10).await;
    h.settle(&claims[0].claim, Outcome::Done).await;
    h.settle(&claims[1].claim, Outcome::Released).await;
    for _ in 0..3 {
        h.advance(DAY);
        h.done(&h.now().as_millis().to_string(), &["other"]).await;
        assert_eq!(h.looked().await.messages, 0);
    }
    h.operate("poisoned", "h", Operation::Discard).await.expect("discard");
    let pending = h.claim_one("h").await;
    h.settle(&pending, Outcome::Done).await;
    h.advance(HOUR.saturating_sub(MOMENT));
    assert_eq!(h.looked().await.messages, 0);
    h.advance(MOMENT);
    assert_eq!(h.looked().await.messages, 2);
    let late = h.claim("long", 10).await.remove(0);
    h.settle(&late.claim, Outcome::Done).await;
    h.advance(30 * DAY);
    assert_eq!(h.looked().await.messages, 4, "and those with the long window");
    assert_eq!(h.count().await.messages, 0);
}

// FAULTS H3: more of them than a cursor leaves behind.
pub async fn a_large_backlog_is_forgotten_when_it_is_over<S: InspectTier>(h: &Harness<S>) {
    let batch: Vec<_> = (0..1_100).map(|n| offer_to(n.to_string(), &["h"])).collect();
    for part in batch.chunks(550) {
        h.accept_all(part).await;
    }
    h.advance(2 * RETENTION);
    assert_eq!(h.looked().await.messages, 0, "they wait");
    let mut done = 0;
    loop {
        let claimed = h.claim("h", 500).await;
        if claimed.is_empty() {
            break;
        }
        let settlements: Vec<_> =
            claimed.iter().map(|one| one.claim.settle(&crate::fixture::policy(), Outcome::Done)).collect();
        done += settlements.len();
        h.send_all(&settlements).await;
    }
    assert_eq!(done, 1_100);
    assert_eq!(h.looked().await.messages, 0);
    h.advance(RETENTION);
    assert_eq!(h.looked().await.messages, 1_100);
}

pub async fn inboxes_register_apart<S: InspectTier>(h: &Harness<S>) {
    let mut other = RegisterParams::new(inbox_named("other"), RETENTION);
    other.windows = vec![(handler("h"), 100 * DAY)];
    h.store.register(&other).await.expect("register");
    h.done("1", &["h"]).await;
    h.first(moved_to(&inbox_named("other"), &offer_to("1", &["h"]))).await;
    h.advance(RETENTION);
    assert_eq!(h.other_process_sweeps().await, 1);
    assert_eq!(h.store.count(&inbox_named("other"), None).await.expect("count").messages, 1);
}
