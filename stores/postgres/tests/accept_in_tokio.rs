//! Accept in a transaction of `tokio-postgres`: the same answers, also in the rare cases.

mod support;

use std::sync::Arc;

use oncebox::store::{AcceptIn as _, Accepted, NewMessage, Store as _};
use oncebox::{Fingerprint, Message};
use oncebox_postgres::Postgres;
use support::{Schema, claim, key, message, offer, offer_ordered, route};
use tokio_postgres::{Client, NoTls, Transaction};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    // The task ends with the client.
    tokio::spawn(connection);
    client
}

fn offer_to(id: &str, order: Option<&str>, handlers: &[&str]) -> NewMessage {
    let message = order.map_or_else(|| message(id), |order| message(id).with_ordering_key(order.to_owned()));
    let routes = handlers.iter().copied().map(route).collect();
    NewMessage::new(support::inbox(), key(id), Arc::new(message), routes)
}

async fn accept_in(store: &Postgres, tx: &mut Transaction<'_>, new: NewMessage) -> Accepted {
    store.accept_in(tx, &[new]).await.expect("accept in a transaction")[0]
}

#[tokio::test]
async fn every_answer_is_that_of_accept() {
    for url in [oncebox_servers::shared::debian_url(), oncebox_servers::shared::pgbouncer_url()] {
        let schema = Schema::shared();
        let store = schema.shop().await;
        store.accept(&[offer("known"), offer_ordered("ordered", "k")]).await.expect("accept");
        let mut client = connect(&url).await;
        for committed in [false, true] {
            let mut tx = client.transaction().await.expect("begin");
            assert!(matches!(accept_in(&store, &mut tx, offer("new")).await, Accepted::First(_)));
            assert!(matches!(accept_in(&store, &mut tx, offer("new")).await, Accepted::Duplicate(_)));
            assert!(matches!(accept_in(&store, &mut tx, offer("known")).await, Accepted::Duplicate(_)));
            let mut other = offer("known");
            other.message = Arc::new(Message::new("known", "order.placed", "other"));
            other.fingerprint = Fingerprint::of(&other.message);
            assert!(matches!(accept_in(&store, &mut tx, other).await, Accepted::Conflict(_)));
            let added = accept_in(&store, &mut tx, offer_to("ordered", Some("k"), &["h", "i"])).await;
            assert!(matches!(added, Accepted::HandlersAdded(_, 1)), "{added:?}");
            let behind = accept_in(&store, &mut tx, offer_ordered("behind", "k")).await;
            assert!(matches!(behind, Accepted::First(_)), "{behind:?}");
            if committed {
                tx.commit().await.expect("commit");
            } else {
                tx.rollback().await.expect("rollback");
            }
            let quarantined = schema.count("@quarantine").await;
            assert_eq!(
                (schema.count("@message").await, quarantined),
                if committed { (4, 1) } else { (2, 0) }
            );
        }
        assert_eq!(claim(&store, 10).await.len(), 3, "one waits behind another");
        schema.check().await;
    }
}
