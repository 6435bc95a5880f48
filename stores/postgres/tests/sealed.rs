//! The conformance suite on PostgreSQL with encrypted payloads: the wrapper behaves like the store inside.

mod support;

use std::sync::Arc;

use oncebox_postgres::Postgres;
use oncebox_sealed::{Keyring, Sealed};
use oncebox_servers::shared::newest_url;
use oncebox_testkit::{Harness, TestClock};
use support::Schema;

oncebox_testkit::store_conformance!(sealed, on_newest);

fn keys() -> Keyring {
    let key: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).expect("small"));
    Keyring::new("k1", &key, &key).expect("keys")
}

async fn on_newest() -> Harness<Sealed<Postgres>> {
    let (schema, clock) = (Arc::new(Schema::new(newest_url())), TestClock::new());
    let store = Sealed::new(schema.open(&clock).await, keys());
    let again = {
        let (schema, clock) = (Arc::clone(&schema), clock.clone());
        move || {
            let (schema, clock) = (Arc::clone(&schema), clock.clone());
            async move { Sealed::new(schema.open(&clock).await, keys()) }
        }
    };
    // As on the plain store: calls are slow here.
    Harness::new(store, clock).keeping(schema).opening(again).steps(10).sequences(32)
}
