//! Errors of the telemetry setup. Their texts hold no values of the environment, which may be secrets. Tests:
//! settings.rs and `tests/otlp.rs`.

/// The telemetry setup failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// A variable of the environment has an invalid value.
    #[error("`{variable}` cannot be used: {why}")]
    Setting {
        /// Name of the variable.
        variable: &'static str,
        /// Reason.
        why: &'static str,
    },
    /// The library cannot create an exporter.
    #[error("the OTLP exporter of {signal} could not be made; check its endpoint, headers and timeout")]
    Exporter {
        /// Signal of the exporter.
        signal: &'static str,
    },
    /// Another recorder already records the metrics of this process.
    #[error("another recorder of metrics is installed already")]
    Installed,
    /// The caller runs outside of a Tokio runtime.
    #[error("telemetry needs a Tokio runtime to send on")]
    NoRuntime,
}
