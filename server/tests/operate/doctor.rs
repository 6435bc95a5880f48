//! `oncebox doctor`: each finding, provoked.

use std::time::Duration;

use oncebox::state::Outcome;
use oncebox::store::{DuplicateCount, EntryFilter, Inspect, NewMessage, RegisterParams, Store as _};
use oncebox::time::{Clock, SharedClock, Sleep, SystemClock, Timestamp};
use oncebox::{KeyStrategy, Message};
use oncebox_sqlite::Sqlite;
use oncebox_sqlite::rusqlite::Connection;

use crate::fixture::{ADA, OperateFixture, code, inbox, oncebox, refused, route, text};

const DAY: Duration = Duration::from_hours(24);

/// Returns the exit code and the findings.
fn doctor(fixture: &OperateFixture, args: &[&str]) -> (i32, Vec<String>) {
    let output = fixture.run("doctor", &[args, &["--json"]].concat());
    let lines = text(&output);
    let found = lines.lines().map(|line| {
        let finding: serde_json::Value = serde_json::from_str(line).expect("an object on a line");
        for part in ["severity", "what", "fix"] {
            assert!(finding[part].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        }
        finding["code"].as_str().expect("a code").to_owned()
    });
    let found = found.collect();
    (code(&output), found)
}

fn found(codes: &[&str]) -> Vec<String> {
    codes.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_store_has_no_findings() {
    let fixture = OperateFixture::with(3, || Outcome::Done).await;
    assert_eq!(doctor(&fixture, &["--handlers", "ship-order", "--redelivery", "3days"]), (0, vec![]));
    assert_eq!(text(&fixture.run("doctor", &[])), "no problems found\n");
}

#[test]
fn missing_and_newer_tables_are_found() {
    let fixture = OperateFixture { dir: tempfile::tempdir().expect("a temporary directory") };
    Connection::open(fixture.file())
        .and_then(|file| file.execute_batch("CREATE TABLE other (x)"))
        .expect("a file");
    assert_eq!(doctor(&fixture, &[]), (1, found(&["schema"])));
    // Another program created the file, with the mode of its umask.
    std::fs::set_permissions(fixture.file(), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("a mode");
    fixture.store();
    assert_eq!(doctor(&fixture, &[]), (0, vec![]));
    let newer = "INSERT INTO oncebox_schema (version, name, applied_at) VALUES (99, 'later', 0)";
    Connection::open(fixture.file()).and_then(|file| file.execute_batch(newer)).expect("a newer schema");
    assert_eq!(doctor(&fixture, &[]), (1, found(&["schema"])));
    let gone = OperateFixture { dir: tempfile::tempdir().expect("a temporary directory") };
    assert_eq!(doctor(&gone, &[]), (3, vec![]), "a file that is not there");
}

#[test]
fn a_missing_index_is_found() {
    let fixture = OperateFixture::empty();
    let drop = "DROP INDEX oncebox_entry_order";
    Connection::open(fixture.file()).and_then(|file| file.execute_batch(drop)).expect("drop");
    assert_eq!(doctor(&fixture, &[]), (1, found(&["index"])));
    let told = text(&fixture.run("doctor", &[]));
    assert!(told.starts_with("danger: the index oncebox_entry_order is missing"), "{told}");
}

/// A clock that is one day ahead.
struct ClockOneDayAhead(SystemClock);

impl Clock for ClockOneDayAhead {
    fn now(&self) -> Timestamp {
        self.0.now().after(DAY)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.0.sleep(duration)
    }
}

fn offer(id: &str) -> NewMessage {
    let message = Message::new(id.to_owned(), "order.placed", "{}").with_source("shop");
    let key = KeyStrategy::MessageId.key(&inbox(), &message).expect("a key");
    NewMessage::new(inbox(), key, message.into(), [route()].into())
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_are_found() {
    let fixture = OperateFixture::empty();
    let clock: SharedClock = std::sync::Arc::new(ClockOneDayAhead(SystemClock::default()));
    let store = Sqlite::options(fixture.file()).clock(clock).open().expect("the file opens");
    store.accept(&[offer("1")]).await.expect("accept");
    assert_eq!(doctor(&fixture, &[]), (1, found(&["clock_back"])));
}

// FAULTS H1
#[tokio::test(flavor = "multi_thread")]
async fn windows_that_are_too_short_are_found() {
    let fixture = OperateFixture::with(1, || Outcome::Done).await;
    let store = fixture.store();
    assert_eq!(doctor(&fixture, &["--redelivery", "3days"]), (0, vec![]), "the retention window is unknown");
    store.register(&RegisterParams::new(inbox(), DAY)).await.expect("register");
    assert_eq!(doctor(&fixture, &["--redelivery", "1day"]), (0, vec![]));
    assert_eq!(doctor(&fixture, &["--redelivery", "3days"]), (1, found(&["short_window"])));
    // The configuration knows it for its sources.
    let config = format!(
        "[store.main]\nurl = \"{}\"\n[inbox.orders]\nretention = \"1d\"\nshort_window = \"warn\"\n\
         [inbox.orders.rabbitmq.shop]\nurl = \"amqp://127.0.0.1:9\"\nqueue = \"q\"\ndiscard_rejected = true\nredelivers = \"3d\"\n",
        fixture.url()
    );
    let file = fixture.dir.path().join("oncebox.toml");
    std::fs::write(&file, config).expect("a file");
    let output = oncebox(["doctor", "--json", "--config"]).arg(&file).output().expect("it runs");
    assert!(code(&output) == 1 && text(&output).contains("short_window"), "{output:?}");
    let entry = store.list(&EntryFilter::any(inbox())).await.expect("list").entries.remove(0);
    let (first, last) = (entry.received_at, entry.received_at.after(DAY * 2 / 3));
    store
        .count_duplicates(&[DuplicateCount { seq: entry.seq, count: 1, first, last, varied: 0 }])
        .await
        .expect("count_duplicates");
    assert_eq!(doctor(&fixture, &[]), (0, found(&["late_duplicates"])), "worth a word, and no danger yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_without_a_worker_are_found() {
    let fixture = OperateFixture::empty();
    fixture.store().accept(&[offer("1")]).await.expect("accept");
    assert_eq!(doctor(&fixture, &["--handlers", "ship-order"]), (0, vec![]));
    assert_eq!(doctor(&fixture, &["--handlers", "another"]), (1, found(&["orphaned"])));
    let config = |handler: &str| {
        let text = format!(
            "[store.main]\nurl = \"{}\"\n[inbox.orders.handler.{handler}]\nurl = \"https://example.com/hook\"\n",
            fixture.url()
        );
        let file = fixture.dir.path().join(format!("{handler}.toml"));
        std::fs::write(&file, text).expect("a file");
        oncebox(["doctor", "--json", "--config"]).arg(&file).output().expect("it runs")
    };
    assert_eq!(code(&config("ship-order")), 0);
    let orphaned = config("another");
    assert!(code(&orphaned) == 1 && text(&orphaned).contains("orphaned"), "{orphaned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_wait_for_an_operator_are_found() {
    let fixture = OperateFixture::with(2, refused).await;
    fixture.json("pause", &[&ADA[..], &["--handler", "ship-order"]].concat());
    fixture.json("pause", &[&ADA[..], &["--handler", "ship-order", "--ordering-key", "k\u{1b}"]].concat());
    assert_eq!(doctor(&fixture, &[]), (0, found(&["key_paused", "paused", "poisoned"])));
    assert!(!text(&fixture.run("doctor", &[])).contains('\u{1b}'));
}
