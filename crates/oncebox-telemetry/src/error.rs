//! What can be wrong with telemetry. Its texts hold no values of the environment: they may be secrets.

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// A variable of the environment cannot be what it is.
    #[error("`{variable}` cannot be used: {why}")]
    Setting {
        /// Which.
        variable: &'static str,
        /// Why.
        why: &'static str,
    },
    /// An exporter could not be made.
    #[error("the OTLP exporter of {signal} could not be made; check its endpoint, headers and timeout")]
    Exporter {
        /// Of what.
        signal: &'static str,
    },
    /// Something else records the metrics of this process already.
    #[error("another recorder of metrics is installed already")]
    Installed,
    /// It was called outside of a Tokio runtime.
    #[error("telemetry needs a Tokio runtime to send on")]
    NoRuntime,
}
