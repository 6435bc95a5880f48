//! `once`: deduplicate inside your own transaction.

use oncebox::{InboxName, Key};
use oncebox_sqlite::{Sqlite, rusqlite::Connection};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (store, inbox) = (Sqlite::open("shop.db")?, InboxName::new("orders")?);
    let mut shop = Connection::open("shop.db")?;
    shop.execute_batch("CREATE TABLE IF NOT EXISTS charge (order_id INTEGER)")?;

    for _delivery in 0..3 {
        let tx = shop.transaction()?;
        let key = Key::new(&inbox, "shop", ["evt_1"]);
        if store.once(&tx, &inbox, &key, "charge-card")?.is_first() {
            tx.execute("INSERT INTO charge (order_id) VALUES (7)", [])?;
        }
        tx.commit()?; // the charge and its mark: both, or neither
    }
    println!(
        "charged {} time(s)",
        shop.query_row("SELECT count(*) FROM charge", [], |row| row.get::<_, i64>(0))?
    );
    Ok(())
}
