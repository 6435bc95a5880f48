//! `once`: deduplicate inside your own transaction.

use oncebox_sqlite::{Sqlite, rusqlite::Connection};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Sqlite::open("shop.db")?;
    let mut shop = Connection::open("shop.db")?;
    shop.execute_batch("CREATE TABLE IF NOT EXISTS charge (order_id INTEGER)")?;

    for _delivery in 0..3 {
        let tx = shop.transaction()?;
        if store.once(&tx, "orders", "evt_1", "charge-card")?.is_first() {
            tx.execute("INSERT INTO charge (order_id) VALUES (7)", [])?;
        }
        tx.commit()?; // the charge and its mark: both, or neither
    }
    let charges: i64 = shop.query_row("SELECT count(*) FROM charge", [], |row| row.get(0))?;
    println!("charged {charges} time(s)");
    Ok(())
}
