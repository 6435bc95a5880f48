//! Unknown commits: the caller repeats the call, and the store recognises what it already did.

use oncebox::state::{Outcome, Settlement, Status};
use oncebox::store::{
    Accepted, Mark, MarkIn as _, RenewParams, Renewed, SettleIn as _, Settled, Store as _, SweepParams,
    Transactional as _,
};
use oncebox::{ErrorKind, Result};

use crate::fixture::{
    LEASE, PAST_LEASE, RETENTION, SECOND, claims, handler, inbox, key, offer, offer_to, outcomes, policy,
    route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{
    FaultOdds, FaultyStore, Harness, InspectTier, StoreFault, StoreTier, StoreVerb, TransactionalTier,
};

// FAULTS A4
pub async fn an_accept_is_recognised<S: InspectTier>(h: &Harness<S>) {
    let store = losing_the_answer(h, StoreVerb::Accept);
    let batch = [offer("1"), offer_to("2", &["h", "i"])];
    unknown(store.accept(&batch).await);
    let answers = store.accept(&batch).await.expect("accept");
    assert!(matches!(answers[..], [Accepted::Duplicate(_), Accepted::Duplicate(_)]), "{answers:?}");
    let counts = h.count().await;
    assert_eq!((counts.messages, counts.with_status(Status::Pending)), (2, 3));
}

// FAULTS B3
pub async fn a_claim_is_recognised<S: StoreTier>(h: &Harness<S>) {
    for n in 0..4 {
        h.first(offer(n.to_string())).await;
    }
    let store = losing_the_answer(h, StoreVerb::Claim);
    let params = claim_params(&[route("h")], 3);
    unknown(store.claim(&params).await);
    assert_eq!(h.claim("h", 10).await.len(), 1, "three are taken, though the response was lost");
    let claimed = store.claim(&params).await.expect("claim");
    assert_eq!(claimed.len(), 3);
    for claimed in &claimed {
        assert_eq!(claimed.claim.claim_id, params.claim_id);
        assert_eq!(h.settle(&claimed.claim, Outcome::Done).await, Settled::Applied);
    }
}

pub async fn a_suspect_claim_is_recognised<S: InspectTier>(h: &Harness<S>) {
    h.settled("1", Outcome::Crashed).await;
    h.settled("2", Outcome::Crashed).await;
    let store = losing_the_answer(h, StoreVerb::Claim);
    let params = claim_params(&[route("h")], 3).suspect();
    unknown(store.claim(&params).await);
    assert_eq!(store.claim(&params).await.expect("claim").len(), 2);
    h.settled("3", Outcome::Crashed).await;
    assert_eq!(store.claim(&params).await.expect("claim").len(), 2, "what it holds, and nothing new");
    assert_eq!(h.count().await.with_status(Status::Running), 2);
}

// FAULTS D2
pub async fn a_settlement_is_recognised<S: InspectTier>(h: &Harness<S>) {
    let mut batch: Vec<Settlement> = Vec::new();
    for (n, outcome) in outcomes().into_iter().enumerate() {
        batch.push(h.running(&n.to_string()).await.settle(&policy(), outcome));
    }
    let store = losing_the_answer(h, StoreVerb::Settle);
    unknown(store.settle(&batch).await);
    let before = h.snapshot().await;
    h.advance(std::time::Duration::from_millis(1));
    assert_eq!(store.settle(&batch).await.expect("settle"), vec![Settled::Applied; batch.len()]);
    assert_eq!(h.snapshot().await, before);
}

pub async fn a_rescue_is_recognised<S: InspectTier>(h: &Harness<S>) {
    let mut zombies = Vec::new();
    for n in 0..3 {
        zombies.push(h.running(&n.to_string()).await);
    }
    h.advance(PAST_LEASE);
    let store = losing_the_answer(h, StoreVerb::Rescue);
    let params = rescue_params(&[route("h")], 2);
    unknown(store.rescue(&params).await);
    let rescued = store.rescue(&params).await.expect("rescue");
    assert_eq!(rescued.len(), 2);
    for claim in claims(&rescued) {
        assert_eq!((claim.claim_id, claim.suspicion.stored()), (params.claim_id, 0));
        assert_eq!(h.settle(&claim, Outcome::Crashed).await, Settled::Applied);
        assert_eq!(h.entry(&zombie_id(&zombies, claim.seq), "h").await.suspicion.stored(), 1);
    }
}

pub async fn a_renewal_can_be_repeated<S: InspectTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.advance(SECOND);
    let store = losing_the_answer(h, StoreVerb::Renew);
    let params = RenewParams::new(vec![claim], LEASE);
    unknown(store.renew(&params).await);
    assert_eq!(store.renew(&params).await.expect("renew"), [Renewed::Extended]);
    assert_eq!(h.entry("1", "h").await.at, h.now().after(LEASE));
}

pub async fn a_sweep_can_be_repeated<S: InspectTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.poisoned("2").await;
    h.advance(RETENTION);
    let store = losing_the_answer(h, StoreVerb::Sweep);
    let params = SweepParams::new(inbox(), RETENTION, 10);
    unknown(store.sweep(&params).await);
    assert_eq!(store.sweep(&params).await.expect("sweep").messages, 0);
    assert_eq!(h.count().await.messages, 1);
}

// FAULTS C14, D2: the handler runs again, and its second transaction must not commit.
pub async fn a_commit_is_not_made_twice<S: TransactionalTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    let store = losing_the_answer(h, StoreVerb::Commit);
    let mut tx = store.begin().await.expect("begin");
    assert_eq!(
        store.mark(&mut tx, &inbox(), &key("2"), &handler("h"), None).await.expect("mark"),
        Mark::First
    );
    assert_eq!(store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    unknown(store.commit(tx).await);
    assert_eq!(h.complete(&claim).await, Settled::LeaseLost);
    assert_eq!(h.mark("2", "h").await, Mark::Duplicate);
    assert_eq!(h.status("1").await, Status::Completed);
}

pub async fn what_was_not_done_is_done_by_the_repeat<S: TransactionalTier>(h: &Harness<S>) {
    let store = FaultyStore::new(h.store.clone());
    for verb in [StoreVerb::Accept, StoreVerb::Claim, StoreVerb::Settle, StoreVerb::Rescue, StoreVerb::Commit]
    {
        store.faults().next(verb, StoreFault::ErrBefore(ErrorKind::CommitUnknown));
    }
    unknown(store.accept(&[offer("1")]).await);
    assert!(matches!(store.accept(&[offer("1")]).await.expect("accept")[..], [Accepted::First(_)]));
    let params = claim_params(&[route("h")], 3);
    unknown(store.claim(&params).await);
    assert_eq!(store.claim(&params).await.expect("claim").len(), 1);
    h.advance(PAST_LEASE);
    let params = rescue_params(&[route("h")], 3);
    unknown(store.rescue(&params).await);
    let claim = store.rescue(&params).await.expect("rescue").remove(0).claim;
    let mut tx = store.begin().await.expect("begin");
    assert_eq!(store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    unknown(store.commit(tx).await);
    assert_eq!(h.status("1").await, Status::Running, "nothing of the transaction is left");
    let settlement = [Settlement::done(&claim)];
    unknown(store.settle(&settlement).await);
    assert_eq!(store.settle(&settlement).await.expect("settle"), [Settled::Applied]);
    assert_eq!(h.status("1").await, Status::Completed);
}

// FAULTS A4, B3, D2 together: every second call fails before or after it was done.
pub async fn a_storm_of_faults_loses_and_repeats_nothing<S: InspectTier>(h: &Harness<S>) {
    const MESSAGES: usize = 200;
    let store = FaultyStore::new(h.store.clone());
    store.faults().seed(1, FaultOdds { before: 0.25, after: 0.25 });
    for n in 0..MESSAGES {
        let batch = [offer(n.to_string())];
        insist(async || store.accept(&batch).await).await;
    }
    let mut done = 0;
    while done < MESSAGES {
        let params = claim_params(&[route("h")], 10);
        let claimed = insist(async || store.claim(&params).await).await;
        assert!(!claimed.is_empty(), "{done} are done, and nothing is left to claim");
        let batch: Vec<Settlement> = claimed.iter().map(|claimed| Settlement::done(&claimed.claim)).collect();
        let settled = insist(async || store.settle(&batch).await).await;
        assert_eq!(settled, vec![Settled::Applied; batch.len()], "no other worker has the claim");
        done += settled.len();
    }
    assert_eq!(done, MESSAGES, "each entry was claimed once");
    let counts = h.count().await;
    assert_eq!((counts.messages, counts.with_status(Status::Completed)), (MESSAGES as u64, MESSAGES as u64));
}

/// Returns the store under test, which does the next call of `verb` and loses the response.
fn losing_the_answer<S: StoreTier>(h: &Harness<S>, verb: StoreVerb) -> FaultyStore<S> {
    let store = FaultyStore::new(h.store.clone());
    store.faults().next(verb, StoreFault::ErrAfter);
    store
}

fn unknown<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.expect_err("the answer is lost").kind(), ErrorKind::CommitUnknown);
}

/// Repeats a call until it succeeds.
async fn insist<T>(call: impl AsyncFn() -> Result<T>) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

fn zombie_id(zombies: &[oncebox::store::Claim], seq: oncebox::store::Seq) -> String {
    let position = zombies.iter().position(|zombie| zombie.seq == seq);
    position.expect("a rescued entry was running").to_string()
}
