//! The conformance suite for sources: what every transport may rely on, as one test per rule.
//!
//! The author of a source implements [`Transport`]: how a message is sent through the real transport, how an inbox is
//! started with the source, and what the transport believes became of its messages. One line makes the tests:
//!
//! ```text
//! oncebox_testkit::source_conformance!(conformance, my_transport);
//! ```
//!
//! The second argument is an async function or closure that makes a fresh, empty transport. Each test gets its own. The
//! inbox under it stands on a store that fails on demand, so the suite needs no server but the transport's own.

#[doc(hidden)]
pub mod basics;
#[doc(hidden)]
pub mod inline;
#[doc(hidden)]
pub mod refused;
mod stage;
#[doc(hidden)]
pub mod trouble;

mod cases;

pub use stage::{SourceFixture, TestStore};

use std::time::Duration;

use async_trait::async_trait;
use oncebox::{Inbox, Message};

/// What a transport believes became of the messages that were sent through it. A message that is sent twice counts
/// twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLedger {
    /// Acknowledged: the transport has forgotten them.
    pub done: usize,
    /// Put where messages go that can never be taken, or refused for good.
    pub rejected: usize,
    /// Neither: in a queue, in hand, or to be sent again by whoever sent them.
    pub waiting: usize,
    /// How often the transport was told to bring a message again, as far as it can tell; zero if it cannot.
    pub again: usize,
}

/// A real transport and its source, as the suite needs them.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// A running inbox with a source attached to it.
    type Running: Send + 'static;

    /// Whether the source can keep a delivery in hand while the store is away. One that cannot, as a web server, has to
    /// tell the sender to come again at once.
    fn holds(&self) -> bool {
        true
    }

    /// Starts an inbox and attaches a source to it, as a program would. Several may run at once: instances of a service.
    async fn start(&self, inbox: &Inbox<TestStore>) -> Self::Running;

    /// Stops it as a program does that shuts down: what is in hand is settled, if it can be.
    async fn stop(&self, running: Self::Running);

    /// Ends it as a crash would: nothing more is settled.
    async fn crash(&self, running: Self::Running);

    /// Sends a message, and returns when the transport has it, whatever becomes of it. An empty id stands for a message
    /// without one.
    async fn send(&self, message: Message);

    /// Lets the transport bring again what is waiting and in nobody's hands; nothing to do for one that does so by
    /// itself. Called again and again.
    async fn bring_again(&self);

    /// What the transport believes at this moment.
    async fn books(&self) -> DeliveryLedger;
}

/// How long a case may take on a slow machine. Far more than any needs; it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_mins(3);

/// Runs one case on a fresh transport. Called by [`source_conformance!`](crate::source_conformance).
#[doc(hidden)]
pub fn run<T, Setup>(name: &str, setup: impl FnOnce() -> Setup, case: impl AsyncFnOnce(&SourceFixture<T>))
where
    T: Transport,
    Setup: Future<Output = T>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime for the test");
    runtime.block_on(async {
        let world = SourceFixture::new(setup().await);
        let ended = tokio::time::timeout(PATIENCE, case(&world)).await;
        assert!(ended.is_ok(), "{name} did not end within {PATIENCE:?}; {}", world.account().await);
    });
}
