//! The conformance suite on PostgreSQL.

mod support;

use oncebox_postgres::Postgres;
use oncebox_testkit::{Harness, TestClock};
use support::Schema;

oncebox_testkit::store_conformance!(conformance, postgres);

async fn postgres() -> Harness<Postgres> {
    let schema = Schema::new(oncebox_servers::shared::debian_url());
    let clock = TestClock::new();
    let store = schema.open(&clock).await;
    Harness::new(store, clock).keeping(schema)
}
