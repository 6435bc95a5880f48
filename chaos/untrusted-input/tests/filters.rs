//! Filters of operators are data: SQLite returns the entries that the definition names.

use std::path::{Path, PathBuf};

use oncebox::state::Status;
use oncebox::store::{EntryCursor, EntryFilter, Inspect};
use oncebox::{BoxError, Context, Inbox, Message, handler};
use oncebox_sqlite::Sqlite;
use oncebox_untrusted_input::{MADE, feed};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

async fn fails(_: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    Err("50% of a_b\\c 'quoted' 📦".into())
}

// FAULTS S15
#[test]
fn a_filter_asks_for_what_it_says_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let store = Sqlite::open(dir.path().join("untrusted.db")).expect("a store");
    let mut policy = oncebox::Policy::default();
    policy.retry = once();
    let inbox = Inbox::builder("in", store)
        .on(["push", "a%b"], handler("h", fails).policy(policy))
        .build()
        .expect("an inbox");
    let all = runtime.block_on(async {
        for (id, kind) in
            [("m-1", "push"), ("50%", "a%b"), ("a_b", "push"), ("\\", "push"), ("'", "push"), ("📦", "push")]
        {
            let message = Message::new(id, kind, "{}").with_source("s").with_ordering_key(id);
            inbox.accept(message).await.expect("accepted");
        }
        inbox.drain().await.expect("drained");
        let any = inbox.store().list(&EntryFilter::any(inbox.name().clone())).await.expect("a list");
        assert_eq!(any.entries.len(), 6);
        assert!(any.entries.iter().any(|entry| entry.status == Status::Poisoned));
        any.entries
    });
    let mut found = 0;
    feed(&corpus("filters"), 6, MADE / 20, |input| {
        let mut filter = EntryFilter::any(inbox.name().clone());
        let text = String::from_utf8_lossy(input).into_owned().into_boxed_str();
        match input.first().map_or(0, |byte| byte % 6) {
            0 => filter.id_contains = Some(input.into()),
            1 => filter.ordering_key = Some(input.into()),
            2 => filter.error_contains = Some(text),
            3 => filter.message_type = Some(text),
            4 => filter.source = Some(text),
            _ => filter.tenant = Some(text),
        }
        let page = runtime.block_on(inbox.store().list(&filter)).expect("a filter is no error");
        let wanted: Vec<_> = all.iter().filter(|entry| filter.takes(entry)).cloned().collect();
        found += wanted.len();
        assert_eq!(page.entries, wanted, "{filter:?}");
    });
    assert!(found > 0, "nothing was ever found");
}

fn once() -> oncebox::Retry {
    oncebox::Retry::new(1, std::time::Duration::from_millis(1), std::time::Duration::from_millis(1))
}

#[test]
fn a_cursor_is_read_or_refused_and_stays_what_it_is() {
    let mut read = 0;
    feed(&corpus("cursors"), 7, MADE, |input| {
        if let Ok(cursor) = String::from_utf8_lossy(input).parse::<EntryCursor>() {
            read += 1;
            assert_eq!(cursor.to_string().parse::<EntryCursor>().ok(), Some(cursor));
        }
    });
    assert!(read > 100, "only {read} cursors were cursors");
}
