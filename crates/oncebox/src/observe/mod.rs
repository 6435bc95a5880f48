//! Metrics, spans, log lines and observer calls. None can affect a delivery. Tests: `tests/observers.rs`, `tests/canaries.rs`.

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
pub(crate) use spans::SpanPropagator;
pub use trace::TraceContext;
pub(crate) use watch::Watch;
