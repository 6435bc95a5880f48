//! The conformance suite on SQLite.

mod support;

use oncebox_sqlite::rusqlite::Connection;
use oncebox_sqlite::{Sqlite, Synchronous};
use oncebox_testkit::{Harness, TestClock};

oncebox_testkit::store_conformance!(conformance, sqlite);

/// Checks at the end of a test that the tables of the file are consistent.
struct Sound(tempfile::TempDir);

impl Drop for Sound {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            support::check(&Connection::open(self.0.path().join("inbox.db")).expect("the file"));
        }
    }
}

async fn sqlite() -> Harness<Sqlite> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = TestClock::new();
    // These tests do not cut the power, so the store need not wait for the disk.
    let options = Sqlite::options(dir.path().join("inbox.db")).synchronous(Synchronous::Normal);
    let options = options.clock(clock.shared());
    let store = options.clone().open().expect("a fresh file");
    let again = move || std::future::ready(options.clone().open().expect("the same file"));
    Harness::new(store, clock).keeping(Sound(dir)).opening(again).steps(24)
}
