//! The conformance suite of tier 0.

use oncebox_example_store::SmallStore;
use oncebox_testkit::{Harness, TestClock};

oncebox_testkit::store_conformance!(conformance, small, tiers: store);

async fn small() -> Harness<SmallStore> {
    let clock = TestClock::new();
    Harness::new(SmallStore::new(clock.shared()), clock)
}
