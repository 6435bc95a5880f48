//! The conformance suite for stores: the rules of every store, one test per rule. Tests: below, and each store's
//! `tests/conformance.rs`.
//!
//! ```
//! use oncebox::Memory;
//! use oncebox_testkit::{Harness, TestClock};
//!
//! oncebox_testkit::store_conformance!(conformance, memory);
//!
//! async fn memory() -> Harness<Memory> {
//!     let clock = TestClock::new();
//!     Harness::new(Memory::with_clock(clock.shared()), clock)
//! }
//! ```
//!
//! | tier | a store with | cases about |
//! |---|---|---|
//! | `store` | [`Store`](oncebox::Store) | what every inbox needs: dedupe, leases, fences, retries, order, retention |
//! | `inspect` | [`Inspect`](oncebox::store::Inspect) | the same, seen from outside; windows, orphans and backlog of all processes |
//! | `operate` | [`Operate`](oncebox::store::Operate) and [`Examine`](oncebox::store::Examine) | operator actions, their records, the doctor |
//! | `transactional` | [`Transactional`](oncebox::store::Transactional), [`MarkIn`](oncebox::store::MarkIn) and [`AcceptIn`](oncebox::store::AcceptIn) | marks, completions and accepts in a transaction |
//! | `share` | [`ShareIn`](oncebox::store::ShareIn) | several runs in one transaction, and the random model |
//!
//! Each tier needs those before it. A store with the first two alone runs
//! `store_conformance!(conformance, memory, tiers: store inspect)`.
//!
//! The second argument is an async function or closure that makes a [`Harness`]: a new, empty store on a
//! [`TestClock`](crate::TestClock). Each test gets its own. A test that hangs is stopped and named.

#[doc(hidden)]
pub mod accept;
#[doc(hidden)]
pub mod accept_in;
#[doc(hidden)]
pub mod admin;
#[doc(hidden)]
pub mod alias;
#[doc(hidden)]
pub mod backfill;
#[doc(hidden)]
pub mod backlog;
#[doc(hidden)]
pub mod claim;
#[doc(hidden)]
pub mod concurrency;
#[doc(hidden)]
pub mod edges;
#[doc(hidden)]
pub mod erase;
#[doc(hidden)]
pub mod history;
#[doc(hidden)]
pub mod inline;
#[doc(hidden)]
pub mod line;
#[doc(hidden)]
pub mod list;
#[doc(hidden)]
pub mod mark;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod operations;
#[doc(hidden)]
pub mod order;
#[doc(hidden)]
pub mod orphans;
#[doc(hidden)]
pub mod quarantine;
#[doc(hidden)]
pub mod register;
#[doc(hidden)]
pub mod rename;
#[doc(hidden)]
pub mod renew;
#[doc(hidden)]
pub mod rescue;
#[doc(hidden)]
pub mod result;
#[doc(hidden)]
pub mod settle;
#[doc(hidden)]
pub mod share;
#[doc(hidden)]
pub mod suspects;
#[doc(hidden)]
pub mod sweep;
#[doc(hidden)]
pub mod tenant;
#[doc(hidden)]
pub mod unknown;
#[doc(hidden)]
pub mod windows;

mod cases;
mod inspect_cases;
#[cfg(test)]
mod listed;
mod operate_cases;
mod store_cases;
mod transactional_cases;

use std::time::Duration;

use crate::Harness;

/// Timeout of a case. No case needs as long: it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_mins(10);

/// Runs one case on a new store. [`store_conformance!`](crate::store_conformance) calls it.
#[doc(hidden)]
pub fn run<S, Setup>(name: &str, setup: impl FnOnce() -> Setup, case: impl AsyncFnOnce(&Harness<S>))
where
    Setup: Future<Output = Harness<S>>,
{
    // Several threads, because tests race stores.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime for the test");
    runtime.block_on(async {
        let harness = setup().await;
        let ended = tokio::time::timeout(PATIENCE, case(&harness)).await;
        assert!(ended.is_ok(), "{name} did not end within {PATIENCE:?}");
    });
}
