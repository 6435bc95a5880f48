//! A file that another program changed: the store finds, reports and isolates the damage.

mod support;

use oncebox::state::{InLine, Operation, PoisonReason, Status};
use oncebox::store::{BlockedParams, EntryFilter, Examine, ExamineParams, Inspect, RescueParams, Store as _};
use oncebox::time::Clock as _;
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, OnPoisoned};
use oncebox_sqlite::Sqlite;
use oncebox_testkit::OperatorSteps as _;
use support::{
    LEASE, PAST_LEASE, TestFile, accept, claim, first, handler, inbox, key, message, offer_message, route,
};

/// Stores three messages and damages the first.
async fn damaged(sql: &str) -> (TestFile, Sqlite) {
    let file = TestFile::new();
    let store = file.open();
    for id in ["1", "2", "3"] {
        first(&store, id).await;
    }
    file.connect().execute_batch(&format!("UPDATE oncebox_message SET {sql} WHERE seq = 1")).expect("damage");
    (file, store)
}

const DAMAGES: [&str; 3] =
    ["headers = x'ff'", "type = CAST(x'ff00ff' AS TEXT)", "source = CAST(x'c328' AS TEXT)"];

// FAULTS E22
#[tokio::test]
async fn a_damaged_message_is_poisoned_and_the_others_go_on() {
    for sql in DAMAGES {
        let (file, store) = damaged(sql).await;
        assert!(claim(&store, 1).await.is_empty(), "no worker gets an unreadable entry");
        assert_eq!(claim(&store, 10).await.len(), 2);
        let poisoned = store.list(&EntryFilter::new(inbox(), Status::Poisoned)).await.expect("list").entries;
        assert_eq!((poisoned.len(), poisoned[0].reason), (1, Some(PoisonReason::Rejected)));
        let error = poisoned[0].error.as_ref().expect("it says why").as_str();
        assert!(error.contains("damaged"), "{error}");
        // `show` returns the readable parts, and an operator can discard the entry.
        let shown = store.show(&inbox(), &key("1")).await.expect("show").expect("known");
        assert!(shown.stored.is_none());
        assert_eq!(shown.entries[0].status, Status::Poisoned);
        let dismissed = store.operate(&inbox(), &key("1"), &handler("h"), Operation::Discard).await;
        assert_eq!(dismissed.expect("discard").status, Status::Discarded);
        assert_eq!(accept(&store, "1").await.expect("its key is known").as_str(), "duplicate");
        file.check();
    }
}

// FAULTS E22: as on PostgreSQL, no entry waits for ever behind a deleted row.
#[tokio::test]
async fn an_entry_whose_message_is_gone_is_poisoned_listed_and_found_by_the_doctor() {
    for reopened in [false, true] {
        for operation in [Operation::Unblock, Operation::Discard] {
            let file = TestFile::new();
            let mut store = file.open();
            for id in ["1", "2"] {
                store
                    .accept(&[offer_message(message(id).with_ordering_key("k"), &["h"])])
                    .await
                    .expect("accept");
            }
            file.connect().execute_batch("DELETE FROM oncebox_message WHERE seq = 1").expect("damage");
            if reopened {
                drop(store);
                store = file.open();
            }
            let examined = ExamineParams::new(inbox(), file.clock.now());
            let found = store.examine(&examined).await.expect("examine");
            assert!(found.iter().any(|finding| finding.code == "lost_message"), "{found:?}");
            assert!(claim(&store, 10).await.is_empty(), "no worker gets an entry without a message");
            let poisoned =
                store.list(&EntryFilter::new(inbox(), Status::Poisoned)).await.expect("list").entries;
            assert_eq!((poisoned.len(), poisoned[0].reason), (1, Some(PoisonReason::Rejected)));
            let blocked = store.blocked(&BlockedParams::new(inbox())).await.expect("blocked");
            assert_eq!((blocked.len(), blocked[0].waiting), (1, 1));
            // An operator can act on a listed entry, although the file no longer has its key.
            let lost = poisoned[0].key;
            let shown = store.show(&inbox(), &lost).await.expect("show").expect("known");
            assert!(shown.stored.is_none());
            assert_eq!(shown.entries[0].status, Status::Poisoned);
            let operate = async |operation| store.operate(&inbox(), &lost, &handler("h"), operation).await;
            operate(Operation::Retry).await.expect_err("nothing can be given to a handler");
            operate(operation).await.expect("it needs no message");
            assert_eq!(claim(&store, 10).await.len(), 1, "{operation:?}");
        }
    }
}

// FAULTS E22
#[tokio::test]
async fn a_message_that_is_gone_while_it_runs_is_poisoned_by_the_rescue() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    assert_eq!(claim(&store, 10).await.len(), 1);
    file.connect().execute_batch("DELETE FROM oncebox_message").expect("damage");
    file.clock.advance(PAST_LEASE);
    let params = RescueParams::new(inbox(), vec![route("h")], LEASE, 10);
    assert!(store.rescue(&params).await.expect("rescue").is_empty());
    let poisoned = store.list(&EntryFilter::new(inbox(), Status::Poisoned)).await.expect("list").entries;
    assert_eq!(poisoned.len(), 1);
}

// FAULTS E22
#[tokio::test]
async fn a_message_that_is_damaged_while_it_runs_is_poisoned_by_the_rescue() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    first(&store, "2").await;
    assert_eq!(claim(&store, 10).await.len(), 2);
    file.connect().execute_batch("UPDATE oncebox_message SET headers = x'ff' WHERE seq = 1").expect("damage");
    file.clock.advance(PAST_LEASE);
    let params = RescueParams::new(inbox(), vec![route("h")], LEASE, 10);
    assert_eq!(store.rescue(&params).await.expect("rescue").len(), 1);
    let poisoned = store.list(&EntryFilter::new(inbox(), Status::Poisoned)).await.expect("list").entries;
    assert_eq!(poisoned.len(), 1);
    file.check();
}

// FAULTS E22, B15: a handler's rule for poisoned messages applies to unreadable messages, too.
#[tokio::test]
async fn a_damaged_message_is_poisoned_by_the_rules_of_its_handler() {
    async fn ship(_: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
        Ok(())
    }
    for (on_poisoned, ran, in_line) in
        [(OnPoisoned::Block, 0, InLine::Blocks), (OnPoisoned::Skip, 1, InLine::Skipped)]
    {
        let file = TestFile::new();
        let (store, registration) = (file.open(), oncebox::handler("h", ship).on_poisoned(on_poisoned));
        let builder = Inbox::builder("orders", store.clone()).on("order.placed", registration);
        let orders = builder.clock(file.clock.shared()).build().expect("an inbox");
        for id in ["1", "2"] {
            orders.accept(message(id).with_ordering_key("k")).await.expect("accept");
        }
        file.connect()
            .execute_batch("UPDATE oncebox_message SET headers = x'ff' WHERE seq = 1")
            .expect("damage");
        assert_eq!(orders.drain().await.expect("drain"), 0, "no handler gets an unreadable message");
        assert_eq!(orders.drain().await.expect("drain"), ran, "{on_poisoned:?}");
        let poisoned = store.list(&EntryFilter::new(inbox(), Status::Poisoned)).await.expect("list").entries;
        assert_eq!((poisoned.len(), poisoned[0].in_line), (1, Some(in_line)));
        file.check();
    }
}

#[tokio::test]
async fn a_table_that_is_gone_is_told() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    file.connect().execute_batch("DROP TABLE oncebox_proof").expect("damage");
    let error = accept(&store, "2").await.expect_err("a table is missing");
    assert_eq!(error.kind(), ErrorKind::SchemaOutdated, "{error}");
    assert!(!error.is_retryable(), "trying again does not help");
}

#[tokio::test]
async fn rows_that_contradict_each_other_are_told_and_nothing_is_stored() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    // The next message gets a number that is taken.
    file.connect().execute_batch("UPDATE oncebox_counter SET seq = 0").expect("damage");
    let error = accept(&store, "2").await.expect_err("the number is taken");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(file.count("oncebox_message"), 1);
    assert_eq!(claim(&store, 10).await.len(), 1, "what is sound can be worked on");
}
