//! Cancelled calls: at any point they hold no lock, leave nothing half done, and lease no entry without a holder.

mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use oncebox::state::Status;
use oncebox::store::{Accepted, SettleIn as _, Settled, Store as _, Transactional as _};
use oncebox_sqlite::Sqlite;
use support::{TestFile, accept, claim, claim_one, claim_params, first, status};

/// Opens a store, and creates a business table.
fn shop() -> (TestFile, Sqlite) {
    let file = TestFile::new();
    let store = file.open();
    file.connect().execute_batch("CREATE TABLE shipment (id TEXT)").expect("a table");
    (file, store)
}

/// Polls a future `polls` times, then drops it.
async fn cut<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

// FAULTS C6
#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_begin_holds_no_lock() {
    let (file, store) = shop();
    for round in 0..60 {
        if round % 2 == 0 {
            // Cancelled while it waits behind another one.
            let holder = store.begin().await.expect("begin");
            assert!(cut(store.begin(), 1).await.is_none());
            drop(holder);
        } else {
            drop(cut(store.begin(), round % 5).await);
        }
        let tx = store.begin().await.expect("the lock is free");
        tx.execute("INSERT INTO shipment VALUES (1)", []).expect("a business write");
        store.commit(tx).await.expect("commit");
        first(&store, &round.to_string()).await;
    }
    assert_eq!(file.count("shipment"), 60);
}

// FAULTS C6
#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_commit_leaves_all_or_nothing() {
    let (file, store) = shop();
    let mut committed = 0;
    for round in 0..60 {
        let id = round.to_string();
        first(&store, &id).await;
        let claimed = claim_one(&store).await;
        let mut tx = store.begin().await.expect("begin");
        tx.execute("INSERT INTO shipment VALUES (?1)", [&id]).expect("a business write");
        assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("complete"), Settled::Applied);
        cut(store.commit(tx), round % 3).await;
        // The next transaction starts after that one has ended.
        drop(store.begin().await.expect("the lock is free"));
        let stored = file.count(&format!("shipment WHERE id = '{id}'")) == 1;
        assert_eq!(status(&store, &id).await == Some(Status::Completed), stored, "round {round}");
        assert_eq!(stored, round % 3 > 0, "a commit that was begun goes on, one that was not is rolled back");
        committed += usize::from(stored);
    }
    assert_eq!(file.count("shipment"), committed);
    file.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_writer_call_leaves_all_or_nothing() {
    let (file, store) = shop();
    for round in 0..60 {
        let id = round.to_string();
        let answer = cut(accept(&store, &id), round % 3).await;
        // The writer runs calls in the order in which they were sent.
        let again = accept(&store, &id).await.expect("accept");
        if answer.is_some() {
            assert!(matches!(again, Accepted::Duplicate(_)), "what was answered is stored");
        }
        assert!(matches!(again, Accepted::First(_) | Accepted::Duplicate(_)), "{again:?}");
    }
    assert_eq!(claim(&store, 100).await.len(), 60);
    file.check();
}

/// Without this, a worker that stops during its claim would leave entries under a lease without a holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_given_up_in_time_leases_nothing() {
    let (file, store) = shop();
    for id in ["1", "2"] {
        first(&store, id).await;
    }
    let tx = store.begin().await.expect("begin");
    let params = claim_params(10);
    assert!(cut(store.claim(&params), 1).await.is_none(), "it waits for the transaction");
    store.commit(tx).await.expect("commit");
    assert_eq!(claim(&store, 10).await.len(), 2);
    file.check();
}

/// A cancelled settlement is stored nevertheless, because its work is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_that_was_given_up_is_done() {
    let (file, store) = shop();
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let tx = store.begin().await.expect("begin");
    let settlement = [oncebox::state::Settlement::done(&claimed.claim)];
    assert!(cut(store.settle(&settlement), 1).await.is_none(), "it waits for the transaction");
    store.commit(tx).await.expect("commit");
    assert_eq!(status(&store, "1").await, Some(Status::Completed));
    file.check();
}
