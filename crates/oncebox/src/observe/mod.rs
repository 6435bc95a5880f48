//! What the inbox tells the outside about itself: metrics, spans, lines of the log and calls of observers, written once
//! around the seams. Nothing of it can harm a delivery.

mod claims;
pub(crate) mod emit;
mod log_throttle;
pub mod names;
mod observed;
mod observer;
mod spans;
mod trace;
mod transaction;
mod watch;

pub(crate) use claims::ClaimSpans;
pub use log_throttle::LogThrottle;
pub use names::{Metric, describe};
pub use observed::Observed;
pub(crate) use observer::Observers;
pub use observer::{Observer, ObserverResult};
pub use spans::Propagate;
pub(crate) use spans::Propagator;
pub use trace::TraceContext;
pub(crate) use watch::Watch;
