//! Backfill: a handler that was added later gets entries for stored messages.

use crate::OperatorSteps as _;
use oncebox::state::{InLine, Outcome, PoisonReason, Status};
use oncebox::store::{Accepted, BackfillParams, Backfilled, Route, Settled};
use oncebox::{Message, OnPoisoned};
use tokio::task::JoinSet;

use crate::fixture::{
    RETENTION, again, handler, ids, inbox, inbox_named, key, message, moved_to, offer, offer_message,
    offer_ordered, offer_routed, offer_to, policy, rejected, renamed, route,
};
use crate::{Harness, OperateTier};

fn params(route: Route) -> BackfillParams {
    BackfillParams::new(inbox(), route, vec!["order.placed".into()])
}

impl<S: OperateTier> Harness<S> {
    /// Backfills all pages, and returns the number of added entries.
    async fn backfill(&self, route: Route, limit: usize) -> usize {
        backfill(&self.store, route, limit).await
    }
}

async fn backfill<S: OperateTier>(store: &S, route: Route, limit: usize) -> usize {
    let (mut params, mut added) = (params(route), 0);
    params.limit = limit;
    for _ in 0..10_000 {
        let page = store.backfill(&params).await.expect("backfill");
        assert!(page.added <= limit, "a bounded number at a time");
        added += page.added;
        match page.next {
            None => return added,
            next => {
                assert!(next > params.after, "a backfill that stands still");
                params.after = next;
            }
        }
    }
    panic!("a backfill goes on for ever");
}

pub async fn an_empty_store_has_nothing_to_backfill<S: OperateTier>(h: &Harness<S>) {
    let page = h.store.backfill(&params(route("new"))).await.expect("backfill");
    assert_eq!(page, Backfilled::default());
}

// FAULTS I2
pub async fn a_new_handler_gets_what_is_stored<S: OperateTier>(h: &Harness<S>) {
    h.completed("completed").await;
    h.poisoned("poisoned").await;
    h.first(offer("pending")).await;
    h.first(offer_to("unrouted", &[])).await;
    h.advance(crate::fixture::SECOND);
    assert!(h.claim("new", 10).await.is_empty(), "not by itself");
    assert_eq!(h.backfill(route("new"), 100).await, 4);
    let entry = h.entry("completed", "new").await;
    assert_eq!((entry.status, entry.attempts, entry.generation), (Status::Pending, 0, 0));
    assert_eq!(entry.at, h.now());
    let claimed = h.claim("new", 10).await;
    assert_eq!(ids(&claimed), ["completed", "poisoned", "pending", "unrouted"], "in the order of acceptance");
    assert_eq!(claimed[0].message.payload(), "completed");
    for (id, status) in
        [("completed", Status::Completed), ("poisoned", Status::Poisoned), ("pending", Status::Pending)]
    {
        assert_eq!(h.status(id).await, status, "the others are left alone");
    }
    assert_eq!(h.count().await.unrouted, 0);
}

pub async fn again_it_adds_nothing<S: OperateTier>(h: &Harness<S>) {
    for n in 0..5 {
        h.first(offer(n.to_string())).await;
    }
    assert_eq!(h.backfill(route("new"), 2).await, 5);
    assert_eq!(h.backfill(route("new"), 2).await, 0);
    let claimed = h.claim("new", 10).await;
    for claimed in &claimed {
        h.settle(&claimed.claim, Outcome::Done).await;
    }
    assert_eq!(h.backfill(route("new"), 100).await, 0, "what is finished is not done again");
    let before = h.snapshot().await;
    assert_eq!(h.backfill(route("h"), 100).await, 0, "all had one from the start");
    assert_eq!(h.snapshot().await, before);
    let seq = claimed[0].claim.seq;
    assert_eq!(h.accept(offer_to("0", &["h", "new"])).await, again(seq), "a redelivery finds the entry");
}

// FAULTS I1
pub async fn an_entry_under_a_legacy_key_is_one<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_to("old", &["former"])).await;
    h.first(offer_to("older", &["before"])).await;
    h.first(offer("other")).await;
    let claim = h.claim_one("before").await;
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(h.backfill(renamed("new", &["former", "before", "never"]), 100).await, 1);
    assert_eq!(h.entry("other", "new").await.handler, handler("new"));
    for id in ["old", "older"] {
        assert_eq!(h.show(id).await.expect("known").entries.len(), 1);
    }
}

pub async fn other_types_are_passed_over<S: OperateTier>(h: &Harness<S>) {
    for (n, kind) in ["a", "order.placed", "b", "order.placed", "c"].into_iter().enumerate() {
        h.first(offer_message(Message::new(n.to_string(), kind, "").with_source("shop"))).await;
    }
    assert_eq!(h.backfill(route("new"), 1).await, 2);
    let mut more = params(route("new"));
    more.types = vec!["a".into(), "c".into(), "order.placed".into()];
    assert_eq!(h.store.backfill(&more).await.expect("backfill").added, 2);
    let mut none = params(route("new"));
    none.types = Vec::new();
    assert_eq!(h.store.backfill(&none).await.expect("backfill"), Backfilled::default());
}

pub async fn another_inbox_gets_nothing<S: OperateTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    for n in 0..3 {
        h.first(offer(n.to_string())).await;
        h.first(moved_to(&other, &offer(n.to_string()))).await;
    }
    assert_eq!(h.backfill(route("new"), 1).await, 3);
    let there = h.store.count(&other, None).await.expect("count");
    assert_eq!(there.with_status(Status::Pending), 3);
}

// FAULTS I2: an interrupted backfill restarts at its last known position.
pub async fn it_goes_on_where_it_was<S: OperateTier>(h: &Harness<S>) {
    for n in 0..6 {
        h.first(offer(n.to_string())).await;
    }
    let mut params = params(route("new"));
    params.limit = 2;
    let first = h.store.backfill(&params).await.expect("backfill");
    assert_eq!(first.added, 2);
    // The response was lost.
    let repeated = h.store.backfill(&params).await.expect("backfill");
    assert_eq!(repeated, Backfilled::new(0, first.next));
    params.after = first.next;
    params.limit = 100;
    assert_eq!(h.store.backfill(&params).await.expect("backfill"), Backfilled::new(4, None));
    params.limit = 0;
    assert_eq!(h.store.backfill(&params).await.expect("backfill"), Backfilled::default());
}

// FAULTS B14
pub async fn order_is_kept<S: OperateTier>(h: &Harness<S>) {
    for n in 0..4 {
        let claim = {
            h.first(offer_ordered(n.to_string(), "k")).await;
            h.claim_one("h").await
        };
        h.settle(&claim, Outcome::Done).await;
    }
    assert_eq!(h.backfill(route("new"), 2).await, 4);
    for n in 0..4 {
        let claimed = h.claim("new", 10).await;
        assert_eq!(ids(&claimed), [n.to_string()], "one at a time, in the order of acceptance");
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn older_ones_go_before_one_that_waits<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_ordered("1", "k")).await;
    h.first(offer_ordered("2", "k")).await;
    let young = message("3").with_ordering_key("k");
    h.first(offer_routed(young, [route("h"), route("new")])).await;
    assert_eq!(h.backfill(route("new"), 100).await, 2);
    for id in ["1", "2", "3"] {
        let claimed = h.claim("new", 10).await;
        assert_eq!(ids(&claimed), [id]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn one_that_runs_is_waited_for<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_ordered("1", "k")).await;
    let young = message("2").with_ordering_key("k");
    h.first(offer_routed(young, [route("new")])).await;
    let running = h.claim_one("new").await;
    assert_eq!(h.backfill(route("new"), 100).await, 1);
    assert!(h.claim("new", 10).await.is_empty(), "one of its order runs");
    h.settle(&running, rejected()).await;
    assert_eq!(ids(&h.claim("new", 10).await), ["1"], "and is not before it");
}

// FAULTS B15: an added entry behind a parking head is parked like an accepted one. Before the head, it runs first.
pub async fn a_parked_key_parks_what_is_backfilled<S: OperateTier>(h: &Harness<S>) {
    let elsewhere = |id: &str| offer_routed(message(id).with_ordering_key("k"), [route("g")]);
    h.first(elsewhere("0")).await;
    h.first(offer_ordered("1", "k")).await;
    h.first(elsewhere("2")).await;
    h.first(offer_ordered("3", "k")).await;
    let head = h.claim_one("h").await;
    let mut parks = policy();
    parks.on_poisoned = OnPoisoned::Park;
    assert_eq!(h.send(head.settle(&parks, rejected())).await, Settled::Applied);
    assert_eq!(h.backfill(route("h"), 100).await, 2);
    for name in ["2", "3"] {
        let entry = h.entry(name, "h").await;
        let expected = (Status::Poisoned, Some(PoisonReason::Parked), Some(InLine::Parked), h.now());
        assert_eq!((entry.status, entry.reason, entry.in_line, entry.at), expected, "{name}");
    }
    let claimed = h.claim("h", 10).await;
    assert_eq!(ids(&claimed), ["0"]);
    h.settle(&claimed[0].claim, Outcome::Done).await;
    assert!(h.claim("h", 10).await.is_empty());
    h.store.unblock(&inbox(), &key("1"), &handler("h")).await.expect("unblock");
    for name in ["2", "3"] {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [name]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

// FAULTS H2: a sweep does not remove a message with new work.
pub async fn a_backfilled_message_stays<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.advance(RETENTION);
    assert_eq!(h.backfill(route("new"), 100).await, 1);
    assert_eq!(h.sweep(RETENTION).await.messages, 0);
    let claim = h.claim_one("new").await;
    h.settle(&claim, Outcome::Done).await;
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    assert_eq!(h.backfill(route("new"), 100).await, 0, "what has left is not brought back");
}

// FAULTS H1: it was redelivered for another handler after this one had forgotten it, under its key or a former one.
pub async fn what_its_handler_forgot_is_not_backfilled<S: OperateTier>(h: &Harness<S>) {
    let start = h.now();
    h.completed("1").await;
    h.completed("2").await;
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 2);
    let back = |id: &str, time| offer_routed(message(id).with_time(time), [route("other")]);
    h.first(back("1", start)).await;
    h.first(back("3", h.now())).await;
    h.first(offer_to("2", &["other"])).await;
    // The store cannot tell for a message without a time.
    for (route, added) in [(route("h"), 2), (renamed("new", &["h"]), 0)] {
        let page = h.store.backfill(&params(route)).await.expect("backfill");
        assert_eq!(page, Backfilled::new(added, None).stale(1));
    }
    assert_eq!(ids(&h.claim("h", 10).await), ["3", "2"]);
    assert_eq!(h.backfill(route("never-before"), 1).await, 3, "another one has forgotten nothing");
}

// FAULTS H3, I2
pub async fn everything_goes_on_meanwhile<S: OperateTier>(h: &Harness<S>) {
    const OLD: usize = 120;
    let batch: Vec<_> =
        (0..OLD).map(|n| offer_to(n.to_string(), if n % 2 == 0 { &[] } else { &["h"] })).collect();
    h.accept_all(&batch).await;
    h.advance(RETENTION);
    let mut tasks: JoinSet<usize> = JoinSet::new();
    for _ in 0..3 {
        let store = h.store.clone();
        tasks.spawn(async move { backfill(&store, route("new"), 7).await });
    }
    let store = h.store.clone();
    tasks.spawn(async move {
        // Redeliveries for both handlers may add the entry first.
        let mut added = 0;
        for n in 0..OLD {
            match store.accept(&[offer_to(n.to_string(), &["h", "new"])]).await.expect("accept")[0] {
                Accepted::HandlersAdded(_, count) => added += count - usize::from(n % 2 == 0),
                Accepted::Duplicate(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        added
    });
    let store = h.store.clone();
    tasks.spawn(async move {
        let sweep = oncebox::store::SweepParams::new(inbox(), 2 * RETENTION, 10);
        store.sweep(&sweep).await.expect("sweep").messages
    });
    let added: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(added, OLD, "each message got one entry, from one of them");
    let mut seen = Vec::new();
    loop {
        let claimed = h.claim("new", 50).await;
        if claimed.is_empty() {
            break;
        }
        seen.extend(ids(&claimed));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), OLD, "and each can be claimed once");
}
