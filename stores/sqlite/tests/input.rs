//! Edge cases of input: very many messages, very large ones, none at all, and repeats.

mod support;

use oncebox_testkit::OperatorSteps as _;
use std::time::Duration;

use oncebox::Message;
use oncebox::state::{Settlement, Status};
use oncebox::store::{
    Accepted, ClaimParams, ClaimQuota, Inspect, NewMessage, RenewParams, Renewed, RescueParams, Route,
    Settled, Store as _, SweepParams,
};
use oncebox_sqlite::Sqlite;
use support::{
    LEASE, RETENTION, TestFile, accept, claim, claim_one, claim_params, first, handler, inbox, key, message,
    offer, offer_message, route,
};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("handler-{n}")).collect()
}

async fn claim_routes(store: &Sqlite, routes: impl IntoIterator<Item = Route>) -> Vec<Settlement> {
    let wants = routes.into_iter().map(|route| ClaimQuota { route, limit: 1_000 }).collect();
    let claimed = store.claim(&ClaimParams::new(inbox(), wants, LEASE)).await.expect("claim");
    claimed.iter().map(|claimed| Settlement::done(&claimed.claim)).collect()
}

#[tokio::test]
async fn a_message_may_have_hundreds_of_handlers() {
    let (file, names) = (TestFile::new(), names(500));
    let store = file.open();
    let handlers: Vec<&str> = names.iter().map(String::as_str).collect();
    let accepted = store.accept(&[offer_message(message("1"), &handlers[..300])]).await.expect("accept");
    assert!(matches!(accepted[..], [Accepted::First(_)]));
    let accepted = store.accept(&[offer_message(message("1"), &handlers)]).await.expect("accept");
    assert!(matches!(accepted[..], [Accepted::HandlersAdded(_, 200)]), "{accepted:?}");
    let settlements = claim_routes(&store, handlers.iter().copied().map(route)).await;
    assert_eq!(settlements.len(), 500);
    let settled = store.settle(&settlements).await.expect("settle");
    assert!(settled.iter().all(|settled| *settled == Settled::Applied));
    let accepted = store.accept(&[offer_message(message("1"), &handlers)]).await.expect("accept");
    assert!(matches!(accepted[..], [Accepted::Duplicate(_)]), "{accepted:?}");
    file.check();
}

#[tokio::test]
async fn ten_thousand_at_once() {
    let file = TestFile::new();
    let store = file.open();
    let batch: Vec<NewMessage> = (0..10_000).map(|n: u32| offer(&n.to_string())).collect();
    let accepted = store.accept(&batch).await.expect("accept");
    assert!(accepted.iter().all(|accepted| matches!(accepted, Accepted::First(_))));
    let claimed = claim(&store, 20_000).await;
    assert_eq!(claimed.len(), 10_000);
    assert!(claim(&store, 20_000).await.is_empty());
    let claims: Vec<_> = claimed.iter().map(|claimed| claimed.claim.clone()).collect();
    let renewed = store.renew(&RenewParams::new(claims, LEASE)).await.expect("renew");
    assert_eq!(renewed, [Renewed::Extended; 10_000]);
    let settlements: Vec<Settlement> = claimed.iter().map(|one| Settlement::done(&one.claim)).collect();
    assert_eq!(store.settle(&settlements).await.expect("settle"), [Settled::Applied; 10_000]);
    file.clock.advance(RETENTION);
    let swept = store.sweep(&SweepParams::new(inbox(), RETENTION, 20_000)).await.expect("sweep");
    assert_eq!((swept.messages, swept.next), (10_000, None));
    assert_eq!(store.count(&inbox(), None).await.expect("count"), oncebox::store::InboxCounts::default());
    file.check();
}

#[tokio::test]
async fn nothing_is_done_for_nothing() {
    let file = TestFile::new();
    let store = file.open();
    for _ in 0..2 {
        assert_eq!(store.accept(&[]).await.expect("accept"), []);
        assert_eq!(store.settle(&[]).await.expect("settle"), []);
        assert_eq!(store.renew(&RenewParams::new(Vec::new(), LEASE)).await.expect("renew"), []);
        assert!(store.claim(&ClaimParams::new(inbox(), Vec::new(), LEASE)).await.expect("claim").is_empty());
        assert!(claim(&store, 0).await.is_empty());
        assert!(store.claim(&claim_params(0).suspect()).await.expect("claim").is_empty());
        for (routes, limit) in [(Vec::new(), 10), (vec![route("h")], 0)] {
            let params = RescueParams::new(inbox(), routes, LEASE, limit);
            assert!(store.rescue(&params).await.expect("rescue").is_empty());
        }
        let swept = store.sweep(&SweepParams::new(inbox(), Duration::ZERO, 0)).await.expect("sweep");
        assert_eq!(swept, oncebox::store::Swept::NOTHING);
        assert_eq!(store.purge(&inbox(), Duration::ZERO, 0).await.expect("purge"), 0);
        // The second time with a stored message, which must stay unchanged.
        accept(&store, "1").await.expect("accept");
    }
    assert_eq!(claim(&store, 10).await.len(), 1);
}

#[tokio::test]
async fn a_handler_named_twice_has_one_entry() {
    let file = TestFile::new();
    let store = file.open();
    let accepted = store.accept(&[offer_message(message("1"), &["h", "h", "g", "h"])]).await.expect("accept");
    assert!(matches!(accepted[..], [Accepted::First(_)]), "{accepted:?}");
    let accepted = store.accept(&[offer_message(message("1"), &["x", "h", "x"])]).await.expect("accept");
    assert!(matches!(accepted[..], [Accepted::HandlersAdded(_, 1)]), "{accepted:?}");
    assert_eq!(claim_routes(&store, ["h", "g", "x"].map(route)).await.len(), 3);
    file.check();
}

/// Two deliveries of a message may differ in fields that are not part of its identity.
#[tokio::test]
async fn a_handler_added_by_another_delivery_keeps_the_first_ones_order() {
    let file = TestFile::new();
    let store = file.open();
    let ordered = |id: &str, order: &str, handlers: &[&str]| {
        offer_message(message(id).with_ordering_key(order.to_owned()), handlers)
    };
    store.accept(&[ordered("1", "a", &["g"]), ordered("2", "a", &["h"])]).await.expect("accept");
    for again in [offer_message(message("1"), &["g", "h"]), ordered("1", "b", &["g", "h"])] {
        store.accept(&[again]).await.expect("accept");
    }
    assert_eq!(*claim_one(&store).await.message, message("1").with_ordering_key("a"), "one at a time");
    file.check();
}

#[tokio::test]
async fn a_handler_wanted_twice_is_claimed_once() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    assert_eq!(claim_routes(&store, ["h", "h"].map(route)).await.len(), 1);
    first(&store, "2").await;
    let both = Route::renamed(handler("h"), [handler("h"), handler("unknown")].into());
    assert_eq!(claim_routes(&store, [both]).await.len(), 1);
    file.check();
}

#[tokio::test]
async fn large_fields_come_back_whole() {
    let file = TestFile::new();
    let store = file.open();
    let large = |len: usize, byte: u8| vec![byte; len];
    let message = Message::new(large(1 << 20, 0), "t".repeat(10_000), large(64 << 20, 255))
        .with_source("s".repeat(10_000))
        .with_header("h".repeat(1_000), large(1 << 20, 1))
        .with_ordering_key(large(1 << 20, 2));
    let new = offer_message(message.clone(), &["h"]);
    assert!(matches!(
        store.accept(std::slice::from_ref(&new)).await.expect("accept")[..],
        [Accepted::First(_)]
    ));
    assert!(matches!(store.accept(&[new]).await.expect("accept")[..], [Accepted::Duplicate(_)]));
    assert_eq!(*claim_one(&store).await.message, message);
    // SQLite shrinks the log after such a large transaction.
    for id in ["1", "2", "3"] {
        first(&store, id).await;
    }
    let log = std::fs::metadata(file.dir().join("inbox.db-wal")).expect("a log").len();
    assert!(log <= 64 << 20, "the log has {log} bytes");
}

#[tokio::test]
async fn times_at_the_edges_do_not_overflow() {
    let file = TestFile::new();
    let store = file.open();
    let mut never = offer("never");
    never.delay = Duration::MAX;
    store.accept(&[never]).await.expect("accept");
    assert!(claim(&store, 10).await.is_empty());
    first(&store, "1").await;
    let params = ClaimParams::new(inbox(), vec![ClaimQuota { route: route("h"), limit: 10 }], Duration::MAX);
    assert_eq!(store.claim(&params).await.expect("claim").len(), 1);
    let swept = store.sweep(&SweepParams::new(inbox(), Duration::MAX, 10)).await.expect("sweep");
    assert_eq!(swept.messages, 0);
    assert_eq!(store.purge(&inbox(), Duration::MAX, 10).await.expect("purge"), 0);
    let view = store.show(&inbox(), &key("never")).await.expect("show").expect("it is stored");
    assert_eq!(view.entries[0].status, Status::Pending);
}
