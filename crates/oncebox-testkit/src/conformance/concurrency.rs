//! Concurrency: every race has one winner.

use crate::OperatorSteps as _;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::state::{Operation, Outcome, Settlement, Status, Suspicion};
use oncebox::store::{Accepted, NewMessage, Settled, SweepParams};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Key, Message};
use parking_lot::Mutex;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixture::{
    PAST_LEASE, RETENTION, again, failed, handler, inbox, key, message, offer, offer_to, policy, route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, InspectTier, OperateTier, StoreTier};

// FAULTS B1
pub async fn many_claimers_never_share_an_entry<S: InspectTier>(h: &Harness<S>) {
    const MESSAGES: usize = 2_000;
    const ENTRIES: usize = 2 * MESSAGES;
    for start in (0..MESSAGES).step_by(500) {
        let batch: Vec<NewMessage> =
            (start..start + 500).map(|n| offer_to(n.to_string(), &["a", "b"])).collect();
        h.accept_all(&batch).await;
    }
    let held = Arc::new(Mutex::new(HashSet::new()));
    let tokens = Arc::new(Mutex::new(HashSet::new()));
    let done = Arc::new(AtomicUsize::new(0));
    let mut claimers = JoinSet::new();
    for claimer in 0..16 {
        let (store, held, tokens, done) =
            (h.store.clone(), Arc::clone(&held), Arc::clone(&tokens), Arc::clone(&done));
        claimers.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(claimer);
            while done.load(Ordering::SeqCst) < ENTRIES {
                let params = claim_params(&[route("a"), route("b")], 1 + rng.usize(..40));
                let claimed = store.claim(&params).await.expect("claim");
                if claimed.is_empty() {
                    tokio::task::yield_now().await;
                    continue;
                }
                let mut settlements = Vec::new();
                for claimed in &claimed {
                    let claim = &claimed.claim;
                    let entry = (claim.seq, claim.handler.clone());
                    assert!(held.lock().insert(entry.clone()), "{entry:?} is held twice");
                    assert!(tokens.lock().insert((entry, claim.token)), "a token is used twice for an entry");
                    // Some are released, so that entries change hands.
                    let outcome = if rng.u8(..) < 50 { Outcome::Released } else { Outcome::Done };
                    settlements.push(claim.settle(&policy(), outcome));
                }
                for claimed in &claimed {
                    held.lock().remove(&(claimed.claim.seq, claimed.claim.handler.clone()));
                }
                let settled = store.settle(&settlements).await.expect("settle");
                assert!(settled.iter().all(|settled| *settled == Settled::Applied));
                done.fetch_add(
                    settlements.iter().filter(|one| one.is_completion()).count(),
                    Ordering::SeqCst,
                );
            }
        });
    }
    claimers.join_all().await;
    let counts = h.count().await;
    assert_eq!(done.load(Ordering::SeqCst), ENTRIES);
    assert_eq!(counts.with_status(Status::Completed), ENTRIES as u64);
    assert_eq!(counts.entries.iter().map(|entry| entry.count).sum::<u64>(), ENTRIES as u64);
}

// FAULTS A9
pub async fn many_accepts_of_one_key_have_one_first<S: InspectTier>(h: &Harness<S>) {
    const AT_ONCE: usize = 64;
    for round in 0..50 {
        let barrier = Arc::new(Barrier::new(AT_ONCE));
        let mut deliveries = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (store, barrier) = (h.store.clone(), Arc::clone(&barrier));
            deliveries.spawn(async move {
                barrier.wait().await;
                store.accept(&[offer(round.to_string())]).await.expect("accept")[0]
            });
        }
        let answers = deliveries.join_all().await;
        let firsts: Vec<_> = answers.iter().filter(|answer| matches!(answer, Accepted::First(_))).collect();
        let [Accepted::First(seq)] = firsts[..] else { panic!("round {round}: {} firsts", firsts.len()) };
        let duplicates = answers.iter().filter(|answer| **answer == again(*seq)).count();
        assert_eq!(duplicates, AT_ONCE - 1, "round {round}");
    }
    assert_eq!(h.count().await.with_status(Status::Pending), 50);
}

pub async fn many_conflicts_of_one_key_keep_one_original<S: InspectTier>(h: &Harness<S>) {
    for round in 0..20 {
        let mut deliveries = JoinSet::new();
        for n in 0..8 {
            let store = h.store.clone();
            deliveries.spawn(async move {
                let message = Message::new(round.to_string(), "order.placed", n.to_string());
                store.accept(&[crate::fixture::offer_message(message)]).await.expect("accept")[0]
            });
        }
        let answers = deliveries.join_all().await;
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Accepted::First(_))).count(), 1);
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Accepted::Conflict(_))).count(), 7);
    }
    let counts = h.count().await;
    assert_eq!((counts.messages, counts.quarantined), (20, 140));
}

// FAULTS B10: owners settle while rescuers take over.
pub async fn owners_and_rescuers_have_one_winner<S: StoreTier>(h: &Harness<S>) {
    const ENTRIES: usize = 200;
    let batch: Vec<NewMessage> = (0..ENTRIES).map(|n| offer(n.to_string())).collect();
    h.accept_all(&batch).await;
    let claimed = h.claim("h", ENTRIES).await;
    assert_eq!(claimed.len(), ENTRIES);
    h.advance(PAST_LEASE);
    let mut owners = JoinSet::new();
    for chunk in claimed.chunks(10) {
        let store = h.store.clone();
        let batch: Vec<Settlement> = chunk.iter().map(|claimed| Settlement::done(&claimed.claim)).collect();
        owners.spawn(async move {
            let settled = store.settle(&batch).await.expect("settle");
            let mut won = Vec::new();
            for (settlement, settled) in batch.into_iter().zip(settled) {
                if settled == Settled::Applied {
                    won.push(settlement.claim.seq);
                }
            }
            won
        });
    }
    let mut rescuers = JoinSet::new();
    for _ in 0..8 {
        let store = h.store.clone();
        rescuers.spawn(async move {
            let rescued = store.rescue(&rescue_params(&[route("h")], 15)).await.expect("rescue");
            rescued.into_iter().map(|claimed| claimed.claim.seq).collect::<Vec<_>>()
        });
    }
    let mut winners: Vec<_> = owners.join_all().await.concat();
    winners.extend(rescuers.join_all().await.concat());
    winners.extend(h.rescue("h", ENTRIES).await.iter().map(|claimed| claimed.claim.seq));
    assert_eq!(winners.len(), ENTRIES);
    assert_eq!(winners.iter().collect::<HashSet<_>>().len(), ENTRIES, "an entry has one winner");
}

pub async fn many_repeats_of_a_settlement_count_once<S: InspectTier>(h: &Harness<S>) {
    for round in 0..10 {
        let id = round.to_string();
        let settlement = h.running(&id).await.settle(&policy(), failed());
        let mut senders = JoinSet::new();
        for _ in 0..16 {
            let (store, settlement) = (h.store.clone(), settlement.clone());
            senders.spawn(async move { store.settle(&[settlement]).await.expect("settle")[0] });
        }
        assert!(senders.join_all().await.iter().all(|settled| *settled == Settled::Applied));
        assert_eq!(h.entry(&id, "h").await.attempts, 1);
    }
}

// FAULTS J3
pub async fn a_discard_and_a_claim_have_one_winner<S: OperateTier>(h: &Harness<S>) {
    for round in 0..50 {
        let id = round.to_string();
        h.first(offer(&id)).await;
        let operator = tokio::spawn({
            let (store, key) = (h.store.clone(), key(&id));
            async move { store.operate(&inbox(), &key, &handler("h"), Operation::Discard).await }
        });
        let claimed = h.claim("h", 10).await;
        match (operator.await.expect("no panic"), &claimed[..]) {
            (Ok(view), []) => assert_eq!(view.status, Status::Discarded),
            (Err(error), [claimed]) => {
                assert_eq!(error.kind(), ErrorKind::Refused);
                assert_eq!(h.settle(&claimed.claim, Outcome::Done).await, Settled::Applied);
            }
            (operated, claimed) => panic!("no single winner: {operated:?}, {claimed:?}"),
        }
    }
}

// FAULTS J1
pub async fn many_replays_make_one_generation<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    let mut operators = JoinSet::new();
    for _ in 0..16 {
        let store = h.store.clone();
        operators.spawn(async move {
            store.operate(&inbox(), &key("1"), &handler("h"), Operation::Replay).await.is_ok()
        });
    }
    assert_eq!(operators.join_all().await.into_iter().filter(|replayed| *replayed).count(), 1);
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

// FAULTS H3
pub async fn a_sweep_and_an_accept_of_the_key_agree<S: InspectTier>(h: &Harness<S>) {
    for round in 0..30 {
        let id = round.to_string();
        h.completed(&id).await;
        h.advance(RETENTION);
        let sweeper = tokio::spawn({
            let store = h.store.clone();
            async move { store.sweep(&SweepParams::new(inbox(), RETENTION, 100)).await.expect("sweep").messages }
        });
        let accepted = h.accept(offer(&id)).await;
        assert_eq!(sweeper.await.expect("no panic"), 1);
        match accepted {
            Accepted::First(_) => h.settle_all(&id).await,
            Accepted::Duplicate(_) => {
                assert!(h.show(&id).await.is_none(), "it was forgotten after the duplicate");
            }
            other => panic!("unexpected {other:?}"),
        }
        h.advance(RETENTION);
        h.sweep(RETENTION).await;
    }
}

// FAULTS H4
pub async fn two_sweepers_remove_each_message_once<S: InspectTier>(h: &Harness<S>) {
    let batch: Vec<NewMessage> = (0..300).map(|n| offer_to(n.to_string(), &[])).collect();
    h.accept_all(&batch).await;
    h.advance(RETENTION);
    let mut sweepers = JoinSet::new();
    for _ in 0..4 {
        let store = h.store.clone();
        sweepers.spawn(async move {
            let mut params = SweepParams::new(inbox(), RETENTION, 50);
            let mut removed = 0;
            loop {
                let page = store.sweep(&params).await.expect("sweep");
                removed += page.messages;
                match page.next {
                    None => return removed,
                    next => params.after = next,
                }
            }
        });
    }
    assert_eq!(sweepers.join_all().await.into_iter().sum::<usize>(), 300);
    assert_eq!(h.count().await.messages, 0);
}

impl<S: StoreTier> Harness<S> {
    /// Completes the one entry that must be pending under a key.
    async fn settle_all(&self, id: &str) {
        let claim = self.claim_one("h").await;
        let expected: Key = key(id);
        assert_eq!(claim.key, expected);
        assert_eq!(self.settle(&claim, Outcome::Done).await, Settled::Applied);
    }
}

/// Counts the started runs of a handler that never ends by itself.
struct BegunRuns(tokio::sync::Semaphore);

async fn never_ends<S: StoreTier>(_: Message, cx: &mut Context<S>) -> Result<(), BoxError> {
    cx.data::<Arc<BegunRuns>>()?.0.add_permits(1);
    std::future::pending().await
}

pub async fn a_dropped_inbox_gives_back_what_it_runs<S: InspectTier>(h: &Harness<S>) {
    let begun = Arc::new(BegunRuns(tokio::sync::Semaphore::new(0)));
    let inbox = Inbox::builder("orders", h.store.clone()).data(Arc::clone(&begun)).clock(h.clock.shared());
    let inbox = inbox.on("order.placed", oncebox::handler("h", never_ends::<S>)).build().expect("an inbox");
    let ids: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    for id in &ids {
        inbox.accept(message(id)).await.expect("accept");
    }
    for _ in 0..2 {
        let running = inbox.start();
        begun.0.acquire_many(20).await.expect("it is never closed").forget();
        drop(running);
        for id in &ids {
            // The clock stands still: only the drop releases it.
            while h.status(id).await == Status::Running {
                tokio::task::yield_now().await;
            }
            let back = h.entry(id, "h").await;
            assert_eq!(
                (back.status, back.attempts, back.suspicion),
                (Status::Pending, 0, Suspicion::NONE),
                "{id}"
            );
        }
    }
}
