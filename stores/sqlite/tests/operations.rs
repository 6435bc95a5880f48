//! Operator actions are audited in their own transaction; `examine` reports the health of the file.

mod support;

use oncebox::state::{ErrorText, Operation, Outcome, Status};
use oncebox::store::{AuditFilter, Examine, ExamineParams, Inspect, Severity, Store as _};
use oncebox::time::Clock as _;
use oncebox::{Policy, Result};
use oncebox_sqlite::{Sqlite, Synchronous};
use oncebox_testkit::OperatorSteps as _;
use support::{TestFile, claim_one, first, handler, inbox, key, status};

async fn codes(store: &Sqlite, file: &TestFile) -> Vec<(Severity, &'static str)> {
    let findings = store.doctor(&ExamineParams::new(inbox(), file.clock.now())).await.expect("doctor");
    findings.into_iter().map(|finding| (finding.severity, finding.code)).collect()
}

// FAULTS J1, S13: the store writes an action and its audit record together, or neither.
#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let poisoned = claimed.claim.settle(&Policy::default(), Outcome::Reject { error: ErrorText::new("no") });
    store.settle(&[poisoned]).await.expect("settle");
    file.connect()
        .execute_batch("CREATE TRIGGER full BEFORE INSERT ON oncebox_operation BEGIN SELECT RAISE(ABORT, 'no room'); END")
        .expect("a trigger");
    let retry: Result<_> = store.operate(&inbox(), &key("1"), &handler("h"), Operation::Retry).await;
    assert!(retry.is_err());
    assert!(store.pause(&inbox(), &handler("h")).await.is_err());
    assert_eq!(status(&store, "1").await, Some(Status::Poisoned));
    assert!(store.count(&inbox(), None).await.expect("count").paused.is_empty());
    file.connect().execute_batch("DROP TRIGGER full").expect("no trigger");
    store.operate(&inbox(), &key("1"), &handler("h"), Operation::Retry).await.expect("retry");
    assert_eq!(store.audit(&AuditFilter::new(inbox())).await.expect("audit").operations.len(), 1);
    assert_eq!(claim_one(&store).await.claim.key, key("1"), "it may be claimed: nothing is paused");
    file.check();
}

#[tokio::test]
async fn the_doctor_sees_what_is_missing_and_what_is_risked() {
    let file = TestFile::new();
    assert_eq!(codes(&file.open(), &file).await, [(Severity::Danger, "synchronous_normal")]);
    let store = file.options().synchronous(Synchronous::Full).open().expect("the file opens");
    assert_eq!(codes(&store, &file).await, []);
    file.connect().execute_batch("DROP INDEX oncebox_entry_order").expect("drop");
    assert_eq!(codes(&store, &file).await, [(Severity::Danger, "index")]);
    // Too many tables are missing for queries about the inbox. The report has the other findings.
    first(&store, "1").await;
    file.connect().execute_batch("DROP TABLE oncebox_poisoned").expect("drop");
    assert!(store.count(&inbox(), None).await.is_err());
    assert!(codes(&store, &file).await.contains(&(Severity::Danger, "index")));
    let late = ExamineParams::new(inbox(), file.clock.now().after(std::time::Duration::from_secs(3)));
    let findings = store.examine(&late).await.expect("examine");
    assert!(
        findings.iter().any(|finding| finding.code == "clock_skew" && finding.what.contains("3s")),
        "{findings:?}"
    );
}

#[tokio::test]
async fn the_doctor_sees_a_clock_that_went_back() {
    let file = TestFile::new();
    let options = || file.options().synchronous(Synchronous::Full);
    let behind = oncebox_testkit::TestClock::new();
    file.clock.advance(std::time::Duration::from_hours(1));
    let store = options().open().expect("the file opens");
    first(&store, "1").await;
    assert_eq!(codes(&store, &file).await, []);
    let other = options().clock(behind.shared()).open().expect("the file opens");
    let findings = other.examine(&ExamineParams::new(inbox(), behind.now())).await.expect("examine");
    assert_eq!(
        findings.iter().map(|finding| finding.code).collect::<Vec<_>>(),
        ["clock_back"],
        "{findings:?}"
    );
}

#[tokio::test]
async fn the_doctor_sees_room_that_is_not_used_and_a_log_that_is_not_folded_in() {
    let file = TestFile::new();
    let store = file.options().synchronous(Synchronous::Full).open().expect("the file opens");
    first(&store, "1").await;
    let bulky = "PRAGMA synchronous = OFF; CREATE TABLE bulky (x);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 110)
        INSERT INTO bulky SELECT zeroblob(1048576) FROM n; DROP TABLE bulky; PRAGMA wal_checkpoint(TRUNCATE)";
    file.connect().execute_batch(bulky).expect("a large table that is gone");
    assert_eq!(codes(&store, &file).await, [(Severity::Info, "free_pages")]);
    let mut log = file.path().into_os_string();
    log.push("-wal");
    // SQLite does not read invalid frames. Only the length counts here.
    let log = std::fs::OpenOptions::new().write(true).open(log).expect("the log");
    let before = log.metadata().expect("its length").len();
    log.set_len(300 << 20).expect("a long log");
    assert_eq!(codes(&store, &file).await, [(Severity::Warning, "long_log"), (Severity::Info, "free_pages")]);
    log.set_len(before).expect("as it was");
}
