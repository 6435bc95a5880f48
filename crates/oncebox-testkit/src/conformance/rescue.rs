//! Rescue: entries with an expired lease get a new owner, and the fence stops the old one.

use crate::OperatorSteps as _;
use std::collections::BTreeSet;

use oncebox::state::{Outcome, Status};
use oncebox::store::{Claim, Renewed, Settled, Token};

use crate::fixture::{
    HOUR, LEASE, PAST_LEASE, SECOND, claims, failed, handler, ids, inbox, inbox_named, message, moved_to,
    offer, offer_to, outcomes, renamed, route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, InspectTier, OperateTier, StoreTier, TransactionalTier};

pub async fn only_leases_that_ran_out_are_taken<S: StoreTier>(h: &Harness<S>) {
    h.running("1").await;
    h.advance(LEASE);
    assert!(h.rescue("h", 10).await.is_empty(), "a lease holds to its last moment");
    h.running("2").await;
    h.first(offer("pending")).await;
    h.advance(PAST_LEASE.saturating_sub(LEASE));
    assert_eq!(ids(&h.rescue("h", 10).await), ["1"]);
}

pub async fn the_rescuer_gets_the_entry_as_it_was<S: InspectTier>(h: &Harness<S>) {
    h.settled("1", failed()).await;
    h.advance(5 * SECOND);
    let old = h.claim_one("h").await;
    h.advance(PAST_LEASE);
    let params = rescue_params(&[route("h")], 10);
    let rescued = h.store.rescue(&params).await.expect("rescue").remove(0);
    let claim = &rescued.claim;
    assert_eq!((claim.seq, &claim.handler, claim.key), (old.seq, &old.handler, old.key));
    assert_eq!(
        (claim.attempts, claim.suspicion.stored(), claim.generation),
        (1, 0, 0),
        "the caller counts the crash"
    );
    assert_eq!((claim.claim_id, claim.claimed_at), (params.claim_id, h.now()));
    assert!(claim.token > old.token);
    assert_eq!(*rescued.message, message("1"));
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.at), (Status::Running, h.now().after(LEASE)));
}

// FAULTS B4: every write of the old owner is refused.
pub async fn the_former_owner_is_fenced_off<S: TransactionalTier>(h: &Harness<S>) {
    let zombie = h.running("1").await;
    h.advance(PAST_LEASE);
    let owner = h.rescue_one("h").await;
    let before = h.snapshot().await;
    for outcome in outcomes() {
        assert_eq!(h.settle(&zombie, outcome).await, Settled::LeaseLost);
    }
    assert_eq!(h.renew(&zombie).await, Renewed::LeaseLost);
    assert_eq!(h.complete(&zombie).await, Settled::LeaseLost);
    assert_eq!(h.snapshot().await, before);
    assert_eq!(h.settle(&owner, Outcome::Done).await, Settled::Applied);
}

// FAULTS B4: a receiver that keeps the greatest fence of a message refuses no needed run.
pub async fn a_handler_never_sees_a_lower_fence<S: StoreTier>(h: &Harness<S>) {
    let other = h.another().await;
    h.first(offer("1")).await;
    let mut greatest = Token(0);
    let mut grows = |claim: &Claim| {
        assert!(claim.token > greatest, "{:?} after {greatest:?}", claim.token);
        greatest = claim.token;
    };
    for outcome in [failed(), Outcome::Released, Outcome::Crashed] {
        let claim = h.claim_one("h").await;
        grows(&claim);
        // Other claims take tokens meanwhile.
        h.running(&format!("beside {:?}", claim.token)).await;
        assert_eq!(h.settle(&claim, outcome).await, Settled::Applied);
        h.advance(HOUR);
        for rescued in other.rescue(&rescue_params(&[route("h")], 10)).await.expect("rescue") {
            grows(&rescued.claim);
            assert_eq!(h.settle(&rescued.claim, Outcome::Done).await, Settled::Applied);
        }
    }
    // A restarted process continues with later tokens.
    let anew = h.another().await;
    h.first(offer("2")).await;
    let claimed = anew.claim(&claim_params(&[route("h")], 1)).await.expect("claim");
    grows(&claimed[0].claim);
}

pub async fn the_same_claim_id_reads_the_rescue_back<S: StoreTier>(h: &Harness<S>) {
    for n in 0..4 {
        h.running(&n.to_string()).await;
    }
    h.advance(PAST_LEASE);
    let params = rescue_params(&[route("h")], 2);
    let first = h.store.rescue(&params).await.expect("rescue");
    assert_eq!(first.len(), 2);
    let mut again = h.store.rescue(&params).await.expect("rescue");
    again.sort_by_key(|claimed| first.iter().position(|first| first.claim.seq == claimed.claim.seq));
    assert_eq!(claims(&again), claims(&first));
    h.settle(&first[0].claim, Outcome::Crashed).await;
    assert_eq!(
        h.store.rescue(&params).await.expect("rescue").len(),
        1,
        "what it still holds, and nothing new"
    );
    assert_eq!(h.rescue("h", 10).await.len(), 2);
}

// FAULTS B11
pub async fn the_limit_is_kept_and_nothing_is_left_behind<S: StoreTier>(h: &Harness<S>) {
    for n in 0..5 {
        h.running(&n.to_string()).await;
    }
    h.advance(PAST_LEASE);
    for n in 5..10 {
        h.running(&n.to_string()).await;
    }
    let mut rescued = BTreeSet::new();
    for expected in [2, 2, 1, 0] {
        let page = h.rescue("h", 2).await;
        assert_eq!(page.len(), expected);
        rescued.extend(ids(&page));
    }
    assert_eq!(rescued, (0..5).map(|n| n.to_string()).collect());
    assert!(h.rescue("h", 0).await.is_empty());
}

pub async fn only_known_handlers_are_rescued<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["known", "unknown", "old"])).await;
    for name in ["known", "unknown", "old"] {
        h.claim_one(name).await;
    }
    h.advance(PAST_LEASE);
    let params = rescue_params(&[renamed("known", &["old"])], 10);
    let mut rescued: Vec<_> = h
        .store
        .rescue(&params)
        .await
        .expect("rescue")
        .into_iter()
        .map(|claimed| claimed.claim.handler)
        .collect();
    rescued.sort();
    assert_eq!(rescued, [handler("known"), handler("old")], "legacy keys too");
    assert_eq!(h.entry("1", "unknown").await.status, Status::Running);
}

pub async fn inboxes_are_rescued_apart<S: StoreTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer("1"))).await;
    let mut params = claim_params(&[route("h")], 10);
    params.inbox = other.clone();
    assert_eq!(h.store.claim(&params).await.expect("claim").len(), 1);
    h.advance(PAST_LEASE);
    assert!(h.rescue("h", 10).await.is_empty());
    let mut params = rescue_params(&[route("h")], 10);
    params.inbox = other;
    assert_eq!(h.store.rescue(&params).await.expect("rescue").len(), 1);
}

pub async fn a_rescued_entry_is_claimable_once_it_is_settled<S: StoreTier>(h: &Harness<S>) {
    h.running("1").await;
    h.advance(PAST_LEASE);
    let claim = h.rescue_one("h").await;
    assert!(h.claim("h", 10).await.is_empty());
    assert!(h.claim_suspect("h").await.is_empty());
    assert_eq!(h.settle(&claim, Outcome::Crashed).await, Settled::Applied);
    assert!(h.claim("h", 10).await.is_empty());
    let suspect = h.claim_suspect("h").await.remove(0).claim;
    assert_eq!((suspect.suspicion.stored(), suspect.attempts), (1, 0));
    assert!(suspect.token > claim.token);
}

// A rescuer can die like any worker.
pub async fn a_rescue_that_is_not_settled_is_rescued_again<S: InspectTier>(h: &Harness<S>) {
    h.running("1").await;
    h.advance(PAST_LEASE);
    let first = h.rescue_one("h").await;
    h.advance(PAST_LEASE);
    let second = h.rescue_one("h").await;
    assert!(second.token > first.token);
    assert_eq!(h.settle(&first, Outcome::Crashed).await, Settled::LeaseLost);
    assert_eq!(h.settle(&second, Outcome::Crashed).await, Settled::Applied);
    assert_eq!(h.entry("1", "h").await.suspicion.stored(), 1);
}

pub async fn a_paused_handler_is_still_rescued<S: OperateTier>(h: &Harness<S>) {
    h.running("1").await;
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    h.advance(PAST_LEASE + HOUR);
    let claim = h.rescue_one("h").await;
    assert_eq!(h.settle(&claim, Outcome::Crashed).await, Settled::Applied);
    assert!(h.claim_suspect("h").await.is_empty());
}
