//! Sweeps of a file that several inboxes share, and of one whose clock was wrong for a while.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::store::{Accepted, NewMessage, Store as _, SweepParams};
use oncebox::time::Clock as _;
use oncebox::{InboxName, KeyStrategy, Message};
use oncebox_sqlite::Sqlite;
use oncebox_testkit::TestClock;
use support::{RETENTION, TestFile};

fn inbox(name: usize) -> InboxName {
    InboxName::new(format!("inbox-{name}")).expect("a good name")
}

/// Returns a message without a handler, which is finished when it arrives.
fn offer(inbox: &InboxName, message: Message) -> NewMessage {
    let key = KeyStrategy::MessageId.key(inbox, &message).expect("an id");
    NewMessage::new(inbox.clone(), key, Arc::new(message), Arc::new([]))
}

async fn accept(store: &Sqlite, inbox: &InboxName, ids: std::ops::Range<usize>) {
    let messages = ids.map(|id| offer(inbox, Message::new(id.to_string(), "t", "")));
    let accepted = store.accept(&messages.collect::<Vec<_>>()).await.expect("accept");
    assert!(accepted.iter().all(|accepted| matches!(accepted, Accepted::First(_))));
}

/// Sweeps page after page. Returns the number of pages and of deleted messages.
async fn sweep(store: &Sqlite, inbox: &InboxName, limit: usize) -> (usize, usize) {
    let mut params = SweepParams::new(inbox.clone(), RETENTION, limit);
    let (mut pages, mut removed) = (0, 0);
    loop {
        let swept = store.sweep(&params).await.expect("sweep");
        pages += 1;
        removed += swept.messages;
        match swept.next {
            None => return (pages, removed),
            next => assert!(next > params.after || swept.marks > 0, "a sweep that stands still"),
        }
        params.after = swept.next;
        assert!(pages < 1_000, "a sweep that never ends");
    }
}

#[tokio::test]
async fn inboxes_that_share_a_file_are_swept_apart_page_by_page() {
    let file = TestFile::new();
    let store = file.open();
    for round in 0..40 {
        // Long runs of one inbox, so that whole pages have no message of another one.
        for name in 0..3 {
            accept(&store, &inbox(name), round * 7..round * 7 + 7).await;
        }
    }
    file.clock.advance(RETENTION);
    accept(&store, &inbox(0), 1_000..1_005).await;
    for (name, limit) in [(0, 1), (1, 3), (2, 1_000)] {
        assert_eq!(sweep(&store, &inbox(name), limit).await.1, 280, "inbox {name} in pages of {limit}");
    }
    assert_eq!(file.count("oncebox_message"), 5, "the young ones stay");
    file.check();
}

// FAULTS B8: for a while the clock was a year ahead.
#[tokio::test]
async fn a_clock_that_was_ahead_does_not_stop_the_sweep_for_a_year() {
    let file = TestFile::new();
    let (store, ahead) = (file.open(), TestClock::new());
    ahead.advance(Duration::from_hours(24 * 365));
    accept(&store, &inbox(0), 0..5).await;
    let wrong = file.options().clock(ahead.shared()).open().expect("the file opens");
    accept(&wrong, &inbox(0), 5..8).await;
    accept(&store, &inbox(0), 8..20).await;
    file.clock.advance(RETENTION);
    for limit in [2, 100] {
        let (_, removed) = sweep(&store, &inbox(0), limit).await;
        assert_eq!(removed, if limit == 2 { 17 } else { 0 });
    }
    assert_eq!(file.count("oncebox_message"), 3);
    // A message received today is not older than the swept messages.
    let today = Message::new("today", "t", "").with_time(file.clock.now());
    assert!(matches!(store.accept(&[offer(&inbox(0), today)]).await.expect("accept")[0], Accepted::First(_)));
    file.check();
}

#[tokio::test]
async fn many_marks_leave_page_by_page() {
    let file = TestFile::new();
    let store = file.open();
    let mut shop = file.connect();
    let tx = shop.transaction().expect("begin");
    for n in 0..250 {
        for name in ["inbox-0", "inbox-1"] {
            assert!(
                store.once(&tx, name, n.to_string(), "charge").expect("mark").is_first().expect("not busy")
            );
        }
    }
    tx.commit().expect("commit");
    file.clock.advance(RETENTION);
    assert_eq!(sweep(&store, &inbox(0), 100).await, (3, 0));
    assert_eq!(file.count("oncebox_mark WHERE inbox = 'inbox-0'"), 0);
    assert_eq!(file.count("oncebox_mark"), 250, "those of another inbox stay");
}
