//! Files that are wrong, locked, full or shared: the errors, no partial writes, and recovery after the cause is
//! removed.

mod support;

use oncebox_testkit::OperatorSteps as _;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use oncebox::state::{Operation, Settlement, Status};
use oncebox::store::{
    Accepted, EntryFilter, Inspect, Migrate as _, NewMessage, RenewParams, RescueParams, Settled, Store as _,
    SweepParams, Transactional as _, Wakeups as _,
};
use oncebox::{Error, ErrorKind};
use oncebox_sqlite::Sqlite;
use support::{
    LEASE, PAST_LEASE, RETENTION, TestFile, accept, claim, claim_one, claim_params, complete_all, first,
    handler, inbox, key, message, offer, offer_message, route, status,
};

/// Checks an error: its kind, and a text with the failure, the kept data and the advice.
#[track_caller]
fn tells(error: &Error, kind: ErrorKind, what: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(what), "{what:?} is not in {text:?}");
    assert!(text.contains(kind.kept()) && text.contains(kind.advice()), "{text}");
}

fn refused(options: oncebox_sqlite::SqliteOptions) -> Error {
    options.open().expect_err("it must not open")
}

// FAULTS I7
#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let file = TestFile::new();
    first(&file.open(), "1").await;
    file.connect().execute_batch("INSERT INTO oncebox_schema VALUES (7, 'future', 0)").expect("a newer step");
    let before = file.number("SELECT sum(rootpage) + count(*) FROM sqlite_schema");
    for options in [file.options(), file.options().migrate(false), file.options().read_only()] {
        tells(&refused(options), ErrorKind::SchemaTooNew, "schema version 7, this build knows 2");
    }
    assert_eq!(file.number("SELECT sum(rootpage) + count(*) FROM sqlite_schema"), before);
    assert_eq!(file.count("oncebox_message"), 1);
}

#[test]
fn a_schema_of_an_unpublished_build_is_refused_and_left_alone() {
    let file = TestFile::new();
    file.open();
    file.connect().execute_batch("UPDATE oncebox_schema SET version = 1").expect("an older step");
    for options in [file.options(), file.options().migrate(false), file.options().read_only()] {
        tells(&refused(options), ErrorKind::InvalidConfig, "schema version 1 of an unpublished build");
    }
    assert_eq!(file.number("SELECT version FROM oncebox_schema"), 1);
}

#[test]
fn a_missing_schema_is_refused_when_it_may_not_be_made() {
    let file = TestFile::new();
    file.connect().execute_batch("CREATE TABLE shop (id); INSERT INTO shop VALUES (7)").expect("a database");
    for options in [file.options().migrate(false), file.options().read_only()] {
        tells(&refused(options), ErrorKind::SchemaOutdated, "lacks schema version 2");
    }
    assert_eq!(file.count("sqlite_schema"), 1, "nothing was added");
    // An inbox works in a file with a shop's own tables.
    file.open();
    assert_eq!(file.number("SELECT id FROM shop"), 7);
}

#[test]
fn what_is_not_a_database_is_refused_and_left_alone() {
    let file = TestFile::new();
    let text = "not a database, but a user's letters\n".repeat(300);
    std::fs::write(file.path(), &text).expect("a file");
    tells(&refused(file.options()), ErrorKind::Corrupt, "inbox.db");
    assert_eq!(std::fs::read_to_string(file.path()).expect("the file"), text);
}

#[test]
fn a_path_that_cannot_be_a_file_is_a_wrong_setting() {
    let file = TestFile::new();
    let dir = file.dir();
    tells(&refused(Sqlite::options(dir)), ErrorKind::InvalidConfig, "is a directory");
    let missing = dir.join("missing/inbox.db");
    tells(&refused(Sqlite::options(&missing)), ErrorKind::InvalidConfig, "missing does not exist");
    for path in [":memory:", ""] {
        tells(&refused(Sqlite::options(path)), ErrorKind::InvalidConfig, "Memory store");
    }
    assert_eq!(std::fs::read_dir(dir).expect("the directory").count(), 0, "nothing is left behind");
}

#[test]
fn a_file_that_is_only_looked_at_is_not_made() {
    let file = TestFile::new();
    tells(&refused(file.options().read_only()), ErrorKind::Unavailable, "inbox.db");
    assert!(!file.path().exists());
}

#[test]
fn any_busy_timeout_will_do() {
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        TestFile::new().options().busy_timeout(timeout).open().expect("it opens");
    }
}

#[tokio::test]
async fn reading_works_and_writing_is_refused_when_read_only() {
    let file = TestFile::new();
    let writer = file.open();
    for id in ["running", "pending"] {
        first(&writer, id).await;
    }
    let running = claim(&writer, 1).await.remove(0).claim;
    let store = file.options().read_only().open().expect("it opens");

    assert_eq!(store.count(&inbox(), None).await.expect("count").messages, 2);
    let listed = store.list(&EntryFilter::new(inbox(), Status::Pending)).await.expect("list");
    assert_eq!(listed.entries.len(), 1);
    assert!(store.show(&inbox(), &key("running")).await.expect("show").is_some());
    assert_eq!(file.options().read_only().current().await.expect("current"), 2);
    let _wakeup = store.subscribe();

    file.clock.advance(PAST_LEASE);
    let rescue = RescueParams::new(inbox(), vec![route("h")], LEASE, 10);
    let refused = [
        store.accept(&[offer("new")]).await.err(),
        store.claim(&claim_params(10)).await.err(),
        store.settle(&[Settlement::done(&running)]).await.err(),
        store.renew(&RenewParams::new(vec![running.clone()], LEASE)).await.err(),
        store.rescue(&rescue).await.err(),
        store.sweep(&SweepParams::new(inbox(), RETENTION, 10)).await.err(),
        store.operate(&inbox(), &key("pending"), &handler("h"), Operation::Discard).await.err(),
        store.pause(&inbox(), &handler("h")).await.err(),
        store.resume(&inbox(), &handler("h")).await.err(),
        store.purge(&inbox(), Duration::ZERO, 10).await.err(),
        store.begin().await.err(),
    ];
    for (verb, error) in refused.iter().enumerate() {
        let error = error.as_ref().unwrap_or_else(|| panic!("verb {verb} was not refused"));
        tells(error, ErrorKind::ReadOnly, "cannot be written");
    }
    assert!(store.show(&inbox(), &key("running")).await.expect("reading goes on").is_some());
    assert_eq!(accept(&writer, "new").await.expect("accept").as_str(), "first");
    file.check();
}

fn large(id: usize) -> NewMessage {
    let message = oncebox::Message::new(id.to_string(), "order.placed", vec![7; 10_000]);
    offer_message(message, &["h", "g"])
}

// FAULTS E10
#[tokio::test(flavor = "multi_thread")]
async fn a_full_file_refuses_what_is_new_and_keeps_what_it_has() {
    let file = TestFile::new();
    let store = file.options().max_bytes(1_000_000).open().expect("it opens");
    let mut stored = 0;
    let error = loop {
        match store.accept(&[large(stored)]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1_000, "it never gets full");
    };
    tells(&error, ErrorKind::Full, "may grow to 1000000");
    assert!(stored > 50);
    file.check();
    // The store accepts a batch whole or not at all.
    let batch: Vec<NewMessage> = (stored..stored + 20).map(large).collect();
    assert_eq!(store.accept(&batch).await.expect_err("no room").kind(), ErrorKind::Full);
    assert_eq!(file.count("oncebox_message"), stored);
    // Other calls in the same transaction succeed.
    let (claims, mut accepts) = (claim_params(10), tokio::task::JoinSet::new());
    for n in 0..20 {
        let store = store.clone();
        accepts.spawn(async move { store.accept(&[large(stored + n)]).await.expect_err("no room").kind() });
    }
    let claimed = store.claim(&claims).await.expect("claims of what is there go on");
    assert_eq!(claimed.len(), 10);
    let settlements: Vec<Settlement> = claimed.iter().map(|one| Settlement::done(&one.claim)).collect();
    let settled = store.settle(&settlements).await.expect("and so do settlements");
    assert!(settled.iter().all(|settled| *settled == Settled::Applied));
    assert!(accepts.join_all().await.iter().all(|kind| *kind == ErrorKind::Full));
    assert!(matches!(store.accept(&[large(0)]).await.expect("known")[0], Accepted::Duplicate(_)));
    // A sweep makes room.
    complete_all(&store).await;
    let others: Vec<_> = store
        .claim(&oncebox::store::ClaimParams::new(
            inbox(),
            vec![oncebox::store::ClaimQuota { route: route("g"), limit: usize::MAX }],
            LEASE,
        ))
        .await
        .expect("claim");
    let settlements: Vec<Settlement> = others.iter().map(|one| Settlement::done(&one.claim)).collect();
    store.settle(&settlements).await.expect("settle");
    file.clock.advance(RETENTION);
    assert_eq!(support::sweep(&store).await, stored);
    assert!(matches!(store.accept(&[large(stored)]).await.expect("room again")[0], Accepted::First(_)));
    // A higher limit makes room, too.
    while store.accept(&[large(stored)]).await.is_ok() {
        stored += 1;
    }
    drop(store);
    let store = file.options().max_bytes(2_000_000).open().expect("it opens");
    assert!(matches!(store.accept(&[large(stored)]).await.expect("room again")[0], Accepted::First(_)));
    file.check();
}

// FAULTS E13
#[tokio::test]
async fn a_lock_that_lasts_too_long_is_an_error_and_nothing_else() {
    let file = TestFile::new();
    let store = file.options().busy_timeout(Duration::from_millis(20)).open().expect("it opens");
    first(&store, "known").await;
    let running = claim_one(&store).await.claim;
    let other = file.connect();
    other.execute_batch("BEGIN IMMEDIATE").expect("another connection writes");
    for id in ["new", "known"] {
        let error = accept(&store, id).await.expect_err("it is locked");
        tells(&error, ErrorKind::Unavailable, "another process");
    }
    let error = store.settle(&[Settlement::done(&running)]).await.expect_err("it is locked");
    tells(&error, ErrorKind::Unavailable, "another process");
    tells(&store.begin().await.expect_err("it is locked"), ErrorKind::Unavailable, "another process");
    // Calls that need no lock still work.
    assert_eq!(store.count(&inbox(), None).await.expect("count").messages, 1);
    file.options().open().expect("a file that is up to date opens");
    other.execute_batch("ROLLBACK").expect("it ends");
    first(&store, "new").await;
    assert_eq!(accept(&store, "known").await.expect("accept").as_str(), "duplicate");
    assert_eq!(store.settle(&[Settlement::done(&running)]).await.expect("settle"), [Settled::Applied]);
    store.commit(store.begin().await.expect("begin")).await.expect("commit");
}

#[tokio::test]
async fn a_file_that_went_away_is_not_made_again() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    std::fs::rename(file.path(), file.dir().join("moved.db")).expect("moved");
    tells(&store.begin().await.expect_err("no file"), ErrorKind::Unavailable, "inbox.db");
    tells(&store.count(&inbox(), None).await.expect_err("no file"), ErrorKind::Unavailable, "inbox.db");
    assert!(!file.path().exists());
}

// FAULTS I4
#[test]
fn many_open_a_new_file_at_once() {
    for _ in 0..20 {
        let file = TestFile::new();
        let barrier = Arc::new(Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    file.open();
                });
            }
        });
        assert_eq!(file.count("oncebox_schema"), 1);
        assert_eq!(file.count("oncebox_counter"), 1);
        file.check();
    }
}

/// SQLite refuses to enable the write-ahead log while another connection writes, and does not wait for it.
#[test]
fn opening_a_new_file_waits_for_who_writes_it() {
    let file = TestFile::new();
    let writer = file.connect();
    writer.execute_batch("CREATE TABLE shop (id); BEGIN IMMEDIATE").expect("another connection writes");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| file.options().open().map(drop));
        let start = std::time::Instant::now();
        while !opening.is_finished() && start.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        writer.execute_batch("COMMIT").expect("the writer ends");
        opening.join().expect("no panic").expect("it waits");
    });
}

#[tokio::test]
async fn opening_again_at_once_is_no_trouble() {
    let file = TestFile::new();
    for round in 0..100 {
        // The former store's threads may still be closing the file.
        let store = file.options().busy_timeout(Duration::from_secs(1)).open().expect("it opens");
        let _wakeup = store.subscribe();
        first(&store, &round.to_string()).await;
    }
    file.check();
}

#[tokio::test]
async fn two_stores_on_one_file_are_one_inbox() {
    let file = TestFile::new();
    let (one, two) = (file.open(), file.open());
    for round in 0..20 {
        let (id, other) = (format!("{round}"), format!("{round}-other"));
        first(&one, &id).await;
        assert_eq!(accept(&two, &id).await.expect("accept").as_str(), "duplicate");
        first(&two, &other).await;
        assert_eq!(accept(&one, &other).await.expect("accept").as_str(), "duplicate");
        let mine = claim(&one, 1).await.remove(0).claim;
        let theirs = claim(&two, 10).await.remove(0).claim;
        assert_ne!(mine.seq, theirs.seq);
        assert!(theirs.token > mine.token, "tokens grow over all stores of a file");
        let settled = two.settle(&[Settlement::done(&mine)]).await.expect("settle");
        assert_eq!(settled, [Settled::Applied], "a claim is not bound to the store it came from");
        one.settle(&[Settlement::done(&theirs)]).await.expect("settle");
    }
    two.pause(&inbox(), &handler("h")).await.expect("pause");
    first(&one, "paused").await;
    assert!(claim(&one, 10).await.is_empty(), "a pause holds for all");
    file.check();
}

#[tokio::test]
async fn a_commit_of_another_store_wakes_this_one() {
    let file = TestFile::new();
    let (one, two) = (file.open(), file.open());
    let mut wakeup = one.subscribe();
    for id in ["1", "2", "3"] {
        first(&two, id).await;
        wakeup.woken().await;
        assert_eq!(claim(&one, 10).await.len(), 1);
    }
}

#[tokio::test]
async fn a_message_survives_the_store() {
    let file = TestFile::new();
    first(&file.open(), "1").await;
    let store = file.open();
    assert_eq!(*claim_one(&store).await.message, message("1"));
    assert_eq!(status(&store, "1").await, Some(Status::Running));
}

/// After a clean end, the file alone holds every message, without the log.
#[tokio::test]
async fn the_file_alone_holds_everything_after_a_clean_end() {
    for watched in [false, true] {
        let file = TestFile::new();
        let store = file.open();
        // The watcher has its own connection, beside the writer's.
        let _wakeup = watched.then(|| store.subscribe());
        for id in 0..40 {
            first(&store, &id.to_string()).await;
        }
        complete_some(&store).await;
        let log = file.path().with_extension("db-wal");
        assert!(std::fs::metadata(&log).expect("the log").len() > 0, "there is something to move");
        drop(store);
        assert_eq!(std::fs::metadata(&log).map_or(0, |log| log.len()), 0, "the log is empty or gone");
        let copy = TestFile::new();
        std::fs::copy(file.path(), copy.path()).expect("a copy of the file alone");
        let store = copy.open();
        assert_eq!(claim(&store, 100).await.len(), 30);
        assert_eq!(copy.count("oncebox_message"), 40);
        copy.check();
    }
}

async fn complete_some(store: &Sqlite) {
    let claimed = claim(store, 10).await;
    let settlements: Vec<Settlement> =
        claimed.iter().map(|claimed| Settlement::done(&claimed.claim)).collect();
    store.settle(&settlements).await.expect("settle");
}

/// For a process with clones that outlive `main`, and for an operator who copies the file of a running process.
#[tokio::test]
async fn the_log_is_moved_on_demand_unless_the_file_is_in_use() {
    let file = TestFile::new();
    let store = file.options().busy_timeout(Duration::from_millis(10)).open().expect("the file opens");
    let log = || std::fs::metadata(file.path().with_extension("db-wal")).map_or(0, |log| log.len());
    first(&store, "1").await;
    let reader = file.connect();
    reader.execute_batch("BEGIN").expect("a transaction");
    let _snapshot: i64 =
        reader.query_row("SELECT count(*) FROM oncebox_message", [], |row| row.get(0)).expect("a snapshot");
    first(&store, "2").await;
    assert!(!store.checkpoint().await.expect("a checkpoint"), "a reader needs the log");
    assert!(log() > 0);
    reader.execute_batch("COMMIT").expect("its end");
    assert!(store.checkpoint().await.expect("a checkpoint"));
    assert_eq!(log(), 0);
    first(&store, "3").await;
    assert_eq!(status(&store, "1").await, Some(Status::Pending));
    let looking = file.options().read_only().open().expect("the file opens");
    assert!(!looking.checkpoint().await.expect("no checkpoint"), "one that only looks changes nothing");
}
