//! Ordering keys: one entry at a time, in the order of acceptance, for each handler.

use std::collections::HashMap;
use std::sync::Arc;

use oncebox::Message;
use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{Accepted, Claim, NewMessage, Route, Settled};
use oncebox::time::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::fixture::{
    HOUR, PAST_LEASE, SECOND, dismissed, failed, id, ids, inbox_named, message, moved_to, offer,
    offer_ordered, offer_routed, outcomes, rejected, route,
};
use crate::harness::claim_params;
use crate::{Harness, InspectTier, OperateTier, StoreTier, TransactionalTier};

// FAULTS B14
pub async fn a_key_is_handled_one_by_one_in_order<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2", "3"]).await;
    for expected in ["1", "2", "3"] {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [expected]);
        assert!(h.claim("h", 10).await.is_empty(), "the next one waits for the end of this one");
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn order_holds_within_a_batch<S: StoreTier>(h: &Harness<S>) {
    let batch: Vec<NewMessage> = (0..4).map(|n| offer_ordered(n.to_string(), "k")).collect();
    h.accept_all(&batch).await;
    for n in 0..4 {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [n.to_string()]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn keys_do_not_wait_for_each_other<S: StoreTier>(h: &Harness<S>) {
    for n in 0..3 {
        for order in ["x", "y"] {
            h.first(offer_ordered(format!("{order}{n}"), order)).await;
        }
        h.first(offer(format!("free{n}"))).await;
    }
    let claimed = h.claim("h", 10).await;
    let mut got = ids(&claimed);
    got.sort();
    assert_eq!(got, ["free0", "free1", "free2", "x0", "y0"]);
    let x = claimed.iter().find(|claimed| id(claimed) == "x0").expect("x0 is claimed");
    h.settle(&x.claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["x1"]);
}

pub async fn handlers_do_not_wait_for_each_other<S: StoreTier>(h: &Harness<S>) {
    for n in 0..2 {
        let ordered = message(n.to_string()).with_ordering_key("k");
        h.first(offer_routed(ordered, [route("a"), route("b")])).await;
    }
    assert_eq!(ids(&h.claim("a", 10).await), ["0"]);
    let claim = h.claim_one("b").await;
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("b", 10).await), ["1"]);
    assert!(h.claim("a", 10).await.is_empty());
}

pub async fn an_unordered_handler_ignores_the_key<S: OperateTier>(h: &Harness<S>) {
    let routes = || [route("a"), route("mail").unordered()];
    let ordered = |n: i32| message(n.to_string()).with_ordering_key("k");
    // Singly, within a batch, and with a delay.
    h.first(offer_routed(ordered(0), routes())).await;
    h.accept_all(&[offer_routed(ordered(1), routes()), offer_routed(ordered(2), routes())]).await;
    let mut later = offer_routed(ordered(3), routes());
    later.delay = 5 * SECOND;
    h.first(later).await;
    let mails = h.claim("mail", 10).await;
    let mut got = ids(&mails);
    got.sort();
    assert_eq!(got, ["0", "1", "2"], "all at once");
    assert!(mails.iter().all(|mail| mail.claim.order.is_none()));
    assert_eq!(ids(&h.claim("a", 10).await), ["0"], "the other handler keeps the order");
    // A poisoned entry holds nothing back, and returns without an order.
    for mail in &mails {
        h.settle(&mail.claim, if id(mail) == "0" { rejected() } else { Outcome::Done }).await;
    }
    h.clock.advance(5 * SECOND);
    assert_eq!(ids(&h.claim("mail", 10).await), ["3"]);
    h.operate("0", "mail", Operation::Retry).await.expect("retry");
    assert_eq!(h.claim_one("mail").await.order, None);
    // A handler that is added later, by a duplicate and by a backfill.
    let more = [route("a"), route("mail").unordered(), route("log").unordered(), route("b")];
    for n in 0..3 {
        // A repeat without its key changes nothing.
        let repeat = if n == 2 { message("2") } else { ordered(n) };
        assert!(matches!(h.accept(offer_routed(repeat, more.clone())).await, Accepted::HandlersAdded(_, 2)));
    }
    assert_eq!(h.claim("log", 10).await.len(), 3);
    assert_eq!(ids(&h.claim("b", 10).await), ["0"]);
    let params = oncebox::store::BackfillParams::new(
        inbox_named("orders"),
        route("late").unordered(),
        vec!["order.placed".into()],
    );
    assert_eq!(h.store.backfill(&params).await.expect("backfill").added, 4);
    assert_eq!(h.claim("late", 10).await.len(), 4);
}

pub async fn an_unordered_handler_ignores_the_key_in_a_transaction<S: TransactionalTier>(h: &Harness<S>) {
    let ordered = |id| message(id).with_ordering_key("k");
    let offers = |messages: [Message; 2], routes: &[Route]| {
        messages.map(|message| offer_routed(message, routes.to_vec()))
    };
    let mut tx = h.store.begin().await.expect("begin");
    let batch = offers([ordered("1"), ordered("2")], &[route("a"), route("mail").unordered()]);
    let accepted = h.store.accept_in(&mut tx, &batch).await.expect("accept");
    assert!(matches!(accepted[..], [Accepted::First(_), Accepted::First(_)]), "{accepted:?}");
    h.store.commit(tx).await.expect("commit");
    let mut tx = h.store.begin().await.expect("begin");
    let more = [route("a"), route("mail").unordered(), route("log").unordered(), route("b")];
    // A repeat without its key changes nothing.
    let batch = offers([ordered("1"), message("2")], &more);
    let accepted = h.store.accept_in(&mut tx, &batch).await.expect("accept");
    let added = |accepted: &Accepted| matches!(accepted, Accepted::HandlersAdded(_, 2));
    assert!(accepted.iter().all(added), "{accepted:?}");
    h.store.commit(tx).await.expect("commit");
    for (handler, expected) in [("a", 1), ("b", 1), ("mail", 2), ("log", 2)] {
        assert_eq!(h.claim(handler, 10).await.len(), expected, "{handler}");
    }
}

pub async fn sources_and_inboxes_do_not_wait_for_each_other<S: StoreTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(offer_ordered("1", "k")).await;
    h.first(moved_to(&other, &offer_ordered("2", "k"))).await;
    let elsewhere = message("3").with_source("elsewhere").with_ordering_key("k");
    h.first(offer_routed(elsewhere, [route("h")])).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["1", "3"]);
    let mut params = claim_params(&[route("h")], 10);
    params.inbox = other;
    assert_eq!(ids(&h.store.claim(&params).await.expect("claim")), ["2"]);
}

pub async fn the_end_of_one_releases_the_next_at_once<S: StoreTier>(h: &Harness<S>) {
    for end in [Outcome::Done, dismissed()] {
        let order = format!("{end:?}");
        for n in 0..2 {
            h.first(offer_ordered(format!("{order} {n}"), &order)).await;
        }
        let claim = h.claim_one("h").await;
        h.settle(&claim, end).await;
        let next = h.claim_one("h").await;
        h.settle(&next, Outcome::Done).await;
    }
}

// FAULTS B15
pub async fn whatever_is_not_the_end_keeps_the_next_waiting<S: InspectTier>(h: &Harness<S>) {
    for outcome in
        outcomes().into_iter().filter(|outcome| !matches!(outcome, Outcome::Done | Outcome::Discard { .. }))
    {
        let order = format!("{outcome:?}");
        let names: Vec<String> = (0..3).map(|n| format!("{order} {n}")).collect();
        for name in &names {
            h.first(offer_ordered(name, &order)).await;
        }
        let claim = h.claim_one("h").await;
        h.settle(&claim, outcome.clone()).await;
        let again = [h.claim("h", 10).await, h.claim_suspect("h").await].concat();
        assert!(
            again.iter().all(|claimed| id(claimed) == names[0]),
            "after {outcome:?} came {:?}",
            ids(&again)
        );
        for name in &names[1..] {
            assert_eq!(h.entry(name, "h").await.at, Timestamp::MAX, "{name} waits for an earlier one");
        }
        // Makes room for the next outcome.
        for claimed in again {
            h.settle(&claimed.claim, rejected()).await;
        }
    }
}

pub async fn a_retry_in_the_future_keeps_the_next_waiting<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Snooze { delay: HOUR }).await;
    h.advance(HOUR.saturating_sub(SECOND));
    assert!(h.claim("h", 10).await.is_empty());
    h.advance(SECOND);
    assert_eq!(ids(&h.claim("h", 10).await), ["1"]);
}

pub async fn a_lease_that_ran_out_keeps_the_next_waiting<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    h.claim_one("h").await;
    h.advance(PAST_LEASE + HOUR);
    assert!(h.claim("h", 10).await.is_empty());
    let rescued = h.rescue_one("h").await;
    assert!(h.claim("h", 10).await.is_empty());
    h.settle(&rescued, Outcome::Crashed).await;
    assert!(h.claim("h", 10).await.is_empty());
    let suspect = h.claim_suspect("h").await.remove(0);
    assert_eq!(id(&suspect), "1");
    h.settle(&suspect.claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn a_waiting_entry_shows_that_it_waits<S: InspectTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2", "3"]).await;
    assert_eq!(h.entry("1", "h").await.at, h.now());
    for name in ["2", "3"] {
        let entry = h.entry(name, "h").await;
        assert_eq!((entry.status, entry.at), (Status::Pending, Timestamp::MAX));
    }
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    assert!(h.entry("2", "h").await.at <= h.now());
    assert_eq!(h.entry("3", "h").await.at, Timestamp::MAX);
    let listed = h.list(&crate::fixture::inbox(), Status::Pending, 10).await;
    assert_eq!(listed.iter().filter(|entry| entry.at == Timestamp::MAX).count(), 1);
}

// FAULTS B15
pub async fn a_poisoned_head_blocks_until_it_is_discarded<S: OperateTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2", "3"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, rejected()).await;
    h.advance(HOUR);
    assert!(h.claim("h", 10).await.is_empty());
    h.operate("1", "h", Operation::Discard).await.expect("discard");
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn a_poisoned_head_goes_first_when_it_is_retried<S: OperateTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, rejected()).await;
    h.operate("1", "h", Operation::Retry).await.expect("retry");
    assert_eq!(h.entry("2", "h").await.at, Timestamp::MAX);
    let claimed = h.claim("h", 10).await;
    assert_eq!(ids(&claimed), ["1"]);
    h.settle(&claimed[0].claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn discarding_one_that_waits_lets_the_others_be<S: OperateTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2", "3"]).await;
    h.operate("2", "h", Operation::Discard).await.expect("discard");
    let claimed = h.claim("h", 10).await;
    assert_eq!(ids(&claimed), ["1"]);
    h.settle(&claimed[0].claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["3"]);
}

pub async fn discarding_the_head_releases_the_next<S: OperateTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    h.operate("1", "h", Operation::Discard).await.expect("discard");
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn a_message_after_the_last_finished_does_not_wait<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    accept_in_order(h, &["2"]).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn a_new_message_waits_behind_a_poisoned_one<S: InspectTier>(h: &Harness<S>) {
    accept_in_order(h, &["1"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, rejected()).await;
    accept_in_order(h, &["2"]).await;
    assert!(h.claim("h", 10).await.is_empty());
    assert_eq!(h.entry("2", "h").await.at, Timestamp::MAX);
}

pub async fn a_new_message_waits_behind_one_that_is_tried_again_later<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Snooze { delay: HOUR }).await;
    accept_in_order(h, &["2"]).await;
    assert!(h.claim("h", 10).await.is_empty());
    h.advance(HOUR);
    assert_eq!(ids(&h.claim("h", 10).await), ["1"]);
}

pub async fn a_delay_is_kept_by_one_that_had_to_wait<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1"]).await;
    let mut later = offer_ordered("2", "k");
    later.delay = HOUR;
    h.first(later).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    assert!(h.claim("h", 10).await.is_empty(), "it was asked for in an hour");
    h.advance(HOUR);
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn a_replay_goes_before_what_still_waits<S: OperateTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    let claimed = h.claim("h", 10).await;
    assert_eq!(ids(&claimed), ["1"]);
    assert!(h.claim("h", 10).await.is_empty());
    h.settle(&claimed[0].claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

// FAULTS B14: never two of a key at once, the older or the younger first.
pub async fn a_replay_waits_for_what_already_runs<S: OperateTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2", "3"]).await;
    let first = h.claim_one("h").await;
    h.settle(&first, Outcome::Done).await;
    let second = h.claim_one("h").await;
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    assert!(h.claim("h", 10).await.is_empty());
    h.settle(&second, failed()).await;
    h.advance(HOUR);
    let claimed = h.claim("h", 10).await;
    assert_eq!(ids(&claimed), ["1"]);
    h.settle(&claimed[0].claim, Outcome::Done).await;
    for expected in ["2", "3"] {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [expected]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn a_handler_added_later_keeps_the_order<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    let both = |id: &str| offer_routed(message(id).with_ordering_key("k"), [route("h"), route("late")]);
    for name in ["2", "1"] {
        assert!(matches!(h.accept(both(name)).await, Accepted::HandlersAdded(_, 1)));
    }
    let claimed = h.claim("late", 10).await;
    assert_eq!(ids(&claimed), ["1"]);
    h.settle(&claimed[0].claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("late", 10).await), ["2"]);
}

// FAULTS B14: a redelivery with another ordering key does not change that of the first.
pub async fn an_earlier_entry_that_is_added_late_waits_for_a_running_one<S: StoreTier>(h: &Harness<S>) {
    let both = |id: &str| offer_routed(message(id).with_ordering_key("k"), [route("h"), route("late")]);
    h.first(offer_ordered("1", "k")).await;
    h.first(both("2")).await;
    let running = h.claim_one("late").await;
    assert!(matches!(h.accept(both("1")).await, Accepted::HandlersAdded(_, 1)));
    assert!(h.claim("late", 10).await.is_empty(), "never two of a key at once");
    h.settle(&running, Outcome::Done).await;
    assert_eq!(ids(&h.claim("late", 10).await), ["1"]);
}

pub async fn a_handler_added_later_goes_by_the_order_of_the_first<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2", "3"]).await;
    let both = |id: &str, order: Option<&str>| {
        let message = match order {
            Some(order) => message(id).with_ordering_key(order.to_owned()),
            None => message(id),
        };
        offer_routed(message, [route("h"), route("late")])
    };
    for (name, order) in [("2", Some("other")), ("3", None), ("1", Some("k"))] {
        assert!(matches!(h.accept(both(name, order)).await, Accepted::HandlersAdded(_, 1)));
    }
    for expected in ["1", "2", "3"] {
        let claimed = h.claim("late", 10).await;
        assert_eq!(ids(&claimed), [expected]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn a_stale_settlement_releases_no_entry<S: StoreTier>(h: &Harness<S>) {
    accept_in_order(h, &["1", "2"]).await;
    let zombie = h.claim_one("h").await;
    h.advance(PAST_LEASE);
    h.rescue_one("h").await;
    for outcome in outcomes() {
        assert_eq!(h.settle(&zombie, outcome).await, Settled::LeaseLost);
    }
    assert!(h.claim("h", 10).await.is_empty());
}

// FAULTS B14
pub async fn many_workers_keep_the_order<S: InspectTier>(h: &Harness<S>) {
    const KEYS: usize = 10;
    const EACH: usize = 20;
    let batch: Vec<NewMessage> = (0..KEYS * EACH)
        .map(|n| offer_ordered(format!("{}/{}", n % KEYS, n / KEYS), &(n % KEYS).to_string()))
        .collect();
    h.accept_all(&batch).await;
    // For each key, the number of its done messages, and whether one runs.
    let progress: Arc<Mutex<HashMap<String, (usize, bool)>>> = Arc::default();
    let stores = [h.store.clone(), h.another().await];
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let (store, progress) = (stores[worker % 2].clone(), Arc::clone(&progress));
        workers.spawn(async move {
            let done = |progress: &HashMap<String, (usize, bool)>| {
                progress.values().map(|(done, _)| done).sum::<usize>()
            };
            while done(&progress.lock()) < KEYS * EACH {
                let claimed = store.claim(&claim_params(&[route("h")], 3)).await.expect("claim");
                if claimed.is_empty() {
                    tokio::task::yield_now().await;
                }
                for claimed in claimed {
                    let name = id(&claimed);
                    let (key, n) = name.split_once('/').expect("key/number");
                    let n: usize = n.parse().expect("a number");
                    let (next, running) = progress.lock().get(key).copied().unwrap_or_default();
                    assert_eq!((n, running), (next, false), "key {key} on worker {worker}");
                    progress.lock().insert(key.to_owned(), (next, true));
                    tokio::task::yield_now().await;
                    progress.lock().insert(key.to_owned(), (next + 1, false));
                    assert_eq!(finish(&store, &claimed.claim).await, Settled::Applied);
                }
            }
        });
    }
    workers.join_all().await;
    assert_eq!(h.count().await.with_status(Status::Completed), (KEYS * EACH) as u64);
}

async fn finish<S: StoreTier>(store: &S, claim: &Claim) -> Settled {
    store.settle(&[oncebox::state::Settlement::done(claim)]).await.expect("settle")[0]
}

/// Stores messages of one ordering key.
async fn accept_in_order<S: StoreTier>(h: &Harness<S>, ids: &[&str]) {
    for id in ids {
        h.first(offer_ordered(id, "k")).await;
    }
}
