//! What an inbox tells, brought to where it is read.
//!
//! - [`Telemetry`] records the metrics of the library for Prometheus, and exports metrics and traces over OTLP if the
//!   environment asks for it (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like).
//! - [`OtelPropagator`] makes the producer's span the parent of a handler's; [`inject`] hands the current span on.
//! - [`metrics_router`] and [`health_router`] answer `/metrics`, `/livez` and `/readyz`.
//!
//! A library that is to be small needs none of this: `oncebox` itself knows only `metrics` and `tracing`.

mod bridge;
mod client;
mod error;
mod health;
mod prometheus;
mod propagate;
mod settings;
mod telemetry;

pub use error::TelemetryError;
pub use health::health_router;
pub use prometheus::metrics_router;
pub use propagate::{OtelPropagator, inject};
pub use settings::OtlpSettings;
pub use telemetry::{SpanLayer, Telemetry};

/// The programs of the guide, so that they compile and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/observe.md")]
    mod observe {}
}
