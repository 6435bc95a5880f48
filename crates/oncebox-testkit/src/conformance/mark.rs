//! Mark and complete: writes inside a transaction that a handler shares.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oncebox::state::{Outcome, Status};
use oncebox::store::{Claim, Mark, Renewed, Settled, Token};
use tokio::task::JoinSet;

use crate::fixture::{
    HOUR, PAST_LEASE, handler, inbox, inbox_named, key, key_in, message, offer_ordered,
    one_outcome_per_status, outcomes,
};
use crate::harness::mark;
use crate::{Harness, TransactionalTier};

/// Real time in which a rival could do wrong.
const CHANCE: Duration = Duration::from_millis(200);

/// Real time for which a mark may stay busy after a rollback.
const PATIENCE: Duration = Duration::from_mins(2);

pub async fn the_first_mark_is_first_and_the_second_a_duplicate<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(h.mark("1", "h").await, Mark::First);
    assert_eq!(h.mark("1", "h").await, Mark::Duplicate);
    assert_eq!(h.mark("2", "h").await, Mark::First);
    assert_eq!(h.mark("1", "i").await, Mark::First, "handlers never share a mark");
}

pub async fn a_mark_can_be_looked_up<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    let is_marked = async |tx: &mut _, id: &str, by: &str| {
        h.store.is_marked(tx, &inbox(), &key(id), &handler(by)).await.expect("is_marked")
    };
    assert!(!is_marked(&mut tx, "1", "h").await, "the question marks nothing");
    assert!(!is_marked(&mut tx, "1", "h").await);
    assert_eq!(
        h.store.mark(&mut tx, &inbox(), &key("1"), &handler("h"), None).await.expect("mark"),
        Mark::First
    );
    assert!(is_marked(&mut tx, "1", "h").await, "by this transaction");
    h.store.record(&mut tx, &inbox(), &key("1"), &handler("h"), b"7").await.expect("record");
    h.store.commit(tx).await.expect("commit");
    let mut tx = h.store.begin().await.expect("begin");
    assert!(is_marked(&mut tx, "1", "h").await, "by a committed one, with a result");
    assert!(!is_marked(&mut tx, "1", "i").await, "not for another handler");
    assert!(!is_marked(&mut tx, "2", "h").await, "not for another message");
    h.store.rollback(tx).await;
    drop(begin_marked(&h.store, "3").await);
    assert_eq!(patient(&h.store, "3").await, Mark::First, "the rollback has ended");
    let mut tx = h.store.begin().await.expect("begin");
    assert!(is_marked(&mut tx, "3", "h").await, "without a result");
}

pub async fn inboxes_do_not_share_marks<S: TransactionalTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    assert_eq!(h.mark("1", "h").await, Mark::First);
    let mut tx = h.store.begin().await.expect("begin");
    let key = key_in(&other, &message("1"));
    assert_eq!(h.store.mark(&mut tx, &other, &key, &handler("h"), None).await.expect("mark"), Mark::First);
}

pub async fn a_mark_twice_in_one_transaction_is_a_duplicate<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    let mut answers = Vec::new();
    for _ in 0..2 {
        answers.push(h.store.mark(&mut tx, &inbox(), &key("1"), &handler("h"), None).await.expect("mark"));
    }
    assert_eq!(answers, [Mark::First, Mark::Duplicate]);
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.mark("1", "h").await, Mark::Duplicate);
}

pub async fn a_rollback_leaves_no_mark<S: TransactionalTier>(h: &Harness<S>) {
    for _ in 0..3 {
        drop(begin_marked(&h.store, "1").await);
    }
    assert_eq!(patient(&h.store, "1").await, Mark::First);
    assert_eq!(patient(&h.store, "1").await, Mark::Duplicate);
}

// DESIGN rule 2: the body of a concurrent duplicate does not run.
pub async fn an_open_mark_is_not_free<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    assert_eq!(
        h.store.mark(&mut tx, &inbox(), &key("1"), &handler("h"), None).await.expect("mark"),
        Mark::First
    );
    let mut rival = tokio::spawn({
        let store = h.store.clone();
        async move { mark(&store, "1", "h").await }
    });
    // A store may let the rival wait, or return busy.
    let waited = tokio::time::timeout(CHANCE, &mut rival).await;
    h.store.commit(tx).await.expect("commit");
    let answer = match waited {
        Ok(answer) => answer,
        Err(_) => rival.await,
    };
    match answer.expect("the rival does not panic") {
        Ok(mark) => assert_ne!(mark, Mark::First),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    assert_eq!(patient(&h.store, "1").await, Mark::Duplicate);
}

pub async fn many_marks_of_one_key_have_one_first<S: TransactionalTier>(h: &Harness<S>) {
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let store = h.store.clone();
        tasks.spawn(async move {
            let mut marks = Vec::new();
            for n in 0..20 {
                marks.push(patient(&store, &n.to_string()).await);
            }
            marks
        });
    }
    let mut firsts: HashMap<usize, usize> = HashMap::new();
    for marks in tasks.join_all().await {
        for (n, mark) in marks.into_iter().enumerate() {
            *firsts.entry(n).or_default() += usize::from(mark.is_first().expect("not busy"));
        }
    }
    assert!((0..20).all(|n| firsts[&n] == 1), "{firsts:?}");
}

pub async fn a_completion_appears_with_the_commit<S: TransactionalTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    let mut tx = h.store.begin().await.expect("begin");
    assert_eq!(h.store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    h.store.commit(tx).await.expect("commit");
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.at), (Status::Completed, h.now()));
    assert!(h.claim("h", 10).await.is_empty());
}

pub async fn a_rollback_leaves_the_claim<S: TransactionalTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    let mut tx = h.store.begin().await.expect("begin");
    assert_eq!(h.store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    drop(tx);
    assert_eq!(h.status("1").await, Status::Running);
    assert_eq!(h.renew(&claim).await, Renewed::Extended);
    assert_eq!(h.complete(&claim).await, Settled::Applied);
}

pub async fn marks_and_completions_share_a_commit<S: TransactionalTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    for committed in [false, true] {
        let mut tx = begin_marked(&h.store, "2").await;
        assert_eq!(h.store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
        if committed {
            h.store.commit(tx).await.expect("commit");
        } else {
            drop(tx);
            assert_eq!(h.status("1").await, Status::Running);
        }
    }
    assert_eq!(h.status("1").await, Status::Completed);
    assert_eq!(h.mark("2", "h").await, Mark::Duplicate);
}

pub async fn the_owner_may_complete_after_its_lease<S: TransactionalTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.advance(PAST_LEASE + HOUR);
    assert_eq!(h.complete(&claim).await, Settled::Applied);
    assert!(h.rescue("h", 10).await.is_empty());
}

// FAULTS B4, C14
pub async fn a_stale_token_cannot_complete<S: TransactionalTier>(h: &Harness<S>) {
    let zombie = h.running("1").await;
    h.advance(PAST_LEASE);
    let owner = h.rescue_one("h").await;
    let before = h.snapshot().await;
    for claim in [zombie, Claim { token: Token(owner.token.0 + 1), ..owner.clone() }] {
        assert_eq!(h.complete(&claim).await, Settled::LeaseLost);
        assert_eq!(h.snapshot().await, before);
    }
    assert_eq!(h.complete(&owner).await, Settled::Applied);
}

// A repeated settle is recognised. A repeated completion may not be: the second transaction would repeat the handler's writes.
pub async fn what_is_settled_cannot_be_completed<S: TransactionalTier>(h: &Harness<S>) {
    for outcome in one_outcome_per_status() {
        let claim = h.settled(&format!("{outcome:?}"), outcome.clone()).await;
        let before = h.snapshot().await;
        assert_eq!(h.complete(&claim).await, Settled::LeaseLost, "{outcome:?}");
        assert_eq!(h.snapshot().await, before, "{outcome:?}");
    }
    let claim = h.running("in a transaction").await;
    assert_eq!(h.complete(&claim).await, Settled::Applied);
    assert_eq!(h.complete(&claim).await, Settled::LeaseLost);
}

pub async fn what_is_completed_ignores_settlements<S: TransactionalTier>(h: &Harness<S>) {
    let claim = h.running("1").await;
    h.complete(&claim).await;
    let before = h.snapshot().await;
    for outcome in outcomes().into_iter().filter(|outcome| *outcome != Outcome::Done) {
        assert_eq!(h.settle(&claim, outcome).await, Settled::LeaseLost);
    }
    assert_eq!(h.renew(&claim).await, Renewed::LeaseLost);
    assert_eq!(h.snapshot().await, before);
}

pub async fn a_completion_keeps_the_counters<S: TransactionalTier>(h: &Harness<S>) {
    h.settled("1", crate::fixture::failed()).await;
    h.advance(HOUR);
    let claim = h.claim_one("h").await;
    h.complete(&claim).await;
    let entry = h.entry("1", "h").await;
    assert_eq!((entry.status, entry.attempts, entry.suspicion.stored()), (Status::Completed, 1, 0));
}

pub async fn a_completion_releases_the_next_in_order<S: TransactionalTier>(h: &Harness<S>) {
    h.first(offer_ordered("1", "k")).await;
    h.first(offer_ordered("2", "k")).await;
    let claim = h.claim_one("h").await;
    h.complete(&claim).await;
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

// FAULTS B4: the handler's commit races the rescue of its claim, and one of them wins.
pub async fn a_rescue_and_a_commit_have_one_winner<S: TransactionalTier>(h: &Harness<S>) {
    for round in 0..20 {
        let id = round.to_string();
        let claim = h.running(&id).await;
        h.advance(PAST_LEASE);
        let mut tx = h.store.begin().await.expect("begin");
        assert_eq!(h.store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
        let rival = tokio::spawn({
            let store = h.store.clone();
            async move { store.rescue(&crate::harness::rescue_params(&[crate::fixture::route("h")], 10)).await }
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let committed = h.store.commit(tx).await;
        // A store that is busy with the commit may refuse the rescue.
        let rescued = rival.await.expect("the rescue does not panic").unwrap_or_default();
        match (committed, &rescued[..]) {
            (Ok(()), []) => assert_eq!(h.status(&id).await, Status::Completed),
            (Err(error), [rescued]) => {
                assert_eq!(error.kind(), oncebox::ErrorKind::LeaseLost);
                assert_eq!(h.status(&id).await, Status::Running);
                assert_eq!(h.settle(&rescued.claim, Outcome::Done).await, Settled::Applied);
            }
            (committed, rescued) => panic!("no single winner: {committed:?}, {rescued:?}"),
        }
    }
}

/// Opens a transaction with a first mark in it. An earlier rollback may take time, so the mark may still be busy.
pub(super) async fn begin_marked<S: TransactionalTier>(store: &S, id: &str) -> S::Tx {
    let start = Instant::now();
    loop {
        let mut tx = store.begin().await.expect("begin");
        match store.mark(&mut tx, &inbox(), &key(id), &handler("h"), None).await.expect("mark") {
            Mark::First => return tx,
            Mark::Busy => drop(tx),
            Mark::Duplicate | Mark::Conflict(_) => panic!("a mark that was rolled back is left"),
        }
        stay_patient(start).await;
    }
}

/// Marks a key, and retries while it is busy.
pub(super) async fn patient<S: TransactionalTier>(store: &S, id: &str) -> Mark {
    let start = Instant::now();
    loop {
        match mark(store, id, "h").await {
            Ok(Mark::Busy) => {}
            Ok(mark) => return mark,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        stay_patient(start).await;
    }
}

async fn stay_patient(since: Instant) {
    assert!(since.elapsed() < PATIENCE, "a mark is busy for ever");
    tokio::task::yield_now().await;
}
