//! Transactions that several runs share: held claims, parts that roll back alone, and joint completions.

use oncebox::state::{Outcome, Status};
use oncebox::store::{Claim, Mark, Renewed, Settled, Token};
use oncebox::{ErrorKind, Result};

use super::mark::patient;
use crate::fixture::{PAST_LEASE, claims, handler, ids, inbox, key, offer, offer_ordered, route};
use crate::harness::rescue_params;
use crate::{Harness, ShareTier, StoreTier, TransactionalTier};

pub async fn claims_that_hold_are_held<S: ShareTier>(h: &Harness<S>) {
    let claims = running(h, 3).await;
    // After its lease a claim holds until a rescue takes it over.
    h.advance(PAST_LEASE);
    let (held, tx) = hold(h, &claims).await;
    assert_eq!(held, [Settled::Applied; 3]);
    drop(tx);
    for (n, claim) in claims.iter().enumerate() {
        assert_eq!(h.status(&n.to_string()).await, Status::Running, "holding changes nothing");
        assert_eq!(h.renew(claim).await, Renewed::Extended);
        assert_eq!(h.complete(claim).await, Settled::Applied);
    }
}

// FAULTS B4
pub async fn a_stale_claim_is_not_held<S: ShareTier>(h: &Harness<S>) {
    let zombie = h.running("zombie").await;
    h.advance(PAST_LEASE);
    let owner = h.rescue_one("h").await;
    let settled = h.completed("settled").await;
    let unknown = Claim { handler: handler("unknown"), ..owner.clone() };
    let forged = Claim { token: Token(owner.token.0 + 1), ..owner.clone() };
    let (held, tx) = hold(h, &[zombie, owner, settled, unknown, forged]).await;
    let lost = Settled::LeaseLost;
    assert_eq!(held, [lost, Settled::Applied, lost, lost, lost]);
    drop(tx);
}

// FAULTS B4: a lease that expires while the claim is held has one winner, and the loser's writes are rolled back.
pub async fn a_rescue_and_a_held_claim_have_one_winner<S: ShareTier>(h: &Harness<S>) {
    for round in 0..20 {
        let id = round.to_string();
        let claim = h.running(&id).await;
        let (held, mut tx) = hold(h, std::slice::from_ref(&claim)).await;
        assert_eq!(held, [Settled::Applied]);
        h.store.savepoint(&mut tx).await.expect("savepoint");
        assert_eq!(mark(h, &mut tx, &id).await, Mark::First);
        h.advance(PAST_LEASE);
        let rival = tokio::spawn({
            let store = h.store.clone();
            async move { store.rescue(&rescue_params(&[route("h")], 10)).await }
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let committed = commit(h, tx, std::slice::from_ref(&claim)).await;
        // A store that is busy with the commit may refuse the rescue.
        let rescued = rival.await.expect("the rescue does not panic").unwrap_or_default();
        match (committed, &rescued[..]) {
            (Ok(Settled::Applied), []) => {
                assert_eq!(h.status(&id).await, Status::Completed);
                assert_eq!(h.mark(&id, "h").await, Mark::Duplicate);
            }
            (Ok(Settled::LeaseLost) | Err(ErrorKind::LeaseLost), [rescued]) => {
                assert_eq!(h.status(&id).await, Status::Running);
                assert_eq!(patient(&h.store, &id).await, Mark::First);
                assert_eq!(h.settle(&rescued.claim, Outcome::Done).await, Settled::Applied);
            }
            (committed, rescued) => panic!("no single winner: {committed:?}, {rescued:?}"),
        }
    }
}

pub async fn a_part_that_is_undone_leaves_the_others<S: ShareTier>(h: &Harness<S>) {
    let claims = running(h, 2).await;
    let (_, mut tx) = hold(h, &claims).await;
    for (id, undone) in [("a", false), ("b", true), ("c", false), ("d", true), ("e", true)] {
        h.store.savepoint(&mut tx).await.expect("savepoint");
        assert_eq!(mark(h, &mut tx, id).await, Mark::First);
        if undone {
            h.store.rollback_to_savepoint(&mut tx).await.expect("rollback");
        }
    }
    commit(h, tx, &claims).await.expect("commit");
    for (id, expected) in [
        ("a", Mark::Duplicate),
        ("b", Mark::First),
        ("c", Mark::Duplicate),
        ("d", Mark::First),
        ("e", Mark::First),
    ] {
        assert_eq!(h.mark(id, "h").await, expected, "{id}");
    }
    for id in ["0", "1"] {
        assert_eq!(h.status(id).await, Status::Completed);
    }
}

pub async fn what_was_undone_can_be_done_again<S: ShareTier>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    h.store.savepoint(&mut tx).await.expect("savepoint");
    for _ in 0..3 {
        assert_eq!(mark(h, &mut tx, "1").await, Mark::First);
        h.store.rollback_to_savepoint(&mut tx).await.expect("rollback");
    }
    assert_eq!(mark(h, &mut tx, "1").await, Mark::First);
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.mark("1", "h").await, Mark::Duplicate);
}

pub async fn a_completion_is_undone_with_its_part<S: ShareTier>(h: &Harness<S>) {
    let claims = running(h, 2).await;
    let mut tx = h.store.begin().await.expect("begin");
    for (claim, undone) in claims.iter().zip([false, true]) {
        h.store.savepoint(&mut tx).await.expect("savepoint");
        assert_eq!(h.store.complete(&mut tx, claim).await.expect("complete"), Settled::Applied);
        if undone {
            h.store.rollback_to_savepoint(&mut tx).await.expect("rollback");
        }
    }
    h.store.commit(tx).await.expect("commit");
    assert_eq!((h.status("0").await, h.status("1").await), (Status::Completed, Status::Running));
    assert_eq!(h.complete(&claims[1]).await, Settled::Applied);
}

pub async fn all_completions_appear_with_the_commit<S: ShareTier>(h: &Harness<S>) {
    let claims = running(h, 64).await;
    let (_, tx) = hold(h, &claims).await;
    assert_eq!(commit(h, tx, &claims).await, Ok(Settled::Applied));
    for n in 0..64 {
        let entry = h.entry(&n.to_string(), "h").await;
        assert_eq!((entry.status, entry.at), (Status::Completed, h.now()));
    }
    assert!(h.claim("h", 100).await.is_empty());
}

pub async fn nothing_is_left_of_a_transaction_that_was_dropped<S: ShareTier>(h: &Harness<S>) {
    let claims = running(h, 3).await;
    let before = h.snapshot().await;
    let (_, mut tx) = hold(h, &claims).await;
    h.store.savepoint(&mut tx).await.expect("savepoint");
    assert_eq!(mark(h, &mut tx, "a").await, Mark::First);
    h.store.savepoint(&mut tx).await.expect("savepoint");
    let settled = h.store.complete_all(&mut tx, &claims).await.expect("complete");
    assert_eq!(settled, [Settled::Applied; 3]);
    drop(tx);
    assert_eq!(h.snapshot().await, before);
    assert_eq!(patient(&h.store, "a").await, Mark::First);
    let (held, tx) = hold(h, &claims).await;
    assert_eq!(held, [Settled::Applied; 3]);
    assert_eq!(commit(h, tx, &claims).await, Ok(Settled::Applied));
}

pub async fn each_completion_has_its_own_answer<S: ShareTier>(h: &Harness<S>) {
    let zombie = h.running("zombie").await;
    h.advance(PAST_LEASE);
    h.rescue_one("h").await;
    let mut claims = running(h, 2).await;
    claims.insert(1, zombie);
    let mut tx = h.store.begin().await.expect("begin");
    let settled = h.store.complete_all(&mut tx, &claims).await.expect("complete");
    assert_eq!(settled, [Settled::Applied, Settled::LeaseLost, Settled::Applied]);
    drop(tx);
    for id in ["0", "1", "zombie"] {
        assert_eq!(h.status(id).await, Status::Running);
    }
}

pub async fn no_claims_are_nothing<S: ShareTier>(h: &Harness<S>) {
    let (held, mut tx) = hold(h, &[]).await;
    assert!(held.is_empty());
    assert!(h.store.complete_all(&mut tx, &[]).await.expect("complete").is_empty());
    h.store.commit(tx).await.expect("commit");
}

// FAULTS B14
pub async fn completions_release_the_next_in_order<S: ShareTier>(h: &Harness<S>) {
    for n in 0..2 {
        for order in ["x", "y"] {
            h.first(offer_ordered(format!("{order}{n}"), order)).await;
        }
    }
    let claimed = h.claim("h", 10).await;
    assert_eq!(ids(&claimed), ["x0", "y0"]);
    let claims = claims(&claimed);
    let (_, tx) = hold(h, &claims).await;
    assert_eq!(commit(h, tx, &claims).await, Ok(Settled::Applied));
    assert_eq!(ids(&h.claim("h", 10).await), ["x1", "y1"]);
}

/// Returns running entries, named by their numbers.
async fn running<S: StoreTier>(h: &Harness<S>, count: usize) -> Vec<Claim> {
    for n in 0..count {
        h.first(offer(n.to_string())).await;
    }
    let claimed = claims(&h.claim("h", count).await);
    assert_eq!(claimed.len(), count);
    claimed
}

async fn hold<S: ShareTier>(h: &Harness<S>, claims: &[Claim]) -> (Vec<Settled>, S::Tx) {
    let mut tx = h.store.begin().await.expect("begin");
    let held = h.store.hold(&mut tx, claims).await.expect("hold");
    (held, tx)
}

async fn mark<S: TransactionalTier>(h: &Harness<S>, tx: &mut S::Tx, id: &str) -> Mark {
    h.store.mark(tx, &inbox(), &key(id), &handler("h"), None).await.expect("mark")
}

/// Completes and commits. Returns `LeaseLost` if one of the claims is lost.
async fn commit<S: ShareTier>(h: &Harness<S>, mut tx: S::Tx, claims: &[Claim]) -> Result<Settled, ErrorKind> {
    let settled = h.store.complete_all(&mut tx, claims).await.map_err(|error| error.kind())?;
    assert_eq!(settled.len(), claims.len());
    if settled.contains(&Settled::LeaseLost) {
        return Ok(Settled::LeaseLost);
    }
    h.store.commit(tx).await.map_err(|error| error.kind())?;
    Ok(Settled::Applied)
}
