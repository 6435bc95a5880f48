//! Ordering keys that the inbox finds in a message.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::sync::Arc;

use oncebox::config::OrderBy;
use oncebox::{BoxError, Config, Context, Inbox, Memory, Message, handler};
use parking_lot::Mutex;

type SeenOrders = Arc<Mutex<Vec<(String, Option<String>)>>>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn note(message: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let order = message.ordering_key().map(text);
    cx.data::<SeenOrders>()?.lock().push((text(message.id()), order));
    Ok(())
}

async fn orders_of(order: OrderBy, messages: Vec<Message>) -> Vec<(String, Option<String>)> {
    let seen = SeenOrders::default();
    let inbox = Inbox::builder("test", Memory::new())
        .config(Config { order: Some(order), ..Config::default() })
        .data(Arc::clone(&seen))
        .on("t", handler("note", note))
        .build()
        .unwrap();
    inbox.accept_batch(messages).await.unwrap().into_iter().for_each(|one| _ = one.unwrap());
    inbox.drain().await.unwrap();
    let mut seen = std::mem::take(&mut *seen.lock());
    seen.sort();
    seen
}

fn found(pairs: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    pairs.iter().map(|(id, order)| ((*id).to_owned(), order.map(str::to_owned))).collect()
}

#[tokio::test]
async fn from_a_field_of_the_payload_unless_the_source_named_one() {
    let message = |id: &'static str, payload: &'static str| Message::new(id, "t", payload);
    let messages = vec![
        message("a", r#"{"customer":{"id":7}}"#),
        message("b", r#"{"customer":{"id":"x"}}"#),
        message("c", r#"{"customer":{}}"#),
        message("d", r#"{"customer":{"id":""}}"#),
        message("e", "no json"),
        message("f", r#"{"customer":{"id":7}}"#).with_ordering_key("own"),
        message("g", r#"{"customer":{"id":" \t"}}"#),
    ];
    let orders = orders_of(OrderBy::JsonPointer("/customer/id".into()), messages).await;
    let expected = [
        ("a", Some("7")),
        ("b", Some("x")),
        ("c", None),
        ("d", None),
        ("e", None),
        ("f", Some("own")),
        ("g", None),
    ];
    assert_eq!(orders, found(&expected));
}

#[tokio::test]
async fn from_a_header() {
    let messages = vec![
        Message::new("a", "t", "").with_header("X-Customer", "7"),
        Message::new("b", "t", ""),
        Message::new("c", "t", "").with_header("X-Customer", "  "),
    ];
    let orders = orders_of(OrderBy::Header("x-customer".into()), messages).await;
    assert_eq!(orders, found(&[("a", Some("7")), ("b", None), ("c", None)]));
}
