//! The rules of an entry, and the limits of a handler.
//!
//! The pure functions of `oncebox-core` decide the next state of an entry; no other code does: [`decide`] for the runtime,
//! [`operate`] for operators, and [`follow`] for the entries behind a poisoned one. [`Breaker`] and [`Rate`] decide no state: they
//! limit how much of a handler's work starts.

mod breaker;
mod rate;

pub use breaker::{Breaker, BreakerState};
pub(crate) use breaker::{Circuit, CircuitAdmission, CircuitChange, CircuitPass, CircuitSignal};
pub use rate::Rate;
pub(crate) use rate::TokenBucket;

#[doc(inline)]
pub use oncebox_core::state::*;
