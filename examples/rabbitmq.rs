//! Orders from a queue of RabbitMQ, each shipped once.
//!
//! `cargo run -p oncebox-rabbitmq --example rabbitmq -- amqp://guest:guest@localhost` declares the queue `orders` and consumes
//! it. Publish `{"order":7}` to it with a `message-id` and the type `order.placed`, as often as you like.

use oncebox::{BoxError, Context, Inbox, handler};
use oncebox_rabbitmq::{Queue, RabbitMq};
use oncebox_sqlite::{Sqlite, rusqlite::Connection};

#[derive(serde::Deserialize)]
struct OrderPlaced {
    order: i64,
}

async fn ship(placed: OrderPlaced, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let tx = cx.tx().await?; // committed together with "this message is done"
    tx.execute("INSERT INTO shipment (order_id) VALUES (?1)", [placed.order])?;
    println!("shipped order {}", placed.order);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).init();
    let url = std::env::args().nth(1).unwrap_or_else(|| "amqp://guest:guest@localhost".into());
    Connection::open("shop.db")?.execute_batch("CREATE TABLE IF NOT EXISTS shipment (order_id INTEGER)")?;
    let store = Sqlite::open("shop.db")?;
    let inbox = Inbox::builder("shop", store).on("order.placed", handler("ship-order", ship)).build()?;
    let orders = RabbitMq::builder(&url)
        .queue(Queue::quorum("orders").delivery_limit(20).dead_letter_queue("orders.dead"))
        .build()?;
    let running = inbox.start();
    running.receive(orders)?;
    tokio::signal::ctrl_c().await?;
    running.shutdown().await; // stores and acknowledges open deliveries first
    Ok(())
}
