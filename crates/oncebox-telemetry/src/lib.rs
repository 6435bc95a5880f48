//! Metrics, traces and health of inboxes, exported to Prometheus and OpenTelemetry. Tests: `tests/`.
//!
//! - [`Telemetry`] records the metrics of the library for Prometheus. It exports metrics and traces over OTLP if the environment
//!   asks for it (`OTEL_EXPORTER_OTLP_ENDPOINT` and others).
//! - [`OtelPropagator`] makes the producer's span the parent of a handler's span. [`inject`] passes the current span on.
//! - [`metrics_router`] and [`health_router`] serve `/metrics`, `/livez` and `/readyz`.
//!
//! A small library needs none of this: `oncebox` itself uses only `metrics` and `tracing`.

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
