//! Order across the keys of a handler that had entries apart before they were linked: they are one order queue.

use crate::OperatorSteps as _;
use std::collections::HashMap;
use std::sync::Arc;

use oncebox::OnPoisoned;
use oncebox::state::{Operation, Outcome, Settlement, Status};
use oncebox::store::{Claimed, NewMessage, RegisterParams, Route, Settled};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::fixture::{
    HOUR, PAST_LEASE, RETENTION, SECOND, failed, id, ids, inbox, message, offer_routed, policy, rejected,
    renamed, route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, InspectTier, OperateTier, StoreTier};

// FAULTS B14
pub async fn an_earlier_one_under_a_former_key_goes_first<S: StoreTier>(h: &Harness<S>) {
    apart(h).await;
    h.accept_all(&[old("1"), old("2"), new("3"), new("4")]).await;
    for expected in ["1", "2", "3", "4"] {
        let claimed = claim(h, 10).await;
        assert_eq!(ids(&claimed), [expected]);
        assert!(claim(h, 10).await.is_empty(), "the next one waits for the end of this one");
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn whatever_is_not_the_end_under_a_former_key_keeps_the_new_ones_waiting<S: StoreTier>(
    h: &Harness<S>,
) {
    apart(h).await;
    h.accept_all(&[old("1"), new("2")]).await;
    for outcome in [failed(), Outcome::Snooze { delay: HOUR }, Outcome::Released] {
        let claimed = claim(h, 10).await;
        assert_eq!(ids(&claimed), ["1"]);
        h.settle(&claimed[0].claim, outcome).await;
        let again = claim(h, 10).await;
        assert!(again.iter().all(|claimed| id(claimed) == "1"));
        for claimed in again {
            h.settle(&claimed.claim, Outcome::Snooze { delay: SECOND }).await;
        }
        h.advance(HOUR);
    }
    assert_eq!(ids(&claim(h, 10).await), ["1"]);
}

// FAULTS B15
pub async fn a_poisoned_one_under_a_former_key_blocks_unless_it_is_skipped<S: OperateTier>(h: &Harness<S>) {
    apart(h).await;
    h.accept_all(&[old("1"), new("2")]).await;
    for operation in [Operation::Retry, Operation::Unblock] {
        let claimed = claim(h, 10).await;
        assert_eq!(ids(&claimed), ["1"]);
        h.settle(&claimed[0].claim, rejected()).await;
        assert!(claim(h, 10).await.is_empty());
        h.operate("1", "old", operation).await.expect("operate");
    }
    assert_eq!(ids(&claim(h, 10).await), ["2"]);
    let mut skip = policy();
    skip.on_poisoned = OnPoisoned::Skip;
    h.accept_all(&[on(&route("old"), "x1", "x"), on(&route("new"), "x2", "x")]).await;
    let claimed = claim(h, 10).await;
    assert_eq!(ids(&claimed), ["x1"]);
    h.send(claimed[0].claim.settle(&skip, rejected())).await;
    assert_eq!(ids(&claim(h, 10).await), ["x2"]);
}

pub async fn a_worker_that_died_under_a_former_key_keeps_the_new_ones_waiting<S: StoreTier>(h: &Harness<S>) {
    apart(h).await;
    h.accept_all(&[old("1"), new("2")]).await;
    assert_eq!(ids(&claim(h, 10).await), ["1"]);
    h.advance(PAST_LEASE);
    assert!(claim(h, 10).await.is_empty());
    let rescued = h.store.rescue(&rescue_params(&[both()], 10)).await.expect("rescue");
    h.settle(&rescued[0].claim, Outcome::Crashed).await;
    assert!(claim(h, 10).await.is_empty(), "a suspect is waited for");
    let suspect = h.store.claim(&claim_params(&[both()], 1).suspect()).await.expect("claim");
    assert_eq!(ids(&suspect), ["1"]);
    h.settle(&suspect[0].claim, Outcome::Done).await;
    assert_eq!(ids(&claim(h, 10).await), ["2"]);
}

pub async fn a_suspect_waits_for_an_earlier_one_under_a_former_key<S: OperateTier>(h: &Harness<S>) {
    apart(h).await;
    h.accept_all(&[new("2")]).await;
    let claimed = claim(h, 10).await;
    h.settle(&claimed[0].claim, Outcome::Crashed).await;
    // An older process still runs, and a replay makes its entry the earlier one.
    let suspect = async || h.store.claim(&claim_params(&[both()], 1).suspect()).await.expect("claim");
    h.accept_all(&[old("3")]).await;
    assert!(claim(h, 10).await.is_empty(), "the suspect goes first, under whatever key");
    let claimed = suspect().await;
    assert_eq!(ids(&claimed), ["2"]);
    h.settle(&claimed[0].claim, Outcome::Done).await;
    let claimed = claim(h, 10).await;
    assert_eq!(ids(&claimed), ["3"]);
    assert!(suspect().await.is_empty());
    h.operate("2", "new", Operation::Replay).await.expect("replay");
    assert!(claim(h, 10).await.is_empty(), "never two of a key at once");
    h.settle(&claimed[0].claim, Outcome::Crashed).await;
    assert!(suspect().await.is_empty(), "the replayed one is earlier");
    assert_eq!(ids(&claim(h, 10).await), ["2"]);
}

pub async fn a_paused_former_key_keeps_the_new_ones_waiting<S: OperateTier>(h: &Harness<S>) {
    apart(h).await;
    let (inbox, former) = (inbox(), crate::fixture::handler("old"));
    h.accept_all(&[old("1"), new("2")]).await;
    h.store.pause(&inbox, &former).await.expect("pause");
    assert!(claim(h, 10).await.is_empty());
    h.store.resume(&inbox, &former).await.expect("resume");
    assert_eq!(ids(&claim(h, 10).await), ["1"]);
}

pub async fn those_that_wait_do_not_hide_others<S: StoreTier>(h: &Harness<S>) {
    apart(h).await;
    let mut batch: Vec<NewMessage> =
        (0..20).map(|n| on(&route("old"), &format!("old {n}"), &n.to_string())).collect();
    batch.extend((0..20).map(|n| on(&route("new"), &format!("new {n}"), &n.to_string())));
    h.accept_all(&batch).await;
    assert_eq!(claim(h, 100).await.len(), 20, "one of each key");
    h.first(offer_routed(message("free"), [both()])).await;
    h.first(on(&both(), "another key", "another")).await;
    let mut claimed: Vec<String> = Vec::new();
    for _ in 0..2 {
        claimed.extend(ids(&claim(h, 1).await));
    }
    claimed.sort();
    assert_eq!(claimed, ["another key", "free"]);
}

pub async fn unordered_messages_do_not_wait_for_a_former_key<S: StoreTier>(h: &Harness<S>) {
    apart(h).await;
    let plain = |id: &str, key: &str| offer_routed(message(id), [route(key)]);
    h.accept_all(&[plain("1", "old"), plain("2", "new"), plain("3", "old"), old("x"), new("y")]).await;
    let mut claimed = ids(&claim(h, 10).await);
    claimed.sort();
    assert_eq!(claimed, ["1", "2", "3", "x"]);
}

// FAULTS B14: two instances, many workers, messages under either key.
pub async fn two_instances_keep_the_order<S: InspectTier>(h: &Harness<S>) {
    const KEYS: usize = 8;
    const EACH: usize = 16;
    apart(h).await;
    let batch: Vec<NewMessage> = (0..KEYS * EACH)
        .map(|n| {
            let (key, number) = (n % KEYS, n / KEYS);
            let route = if number < EACH / 2 { route("old") } else { both() };
            on(&route, &format!("{key}/{number}"), &key.to_string())
        })
        .collect();
    h.accept_all(&batch).await;
    // For each key, the number of its done messages, and whether one runs.
    let progress: Arc<Mutex<HashMap<String, (usize, bool)>>> = Arc::default();
    let stores = [h.store.clone(), h.another().await];
    let mut workers = JoinSet::new();
    for worker in 0..6 {
        let (store, progress) = (stores[worker % 2].clone(), Arc::clone(&progress));
        workers.spawn(async move {
            let done = |progress: &HashMap<String, (usize, bool)>| {
                progress.values().map(|(done, _)| done).sum::<usize>()
            };
            while done(&progress.lock()) < KEYS * EACH {
                let claimed = store.claim(&claim_params(&[both()], 3)).await.expect("claim");
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
                    let settled = store.settle(&[Settlement::done(&claimed.claim)]).await.expect("settle");
                    assert_eq!(settled, [Settled::Applied]);
                }
            }
        });
    }
    workers.join_all().await;
    assert_eq!(h.count().await.with_status(Status::Completed), (KEYS * EACH) as u64);
}

/// Registers both keys as handlers of their own, as if a user named the former key too late.
async fn apart<S: StoreTier>(h: &Harness<S>) {
    for route in [route("old"), route("new")] {
        let mut params = RegisterParams::new(inbox(), RETENTION);
        params.routes = vec![route];
        h.store.register(&params).await.expect("register");
    }
}

/// Returns the handler, with its former key.
fn both() -> Route {
    renamed("new", &["old"])
}

fn on(route: &Route, id: &str, order: &str) -> NewMessage {
    offer_routed(message(id).with_ordering_key(order.to_owned()), [route.clone()])
}

/// Stores a message from before the rename.
fn old(id: &str) -> NewMessage {
    on(&route("old"), id, "k")
}

/// Stores a message from after the rename.
fn new(id: &str) -> NewMessage {
    on(&both(), id, "k")
}

async fn claim<S: StoreTier>(h: &Harness<S>, limit: usize) -> Vec<Claimed> {
    h.claim_routes(&[both()], limit).await
}
