//! Handlers for patterns of types.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use oncebox::store::Inspect;
use std::sync::Arc;

use oncebox::{
    BoxError, Context, Dedupe, ErrorKind, Inbox, InboxBuilder, KeyStrategy, Memory, Message, Registration,
    handler,
};
use parking_lot::Mutex;

type Runs = Arc<Mutex<Vec<String>>>;

async fn note(message: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let fence = cx.fence().ok_or("a durable run has a claim")?;
    assert!(fence.0 > 0);
    let id = String::from_utf8_lossy(message.id()).into_owned();
    cx.data::<Runs>()?.lock().push(format!("{}:{}:{id}", cx.handler(), message.message_type()));
    Ok(())
}

fn noting(key: &str) -> Registration<Memory> {
    handler(key, note)
}

fn inbox(build: impl FnOnce(InboxBuilder<Memory>) -> InboxBuilder<Memory>) -> (Inbox<Memory>, Runs) {
    let runs = Runs::default();
    let builder = Inbox::builder("test", Memory::new()).data(Arc::clone(&runs));
    (build(builder).build().unwrap(), runs)
}

async fn accept(inbox: &Inbox<Memory>, id: &str, kind: &str) {
    inbox.accept(Message::new(id.to_owned(), kind, format!("{id} {kind}"))).await.unwrap();
}

fn sorted(runs: &Runs) -> Vec<String> {
    let mut runs = std::mem::take(&mut *runs.lock());
    runs.sort();
    runs
}

#[tokio::test]
async fn every_handler_whose_pattern_fits_gets_a_message_once() {
    let (inbox, runs) = inbox(|builder| {
        builder
            .on("*", noting("all"))
            .on(["order.*", "order.placed", "order.p*"], noting("orders"))
            .on("order.placed", noting("placed"))
            .on("order.p*", noting("p"))
    });
    for (id, kind) in [("1", "order.placed"), ("2", "order.paid"), ("3", "order.shipped"), ("4", "mail")] {
        accept(&inbox, id, kind).await;
    }
    assert_eq!(inbox.drain().await.unwrap(), 4 + 3 + 2 + 1);
    assert_eq!(
        sorted(&runs),
        [
            "all:mail:4",
            "all:order.paid:2",
            "all:order.placed:1",
            "all:order.shipped:3",
            "orders:order.paid:2",
            "orders:order.placed:1",
            "orders:order.shipped:3",
            "p:order.paid:2",
            "p:order.placed:1",
            "placed:order.placed:1",
        ]
    );
}

#[tokio::test]
async fn a_key_rule_that_is_more_exact_than_the_pattern_counts() {
    let by = |header: &str| Dedupe::By(KeyStrategy::header(header));
    let (inbox, runs) = inbox(|builder| {
        builder
            .on("*", noting("all"))
            .key_for("order.*", by("order"))
            .key_for("order.placed", Dedupe::Off)
            .key_for("mail.sent", by("mail"))
    });
    let send = async |id: &str, kind: &str| {
        let message = Message::new(id.to_owned(), kind, kind.to_owned());
        let message = message.with_header("order", "7").with_header("mail", "8");
        inbox.accept(message).await.unwrap();
    };
    // One key for each pair but the second, which is not compared; the last goes by its id.
    for kind in ["order.paid", "order.placed", "mail.sent", "mail.read"] {
        send("a", kind).await;
        send("b", kind).await;
    }
    inbox.drain().await.unwrap();
    assert_eq!(
        sorted(&runs),
        [
            "all:mail.read:a",
            "all:mail.read:b",
            "all:mail.sent:a",
            "all:order.paid:a",
            "all:order.placed:a",
            "all:order.placed:b",
        ]
    );
}

#[tokio::test]
async fn a_rule_alone_makes_no_type_known() {
    let (inbox, _) = inbox(|builder| {
        let config = oncebox::Config { unrouted: oncebox::config::Unrouted::Refuse, ..Default::default() };
        builder.config(config).on("mail.*", noting("mail")).key_for("order.*", Dedupe::Off)
    });
    accept(&inbox, "1", "mail.sent").await;
    let refused = inbox.accept(Message::new("2", "order.placed", "")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unrouted);
}

#[tokio::test]
async fn a_handler_that_comes_late_gets_what_its_pattern_means() {
    let store = Memory::new();
    let early = Inbox::builder("test", store.clone()).build().unwrap();
    for (id, kind) in [("1", "order.placed"), ("2", "order.paid"), ("3", "mail")] {
        early.accept(Message::new(id, kind, kind)).await.unwrap();
    }
    let late = Inbox::builder("test", store.clone()).on("order.*", noting("orders")).build().unwrap();
    assert_eq!(late.backfill("orders").await.unwrap(), 2);
    assert_eq!(late.backfill("orders").await.unwrap(), 0);
    let inbox = oncebox::InboxName::new("test").unwrap();
    assert_eq!(store.count(&inbox, None).await.unwrap().with_status(oncebox::Status::Pending), 2);
}

#[tokio::test]
async fn nothing_is_backfilled_where_a_narrower_type_goes_by_several_keys() {
    let by = |header: &str| Dedupe::By(KeyStrategy::header(header));
    let (inbox, _) = inbox(|builder| {
        builder.on("*", noting("all")).on("order.placed", noting("placed").dedupe(by("order")))
    });
    let error = inbox.backfill("all").await.unwrap_err();
    assert!(error.what().contains("\"order.placed\" go by several keys"), "{error}");
}

#[test]
fn patterns_that_cannot_be_meant_are_refused() {
    for (pattern, why) in [("a*b", "write it like `order.*`"), ("a**", "at its end"), ("", "for no type")] {
        let builder = Inbox::builder("test", Memory::new()).on(["fine", pattern], noting("h"));
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        assert!(error.what().contains(why), "{error}");
    }
}
