//! The test kit's own inbox on PostgreSQL: repeats, and a crash between a handler and its completion.

mod support;

use std::sync::Arc;

use oncebox::config::{Config, Tenants};
use oncebox::{BoxError, Context, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_testkit::{TestClock, TestInbox, assert_idempotent};
use parking_lot::Mutex;
use support::{Schema, run};

type WrittenIds = Arc<Mutex<Vec<String>>>;

async fn book(_: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
    let sql = cx.data::<String>()?;
    let tx = cx.tx().await?;
    run(tx, &sql).await?;
    Ok(())
}

async fn note(message: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
    cx.data::<WrittenIds>()?.lock().push(String::from_utf8_lossy(message.id()).into_owned());
    Ok(())
}

fn placed() -> Message {
    Message::new("1", "order.placed", "{}").with_tenant("a")
}

fn tenants() -> Config {
    Config { tenants: Tenants::Required, ..Config::default() }
}

#[tokio::test]
async fn writes_in_the_transaction_happen_once() {
    assert_idempotent(placed(), async || {
        let (schema, clock) = (Schema::shared(), TestClock::new());
        let store = schema.open(&clock).await;
        schema.run("CREATE TABLE @booked (n integer)").await;
        let sql = schema.sql("INSERT INTO @booked VALUES (1)");
        let inbox = TestInbox::over(store, clock, |inbox| {
            inbox.config(tenants()).data(sql).on("order.placed", handler("book", book).needs::<String>())
        });
        (inbox, async move || schema.count("@booked").await)
    })
    .await;
}

#[tokio::test]
#[should_panic(expected = "ran again after a crash")]
async fn effects_outside_of_it_are_found() {
    assert_idempotent(placed(), async || {
        let (schema, clock, written) = (Schema::shared(), TestClock::new(), WrittenIds::default());
        let store = schema.open(&clock).await;
        let inbox = TestInbox::over(store, clock, |inbox| {
            inbox.config(tenants()).data(Arc::clone(&written)).on("order.placed", handler("note", note))
        });
        (inbox, async move || (schema.url().len(), written.lock().clone()).1)
    })
    .await;
}
