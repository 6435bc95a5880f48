//! Settle: writes that only the owner of a claim may make.

use std::time::Duration;

use oncebox::state::{NextState, Outcome, PoisonReason, Settlement, Status, Suspicion};
use oncebox::store::{Claim, ClaimId, Seq, Settled, Token};

use crate::fixture::{
    HOUR, PAST_LEASE, SECOND, dismissed, failed, handler, inbox_named, offer, offer_to,
    one_outcome_per_status, outcomes, policy, rejected, text,
};
use crate::{Harness, InspectTier, StoreTier};

pub async fn an_empty_batch_is_nothing<S: StoreTier>(h: &Harness<S>) {
    assert_eq!(h.send_all(&[]).await, []);
}

pub async fn completed_is_kept_with_its_history<S: InspectTier>(h: &Harness<S>) {
    h.settled("1", failed()).await;
    h.advance(5 * SECOND);
    let claim = h.claim_one("h").await;
    assert_eq!(claim.attempts, 1);
    h.advance(SECOND);
    assert_eq!(h.settle(&claim, Outcome::Done).await, Settled::Applied);
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.at, entry.attempts), (Status::Completed, h.now(), 1));
    assert_eq!((entry.reason, entry.error), (None, Some(text("failed"))), "its last error is kept");
    assert!(h.claim("h", 10).await.is_empty());
}

pub async fn a_retry_waits_on_the_stores_clock<S: InspectTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    // The wait starts at the write, not at the claim.
    h.advance(SECOND);
    assert_eq!(h.settle(&claim, failed()).await, Settled::Applied);
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.at), (Status::Pending, h.now().after(5 * SECOND)));
    assert_eq!((entry.attempts, entry.suspicion.stored(), entry.error), (1, 0, Some(text("failed"))));
    assert!(h.claim("h", 10).await.is_empty());
    h.advance(5 * SECOND);
    let claim = h.claim_one("h").await;
    assert_eq!((claim.attempts, claim.suspicion.stored()), (1, 0));
}

pub async fn poisoned_is_kept_with_its_reason<S: InspectTier>(h: &Harness<S>) {
    for reason in PoisonReason::ALL {
        let claim = h.running(reason.as_str()).await;
        let mut settlement = claim.settle(&policy(), rejected());
        settlement.next = NextState::Poisoned { reason };
        (settlement.attempts, settlement.suspicion) = (7, Suspicion::from_stored(2));
        assert_eq!(h.send(settlement).await, Settled::Applied);
        let entry = h.entry(reason.as_str(), "h").await;
        assert_eq!((entry.status, entry.reason, entry.at), (Status::Poisoned, Some(reason), h.now()));
        assert_eq!((entry.attempts, entry.suspicion.stored(), entry.error), (7, 2, Some(text("rejected"))));
    }
    h.advance(HOUR);
    assert!(h.claim("h", 10).await.is_empty());
    assert!(h.claim_suspect("h").await.is_empty());
}

pub async fn discarded_is_kept_with_its_reason<S: InspectTier>(h: &Harness<S>) {
    h.settled("1", dismissed()).await;
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.at, entry.error), (Status::Discarded, h.now(), Some(text("dismissed"))));
    assert!(h.claim("h", 10).await.is_empty());
}

pub async fn no_error_keeps_what_was_said_before<S: InspectTier>(h: &Harness<S>) {
    h.settled("1", failed()).await;
    h.advance(5 * SECOND);
    for outcome in [Outcome::Released, Outcome::Snooze { delay: SECOND }] {
        let claim = h.claim_one("h").await;
        assert_eq!(h.settle(&claim, outcome).await, Settled::Applied);
        let entry = h.entry("1", "h").await;
        assert_eq!((entry.attempts, entry.error), (1, Some(text("failed"))));
        h.advance(SECOND);
    }
}

pub async fn releasing_and_snoozing_count_nothing<S: StoreTier>(h: &Harness<S>) {
    h.settled("1", Outcome::Released).await;
    let claim = h.claim_one("h").await;
    assert_eq!((claim.attempts, claim.suspicion.stored()), (0, 0));
    h.settle(&claim, Outcome::Snooze { delay: HOUR }).await;
    h.advance(HOUR);
    let claim = h.claim_one("h").await;
    assert_eq!((claim.attempts, claim.suspicion.stored()), (0, 0));
}

// FAULTS C11: recording a failure never fails itself.
pub async fn any_error_text_is_kept<S: InspectTier>(h: &Harness<S>) {
    let long = "é\u{1F980}'\"\\\n\0".repeat(1_000);
    let claim = h.running("1").await;
    h.settle(&claim, Outcome::Retry { error: text(&long), after: Some(SECOND) }).await;
    assert_eq!(h.entry("1", "h").await.error, Some(text(&long)));
}

pub async fn a_claim_that_never_was_changes_nothing<S: InspectTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.first(offer_to("2", &["h", "other"])).await;
    let before = h.snapshot().await;
    let forged: [Claim; 7] = [
        Claim { token: Token(claim.token.0 + 1), ..claim.clone() },
        Claim { token: Token(claim.token.0 - 1), ..claim.clone() },
        Claim { claim_id: ClaimId::fresh(), ..claim.clone() },
        Claim { seq: Seq(claim.seq.0 + 1), ..claim.clone() },
        Claim { seq: Seq(i64::MAX), ..claim.clone() },
        Claim { handler: handler("other"), ..claim.clone() },
        Claim { inbox: inbox_named("other"), ..claim.clone() },
    ];
    for claim in forged {
        for outcome in outcomes() {
            assert_eq!(h.settle(&claim, outcome).await, Settled::LeaseLost, "{claim:?}");
        }
    }
    assert_eq!(h.snapshot().await, before);
    assert_eq!(h.settle(&claim, Outcome::Done).await, Settled::Applied);
}

// FAULTS B4
pub async fn a_stale_token_changes_nothing_after_a_rescue<S: InspectTier>(h: &Harness<S>) {
    let zombie = h.running("1").await;
    h.advance(PAST_LEASE);
    let owner = h.rescue_one("h").await;
    let before = h.snapshot().await;
    for outcome in outcomes() {
        assert_eq!(h.settle(&zombie, outcome.clone()).await, Settled::LeaseLost, "{outcome:?}");
        assert_eq!(h.snapshot().await, before, "{outcome:?}");
    }
    assert_eq!(h.settle(&owner, Outcome::Crashed).await, Settled::Applied);
    let before = h.snapshot().await;
    for outcome in outcomes() {
        assert_eq!(h.settle(&zombie, outcome.clone()).await, Settled::LeaseLost, "{outcome:?}");
        assert_eq!(h.snapshot().await, before, "{outcome:?}");
    }
}

pub async fn a_stale_token_changes_nothing_after_the_next_claim<S: InspectTier>(h: &Harness<S>) {
    let old = h.settled("1", Outcome::Released).await;
    let new = h.claim_one("h").await;
    let before = h.snapshot().await;
    for outcome in outcomes() {
        assert_eq!(h.settle(&old, outcome.clone()).await, Settled::LeaseLost, "{outcome:?}");
        assert_eq!(h.snapshot().await, before, "{outcome:?}");
    }
    assert_eq!(h.settle(&new, Outcome::Done).await, Settled::Applied);
}

// FAULTS D2: the response to a settlement was lost, and the worker sends it again.
pub async fn repeating_a_settlement_is_applied_and_changes_nothing<S: InspectTier>(h: &Harness<S>) {
    for outcome in outcomes() {
        let id = format!("{outcome:?}");
        let claim = h.settled(&id, outcome.clone()).await;
        let before = h.snapshot().await;
        // A repeat that is applied again would change the time of the entry.
        h.advance(Duration::from_millis(1));
        for _ in 0..2 {
            assert_eq!(h.settle(&claim, outcome.clone()).await, Settled::Applied, "{outcome:?}");
        }
        assert_eq!(h.snapshot().await, before, "{outcome:?}");
        // Makes room for the next outcome.
        for claimed in [h.claim("h", 10).await, h.claim_suspect("h").await].concat() {
            h.settle(&claimed.claim, Outcome::Done).await;
        }
    }
}

pub async fn a_repeated_settlement_is_recognised<S: StoreTier>(h: &Harness<S>) {
    for outcome in one_outcome_per_status() {
        let claim = h.settled(&format!("{outcome:?}"), outcome.clone()).await;
        assert_eq!(h.settle(&claim, outcome).await, Settled::Applied);
    }
}

pub async fn a_settlement_twice_in_a_batch_is_applied_once<S: InspectTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    let settlement = claim.settle(&policy(), failed());
    assert_eq!(h.send_all(&[settlement.clone(), settlement]).await, [Settled::Applied, Settled::Applied]);
    assert_eq!(h.entry("1", "h").await.attempts, 1);
}

pub async fn a_repeat_is_stale_once_another_worker_claimed<S: InspectTier>(h: &Harness<S>) {
    let claim = h.settled("1", failed()).await;
    h.advance(5 * SECOND);
    let next = h.claim_one("h").await;
    assert_eq!(h.settle(&claim, failed()).await, Settled::LeaseLost);
    assert_eq!(h.settle(&next, failed()).await, Settled::Applied);
    assert_eq!(h.entry("1", "h").await.attempts, 2);
    assert_eq!(
        h.settle(&claim, failed()).await,
        Settled::LeaseLost,
        "the older token is not taken for the newer"
    );
}

// FAULTS B5
pub async fn what_is_settled_ignores_other_settlements<S: InspectTier>(h: &Harness<S>) {
    for first in one_outcome_per_status() {
        let claim = h.settled(&format!("{first:?}"), first.clone()).await;
        let before = h.snapshot().await;
        for second in one_outcome_per_status().into_iter().filter(|second| *second != first) {
            assert_eq!(
                h.settle(&claim, second.clone()).await,
                Settled::LeaseLost,
                "{first:?}, then {second:?}"
            );
            assert_eq!(h.snapshot().await, before, "{first:?}, then {second:?}");
        }
    }
}

// FAULTS D3
pub async fn stale_settlements_in_a_batch_are_refused_singly<S: InspectTier>(h: &Harness<S>) {
    let mut claims = Vec::new();
    for n in 0..6 {
        claims.push(h.running(&n.to_string()).await);
    }
    let batch: Vec<Settlement> = claims
        .iter()
        .enumerate()
        .map(|(n, claim)| {
            let token = Token(claim.token.0 + if n % 2 == 0 { 0 } else { 1_000 });
            Settlement::done(&Claim { token, ..claim.clone() })
        })
        .collect();
    let pair = [Settled::Applied, Settled::LeaseLost];
    assert_eq!(h.send_all(&batch).await, [pair, pair, pair].concat());
    for n in 0..6 {
        let expected = if n % 2 == 0 { Status::Completed } else { Status::Running };
        assert_eq!(h.status(&n.to_string()).await, expected, "{n}");
    }
}

pub async fn a_batch_may_mix_every_outcome<S: InspectTier>(h: &Harness<S>) {
    let mut batch = Vec::new();
    for (n, outcome) in outcomes().into_iter().enumerate() {
        batch.push(h.running(&n.to_string()).await.settle(&policy(), outcome));
    }
    assert_eq!(h.send_all(&batch).await, vec![Settled::Applied; batch.len()]);
    for (n, settlement) in batch.iter().enumerate() {
        let entry = h.entry(&n.to_string(), "h").await;
        assert_eq!(entry.status, settlement.next.status(), "{:?}", settlement.event);
        assert_eq!((entry.attempts, entry.suspicion), (settlement.attempts, settlement.suspicion));
    }
}

// No worker took over, so the late settlement does no harm.
pub async fn the_owner_may_settle_after_its_lease<S: InspectTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.advance(PAST_LEASE + HOUR);
    assert_eq!(h.settle(&claim, Outcome::Done).await, Settled::Applied);
    assert!(h.rescue("h", 10).await.is_empty());
    assert_eq!(h.status("1").await, Status::Completed);
}

pub async fn handlers_are_settled_apart<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["a", "b"])).await;
    let (a, b) = (h.claim_one("a").await, h.claim_one("b").await);
    h.settle(&a, rejected()).await;
    assert_eq!(h.entry("1", "b").await.status, Status::Running);
    h.settle(&b, Outcome::Done).await;
    assert_eq!(h.entry("1", "a").await.status, Status::Poisoned);
    assert_eq!(h.entry("1", "b").await.status, Status::Completed);
}

pub async fn a_long_delay_does_not_overflow<S: StoreTier>(h: &Harness<S>) {
    h.settled("1", Outcome::Snooze { delay: Duration::MAX }).await;
    h.first(offer("2")).await;
    h.advance(1_000 * 24 * HOUR);
    assert_eq!(h.claim("h", 10).await.len(), 1, "only the other one is due");
}
