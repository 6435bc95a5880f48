//! A process that always has the next transaction ready does not keep others from writing.

mod support;

use oncebox::store::Store as _;
use oncebox_sqlite::Sqlite;
use support::{TestFile, offer};
use tokio::sync::watch;

/// Messages that the busy store accepts between two calls of the other.
const MEANWHILE: u64 = 200;

// FAULTS E13
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_store_gets_a_turn_while_another_is_busy() {
    let file = TestFile::new();
    let (busy, other) = (file.open(), file.open());
    let stored = watch::Sender::new(0_u64);
    let callers: Vec<_> =
        (0..64).map(|caller| tokio::spawn(keep_busy(busy.clone(), caller, stored.clone()))).collect();
    let mut seen = stored.subscribe();
    for number in 0..20 {
        let more = *seen.borrow() + MEANWHILE;
        seen.wait_for(|stored| *stored >= more).await.expect("it is busy");
        // Long before it fails after a wait of five seconds for the lock.
        other.accept(&[offer(&format!("other-{number}"))]).await.expect("a turn");
    }
    for caller in callers {
        caller.abort();
        let _ = caller.await;
    }
}

async fn keep_busy(store: Sqlite, caller: u64, stored: watch::Sender<u64>) {
    for number in 0_u64.. {
        store.accept(&[offer(&format!("{caller}-{number}"))]).await.expect("accept");
        stored.send_modify(|count| *count += 1);
    }
}
