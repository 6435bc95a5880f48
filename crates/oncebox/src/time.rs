//! Timestamps, and the clock that gives them.
//!
//! The library never reads the system clock and never sleeps on its own. It uses a [`Clock`], so tests move time instead of
//! waiting.

#[doc(inline)]
pub use oncebox_core::time::*;
#[doc(inline)]
pub use oncebox_tokio::SystemClock;
