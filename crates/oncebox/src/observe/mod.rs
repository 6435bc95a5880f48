//! What the inbox tells the outside about itself: metrics, spans, lines of the log and calls of observers, written once
//! around the seams. Nothing of it can harm a delivery.

pub(crate) mod emit;
mod hush;
pub mod names;
mod observed;
mod observer;
mod trace;
mod transaction;
mod watch;

pub use hush::Hush;
pub use names::{Metric, describe};
pub use observed::Observed;
pub(crate) use observer::Observers;
pub use observer::{Noted, Observer};
pub(crate) use trace::Propagator;
pub use trace::{Propagate, TraceContext};
pub(crate) use watch::Watch;
