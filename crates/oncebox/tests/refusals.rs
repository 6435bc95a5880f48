//! Settlements that the store refuses, whatever the error: each is tried again as long as its lease can be held.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::{BatchContext, BoxError, ErrorKind, Message, batch_handler};
use oncebox_testkit::{StoreFault, StoreVerb};
use parking_lot::Mutex;
use support::{FaultyMemory, SECOND, Testbed, in_time, quiet};

const REFUSALS: [ErrorKind; 3] = [ErrorKind::Corrupt, ErrorKind::InvalidConfig, ErrorKind::InvalidMessage];

fn one_handler() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

// FAULTS E5: a handler that has answered does not run again, however long the store refuses its settlement.
#[tokio::test]
async fn a_settlement_that_is_refused_is_tried_as_long_as_its_lease_is_held() {
    for kind in REFUSALS {
        let setup = one_handler();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        let refused = StoreFault::ErrBefore(kind);
        setup.store().faults().script(StoreVerb::Settle, [Some(refused)]);
        setup.script.go(1);
        quiet().await;
        setup.accept("other", "ok").await;
        quiet().await;
        assert_eq!(setup.status("other", "h").await, Status::Completed, "{kind:?}: it does not wait");
        assert_eq!(running.in_flight(), 1, "{kind:?}");
        setup.store().faults().always(StoreVerb::Settle, refused);
        setup.pass(Duration::from_mins(6)).await;
        assert_eq!((setup.status("1", "h").await, running.in_flight()), (Status::Running, 1), "{kind:?}");
        setup.store().faults().clear();
        setup.pass(6 * SECOND).await;
        let done = setup.entry("1", "h").await;
        assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 0), "{kind:?}");
        assert_eq!((setup.script.log().len(), running.in_flight()), (2, 0), "{kind:?}: it ran once");
    }
}

// When its lease cannot be held either, it is let go, so that it can be rescued.
#[tokio::test]
async fn a_settlement_without_a_lease_is_let_go() {
    for kind in REFUSALS {
        let setup = one_handler();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        setup.store().faults().always(StoreVerb::Settle, StoreFault::ErrBefore(kind));
        setup.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(kind));
        setup.script.go(1);
        setup.pass(Duration::from_mins(1)).await;
        assert_eq!(running.in_flight(), 0, "{kind:?}");
        setup.store().faults().clear();
        setup.script.says("h", "1", "ok");
        setup.pass(Duration::from_mins(2)).await;
        let done = setup.entry("1", "h").await;
        assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 1), "{kind:?}");
    }
}

async fn counted(messages: Vec<Message>, cx: &mut BatchContext<FaultyMemory>) -> Result<(), BoxError> {
    *cx.data::<Arc<Mutex<usize>>>()?.lock() += messages.len();
    Ok(())
}

/// A batch handler that counts the messages it gets, and its inbox with three of them.
async fn three_in_a_batch() -> (Testbed, Arc<Mutex<usize>>) {
    let handled = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&handled);
    let setup =
        Testbed::new(move |inbox, _| inbox.data(counter).on("t", batch_handler("h", counted).max_batch(10)));
    for id in ["1", "2", "3"] {
        setup.accept(id, "").await;
    }
    (setup, handled)
}

// FAULTS D4: a settlement that cannot be stored drops no other one of its batch, and is tried again for the time of a lease.
#[tokio::test]
async fn a_refused_settlement_of_a_driven_batch_is_alone_with_it() {
    for kind in REFUSALS {
        let (setup, handled) = three_in_a_batch().await;
        let refused = Some(StoreFault::ErrBefore(kind));
        setup.store().faults().script(StoreVerb::Settle, [refused, None, refused, None, refused]);
        let inbox = setup.inbox.clone();
        let drained = tokio::spawn(async move { inbox.drain().await });
        quiet().await;
        assert_eq!(
            (setup.count(Status::Completed).await, setup.count(Status::Running).await),
            (2, 1),
            "{kind:?}"
        );
        setup.pass(10 * SECOND).await;
        assert_eq!(in_time(drained).await.unwrap().unwrap(), 3, "{kind:?}");
        assert_eq!((setup.count(Status::Completed).await, *handled.lock()), (3, 3), "{kind:?}");
    }
}

// The call ends in any case, and says why. The others of the batch are settled.
#[tokio::test]
async fn a_driven_settlement_that_is_always_refused_is_an_error_after_a_lease() {
    let (setup, handled) = three_in_a_batch().await;
    setup.store().faults().always(StoreVerb::Settle, StoreFault::ErrBefore(ErrorKind::Corrupt));
    let inbox = setup.inbox.clone();
    let drained = tokio::spawn(async move { inbox.drain().await });
    setup.pass(25 * SECOND).await;
    assert!(!drained.is_finished(), "it holds the leases and tries again");
    setup.pass(20 * SECOND).await;
    assert_eq!(in_time(drained).await.unwrap().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!((setup.count(Status::Running).await, *handled.lock()), (3, 3));
}
