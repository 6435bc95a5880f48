//! An idle inbox does not write its file.

use std::time::Duration;

use oncebox::store::{ClaimParams, ClaimQuota, RescueParams, Route, Store as _, SweepParams};
use oncebox::{Context, HandlerKey, Inbox, InboxName, Message, handler};
use oncebox_sqlite::{Sqlite, rusqlite::Connection};

async fn noop(_message: Message, _cx: &mut Context<Sqlite>) -> Result<(), std::convert::Infallible> {
    Ok(())
}

/// Returns SQLite's data version, which changes with every commit of another connection.
fn data_version(connection: &Connection) -> i64 {
    connection.pragma_query_value(None, "data_version", |row| row.get(0)).expect("data version")
}

// Workers of other processes wake when the file changes. If idle claims changed it, the workers would keep each other
// busy.
#[tokio::test]
async fn looking_for_work_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("inbox.db");
    let store = Sqlite::open(&file).expect("a store");
    let inbox =
        Inbox::builder("orders", store.clone()).on("t", handler("h", noop)).build().expect("an inbox");
    inbox.accept(Message::new("1", "t", "")).await.expect("accept");
    assert_eq!(inbox.drain().await.expect("drain"), 1);
    let name = InboxName::new("orders").expect("a name");
    let route = Route::new(HandlerKey::new("h").expect("a key"));
    let lease = Duration::from_mins(1);
    let sweep = SweepParams::new(name.clone(), lease, 100);
    store.sweep(&sweep).await.expect("sweep");

    let observer = Connection::open(&file).expect("another connection");
    let before = data_version(&observer);
    let wants = vec![ClaimQuota { route: route.clone(), limit: 10 }];
    let claim = ClaimParams::new(name.clone(), wants, lease);
    assert!(store.claim(&claim).await.expect("claim").is_empty());
    assert!(store.claim(&claim.suspect()).await.expect("claim").is_empty());
    assert!(store.rescue(&RescueParams::new(name, vec![route], lease, 10)).await.expect("rescue").is_empty());
    store.sweep(&sweep).await.expect("sweep");
    assert_eq!(data_version(&observer), before);
}
