//! Operations on many entries.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::time::Duration;

use oncebox::operate::{Backfill, BulkOperation, OperationReport, OperationState};
use oncebox::state::{ErrorText, Operation, Outcome, Status};
use oncebox::store::{
    Admin, AuditFilter, ClaimParams, ClaimQuota, EntryFilter, Inspect, NewMessage, OperationView, Route,
    Store,
};
use oncebox::{ErrorKind, HandlerKey, InboxName, KeyStrategy, Memory, Message, Policy};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};

const SECOND: Duration = Duration::from_secs(1);

fn inbox() -> InboxName {
    InboxName::new("orders").unwrap()
}

fn route() -> Route {
    Route::new(HandlerKey::new("h").unwrap())
}

/// Accepts messages, and poisons each with an error.
async fn poisoned<S: Store>(store: &S, ids: std::ops::Range<usize>, error: &str) {
    let offer = |id: usize| {
        let message = Message::new(id.to_string(), "order.placed", "{}");
        let key = KeyStrategy::MessageId.key(&inbox(), &message).unwrap();
        NewMessage::new(inbox(), key, message.into(), [route()].into())
    };
    let batch: Vec<NewMessage> = ids.map(offer).collect();
    store.accept(&batch).await.unwrap();
    work(store, || Outcome::Reject { error: ErrorText::new(error) }).await;
}

/// Settles everything that is due; returns how much that was.
async fn work<S: Store>(store: &S, outcome: impl Fn() -> Outcome) -> usize {
    let want = ClaimQuota { route: route(), limit: 10_000 };
    let claimed = store.claim(&ClaimParams::new(inbox(), vec![want], SECOND)).await.unwrap();
    let settle = |one: &oncebox::store::Claimed| one.claim.settle(&Policy::default(), outcome());
    store.settle(&claimed.iter().map(settle).collect::<Vec<_>>()).await.unwrap();
    claimed.len()
}

fn filter(error: &str) -> EntryFilter {
    let mut filter = EntryFilter::new(inbox(), Status::Poisoned);
    filter.error_contains = Some(error.into());
    filter
}

fn retry(error: &str) -> BulkOperation {
    BulkOperation::new(Operation::Retry, filter(error)).unwrap().by("ada", "the depot is back")
}

/// Runs an operation to its end, with a worker that comes once in every step; returns what it found each time, too.
async fn run<S: Admin + Clone>(
    bulk: &BulkOperation,
    store: &S,
    clock: &TestClock,
    outcome: impl Fn() -> Outcome,
) -> (oncebox::Result<OperationReport>, Vec<usize>) {
    let running = tokio::spawn({
        let (bulk, store, clock) = (bulk.clone(), store.clone(), clock.shared());
        async move { bulk.run(&store, &clock).await }
    });
    let mut found = Vec::new();
    tokio::pin!(running);
    loop {
        tokio::select! {
            biased;
            report = &mut running => return (report.unwrap(), found),
            () = clock.wait_for_sleepers(1) => {
                found.push(work(store, &outcome).await);
                clock.advance(SECOND);
            }
        }
    }
}

async fn parts<S: Admin>(store: &S, bulk: &BulkOperation) -> Vec<OperationView> {
    let mut filter = AuditFilter::new(inbox());
    (filter.parent, filter.limit) = (Some(bulk.id), 10_000);
    store.audit(&filter).await.unwrap().operations
}

#[tokio::test]
async fn what_the_filter_takes_is_done_slowly_at_first() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    poisoned(&store, 0..30, "connection refused").await;
    poisoned(&store, 30..35, "no such order").await;
    let bulk = retry("connection");
    let preview = bulk.preview(&store).await.unwrap();
    assert_eq!((preview.count, preview.more, preview.first.len()), (30, false, 10));
    assert_eq!(
        store.count(&inbox(), None).await.unwrap().with_status(Status::Poisoned),
        35,
        "nothing was done"
    );
    let (report, found) = run(&bulk, &store, &clock, || Outcome::Done).await;
    let report = report.unwrap();
    let counts = (report.done, report.refused, report.failed);
    assert_eq!((report.state, counts), (OperationState::Finished, (30, 0, 0)));
    assert_eq!(found, [1, 2, 4, 8], "each step twice as many as the one before");
    assert_eq!(work(&store, || Outcome::Done).await, 15);
    let counts = store.count(&inbox(), None).await.unwrap();
    assert_eq!((counts.with_status(Status::Poisoned), counts.with_status(Status::Completed)), (5, 30));
    let parts = parts(&store, &bulk).await;
    assert_eq!(parts.len(), 30);
    assert!(parts.iter().all(|part| &*part.actor == "ada" && &*part.verb == "retry"));
    assert_eq!(bulk.report(&store).await.unwrap().unwrap(), report);
    assert_eq!(bulk.run(&store, &clock.shared()).await.unwrap(), report, "the same again is done once");
    assert!(retry("x").report(&store).await.unwrap().is_none());
}

// FAULTS J1
#[tokio::test]
async fn everything_is_never_meant_by_accident() {
    let everything = EntryFilter::new(inbox(), Status::Poisoned);
    let refused = BulkOperation::new(Operation::Discard, everything.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let store = Memory::new();
    poisoned(&store, 0..3, "x").await;
    let clock = TestClock::new();
    let bulk = BulkOperation::on_everything(Operation::Discard, everything).unwrap();
    let (report, _) = run(&bulk, &store, &clock, || Outcome::Done).await;
    assert_eq!(report.unwrap().done, 3);
}

// FAULTS J1: it would go through all that was ever completed, and refuse each.
#[test]
fn what_is_never_allowed_is_not_begun() {
    for (operation, status, good) in [
        (Operation::Retry, Status::Completed, "poisoned"),
        (Operation::Discard, Status::Completed, "pending or poisoned"),
        (Operation::Discard, Status::Running, "pending or poisoned"),
        (Operation::Replay, Status::Poisoned, "completed or discarded"),
        (Operation::Unblock, Status::Discarded, "poisoned"),
    ] {
        let mut both = filter("x");
        both.statuses.push(status);
        for make in [BulkOperation::new, BulkOperation::on_everything] {
            let made = make(operation, both.clone());
            let refused = made.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidConfig, "{refused}");
            let told = refused.what().contains(good) && refused.what().contains(status.as_str());
            assert!(told, "{refused}");
        }
    }
    let mut good = filter("x");
    good.statuses = vec![Status::Pending, Status::Poisoned];
    assert!(BulkOperation::new(Operation::Discard, good).is_ok());
}

// An operator who watches a long operation asks every second: its record has the progress.
#[tokio::test]
async fn how_far_it_has_come_is_told_by_its_record_alone() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    poisoned(&store, 0..1_500, "x").await;
    let mut bulk = retry("x");
    (bulk.limit, bulk.per_second) = (2_000, 1_000);
    let (report, _) = run(&bulk, &store, &clock, || Outcome::Done).await;
    let report = report.unwrap();
    assert_eq!((report.state, report.done), (OperationState::Finished, 1_500));
    let before = store.faults().calls(StoreVerb::Audit);
    assert_eq!(bulk.report(&store).await.unwrap().unwrap(), report);
    assert_eq!(store.faults().calls(StoreVerb::Audit), before + 1, "one look");
    let mut one = AuditFilter::new(inbox());
    one.id = Some(bulk.id);
    let record = store.audit(&one).await.unwrap().operations.remove(0);
    assert_eq!(OperationReport::of(&record).unwrap().unwrap(), report);
    assert_eq!(OperationReport::of(&parts(&store, &bulk).await[0]).unwrap(), None, "it is done at once");
}

#[tokio::test]
async fn no_more_is_done_than_was_allowed() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    poisoned(&store, 0..20, "x").await;
    let mut bulk = retry("x");
    bulk.limit = 7;
    let preview = bulk.preview(&store).await.unwrap();
    assert_eq!((preview.count, preview.more), (7, true));
    let (report, _) = run(&bulk, &store, &clock, || Outcome::Done).await;
    let report = report.unwrap();
    assert_eq!((report.state, report.done), (OperationState::Capped, 7));
    assert_eq!(parts(&store, &bulk).await.len(), 7);
}

// FAULTS J1: what fails again is not tried for ever.
#[tokio::test]
async fn it_stops_when_what_it_does_fails_again() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    poisoned(&store, 0..100, "x").await;
    let mut bulk = retry("x");
    bulk.failures = 5;
    let reject = || Outcome::Reject { error: ErrorText::new("x again") };
    let (report, _) = run(&bulk, &store, &clock, reject).await;
    let report = report.unwrap();
    assert_eq!(report.state, OperationState::Stopped);
    assert!(report.failed > 5 && report.done < 50, "{report:?}");
    let (again, _) = run(&bulk, &store, &clock, reject).await;
    assert_eq!(again.unwrap(), report, "it stays stopped");
    bulk.go_on = true;
    let (on, _) = run(&bulk, &store, &clock, || Outcome::Done).await;
    let on = on.unwrap();
    assert_eq!((on.state, on.done), (OperationState::Finished, 100));
    assert_eq!(parts(&store, &bulk).await.len(), 100, "each once, those that failed again too");
}

/// Interrupts an operation where it hurts: an entry is done, and how far it has come is not noted. Then opens the store
/// anew and carries on.
async fn interrupted<S: Admin + Clone>(clock: &TestClock, store: S, reopen: impl AsyncFnOnce(S) -> S) {
    poisoned(&store, 0..40, "x").await;
    let bulk = retry("x");
    let faulty = FaultyStore::new(store.clone());
    faulty
        .faults()
        .script(StoreVerb::Progress, [None, None, None, Some(StoreFault::ErrBefore(ErrorKind::Unavailable))]);
    let reject = || Outcome::Reject { error: ErrorText::new("x again") };
    let (report, found) = run(&bulk, &faulty, clock, reject).await;
    assert_eq!(report.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(found, [1, 2]);
    // Four more were done; they fail again, so the filter takes them once more.
    assert_eq!(work(&store, reject).await, 4);
    drop(faulty);
    let store = reopen(store).await;
    let (report, _) = run(&bulk, &store, clock, || Outcome::Done).await;
    let report = report.unwrap();
    assert_eq!((report.state, report.done), (OperationState::Finished, 40));
    let mut keys: Vec<_> = parts(&store, &bulk).await.into_iter().map(|part| part.key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 40, "no entry twice");
    work(&store, || Outcome::Done).await;
    let counts = store.count(&inbox(), None).await.unwrap();
    assert_eq!((counts.with_status(Status::Poisoned), counts.with_status(Status::Completed)), (7, 33));
}

#[tokio::test]
async fn an_interrupted_one_is_carried_on() {
    let clock = TestClock::new();
    interrupted(&clock, Memory::with_clock(clock.shared()), async |store| store).await;
}

#[tokio::test]
async fn an_interrupted_one_is_carried_on_by_another_process() {
    let clock = TestClock::new();
    let dir = tempfile::tempdir().unwrap();
    let open =
        || oncebox_sqlite::Sqlite::options(dir.path().join("inbox.db")).clock(clock.shared()).open().unwrap();
    interrupted(&clock, open(), async |store| {
        drop(store);
        open()
    })
    .await;
}

#[tokio::test]
async fn two_who_carry_it_on_do_not_do_it_twice() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    poisoned(&store, 0..20, "x").await;
    let bulk = retry("x");
    let other = tokio::spawn({
        let (bulk, store, clock) = (bulk.clone(), store.clone(), clock.shared());
        async move { bulk.run(&store, &clock).await }
    });
    let (one, _) = run(&bulk, &store, &clock, || Outcome::Done).await;
    let two = other.await.unwrap();
    let refused = [&one, &two].into_iter().filter_map(|ended| ended.as_ref().err()).collect::<Vec<_>>();
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Refused), "{refused:?}");
    assert!(refused.len() <= 1);
    assert_eq!(parts(&store, &bulk).await.len(), 20);
    let other = BulkOperation::new(Operation::Discard, filter("x")).unwrap().id(bulk.id);
    assert_eq!(other.run(&store, &clock.shared()).await.unwrap_err().kind(), ErrorKind::OperationReused);
}

fn backfill(handler: &str) -> Backfill {
    let route = Route::new(HandlerKey::new(handler).unwrap());
    Backfill::new(inbox(), route, vec!["order.*".into()]).by("ada", "receipts are new")
}

// FAULTS I2
#[tokio::test]
async fn a_backfill_is_recorded_capped_and_carried_on() {
    let store = Memory::new();
    poisoned(&store, 0..2_500, "x").await;
    let mut capped = backfill("receipt");
    capped.limit = 1_500;
    assert!(capped.report(&store).await.unwrap().is_none());
    let mut told = Vec::new();
    let report = capped.run_with_progress(&store, |report| told.push(report.done)).await.unwrap();
    assert_eq!((report.state, report.done), (OperationState::Capped, 1_500));
    assert_eq!(told, [1_000, 1_500, 1_500]);
    assert_eq!(capped.run(&store).await.unwrap(), report, "the same again is done once");
    assert_eq!(capped.report(&store).await.unwrap().unwrap(), report);
    let other = backfill("another").id(capped.id);
    assert_eq!(other.run(&store).await.unwrap_err().kind(), ErrorKind::OperationReused);
    let rest = backfill("receipt").run(&store).await.unwrap();
    assert_eq!((rest.state, rest.done), (OperationState::Finished, 1_000), "existing entries are skipped");
    let counts = store.count(&inbox(), None).await.unwrap();
    assert_eq!(counts.with_status(Status::Pending), 2_500);
    let records = store.audit(&AuditFilter::new(inbox())).await.unwrap().operations;
    assert_eq!(records.iter().filter(|record| &*record.verb == "backfill").count(), 2);
    assert!(records.iter().all(|record| &*record.actor == "ada"));
}

// FAULTS I2: entries are added, and how far it has come is not noted.
#[tokio::test]
async fn an_interrupted_backfill_adds_nothing_twice() {
    let store = Memory::new();
    poisoned(&store, 0..2_500, "x").await;
    let faulty = FaultyStore::new(store.clone());
    faulty.faults().script(StoreVerb::Progress, [None, Some(StoreFault::ErrBefore(ErrorKind::Unavailable))]);
    let backfill = backfill("receipt");
    assert_eq!(backfill.run(&faulty).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let noted = backfill.report(&store).await.unwrap().unwrap();
    assert_eq!((noted.state, noted.done), (OperationState::Running, 1_000));
    let report = backfill.run(&store).await.unwrap();
    assert_eq!(report.state, OperationState::Finished);
    assert_eq!(report.done, 1_500, "what was added and not noted is not counted again");
    assert_eq!(store.count(&inbox(), None).await.unwrap().with_status(Status::Pending), 2_500);
}
