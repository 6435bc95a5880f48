//! The attribute `#[oncebox::handler]`: what it sets, and that it changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

// The attribute and the function, by one name.
use oncebox::handler;
use oncebox::store::{Inspect, MarkIn, Transactional};
use oncebox::{
    BoxError, Breaker, Context, Dedupe, ErrorKind, HandlerKey, Inbox, InboxName, KeyStrategy, Memory,
    Message, OnPoisoned, Policy, Rate, Registration, Retry, Status, Store,
};

const SECOND: Duration = Duration::from_secs(1);

#[derive(serde::Deserialize)]
struct OrderPlaced {
    order: usize,
}

/// Counts what it is given.
#[handler(
    key = "ship-order",
    legacy = ["order-handler", "orders/1"],
    types = ["order.placed", "order.paid"],
    retry(attempts = 5, first = "500ms", max = "1m"),
    crashes = 2,
    crash_delay = "20s",
    decode_grace = "2h",
    decode_retry = "30s",
    timeout = "1d",
    concurrency = 8,
    share_commit = 64,
    on_poisoned = "skip",
    retry_for(std::io::Error = "never", std::num::ParseIntError(attempts = 3, first = "1s", max = "1s")),
    rate(count = 20, per = "1m", burst = 50),
    breaker(failures = 5, pause = "30s", max_pause = "10m"),
    dedupe = "id",
    retention = "30d",
    undoable,
)]
async fn ship(placed: OrderPlaced, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    cx.data::<Arc<AtomicUsize>>()?.fetch_add(placed.order, Ordering::Relaxed);
    Ok(())
}

/// The context of the whole program.
type AppContext = Context<Memory>;
type OtherContext<S> = Context<S>;

#[handler(key = "aliased", types = "order.placed", undoable, needs(Arc<AtomicUsize>))]
async fn aliased(_: Message, cx: &mut AppContext) -> Result<(), BoxError> {
    cx.tx().await.map(drop).map_err(Into::into)
}

#[handler(key = "generic-alias", types = "order.placed", unordered)]
async fn generic_alias<S: Store>(_: Message, _: &mut OtherContext<S>) -> anyhow::Result<()> {
    Ok(())
}

#[handler(key = "plain")]
async fn plain(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(
    key = "short",
    rate = "10/h",
    dedupe = "off",
    retention = "forever",
    breaker(failures = 1, pause = "1s")
)]
async fn short(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(key = "content", dedupe = "content")]
async fn content(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(key = "event", dedupe = "cloudevents")]
async fn event(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(key = "header", dedupe(header = "order-id"))]
async fn header(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(key = "field", dedupe(pointer = "/order"))]
async fn field(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(key = "any-store", types = "order.placed", retry = "quick")]
async fn any_store<S: Store>(_: Message, _: &mut Context<S>) -> Result<(), BoxError> {
    Ok(())
}

#[handler(key = "any-inline", types = "order.placed", inline, retry = "never")]
#[expect(clippy::needless_lifetimes, reason = "a lifetime is not a parameter of the registration")]
async fn any_inline<'a, M, S>(_: M, cx: &'a mut Context<S>) -> Result<(), oncebox::Error>
where
    M: oncebox::FromMessage + Send + 'static,
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    cx.tx().await.map(drop)
}

/// All settings of a registration.
fn settings<S: Store>(registration: &Registration<S>) -> String {
    format!("{registration:?}")
}

#[test]
fn every_option_sets_what_it_names() {
    let mut policy = Policy::default();
    policy.retry = Retry::new(5, Duration::from_millis(500), Duration::from_mins(1));
    policy.crashes = 2;
    policy.crash_delay = Duration::from_secs(20);
    policy.decode_grace = Duration::from_hours(2);
    policy.decode_retry = Duration::from_secs(30);
    let by_hand = handler("ship-order", ship)
        .legacy("order-handler")
        .legacy("orders/1")
        .types(["order.placed", "order.paid"])
        .policy(policy)
        .timeout(Duration::from_hours(24))
        .concurrency(8)
        .share_commit(64)
        .on_poisoned(OnPoisoned::Skip)
        .retry_for::<std::io::Error>(Retry::never())
        .retry_for::<std::num::ParseIntError>(Retry::new(3, SECOND, SECOND))
        .rate(Rate::per_minute(20).burst(50))
        .breaker(Breaker::new(5, 30 * SECOND).max_pause(Duration::from_mins(10)))
        .dedupe(Dedupe::By(KeyStrategy::MessageId))
        .retention(Duration::from_hours(30 * 24))
        .undoable();
    assert_eq!(settings(&ship::registration()), settings(&by_hand));
    assert_eq!(ship::KEY, "ship-order");
    let by_hand = handler("short", short)
        .rate(Rate::new(10, Duration::from_hours(1)))
        .dedupe(Dedupe::Off)
        .retention(Duration::MAX)
        .breaker(Breaker::new(1, SECOND));
    assert_eq!(settings(&short::registration()), settings(&by_hand));
}

#[test]
fn every_key_can_be_named() {
    for (registration, by_hand) in [
        (content::registration(), handler("content", content).dedupe(Dedupe::By(KeyStrategy::Content))),
        (event::registration(), handler("event", event).dedupe(Dedupe::By(KeyStrategy::CloudEvents))),
        (
            header::registration(),
            handler("header", header).dedupe(Dedupe::By(KeyStrategy::header("order-id"))),
        ),
        (
            field::registration(),
            handler("field", field).dedupe(Dedupe::By(KeyStrategy::json_pointer("/order"))),
        ),
    ] {
        assert_eq!(settings(&registration), settings(&by_hand));
    }
}

#[test]
fn what_is_left_out_is_as_without_the_attribute() {
    assert_eq!(settings(&plain::registration()), settings(&handler("plain", plain)));
}

#[test]
fn generic_handlers_have_generic_registrations() {
    let by_hand = handler("any-store", any_store::<Memory>).types("order.placed").retry(Retry::quick());
    assert_eq!(settings(&any_store::registration::<Memory>()), settings(&by_hand));
    let inline = any_inline::registration::<Message, Memory>();
    let by_hand = handler("any-inline", any_inline::<Message, Memory>).types("order.placed").inline();
    assert_eq!(settings(&inline), settings(&by_hand.retry(Retry::never())));
}

#[tokio::test]
async fn the_context_may_have_another_name() {
    let by_hand = handler("aliased", aliased).types("order.placed").undoable().needs::<Arc<AtomicUsize>>();
    assert_eq!(settings(&aliased::registration()), settings(&by_hand));
    let by_hand = handler("generic-alias", generic_alias::<Memory>).types("order.placed").unordered();
    assert_eq!(settings(&generic_alias::registration::<Memory>()), settings(&by_hand));
    let inbox = Inbox::builder("orders", Memory::new())
        .register(aliased::registration())
        .register(generic_alias::registration())
        .data(Arc::new(AtomicUsize::new(0)))
        .build()
        .unwrap();
    inbox.accept(Message::new("1", "order.placed", "")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 2);
}

#[tokio::test]
async fn what_is_registered_runs_for_each_of_its_types() {
    let shipped = Arc::new(AtomicUsize::new(0));
    let inbox = Inbox::builder("orders", Memory::new())
        .register(ship::registration())
        .register(any_store::registration())
        .data(Arc::clone(&shipped))
        .build()
        .unwrap();
    for (id, kind) in [("1", "order.placed"), ("2", "order.paid"), ("3", "order.lost")] {
        inbox.accept(Message::new(id, kind, r#"{"order":7}"#)).await.unwrap();
    }
    assert_eq!(inbox.drain().await.unwrap(), 3);
    assert_eq!(shipped.load(Ordering::Relaxed), 14);
}

#[tokio::test]
async fn code_beats_the_attribute() {
    let changed = ship::registration().concurrency(1).timeout(Duration::from_secs(1)).retry(Retry::never());
    let text = settings(&changed);
    for setting in ["concurrency: 1,", "timeout: Some(1s)", "attempts: 1,"] {
        assert!(text.contains(setting), "{setting} in {text}");
    }
    // The types of `on` replace those of the attribute.
    let inbox = Inbox::builder("orders", Memory::new())
        .on("order.lost", plain::registration().types("order.placed"))
        .build()
        .unwrap();
    inbox.accept(Message::new("1", "order.placed", "")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 0);
    inbox.accept(Message::new("2", "order.lost", "")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 1);
}

#[test]
fn who_names_no_type_is_told_where_to() {
    let error = Inbox::builder("orders", Memory::new()).register(plain::registration()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidHandler);
    assert!(error.what().contains("`Registration::types`"), "{error}");
}

/// Entries stored under a legacy key are handled by the handler that has it.
#[tokio::test]
async fn legacy_keys_reach_the_registry() {
    let store = Memory::new();
    let message = || Message::new("1", "order.placed", r#"{"order":1}"#);
    let before = Inbox::builder("orders", store.clone())
        .on("order.placed", handler("order-handler", plain))
        .build()
        .unwrap();
    before.accept(message()).await.unwrap();
    let after = Inbox::builder("orders", store.clone())
        .register(ship::registration())
        .data(Arc::new(AtomicUsize::new(0)))
        .build()
        .unwrap();
    assert_eq!(after.drain().await.unwrap(), 1);
    let name = InboxName::new("orders").unwrap();
    let key = KeyStrategy::MessageId.key(&name, &message()).unwrap();
    let entry = store.show(&name, &key).await.unwrap().unwrap().entries.remove(0);
    let newest = HandlerKey::new("ship-order").unwrap();
    assert_eq!((entry.handler, entry.status), (newest, Status::Completed), "operators see one name");
}

#[tokio::test]
async fn a_handler_can_stand_inside_of_a_function_and_in_a_module() {
    mod handlers {
        use oncebox::{BoxError, Context, Memory, Message};

        #[oncebox::handler(key = "in-a-module", types = "order.placed")]
        #[cfg(test)]
        pub(super) async fn bill(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
            Ok(())
        }
    }
    #[handler(key = "in-a-function", types = "order.placed")]
    async fn local(_: Message, _: &mut Context<Memory>) -> std::io::Result<()> {
        tokio::task::yield_now().await;
        Ok(())
    }
    use handlers::bill;
    let inbox = Inbox::builder("orders", Memory::new())
        .register(bill::registration())
        .register(local::registration())
        .build()
        .unwrap();
    inbox.accept(Message::new("1", "order.placed", "")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 2);
    // It can be registered by hand as well.
    let _by_hand: Registration<Memory> = handler("by-hand", bill);
}
