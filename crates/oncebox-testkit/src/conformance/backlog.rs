//! Backlog: waiting entries of each handler, counted without reading all of them.

use std::time::Duration;

use oncebox::state::{Operation, Outcome};
use oncebox::store::{Action, ActionKind, Backlog, BacklogParams, BlockedBacklog, OrderQueue};
use oncebox::{Message, OnPoisoned};

use super::line::poison;
use crate::fixture::{
    HOUR, PAST_LEASE, SECOND, failed, handler, inbox, inbox_named, moved_to, offer, offer_message,
    offer_ordered, offer_to, rejected,
};
use crate::{Harness, InspectTier, OperateTier};

impl<S: InspectTier> Harness<S> {
    async fn backlog(&self) -> Vec<Backlog> {
        self.store.backlog(&BacklogParams::new(inbox())).await.expect("backlog")
    }
}

fn waits(name: &str, pending: u64, poisoned: u64, oldest_due: Option<Duration>) -> Backlog {
    Backlog::new(handler(name), pending, poisoned, oldest_due)
}

pub async fn an_empty_store_has_no_backlog<S: InspectTier>(h: &Harness<S>) {
    assert!(h.backlog().await.is_empty());
}

pub async fn what_waits_is_counted_for_each_handler<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["b", "a"])).await;
    h.advance(SECOND);
    h.first(offer_to("2", &["b"])).await;
    h.advance(2 * SECOND);
    let (three, due) = (3 * SECOND, Some(3 * SECOND));
    assert_eq!(h.backlog().await, [waits("a", 1, 0, due), waits("b", 2, 0, Some(three))]);
}

pub async fn what_is_due_later_waits_but_is_not_due<S: InspectTier>(h: &Harness<S>) {
    let mut later = offer("1");
    later.delay = HOUR;
    h.first(later).await;
    assert_eq!(h.backlog().await, [waits("h", 1, 0, None)]);
    h.advance(HOUR + SECOND);
    assert_eq!(h.backlog().await, [waits("h", 1, 0, Some(SECOND))]);
}

pub async fn what_runs_or_is_finished_does_not_wait<S: InspectTier>(h: &Harness<S>) {
    h.completed("completed").await;
    h.first(offer("running")).await;
    h.claim_one("h").await;
    assert!(h.backlog().await.is_empty());
}

pub async fn retries_and_suspects_wait<S: InspectTier>(h: &Harness<S>) {
    h.settled("failed", failed()).await;
    h.settled("crashed", Outcome::Crashed).await;
    h.first(offer("new")).await;
    h.advance(PAST_LEASE);
    let backlog = h.backlog().await;
    assert_eq!(backlog.len(), 1, "{backlog:?}");
    assert_eq!((backlog[0].pending, backlog[0].poisoned), (3, 0));
    assert!(
        backlog[0].oldest_due.is_some_and(|due| due >= PAST_LEASE.saturating_sub(5 * SECOND)),
        "{backlog:?}"
    );
}

pub async fn poisoned_entries_are_counted_apart<S: InspectTier>(h: &Harness<S>) {
    h.poisoned("1").await;
    h.poisoned("2").await;
    assert_eq!(h.backlog().await, [waits("h", 0, 2, None)]);
    h.first(offer("3")).await;
    assert_eq!(h.backlog().await, [waits("h", 1, 2, Some(Duration::ZERO))]);
}

pub async fn those_behind_another_wait_and_are_not_due<S: InspectTier>(h: &Harness<S>) {
    for n in 0..3 {
        h.first(offer_ordered(n.to_string(), "k")).await;
    }
    h.advance(SECOND);
    assert_eq!(h.backlog().await, [waits("h", 3, 0, Some(SECOND))]);
    let claim = h.claim_one("h").await;
    assert_eq!(h.backlog().await, [waits("h", 2, 0, None)], "they wait for the one that runs");
    h.settle(&claim, rejected()).await;
    let blocked = BlockedBacklog::new(1, 2, Some(SECOND));
    assert_eq!(h.backlog().await, [waits("h", 2, 1, None).held_back(blocked)], "they wait for a person");
}

// FAULTS J7: entries that a poisoned one blocks are not due, and must not look like nothing.
pub async fn what_poisoned_entries_hold_back_is_counted<S: OperateTier>(h: &Harness<S>) {
    let policies = [("a", OnPoisoned::Block), ("b", OnPoisoned::Park), ("c", OnPoisoned::Skip)];
    for (order, on_poisoned) in policies {
        h.first(offer_ordered(format!("{order} head"), order)).await;
        poison(h, &h.claim_one("h").await, on_poisoned).await;
    }
    let blocked = |keys, waiting, oldest| BlockedBacklog::new(keys, waiting, oldest);
    let nothing = waits("h", 0, 3, None).held_back(blocked(2, 0, None));
    assert_eq!(h.backlog().await, [nothing], "nothing is behind yet, but would be");
    h.advance(SECOND);
    for order in ["a", "b"] {
        for n in 0..3 {
            h.first(offer_ordered(format!("{order}{n}"), order)).await;
            h.advance(SECOND);
        }
    }
    h.first(offer_to("free", &["g"])).await;
    let free = waits("g", 1, 0, Some(Duration::ZERO));
    let expected = waits("h", 3, 6, None).held_back(blocked(2, 6, Some(6 * SECOND)));
    assert_eq!(h.backlog().await, [free, expected]);
    h.operate("a head", "h", Operation::Unblock).await.expect("unblock");
    let found = &h.backlog().await[1];
    let expected = (3, 6, blocked(1, 3, Some(3 * SECOND)));
    assert_eq!((found.pending, found.poisoned, found.blocked), expected, "{found:?}");
    assert!(found.oldest_due.is_some(), "the next of `a` is due: {found:?}");
    h.operate("b head", "h", Operation::Discard).await.expect("discard");
    let found = &h.backlog().await[1];
    assert_eq!((found.pending, found.poisoned, found.blocked), (6, 2, blocked(0, 0, None)), "{found:?}");
}

pub async fn a_paused_key_is_not_blocked<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_ordered("1", "k")).await;
    let what = ActionKind::PauseKey { handler: handler("h"), line: OrderQueue::new("shop", *b"k") };
    h.store.act(&Action::new(inbox(), what)).await.expect("pause");
    assert_eq!(h.backlog().await, [waits("h", 1, 0, None)]);
}

pub async fn what_is_held_back_is_counted_up_to_a_limit<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_ordered("head", "k")).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, rejected()).await;
    let max = usize::try_from(BacklogParams::COUNTED).expect("a small number");
    for chunk in (0..max + 10).collect::<Vec<_>>().chunks(1_000) {
        let batch = chunk.iter().map(|n| offer_ordered(n.to_string(), "k"));
        h.accept_all(&batch.collect::<Vec<_>>()).await;
    }
    let blocked = BlockedBacklog::new(1, BacklogParams::COUNTED, Some(Duration::ZERO));
    assert_eq!(h.backlog().await, [waits("h", BacklogParams::COUNTED, 1, None).held_back(blocked)]);
}

pub async fn the_backlog_of_another_inbox_is_its_own<S: InspectTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer("1"))).await;
    assert!(h.backlog().await.is_empty());
    let backlog = h.store.backlog(&BacklogParams::new(other)).await.expect("backlog");
    assert_eq!(backlog, [waits("h", 1, 0, Some(Duration::ZERO))]);
}

pub async fn a_large_backlog_is_counted_up_to_a_limit<S: InspectTier>(h: &Harness<S>) {
    let max = usize::try_from(BacklogParams::COUNTED).expect("a small number");
    for chunk in (0..max + 10).collect::<Vec<_>>().chunks(1_000) {
        let batch = chunk.iter().map(|n| {
            let mut new = offer_message(Message::new(n.to_string(), "t", ""));
            // Some wait in another place.
            new.delay = if n % 100 == 0 { SECOND } else { Duration::ZERO };
            new
        });
        h.accept_all(&batch.collect::<Vec<_>>()).await;
    }
    assert_eq!(h.backlog().await, [waits("h", BacklogParams::COUNTED, 0, Some(Duration::ZERO))]);
}
