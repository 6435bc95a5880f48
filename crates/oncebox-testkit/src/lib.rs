//! The test kit of Oncebox: for stores, sources and handlers. Tests: in each module.
//!
//! - [`TestInbox`] runs handlers when the test calls it. [`assert_idempotent`] delivers a message in every bad way.
//! - [`TestClock`] is a clock that only tests move.
//! - [`store_conformance!`] runs the conformance suite on a store, with one line.
//! - [`source_conformance!`] does the same for a source, over its real transport.
//! - [`FaultyStore`] wraps a store and injects faults: before a call, after it, or it hangs.
#![expect(clippy::missing_panics_doc, reason = "panicking is how a test kit says no")]

mod clock;
pub mod conformance;
mod faulty;
mod fixture;
mod harness;
mod inbox;
pub mod source;
mod steps;

/// Compiles the programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/testing.md")]
struct TestingGuide;

pub use clock::TestClock;
pub use faulty::{Deadlock, FaultOdds, FaultPlan, FaultyStore, StoreFault, StoreVerb};
pub use harness::{Harness, InspectTier, OperateTier, ShareTier, StoreTier, TransactionalTier};
pub use inbox::{TestInbox, assert_idempotent};
pub use steps::OperatorSteps;
