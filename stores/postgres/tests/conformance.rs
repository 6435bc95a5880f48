//! The conformance suite on every kind of server: the oldest and the newest PostgreSQL, and one behind a pooler.

mod support;

use std::sync::Arc;

use oncebox_postgres::Postgres;
use oncebox_servers::shared::{debian_url, newest_url};
use oncebox_testkit::{Harness, TestClock};
use support::Schema;

oncebox_testkit::store_conformance!(debian, on_debian);
oncebox_testkit::store_conformance!(newest, on_newest);
// FAULTS E9: a connection keeps no state between two transactions.
oncebox_testkit::store_conformance!(pgbouncer, through_pgbouncer);

async fn on_debian() -> Harness<Postgres> {
    harness(Schema::new(debian_url())).await
}

async fn on_newest() -> Harness<Postgres> {
    harness(Schema::new(newest_url())).await.sequences(96)
}

async fn through_pgbouncer() -> Harness<Postgres> {
    // Behind a pooler, PostgreSQL plans every statement anew.
    harness(Schema::pooled()).await.sequences(32)
}

async fn harness(schema: Schema) -> Harness<Postgres> {
    let clock = TestClock::new();
    let store = schema.open(&clock).await;
    let schema = Arc::new(schema);
    let again = {
        let (schema, clock) = (Arc::clone(&schema), clock.clone());
        move || {
            let (schema, clock) = (Arc::clone(&schema), clock.clone());
            async move { schema.open(&clock).await }
        }
    };
    // Calls are slow here: as many sequences as elsewhere, but shorter ones.
    Harness::new(store, clock).keeping(schema).opening(again).steps(10)
}
