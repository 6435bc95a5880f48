//! The conformance suite for sources: the rules of every transport, one test per rule. Tests: `tests/channel.rs`, and
//! each source's `tests/conformance.rs`.
//!
//! A source implements [`Transport`]: it sends a message through the real transport, starts an inbox with the source, and counts
//! what became of the messages. One line makes the tests:
//!
//! ```text
//! oncebox_testkit::source_conformance!(conformance, my_transport);
//! ```
//!
//! The second argument is an async function or closure that makes a new, empty transport. Each test gets its own. The inbox has an
//! in-memory store with fault injection, so the suite needs no server but the transport's own.

#[doc(hidden)]
pub mod basics;
mod fixture;
#[doc(hidden)]
pub mod inline;
#[doc(hidden)]
pub mod refused;
#[doc(hidden)]
pub mod trouble;

mod cases;

pub use fixture::{SourceFixture, TestStore};

use std::time::Duration;

use async_trait::async_trait;
use oncebox::{Inbox, Message};

/// Counts of the messages that were sent through a transport, from its point of view. A message that is sent twice counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLedger {
    /// Acknowledged and deleted.
    pub done: usize,
    /// Dead-lettered or refused for good.
    pub rejected: usize,
    /// Neither: in a queue, unsettled, or to be sent again by its sender.
    pub waiting: usize,
    /// Number of requested redeliveries. Zero if the transport cannot count them.
    pub again: usize,
}

/// A real transport and its source.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// A running inbox with a source attached to it.
    type Running: Send + 'static;

    /// Returns true if the source holds a delivery while the store is unavailable. A source that cannot, such as a web server, must
    /// ask the sender for a redelivery at once.
    fn holds(&self) -> bool {
        true
    }

    /// Starts an inbox and attaches a source to it, as a program would. Several may run at once, as instances of a service.
    async fn start(&self, inbox: &Inbox<TestStore>) -> Self::Running;

    /// Shuts an inbox down, as a program would: it settles deliveries if it can.
    async fn stop(&self, running: Self::Running);

    /// Ends an inbox like a crash: nothing more is settled.
    async fn crash(&self, running: Self::Running);

    /// Sends a message, and returns when the transport has it. An empty id stands for a message without one.
    async fn send(&self, message: Message);

    /// Makes the transport redeliver waiting messages that no consumer holds. Does nothing on a transport that redelivers by
    /// itself. Called again and again.
    async fn bring_again(&self);

    /// Returns the current counts.
    async fn ledger(&self) -> DeliveryLedger;
}

/// Timeout of a case. No case needs as long: it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_mins(3);

/// Runs one case on a new transport. [`source_conformance!`](crate::source_conformance) calls it.
#[doc(hidden)]
pub fn run<T, Setup>(name: &str, setup: impl FnOnce() -> Setup, case: impl AsyncFnOnce(&SourceFixture<T>))
where
    T: Transport,
    Setup: Future<Output = T>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime for the test");
    runtime.block_on(async {
        let fixture = SourceFixture::new(setup().await);
        let ended = tokio::time::timeout(PATIENCE, case(&fixture)).await;
        assert!(ended.is_ok(), "{name} did not end within {PATIENCE:?}; {}", fixture.account().await);
    });
}
