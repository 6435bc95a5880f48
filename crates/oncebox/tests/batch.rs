//! Handlers that take many messages in one call.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{PoisonReason, Status};
use oncebox::{
    BatchContext, BoxError, Breaker, BreakerState, Config, Discard, ErrorKind, Message, Registration, Reject,
    Retry, RetryAfter, Snooze, batch_handler,
};
use oncebox_testkit::{StoreFault, StoreVerb};
use parking_lot::Mutex;
use support::{FaultyMemory, SECOND, Testbed, in_time, message, quiet};
use tokio::sync::Semaphore;

/// Arguments of the handler calls, and permits that let them continue.
#[derive(Clone)]
struct BatchCalls {
    log: Arc<Mutex<Vec<Vec<String>>>>,
    go: Arc<Semaphore>,
}

impl Default for BatchCalls {
    fn default() -> Self {
        Self { log: Arc::default(), go: Arc::new(Semaphore::new(0)) }
    }
}

impl BatchCalls {
    fn log(&self, cx: &BatchContext<FaultyMemory>) {
        let id = |item: &oncebox::BatchItem| {
            format!("{} {}", String::from_utf8_lossy(item.message().id()), item.attempt())
        };
        self.log.lock().push(cx.items().iter().map(id).collect());
    }

    fn sizes(&self) -> Vec<usize> {
        self.log.lock().iter().map(Vec::len).collect()
    }
}

fn play(message: &Message) -> String {
    String::from_utf8_lossy(message.payload()).into_owned()
}

/// Fails as a whole if one of its messages says so.
async fn together(messages: Vec<Message>, cx: &mut BatchContext<FaultyMemory>) -> Result<(), BoxError> {
    let calls = cx.data::<BatchCalls>()?.clone();
    calls.log(cx);
    for message in &messages {
        match play(message).as_str() {
            "tx" => drop(cx.tx().await?),
            "wait" => calls.go.acquire().await?.forget(),
            "fail" => return Err("one of them".into()),
            "panic" => panic!("one of them"),
            "reject" => return Err(Reject("bad".into()).into()),
            "discard" => return Err(Discard("old".into()).into()),
            "snooze" => return Err(Snooze(100 * SECOND).into()),
            _ => {}
        }
    }
    Ok(())
}

/// Answers for each.
async fn each(
    messages: Vec<Message>,
    cx: &mut BatchContext<FaultyMemory>,
) -> Result<Vec<Result<(), BoxError>>, BoxError> {
    let calls = cx.data::<BatchCalls>()?.clone();
    calls.log(cx);
    if messages.iter().any(|message| play(message).contains("tx")) {
        cx.tx().await?;
    }
    let answer = |message: &Message| match play(message).trim_start_matches("tx ") {
        "fail" => Err("this one".into()),
        "reject" => Err(Reject("bad".into()).into()),
        "discard" => Err(Discard("old".into()).into()),
        "snooze" => Err(Snooze(100 * SECOND).into()),
        "after" => Err(RetryAfter(100 * SECOND, "later".into()).into()),
        _ => Ok(()),
    };
    let mut answers: Vec<Result<(), BoxError>> = messages.iter().map(answer).collect();
    if messages.iter().any(|message| play(message) == "forget") {
        answers.pop();
    }
    Ok(answers)
}

fn hourly(registration: Registration<FaultyMemory>) -> Registration<FaultyMemory> {
    registration.retry(Retry::fixed(3, Duration::from_hours(1)))
}

/// With messages `0`, `1` and so on, one for each play.
async fn setup(registration: Registration<FaultyMemory>, plays: &[&str]) -> (Testbed, BatchCalls) {
    let calls = BatchCalls::default();
    let setup = Testbed::new(|inbox, _| inbox.data(calls.clone()).on("t", hourly(registration)));
    for (n, play) in plays.iter().enumerate() {
        setup.accept(&n.to_string(), play).await;
    }
    (setup, calls)
}

/// Status and attempts of each message.
async fn fates(setup: &Testbed, count: usize) -> Vec<(Status, u32)> {
    let mut fates = Vec::new();
    for n in 0..count {
        let entry = setup.entry(&n.to_string(), "h").await;
        assert_eq!(entry.suspicion.stored(), 0);
        fates.push((entry.status, entry.attempts));
    }
    fates
}

const DONE: (Status, u32) = (Status::Completed, 0);

/// Runs what is due, in the background or by hand.
async fn run(setup: &Testbed, by_hand: bool) {
    if by_hand {
        setup.inbox.drain().await.expect("the store answers");
    } else {
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        assert_eq!(running.in_flight(), 0);
    }
}

#[tokio::test]
async fn what_one_claim_brought_goes_in_calls_of_at_most_so_many() {
    for by_hand in [false, true] {
        for (max, sizes) in [(64, vec![10]), (4, vec![4, 4, 2]), (1, vec![1; 10])] {
            let (setup, calls) = setup(batch_handler("h", together).max_batch(max), &["ok"; 10]).await;
            run(&setup, by_hand).await;
            assert_eq!(fates(&setup, 10).await, [DONE; 10]);
            assert_eq!(calls.sizes(), sizes, "by hand: {by_hand}");
            let ids: Vec<String> = calls.log.lock().concat();
            assert_eq!(
                ids,
                (0..10).map(|n| format!("{n} 1")).collect::<Vec<_>>(),
                "in the order of acceptance"
            );
            assert_eq!(setup.store().faults().calls(StoreVerb::Begin), 0, "no handler began a transaction");
        }
    }
}

// Nothing waits for a batch to fill up.
#[tokio::test]
async fn one_message_is_a_batch_too() {
    let (setup, calls) = setup(batch_handler("h", together), &[]).await;
    let running = setup.inbox.start();
    for n in 0..3 {
        setup.accept(&n.to_string(), "ok").await;
        in_time(running.idle()).await;
    }
    assert_eq!((fates(&setup, 3).await, calls.sizes()), (vec![DONE; 3], vec![1; 3]));
}

// FAULTS C12
#[tokio::test]
async fn each_message_is_settled_by_its_own_answer() {
    for by_hand in [false, true] {
        for tx in ["", "tx "] {
            let plays = ["ok", "fail", "reject", "discard", "snooze", "after", "ok"]
                .map(|play| format!("{tx}{play}"));
            let plays: Vec<&str> = plays.iter().map(String::as_str).collect();
            let (setup, calls) = setup(batch_handler("h", each), &plays).await;
            run(&setup, by_hand).await;
            let pending = |attempts| (Status::Pending, attempts);
            let expected = [
                DONE,
                pending(1),
                (Status::Poisoned, 0),
                (Status::Discarded, 0),
                pending(0),
                pending(1),
                DONE,
            ];
            assert_eq!(fates(&setup, 7).await, expected);
            assert_eq!(calls.sizes(), [7], "no handler was called twice");
            assert_eq!(setup.entry("2", "h").await.reason, Some(PoisonReason::Rejected));
            let commits = usize::from(!tx.is_empty());
            assert_eq!(setup.store().faults().calls(StoreVerb::Commit), commits as u64);
        }
    }
}

// FAULTS C12: the first failure may have ended the transaction, as in PostgreSQL, where nothing works any more then.
#[tokio::test]
async fn where_nothing_of_a_transaction_succeeded_each_is_tried_alone() {
    async fn aborted(
        messages: Vec<Message>,
        cx: &mut BatchContext<FaultyMemory>,
    ) -> Result<Vec<Result<(), BoxError>>, BoxError> {
        cx.data::<BatchCalls>()?.clone().log(cx);
        cx.tx().await?;
        let mut works = true;
        let answers = messages.iter().map(|message| {
            works &= play(message) != "fail";
            if works { Ok(()) } else { Err("the transaction is aborted".into()) }
        });
        Ok(answers.collect())
    }
    for by_hand in [false, true] {
        let (setup, calls) = setup(batch_handler("h", aborted), &["fail", "ok", "ok"]).await;
        run(&setup, by_hand).await;
        assert_eq!(fates(&setup, 3).await, [(Status::Pending, 1), DONE, DONE]);
        assert_eq!(calls.sizes(), [3, 1, 1, 1]);
    }
    // What is not a failure is believed.
    let (setup, calls) = setup(batch_handler("h", each), &["tx snooze", "tx discard", "tx fail"]).await;
    run(&setup, true).await;
    assert_eq!(fates(&setup, 3).await, [(Status::Pending, 0), (Status::Discarded, 0), (Status::Pending, 1)]);
    assert_eq!(calls.sizes(), [3]);
}

// FAULTS C12: who answers for another number of messages is believed for none.
#[tokio::test]
async fn a_missing_answer_is_no_answer() {
    let (setup, calls) = setup(batch_handler("h", each), &["tx ok", "forget", "tx ok"]).await;
    run(&setup, false).await;
    assert_eq!(fates(&setup, 3).await, [DONE, (Status::Pending, 1), DONE]);
    assert_eq!(calls.sizes(), [3, 1, 1, 1]);
    let error = setup.entry("1", "h").await.error.unwrap();
    assert!(error.as_str().contains("0 results for 1 messages"), "{error}");
}

// Only the bad one pays.
#[tokio::test]
async fn a_batch_that_fails_is_tried_one_by_one() {
    for by_hand in [false, true] {
        for (bad, fate) in [
            ("fail", (Status::Pending, 1)),
            ("panic", (Status::Pending, 1)),
            ("reject", (Status::Poisoned, 0)),
            ("discard", (Status::Discarded, 0)),
        ] {
            for good in ["ok", "tx"] {
                let (setup, calls) = setup(batch_handler("h", together), &[good, good, bad, good]).await;
                run(&setup, by_hand).await;
                assert_eq!(fates(&setup, 4).await, [DONE, DONE, fate, DONE], "{good} {bad} {by_hand}");
                assert_eq!(calls.sizes(), [4, 1, 1, 1, 1]);
            }
        }
    }
}

// A handler that snoozes the whole batch blames no message.
#[tokio::test]
async fn a_batch_that_asks_for_time_gets_it() {
    let (setup, calls) = setup(batch_handler("h", together), &["ok", "snooze", "ok"]).await;
    run(&setup, false).await;
    assert_eq!((fates(&setup, 3).await, calls.sizes()), (vec![(Status::Pending, 0); 3], vec![3]));
}

#[tokio::test]
async fn a_timeout_is_for_the_call() {
    let (setup, calls) = setup(batch_handler("h", together).timeout(5 * SECOND), &["ok", "wait", "ok"]).await;
    let running = setup.inbox.start();
    setup.pass(11 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(fates(&setup, 3).await, [DONE, (Status::Pending, 1), DONE]);
    assert_eq!(calls.sizes(), [3, 1, 1, 1]);
    assert!(setup.entry("1", "h").await.error.unwrap().as_str().contains("within 5s"));
}

async fn numbers(numbers: Vec<u64>, cx: &mut BatchContext<FaultyMemory>) -> Result<(), BoxError> {
    let calls = cx.data::<BatchCalls>()?;
    assert_eq!(numbers.len(), cx.items().len());
    calls.log(cx);
    if numbers.contains(&13) { Err("unlucky".into()) } else { Ok(()) }
}

// FAULTS C13: it never gets into a call, and is settled by its own rule.
#[tokio::test]
async fn what_does_not_decode_is_taken_out_before() {
    for by_hand in [false, true] {
        let (setup, calls) = setup(batch_handler("h", numbers), &["1", "{", "13", "x", "3"]).await;
        run(&setup, by_hand).await;
        let waits = (Status::Pending, 0);
        assert_eq!(fates(&setup, 5).await, [DONE, waits, (Status::Pending, 1), waits, DONE]);
        assert_eq!(calls.log.lock()[0], ["0 1", "2 1", "4 1"]);
        assert_eq!(calls.sizes(), [3, 1, 1, 1]);
    }
    let (setup, calls) = setup(batch_handler("h", numbers), &["{", "}"]).await;
    run(&setup, false).await;
    assert_eq!((fates(&setup, 2).await, calls.sizes()), (vec![(Status::Pending, 0); 2], vec![]));
}

// One transaction, one commit, all completions in it.
#[tokio::test]
async fn a_transaction_is_for_all_of_them() {
    for by_hand in [false, true] {
        let (setup, _) = setup(batch_handler("h", together), &["tx", "tx", "ok"]).await;
        run(&setup, by_hand).await;
        assert_eq!(fates(&setup, 3).await, [DONE; 3]);
        let calls = [StoreVerb::Begin, StoreVerb::CompleteAll, StoreVerb::Commit, StoreVerb::Settle]
            .map(|verb| setup.store().faults().calls(verb));
        assert_eq!(calls, [1, 1, 1, 0]);
    }
}

// FAULTS C7, D2: no message is blamed for a transaction that breaks.
#[tokio::test]
async fn a_transaction_that_breaks_counts_no_failure() {
    for verb in [StoreVerb::Begin, StoreVerb::CompleteAll, StoreVerb::Commit] {
        for kind in [ErrorKind::Unavailable, ErrorKind::CommitUnknown] {
            let (setup, _) = setup(batch_handler("h", together), &["tx"; 3]).await;
            setup.store().faults().next(verb, StoreFault::ErrBefore(kind));
            let running = setup.inbox.start();
            setup.pass(3 * SECOND).await;
            in_time(running.idle()).await;
            assert_eq!(fates(&setup, 3).await, [DONE; 3], "{verb:?} {kind:?}");
        }
    }
    for fault in [
        StoreFault::ErrBefore(ErrorKind::Handler),
        StoreFault::ErrBefore(ErrorKind::LeaseLost),
        StoreFault::Panic,
    ] {
        let (setup, calls) = setup(batch_handler("h", together), &["tx"; 3]).await;
        setup.store().faults().next(StoreVerb::Commit, fault);
        run(&setup, false).await;
        assert_eq!((fates(&setup, 3).await, calls.sizes()), (vec![DONE; 3], vec![3, 1, 1, 1]), "{fault:?}");
    }
    let (setup, calls) = setup(batch_handler("h", together), &["tx"; 3]).await;
    setup.store().faults().next(StoreVerb::Commit, StoreFault::ErrAfter);
    let running = setup.inbox.start();
    setup.pass(Duration::from_mins(6)).await;
    assert_eq!((fates(&setup, 3).await, calls.sizes()), (vec![DONE; 3], vec![3]), "it is recognised");
    drop(running);
    let (setup, _) = setup2(&["tx"; 3]).await;
    setup.store().faults().next(StoreVerb::Commit, StoreFault::ErrBefore(ErrorKind::TransactionEnded));
    run(&setup, false).await;
    assert_eq!(fates(&setup, 3).await, [(Status::Poisoned, 0); 3], "a person has to see each");
}

async fn setup2(plays: &[&str]) -> (Testbed, BatchCalls) {
    setup(batch_handler("h", together), plays).await
}

// FAULTS B14: one of a key at a time, in order, also if it fails together with others.
#[tokio::test]
async fn order_is_kept() {
    for by_hand in [false, true] {
        let (setup, calls) = setup(batch_handler("h", together), &[]).await;
        for n in 0..5 {
            for order in ["x", "y", "z"] {
                let message = message(&format!("{order}{n}"), "tx").with_ordering_key(order.to_owned());
                setup.inbox.accept(message).await.unwrap();
            }
        }
        run(&setup, by_hand).await;
        assert_eq!(setup.count(Status::Completed).await, 15);
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for call in &*calls.log.lock() {
            let mut keys: Vec<&str> = call.iter().map(|id| &id[..1]).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), call.len(), "two of one key in {call:?}");
            for id in call {
                seen.entry(id[..1].to_owned()).or_default().push(id[1..2].to_owned());
            }
        }
        assert!(seen.values().all(|ids| *ids == ["0", "1", "2", "3", "4"]), "{seen:?}");
    }
}

// FAULTS C5
#[tokio::test]
async fn shutdown_gives_a_call_back_that_does_not_end() {
    let (setup, _) = setup(batch_handler("h", together), &["ok", "wait", "ok"]).await;
    let running = setup.inbox.start();
    quiet().await;
    assert_eq!(running.in_flight(), 3);
    let end = tokio::spawn(running.shutdown());
    setup.pass(31 * SECOND).await;
    in_time(end).await.unwrap();
    assert_eq!(fates(&setup, 3).await, [(Status::Pending, 0); 3]);
}

// FAULTS B6: leases are renewed while a call lasts, and it is stopped when they cannot be.
#[tokio::test]
async fn a_long_call_keeps_its_leases() {
    for renewed in [true, false] {
        let (setup, calls) = setup(batch_handler("h", together), &["wait", "ok", "ok"]).await;
        if !renewed {
            setup.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(ErrorKind::Unavailable));
        }
        let running = setup.inbox.start();
        setup.pass(Config::default().lease * 3).await;
        calls.go.add_permits(9);
        setup.store().faults().clear();
        setup.pass(SECOND).await;
        in_time(running.idle()).await;
        assert_eq!(fates(&setup, 3).await, [DONE; 3]);
        assert_eq!(calls.log.lock()[0].len(), 3);
        assert_eq!(calls.log.lock().len() == 1, renewed);
    }
}

// A key is the message's own, whichever batch it is in.
#[tokio::test]
async fn idempotency_keys_are_of_each_message() {
    type BatchKeys = Arc<Mutex<Vec<String>>>;
    async fn charge(messages: Vec<Message>, cx: &mut BatchContext<FaultyMemory>) -> Result<(), BoxError> {
        let keys: Vec<String> = cx.items().iter().map(|item| item.idempotency_key("charge")).collect();
        cx.data::<BatchKeys>()?.lock().extend(keys);
        if messages.len() > 1 { Err("too many".into()) } else { Ok(()) }
    }
    let keys = BatchKeys::default();
    let setup = Testbed::new(|inbox, _| inbox.data(Arc::clone(&keys)).on("t", batch_handler("h", charge)));
    for id in ["a", "b", "c"] {
        setup.accept(id, "").await;
    }
    setup.inbox.drain().await.unwrap();
    assert_eq!(setup.count(Status::Completed).await, 3);
    let keys = keys.lock().clone();
    assert_eq!(keys[..3], keys[3..], "the same alone as together");
    assert!(keys[0] != keys[1] && keys[1] != keys[2]);
}

// A breaker sees those who are tried alone; the rest is given back when it opens.
#[tokio::test]
async fn a_breaker_ends_the_trying() {
    let breaker = Breaker::new(2, 10 * SECOND);
    for by_hand in [false, true] {
        let (setup, calls) = setup(batch_handler("h", together).breaker(breaker.clone()), &["fail"; 6]).await;
        run(&setup, by_hand).await;
        assert_eq!(calls.sizes(), [6, 1, 1]);
        assert_eq!(setup.inbox.breakers()[0].1, BreakerState::Open { left: 10 * SECOND });
        let attempts: u32 = fates(&setup, 6).await.iter().map(|(_, attempts)| attempts).sum();
        assert_eq!((attempts, setup.count(Status::Pending).await), (2, 6));
    }
}
