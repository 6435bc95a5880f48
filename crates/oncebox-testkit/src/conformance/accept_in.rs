//! Accept inside a transaction: everything of it appears with the commit, and nothing is left after a rollback.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use oncebox::state::{Outcome, Settlement, Status};
use oncebox::store::{
    AcceptIn as _, Accepted, NewMessage, QuarantineReason, Seq, Settled, Transactional as _,
};
use oncebox::{ErrorKind, Message, Result};
use tokio::task::{JoinHandle, JoinSet};

use crate::fixture::{
    HOUR, RETENTION, SECOND, again, ids, inbox_named, message, moved_to, offer, offer_message, offer_ordered,
    offer_to, route,
};
use crate::harness::claim_params;
use crate::{FaultyStore, Harness, StoreFault, StoreUnderTest, StoreVerb};

/// Real time in which a rival could do wrong.
const CHANCE: Duration = Duration::from_millis(200);

/// Real time in which a store must find work or answer.
const PATIENCE: Duration = Duration::from_mins(2);

pub async fn a_message_appears_with_the_commit<S: StoreUnderTest>(h: &Harness<S>) {
    let whole = message("1").with_header("trace", "t").with_time(h.now());
    let mut tx = h.store.begin().await.expect("begin");
    let seq = first_in(h, &mut tx, offer_message(whole.clone())).await;
    let look = tokio::time::timeout(CHANCE, h.store.claim(&claim_params(&[route("h")], 10))).await;
    if let Ok(Ok(claimed)) = look {
        assert!(claimed.is_empty(), "claimed before the commit: {claimed:?}");
    }
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.status("1").await, Status::Pending);
    let claimed = patient_claim(h, 1).await.remove(0);
    assert_eq!((claimed.claim.seq, &*claimed.message), (seq, &whole));
    assert_eq!(h.settle(&claimed.claim, Outcome::Done).await, Settled::Applied);
    assert_eq!(h.accept(offer_message(whole)).await, again(seq));
}

pub async fn a_rollback_leaves_nothing<S: StoreUnderTest>(h: &Harness<S>) {
    for dropped in [true, false] {
        let mut tx = h.store.begin().await.expect("begin");
        first_in(h, &mut tx, offer_ordered("1", "k")).await;
        first_in(h, &mut tx, offer_to("2", &["h", "i"])).await;
        if dropped {
            drop(tx);
        } else {
            h.store.rollback(tx).await;
        }
    }
    // A drop may take a while to become a rollback.
    let accepted = accept_patiently(&h.store, offer_ordered("1", "k")).await;
    assert!(matches!(accepted, Accepted::First(_)), "{accepted:?}");
    let claim = h.claim_one("h").await;
    assert_eq!(h.settle(&claim, Outcome::Done).await, Settled::Applied);
    assert!(h.show("2").await.is_none());
    assert_eq!(h.count().await.messages, 1);
}

pub async fn a_duplicate_of_a_stored_message_is_one<S: StoreUnderTest>(h: &Harness<S>) {
    let (done, pending) = (h.completed("done").await.seq, h.first(offer("pending")).await);
    h.advance(HOUR);
    let mut tx = h.store.begin().await.expect("begin");
    let answers = accept_in(h, &mut tx, &[offer("pending"), offer("done"), offer("new")]).await;
    h.store.commit(tx).await.expect("commit");
    let late = |seq| Accepted::Duplicate(oncebox::store::KnownMessage::new(seq, HOUR));
    assert_eq!(answers[..2], [late(pending), late(done)]);
    assert!(matches!(answers[2], Accepted::First(_)));
    assert_eq!(h.count().await.messages, 3);
}

pub async fn a_key_twice_in_a_transaction_is_a_duplicate<S: StoreUnderTest>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    let seq = first_in(h, &mut tx, offer("1")).await;
    assert_eq!(accept_in(h, &mut tx, &[offer("1")]).await, [again(seq)]);
    let batch = accept_in(h, &mut tx, &[offer("2"), offer("1"), offer("2")]).await;
    let [Accepted::First(second), repeated, within] = batch[..] else { panic!("{batch:?}") };
    assert_eq!((repeated, within), (again(seq), again(second)));
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.claim("h", 10).await.len(), 2);
    assert_eq!(h.accept_all(&[offer("1"), offer("2")]).await, [again(seq), again(second)]);
}

pub async fn an_empty_batch_is_nothing<S: StoreUnderTest>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    assert_eq!(accept_in(h, &mut tx, &[]).await, []);
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.count().await.messages, 0);
}

// FAULTS A9: an accept of a key that an open transaction has waits, or is refused, and is never the first.
pub async fn a_rival_of_an_open_key_is_not_first<S: StoreUnderTest>(h: &Harness<S>) {
    for other_instance in [false, true] {
        let store = if other_instance { h.another().await } else { h.store.clone() };
        let id = format!("{other_instance}");
        let mut tx = h.store.begin().await.expect("begin");
        let seq = first_in(h, &mut tx, offer(&id)).await;
        let rival = rival(&store, offer(&id));
        let answer = wait_and(rival, async || h.store.commit(tx).await.expect("commit")).await;
        match answer {
            Ok(accepted) => assert_eq!(accepted, [again(seq)]),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert_eq!(accept_patiently(&store, offer(&id)).await, again(seq));
    }
    assert_eq!(h.count().await.messages, 2);
}

pub async fn a_rival_of_a_key_that_was_rolled_back_is_first<S: StoreUnderTest>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, offer("1")).await;
    let answer = wait_and(rival(&h.store, offer("1")), async || h.store.rollback(tx).await).await;
    let seq = match answer.map(|accepted| accepted[0]) {
        Ok(Accepted::First(seq)) => seq,
        Ok(other) => panic!("a duplicate of nothing: {other:?}"),
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            let accepted = accept_patiently(&h.store, offer("1")).await;
            let Accepted::First(seq) = accepted else { panic!("{accepted:?}") };
            seq
        }
    };
    assert_eq!(h.accept(offer("1")).await, again(seq));
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

pub async fn many_transactions_of_one_key_have_one_first<S: StoreUnderTest>(h: &Harness<S>) {
    const KEYS: usize = 10;
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let store = h.another().await;
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for n in 0..KEYS {
                let new = offer(n.to_string());
                answers.push(if task % 4 == 0 {
                    accept_patiently(&store, new).await
                } else {
                    commit_patiently(&store, new).await
                });
            }
            answers
        });
    }
    let mut firsts = vec![Vec::new(); KEYS];
    for answers in tasks.join_all().await {
        for (n, answer) in answers.into_iter().enumerate() {
            if let Accepted::First(seq) = answer {
                firsts[n].push(seq);
            }
        }
    }
    assert!(firsts.iter().all(|seqs| seqs.len() == 1), "{firsts:?}");
    let numbers: HashSet<Seq> = firsts.into_iter().flatten().collect();
    assert_eq!(numbers.len(), KEYS, "no number is given twice");
    assert_eq!(h.claim("h", 100).await.len(), KEYS);
}

pub async fn a_conflict_is_quarantined_with_the_transaction<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    let other = || offer_message(Message::new("1", "order.placed", "other").with_source("shop"));
    for committed in [false, true] {
        let mut tx = h.store.begin().await.expect("begin");
        assert_eq!(accept_in(h, &mut tx, &[other()]).await, [Accepted::Conflict(seq)]);
        // A repeat in the transaction adds nothing.
        assert_eq!(accept_in(h, &mut tx, &[other()]).await, [Accepted::Conflict(seq)]);
        if committed {
            h.store.commit(tx).await.expect("commit");
        } else {
            h.store.rollback(tx).await;
        }
        assert_eq!(h.count().await.quarantined, u64::from(committed));
    }
    let view = h.show("1").await.expect("known");
    assert_eq!(view.quarantined[0].reason, QuarantineReason::Conflict);
    assert_eq!(h.claim("h", 10).await.len(), 1, "only the first runs");
}

pub async fn a_conflict_within_the_transaction_is_quarantined<S: StoreUnderTest>(h: &Harness<S>) {
    let other = offer_message(Message::new("1", "order.placed", "other").with_source("shop"));
    let mut tx = h.store.begin().await.expect("begin");
    let seq = first_in(h, &mut tx, offer("1")).await;
    assert_eq!(accept_in(h, &mut tx, &[other]).await, [Accepted::Conflict(seq)]);
    h.store.commit(tx).await.expect("commit");
    let counts = h.count().await;
    assert_eq!((counts.messages, counts.quarantined), (1, 1));
}

pub async fn a_message_that_may_be_forgotten_is_stale<S: StoreUnderTest>(h: &Harness<S>) {
    h.completed("1").await;
    let swept_at = h.now();
    h.advance(RETENTION + SECOND);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    let stale = || offer_message(message("1").with_time(swept_at));
    let mut tx = h.store.begin().await.expect("begin");
    assert_eq!(accept_in(h, &mut tx, &[stale()]).await, [Accepted::Stale]);
    h.store.rollback(tx).await;
    assert_eq!(h.count().await.quarantined, 0);
    let mut tx = h.store.begin().await.expect("begin");
    let answers = accept_in(h, &mut tx, &[stale(), offer("1")]).await;
    assert!(matches!(answers[..], [Accepted::Stale, Accepted::First(_)]), "{answers:?}");
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.count().await.quarantined, 1);
}

pub async fn handlers_are_added_with_the_commit<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.completed("1").await.seq;
    for committed in [false, true] {
        let mut tx = h.store.begin().await.expect("begin");
        let added = accept_in(h, &mut tx, &[offer_to("1", &["h", "i", "j"])]).await;
        assert_eq!(added, [Accepted::HandlersAdded(seq, 2)]);
        assert_eq!(accept_in(h, &mut tx, &[offer_to("1", &["i", "h"])]).await, [again(seq)]);
        if committed {
            h.store.commit(tx).await.expect("commit");
        } else {
            h.store.rollback(tx).await;
            assert!(h.claim("i", 10).await.is_empty());
        }
    }
    assert_eq!((h.claim("h", 10).await.len(), h.claim("i", 10).await.len()), (0, 1));
    assert_eq!(h.claim("j", 10).await.len(), 1);
}

pub async fn handlers_are_added_within_the_transaction<S: StoreUnderTest>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    let seq = first_in(h, &mut tx, offer("1")).await;
    let added = accept_in(h, &mut tx, &[offer_to("1", &["h", "i"])]).await;
    assert_eq!(added, [Accepted::HandlersAdded(seq, 1)]);
    assert_eq!(accept_in(h, &mut tx, &[offer_to("1", &["h", "i"])]).await, [again(seq)]);
    h.store.commit(tx).await.expect("commit");
    assert_eq!((h.claim("h", 10).await.len(), h.claim("i", 10).await.len()), (1, 1));
}

pub async fn a_delay_postpones_the_first_attempt<S: StoreUnderTest>(h: &Harness<S>) {
    let mut later = offer("1");
    later.delay = HOUR;
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, later).await;
    h.store.commit(tx).await.expect("commit");
    assert!(h.claim("h", 10).await.is_empty());
    h.advance(HOUR);
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

pub async fn several_inboxes_share_a_transaction<S: StoreUnderTest>(h: &Harness<S>) {
    let other = inbox_named("other");
    let mut tx = h.store.begin().await.expect("begin");
    let batch = [offer("1"), moved_to(&other, &offer("1"))];
    let answers = accept_in(h, &mut tx, &batch).await;
    assert!(matches!(answers[..], [Accepted::First(_), Accepted::First(_)]), "{answers:?}");
    h.store.commit(tx).await.expect("commit");
    assert_eq!(h.count().await.messages, 1);
    assert_eq!(h.store.count(&other).await.expect("count").messages, 1);
}

pub async fn an_ordered_message_waits_behind_earlier_ones<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer_ordered("1", "k")).await;
    let mut tx = h.store.begin().await.expect("begin");
    accept_in(h, &mut tx, &[offer_ordered("2", "k"), offer_ordered("other", "l")]).await;
    accept_in(h, &mut tx, &[offer_ordered("3", "k")]).await;
    h.store.commit(tx).await.expect("commit");
    h.first(offer_ordered("4", "k")).await;
    let mut claimed = patient_claim(h, 2).await;
    assert_eq!(ids(&claimed), ["1", "other"]);
    let mut head = claimed.remove(0).claim;
    for id in ["2", "3", "4"] {
        assert_eq!(h.settle(&head, Outcome::Done).await, Settled::Applied);
        let next = h.claim("h", 10).await;
        assert_eq!(ids(&next), [id]);
        head = next[0].claim.clone();
    }
}

pub async fn ordering_keys_go_by_the_commits<S: StoreUnderTest>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, offer_ordered("1", "k")).await;
    let answer = wait_and(rival(&h.store, offer_ordered("2", "k")), async || {
        h.store.commit(tx).await.expect("commit");
    });
    if let Err(error) = answer.await {
        assert!(error.is_retryable(), "{error}");
        accept_patiently(&h.store, offer_ordered("2", "k")).await;
    }
    let head = h.claim("h", 10).await;
    assert_eq!(ids(&head), ["1"], "one at a time, and the first to be committed");
    assert_eq!(h.settle(&head[0].claim, Outcome::Done).await, Settled::Applied);
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn a_poisoned_head_blocks_what_is_accepted<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer_ordered("1", "k")).await;
    let head = h.claim_one("h").await;
    assert_eq!(h.settle(&head, crate::fixture::rejected()).await, Settled::Applied);
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, offer_ordered("2", "k")).await;
    h.store.commit(tx).await.expect("commit");
    assert!(h.claim("h", 10).await.is_empty());
}

// A claim may have passed the number while its transaction was open.
pub async fn a_lower_number_that_is_committed_late_is_claimed<S: StoreUnderTest>(h: &Harness<S>) {
    const OTHERS: usize = 60;
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, offer("late")).await;
    let mut others = tokio::spawn(work_off(h.store.clone(), OTHERS));
    // Where a transaction keeps all others waiting, they come after it.
    let ended = tokio::time::timeout(CHANCE, &mut others).await;
    h.store.commit(tx).await.expect("commit");
    let done = match ended {
        Ok(done) => done.expect("no panic"),
        Err(_) => others.await.expect("no panic"),
    };
    if !done.contains("late") {
        assert_eq!(ids(&patient_claim(h, 1).await), ["late"]);
    }
    assert_eq!(h.count().await.messages, 1 + OTHERS as u64);
}

/// Accepts messages one by one, and works off what it finds. Returns the ids of that.
async fn work_off<S: StoreUnderTest>(store: S, messages: usize) -> HashSet<String> {
    let (mut done, start) = (HashSet::new(), Instant::now());
    for n in 0..messages {
        let own = n.to_string();
        store.accept(&[offer(&own)]).await.expect("accept");
        while !done.contains(&own) {
            let claimed = store.claim(&claim_params(&[route("h")], 20)).await.expect("claim");
            let settlements: Vec<Settlement> =
                claimed.iter().map(|one| Settlement::done(&one.claim)).collect();
            let settled = store.settle(&settlements).await.expect("settle");
            assert_eq!(settled, vec![Settled::Applied; claimed.len()]);
            done.extend(ids(&claimed));
            assert!(start.elapsed() < PATIENCE, "{own} is not claimed");
        }
    }
    done
}

pub async fn a_message_and_a_completion_share_a_commit<S: StoreUnderTest>(h: &Harness<S>) {
    let claim = h.running("1").await;
    for committed in [false, true] {
        let mut tx = h.store.begin().await.expect("begin");
        first_in(h, &mut tx, offer_to("2", &["i"])).await;
        if committed {
            assert_eq!(h.store.finish(tx, &claim).await.expect("finish"), Settled::Applied);
        } else {
            assert_eq!(h.store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
            h.store.rollback(tx).await;
            assert_eq!((h.status("1").await, h.claim("i", 10).await.len()), (Status::Running, 0));
        }
    }
    assert_eq!((h.status("1").await, h.claim("i", 10).await.len()), (Status::Completed, 1));
}

pub async fn a_lost_claim_takes_the_message_with_it<S: StoreUnderTest>(h: &Harness<S>) {
    let zombie = h.running("1").await;
    h.advance(crate::fixture::PAST_LEASE);
    h.rescue_one("h").await;
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, offer_to("2", &["i"])).await;
    assert_eq!(h.store.finish(tx, &zombie).await.expect("finish"), Settled::LeaseLost);
    let accepted = accept_patiently(&h.store, offer_to("2", &["i"])).await;
    assert!(matches!(accepted, Accepted::First(_)), "{accepted:?}");
}

pub async fn a_part_that_is_undone_takes_its_messages_with_it<S: StoreUnderTest>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    for id in ["kept", "undone", "undone", "last"] {
        h.store.savepoint(&mut tx).await.expect("savepoint");
        first_in(h, &mut tx, offer(id)).await;
        if id == "undone" {
            h.store.rollback_to_savepoint(&mut tx).await.expect("rollback");
        }
    }
    h.store.commit(tx).await.expect("commit");
    assert_eq!(ids(&patient_claim(h, 2).await), ["kept", "last"]);
    assert!(matches!(h.accept(offer("undone")).await, Accepted::First(_)));
}

// FAULTS A4
pub async fn a_commit_without_an_answer_is_recognised<S: StoreUnderTest>(h: &Harness<S>) {
    let store = FaultyStore::new(h.store.clone());
    store.faults().next(StoreVerb::Commit, StoreFault::ErrAfter);
    let mut tx = store.begin().await.expect("begin");
    let accepted = store.accept_in(&mut tx, &[offer("1")]).await.expect("accept");
    let [Accepted::First(seq)] = accepted[..] else { panic!("{accepted:?}") };
    assert_eq!(store.commit(tx).await.expect_err("no answer").kind(), ErrorKind::CommitUnknown);
    let mut tx = store.begin().await.expect("begin");
    assert_eq!(store.accept_in(&mut tx, &[offer("1")]).await.expect("accept"), [again(seq)]);
    store.commit(tx).await.expect("commit");
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

pub async fn the_commit_wakes_workers<S: StoreUnderTest>(h: &Harness<S>) {
    // The events of `h.another()` reach this store by way of the database.
    let Some(wakeups) = h.store.wakeups() else { return };
    let mut wakeup = wakeups.subscribe();
    let mut tx = h.store.begin().await.expect("begin");
    first_in(h, &mut tx, offer("1")).await;
    h.store.commit(tx).await.expect("commit");
    assert!(tokio::time::timeout(PATIENCE, wakeup.woken()).await.is_ok(), "the commit wakes nothing");
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

/// Accepts in a transaction; the store answers for each message.
async fn accept_in<S: StoreUnderTest>(h: &Harness<S>, tx: &mut S::Tx, batch: &[NewMessage]) -> Vec<Accepted> {
    let accepted = h.store.accept_in(tx, batch).await.expect("accept in a transaction");
    assert_eq!(accepted.len(), batch.len(), "as many answers as messages");
    accepted
}

/// Accepts a message that must be new.
async fn first_in<S: StoreUnderTest>(h: &Harness<S>, tx: &mut S::Tx, new: NewMessage) -> Seq {
    match accept_in(h, tx, &[new]).await[..] {
        [Accepted::First(seq)] => seq,
        ref other => panic!("expected a new message, got {other:?}"),
    }
}

/// Accepts a message beside the transaction.
fn rival<S: StoreUnderTest>(store: &S, new: NewMessage) -> JoinHandle<Result<Vec<Accepted>>> {
    let store = store.clone();
    tokio::spawn(async move { store.accept(&[new]).await })
}

/// Ends the transaction after the rival had its chance, and returns the rival's answer.
async fn wait_and(
    mut rival: JoinHandle<Result<Vec<Accepted>>>,
    end: impl AsyncFnOnce(),
) -> Result<Vec<Accepted>> {
    let waited = tokio::time::timeout(CHANCE, &mut rival).await;
    end().await;
    match waited {
        Ok(answer) => answer.expect("the rival does not panic"),
        Err(_) => rival.await.expect("the rival does not panic"),
    }
}

/// Accepts a message, again while a transaction has its key.
async fn accept_patiently<S: StoreUnderTest>(store: &S, new: NewMessage) -> Accepted {
    let start = Instant::now();
    loop {
        let accepted = store.accept(std::slice::from_ref(&new)).await;
        if let Some(accepted) = unless_busy(accepted, start) {
            return accepted[0];
        }
        tokio::task::yield_now().await;
    }
}

/// Accepts a message in a transaction of its own, again while another one has its key.
async fn commit_patiently<S: StoreUnderTest>(store: &S, new: NewMessage) -> Accepted {
    let start = Instant::now();
    loop {
        let committed = async {
            let mut tx = store.begin().await?;
            let accepted = store.accept_in(&mut tx, std::slice::from_ref(&new)).await?;
            store.commit(tx).await.map(|()| accepted)
        };
        if let Some(accepted) = unless_busy(committed.await, start) {
            return accepted[0];
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the answer, or nothing after an error that is a reason to try again.
fn unless_busy<T>(answer: Result<T>, since: Instant) -> Option<T> {
    let retried = |error: &oncebox::Error| error.is_retryable() && since.elapsed() < PATIENCE;
    answer.inspect_err(|error| assert!(retried(error), "{error}")).ok()
}

/// Claims until there are so many: a store may find late commits with a later look.
async fn patient_claim<S: StoreUnderTest>(h: &Harness<S>, count: usize) -> Vec<oncebox::store::Claimed> {
    let (mut claimed, start) = (Vec::new(), Instant::now());
    while claimed.len() < count {
        claimed.extend(h.claim("h", 10).await);
        assert!(start.elapsed() < PATIENCE, "{} of {count} were claimed", claimed.len());
        tokio::task::yield_now().await;
    }
    assert_eq!(claimed.len(), count);
    claimed
}
