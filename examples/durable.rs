//! Durable: store first, acknowledge, process with retries.

use oncebox::{BoxError, Context, Inbox, Message, handler};
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
    Connection::open("shop.db")?.execute_batch("CREATE TABLE IF NOT EXISTS shipment (order_id INTEGER)")?;
    let store = Sqlite::open("shop.db")?;
    let inbox = Inbox::builder("orders", store).on("order.placed", handler("ship-order", ship)).build()?;
    let running = inbox.start();

    for _delivery in 0..3 {
        // Your consumer does this for every delivery, and acknowledges it once it returns Ok.
        inbox.accept(Message::new("evt_1", "order.placed", r#"{"order":7}"#)).await?;
    }
    running.idle().await; // a service would wait for its stop signal here
    running.shutdown().await;
    Ok(())
}
