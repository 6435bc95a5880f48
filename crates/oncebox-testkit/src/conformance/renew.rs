//! Renew: a longer lease for the worker that holds the claim.

use oncebox::state::{Outcome, Status};
use oncebox::store::{Claim, ClaimId, RenewParams, Renewed, Token};

use crate::fixture::{HOUR, LEASE, PAST_LEASE, SECOND, offer, one_outcome_per_status};
use crate::{Harness, InspectTier, StoreTier};

pub async fn the_lease_counts_from_the_renewal<S: InspectTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.advance(LEASE.saturating_sub(SECOND));
    assert_eq!(h.renew(&claim).await, Renewed::Extended);
    assert_eq!(h.entry("1", "h").await.at, h.now().after(LEASE));
    h.advance(LEASE);
    assert!(h.rescue("h", 10).await.is_empty());
    h.advance(SECOND);
    assert_eq!(h.rescue("h", 10).await.len(), 1);
}

// FAULTS B10
pub async fn a_late_renewal_holds_unless_a_rescue_took_over<S: StoreTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.advance(PAST_LEASE + HOUR);
    assert_eq!(h.renew(&claim).await, Renewed::Extended);
    assert!(h.rescue("h", 10).await.is_empty());
}

// FAULTS B4
pub async fn a_stale_token_changes_nothing<S: InspectTier>(h: &Harness<S>) {
    let zombie = h.running("1").await;
    h.advance(PAST_LEASE);
    let owner = h.rescue_one("h").await;
    h.advance(SECOND);
    let before = h.snapshot().await;
    let forged = [
        zombie,
        Claim { token: Token(owner.token.0 + 1), ..owner.clone() },
        Claim { claim_id: ClaimId::fresh(), ..owner.clone() },
    ];
    for claim in forged {
        assert_eq!(h.renew(&claim).await, Renewed::LeaseLost, "{claim:?}");
    }
    assert_eq!(h.snapshot().await, before);
    assert_eq!(h.renew(&owner).await, Renewed::Extended);
}

pub async fn what_is_settled_cannot_be_renewed<S: InspectTier>(h: &Harness<S>) {
    for outcome in one_outcome_per_status() {
        let claim = h.settled(&format!("{outcome:?}"), outcome.clone()).await;
        let before = h.snapshot().await;
        assert_eq!(h.renew(&claim).await, Renewed::LeaseLost, "{outcome:?}");
        assert_eq!(h.snapshot().await, before, "{outcome:?}");
    }
}

pub async fn answers_come_in_order<S: InspectTier>(h: &Harness<S>) {
    let (a, b, c) = (h.running("a").await, h.running("b").await, h.running("c").await);
    h.settle(&b, Outcome::Done).await;
    let params = RenewParams::new(vec![c, b, a], 2 * LEASE);
    let answers = h.store.renew(&params).await.expect("renew");
    assert_eq!(answers, [Renewed::Extended, Renewed::LeaseLost, Renewed::Extended]);
    assert_eq!(h.entry("a", "h").await.at, h.now().after(2 * LEASE));
    assert_eq!(h.status("b").await, Status::Completed);
    assert_eq!(h.store.renew(&RenewParams::new(Vec::new(), LEASE)).await.expect("renew"), []);
}

pub async fn a_renewal_changes_nothing_else<S: InspectTier>(h: &Harness<S>) {
    h.settled("1", crate::fixture::failed()).await;
    h.advance(5 * SECOND);
    let claim = h.claim_one("h").await;
    h.first(offer("2")).await;
    h.advance(SECOND);
    h.renew(&claim).await;
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.attempts, entry.suspicion.stored()), (Status::Running, 1, 0));
    assert_eq!(h.settle(&claim, Outcome::Done).await, oncebox::store::Settled::Applied);
}
