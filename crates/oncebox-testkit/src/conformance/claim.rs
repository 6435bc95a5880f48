//! Claim: due entries of the given handlers, each to one worker.

use crate::OperatorSteps as _;
use std::time::Duration;

use oncebox::state::Outcome;
use oncebox::store::{ClaimQuota, NewMessage, Settled};

use crate::fixture::{
    HOUR, LEASE, PAST_LEASE, SECOND, handler, ids, inbox, inbox_named, key, message, moved_to, offer,
    offer_routed, offer_to, renamed, route,
};
use crate::harness::claim_params;
use crate::{Harness, InspectTier, OperateTier, StoreTier};

pub async fn an_empty_store_gives_nothing<S: StoreTier>(h: &Harness<S>) {
    assert!(h.claim("h", 10).await.is_empty());
    assert!(h.claim_suspect("h").await.is_empty());
    assert!(h.claim_routes(&[], 10).await.is_empty());
}

pub async fn a_claim_says_what_it_is<S: InspectTier>(h: &Harness<S>) {
    let received_at = h.now();
    let seq = h.first(offer("1")).await;
    h.first(crate::fixture::offer_ordered("2", "k")).await;
    h.advance(SECOND);
    let params = claim_params(&[route("h")], 10);
    let claimed = h.store.claim(&params).await.expect("claim");
    let claim = &claimed[0].claim;
    assert_eq!(
        (claim.seq, &claim.handler, claim.key, claim.claim_id),
        (seq, &handler("h"), key("1"), params.claim_id)
    );
    assert_eq!((claim.attempts, claim.suspicion.stored(), claim.generation), (0, 0, 0));
    assert_eq!((claim.received_at, claim.claimed_at), (received_at, h.now()));
    assert_eq!((claim.order.is_some(), claimed[1].claim.order.is_some()), (false, true));
    assert_eq!(*claimed[0].message, message("1"));
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.at), (oncebox::Status::Running, h.now().after(LEASE)));
}

pub async fn only_due_entries_are_claimed<S: StoreTier>(h: &Harness<S>) {
    h.first(delayed("soon", SECOND)).await;
    h.first(delayed("late", HOUR)).await;
    h.first(offer("now")).await;
    assert_eq!(ids(&h.claim("h", 10).await), ["now"]);
    h.advance(SECOND);
    assert_eq!(ids(&h.claim("h", 10).await), ["soon"]);
    h.advance(HOUR);
    assert_eq!(ids(&h.claim("h", 10).await), ["late"]);
}

pub async fn entries_come_by_due_time_then_sequence<S: StoreTier>(h: &Harness<S>) {
    for (id, delay) in [("d", 3), ("a", 1), ("b", 1), ("e", 3), ("c", 2)] {
        h.first(delayed(id, delay * SECOND)).await;
    }
    h.advance(HOUR);
    assert_eq!(ids(&h.claim("h", 3).await), ["a", "b", "c"]);
    assert_eq!(ids(&h.claim("h", 3).await), ["d", "e"]);
}

pub async fn each_handler_has_its_own_limit<S: StoreTier>(h: &Harness<S>) {
    for n in 0..5 {
        h.first(offer_to(n.to_string(), &["a", "b", "c"])).await;
    }
    let mut params = claim_params(&[], 0);
    params.wants =
        [("a", 2), ("b", 0), ("c", 4)].map(|(name, limit)| ClaimQuota { route: route(name), limit }).into();
    let claimed = h.store.claim(&params).await.expect("claim");
    let of = |name: &str| claimed.iter().filter(|claimed| claimed.claim.handler == handler(name)).count();
    assert_eq!((of("a"), of("b"), of("c"), claimed.len()), (2, 0, 4, 6));
}

pub async fn a_limit_of_zero_gives_nothing<S: StoreTier>(h: &Harness<S>) {
    h.settled("suspect", Outcome::Crashed).await;
    h.first(offer("healthy")).await;
    assert!(h.claim("h", 0).await.is_empty());
    let suspect = claim_params(&[route("h")], 0).suspect();
    assert!(h.store.claim(&suspect).await.expect("claim").is_empty());
}

// FAULTS I1: a worker never claims entries that it cannot run.
pub async fn only_wanted_handlers_are_claimed<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["known", "unknown"])).await;
    let claimed = h.claim("known", 10).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].claim.handler, handler("known"));
    assert_eq!(h.entry("1", "unknown").await.status, oncebox::Status::Pending);
}

pub async fn keys_that_were_apart_are_claimed_under_the_stored_key<S: StoreTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["old"])).await;
    h.first(offer_to("2", &["new"])).await;
    h.first(offer_to("3", &["older"])).await;
    let claimed = h.claim_routes(&[renamed("new", &["old", "older"])], 10).await;
    let mut handlers: Vec<_> = claimed.iter().map(|claimed| claimed.claim.handler.as_str()).collect();
    handlers.sort_unstable();
    assert_eq!(handlers, ["new", "old", "older"]);
    for claimed in &claimed {
        assert_eq!(h.settle(&claimed.claim, Outcome::Done).await, Settled::Applied);
    }
}

// FAULTS B13: entries under the new key do not starve those under a former one.
pub async fn the_oldest_comes_first_whatever_its_key<S: StoreTier>(h: &Harness<S>) {
    for (id, name) in [("1", "old"), ("2", "new"), ("3", "old"), ("4", "new")] {
        h.first(offer_to(id, &[name])).await;
        h.advance(SECOND);
    }
    let route = [renamed("new", &["old"])];
    for expected in ["1", "2", "3", "4"] {
        assert_eq!(ids(&h.claim_routes(&route, 1).await), [expected]);
    }
}

// FAULTS B1
pub async fn an_entry_is_claimed_once<S: StoreTier>(h: &Harness<S>) {
    for n in 0..10 {
        h.first(offer(n.to_string())).await;
    }
    let first = h.claim("h", 6).await;
    let second = h.claim("h", 6).await;
    assert_eq!((first.len(), second.len()), (6, 4));
    assert!(h.claim("h", 6).await.is_empty());
}

pub async fn tokens_only_grow<S: StoreTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    let mut last = None;
    for round in 0..5 {
        for n in 0..3 {
            h.first(offer(format!("{round}/{n}"))).await;
        }
        h.first(moved_to(&other, &offer(round.to_string()))).await;
        let mut there = claim_params(&[route("h")], 10);
        there.inbox = other.clone();
        let here = h.claim("h", 10).await;
        let there = h.store.claim(&there).await.expect("claim");
        for claimed in [here, there] {
            let tokens = || claimed.iter().map(|claimed| claimed.claim.token);
            assert!(last < tokens().min(), "every token is greater than those of earlier claims");
            last = tokens().max();
            for claimed in &claimed {
                h.settle(&claimed.claim, Outcome::Released).await;
            }
        }
    }
}

// FAULTS B3: a claim whose response was lost is found by its id.
pub async fn the_same_claim_id_reads_the_claim_back<S: StoreTier>(h: &Harness<S>) {
    for n in 0..5 {
        h.first(offer(n.to_string())).await;
    }
    let params = claim_params(&[route("h")], 3);
    let first = h.store.claim(&params).await.expect("claim");
    h.advance(SECOND);
    let mut again = h.store.claim(&params).await.expect("claim");
    again.sort_by_key(|claimed| claimed.claim.seq);
    assert_eq!(crate::fixture::claims(&again), crate::fixture::claims(&first));
    assert!(again.iter().zip(&first).all(|(again, first)| again.message == first.message));
    assert_eq!(h.settle(&first[0].claim, Outcome::Done).await, Settled::Applied);
    assert_eq!(h.store.claim(&params).await.expect("claim").len(), 2, "what it still holds, and nothing new");
    assert_eq!(h.claim("h", 10).await.len(), 2, "the rest is for others");
}

pub async fn a_claim_that_held_nothing_may_claim_again<S: StoreTier>(h: &Harness<S>) {
    let params = claim_params(&[route("h")], 3);
    assert!(h.store.claim(&params).await.expect("claim").is_empty());
    h.first(offer("1")).await;
    assert_eq!(h.store.claim(&params).await.expect("claim").len(), 1);
}

// FAULTS B10: only rescue takes over, because it counts the crash.
pub async fn a_lease_that_ran_out_is_not_claimable<S: StoreTier>(h: &Harness<S>) {
    h.running("1").await;
    h.advance(PAST_LEASE + HOUR);
    assert!(h.claim("h", 10).await.is_empty());
    assert!(h.claim_suspect("h").await.is_empty());
}

pub async fn a_paused_handler_gives_nothing<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["a", "b"])).await;
    h.store.pause(&inbox(), &handler("a")).await.expect("pause");
    assert!(h.claim("a", 10).await.is_empty());
    assert_eq!(h.claim("b", 10).await.len(), 1);
    h.store.resume(&inbox(), &handler("a")).await.expect("resume");
    assert_eq!(h.claim("a", 10).await.len(), 1);
}

pub async fn keys_that_were_apart_are_paused_by_their_own_name<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["old"])).await;
    h.first(offer_to("0", &["new"])).await;
    h.first(offer_routed(message("2"), [renamed("new", &["old"])])).await;
    let both = [renamed("new", &["old"])];
    h.store.pause(&inbox(), &handler("new")).await.expect("pause");
    assert_eq!(ids(&h.claim_routes(&both, 10).await), ["1"]);
    h.store.pause(&inbox(), &handler("old")).await.expect("pause");
    h.first(offer_to("3", &["old"])).await;
    assert!(h.claim_routes(&both, 10).await.is_empty());
}

pub async fn pausing_leaves_what_runs<S: OperateTier>(h: &Harness<S>) {
    let params = claim_params(&[route("h")], 1);
    h.first(offer("1")).await;
    let claim = h.store.claim(&params).await.expect("claim").remove(0).claim;
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    assert_eq!(h.store.claim(&params).await.expect("claim").len(), 1, "a claim can still be read back");
    assert_eq!(h.renew(&claim).await, oncebox::store::Renewed::Extended);
    assert_eq!(h.settle(&claim, Outcome::Done).await, Settled::Applied);
}

pub async fn inboxes_do_not_share_entries<S: OperateTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer("1"))).await;
    assert!(h.claim("h", 10).await.is_empty());
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    let mut params = claim_params(&[route("h")], 10);
    params.inbox = other;
    assert_eq!(h.store.claim(&params).await.expect("claim").len(), 1, "a pause is of one inbox");
}

fn delayed(id: &str, delay: Duration) -> NewMessage {
    let mut new = offer(id);
    new.delay = delay;
    new
}
