//! Inline: mark, handle and commit in one transaction while the delivery is held.

use oncebox::{BoxError, Context, Inbox, Message, handler};
use oncebox_sqlite::{Sqlite, rusqlite::Connection};

async fn book(message: Message, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let id = String::from_utf8_lossy(message.id()).into_owned();
    cx.tx().await?.execute("INSERT INTO booking (message) VALUES (?1)", [id])?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    Connection::open("shop.db")?.execute_batch("CREATE TABLE IF NOT EXISTS booking (message TEXT)")?;
    let store = Sqlite::open("shop.db")?;
    let inbox =
        Inbox::builder("bookings", store).on("seat.booked", handler("book-seat", book).inline()).build()?;

    for delivery in 1..=3 {
        // Mark, handler and commit in one transaction, while the delivery is held: Done, then Duplicate.
        let processed = inbox.process(Message::new("evt_1", "seat.booked", "seat 12A")).await?;
        println!("delivery {delivery}: {processed:?}");
    }
    Ok(())
}
