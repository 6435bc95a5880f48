//! `once`: deduplicate inside your own transaction.

use oncebox::BoxError;
use oncebox_sqlite::{Sqlite, rusqlite::Connection};

/// Call this for every delivery, and acknowledge the delivery after `Ok`.
fn charge(store: &Sqlite, shop: &mut Connection, event: &str, order: i64) -> Result<(), BoxError> {
    let tx = shop.transaction()?;
    if store.once(&tx, "orders", event, "charge-card")?.is_first()? {
        tx.execute("INSERT INTO charge (order_id) VALUES (?1)", [order])?;
    }
    tx.commit()?; // the charge and its mark: both, or neither
    Ok(())
}

fn main() -> Result<(), BoxError> {
    let store = Sqlite::open("shop.db")?;
    let mut shop = Connection::open("shop.db")?;
    shop.execute_batch("CREATE TABLE IF NOT EXISTS charge (order_id INTEGER)")?;

    for _delivery in 0..3 {
        charge(&store, &mut shop, "evt_1", 7)?;
    }
    let charges: i64 = shop.query_row("SELECT count(*) FROM charge", [], |row| row.get(0))?;
    println!("charged {charges} time(s)");
    Ok(())
}
