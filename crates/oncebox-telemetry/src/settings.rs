//! Export settings, from the standard variables of OpenTelemetry. Tests: below.

use crate::TelemetryError;

/// OTLP export settings. Prometheus metrics are always recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtlpSettings {
    /// Name of the service, unless `OTEL_SERVICE_NAME` gives one.
    pub service: String,
    /// Exports spans.
    pub traces: bool,
    /// Exports metrics.
    pub metrics: bool,
    /// Collector, such as `http://host:4318`. `None`: the environment names it.
    pub endpoint: Option<String>,
}

impl OtlpSettings {
    /// Returns settings without exports.
    pub fn new(service: impl Into<String>) -> Self {
        Self { service: service.into(), ..Self::default() }
    }

    /// Exports traces and metrics to a collector, whatever the environment contains.
    pub fn to(service: impl Into<String>, endpoint: impl Into<String>) -> Self {
        Self { service: service.into(), traces: true, metrics: true, endpoint: Some(endpoint.into()) }
    }

    /// Reads the environment. Exports start only if it names an endpoint:
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `OTEL_SDK_DISABLED` | `true`: nothing is exported |
    /// | `OTEL_EXPORTER_OTLP_ENDPOINT` | the collector, for both signals |
    /// | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` | the collector of one signal |
    /// | `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER` | `none`: that signal is not exported |
    /// | `OTEL_EXPORTER_OTLP_PROTOCOL` | `http/protobuf`, which is the default and the only one |
    /// | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_BSP_*`, `OTEL_METRIC_EXPORT_INTERVAL` | as everywhere |
    pub fn from_env(service: impl Into<String>) -> Result<Self, TelemetryError> {
        Self::from_variables(service, |name| std::env::var(name).ok())
    }

    pub(crate) fn from_variables(
        service: impl Into<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TelemetryError> {
        let value =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty());
        let mut settings = Self::new(service);
        if value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(settings);
        }
        let wanted = |exporter, endpoint| {
            let on = value(exporter).is_none_or(|exporter| !exporter.eq_ignore_ascii_case("none"));
            on && (value("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() || value(endpoint).is_some())
        };
        settings.traces = wanted("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        settings.metrics = wanted("OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        let protocols = [
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
        ];
        let other =
            protocols.into_iter().find(|name| value(name).is_some_and(|name| name != "http/protobuf"));
        match other.filter(|_| settings.traces || settings.metrics) {
            None => Ok(settings),
            Some(variable) => Err(TelemetryError::Setting {
                variable,
                why: "only http/protobuf is spoken here; collectors listen for it on port 4318",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<(bool, bool), TelemetryError> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        OtlpSettings::from_variables("test", find).map(|settings| (settings.traces, settings.metrics))
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        assert_eq!(of(&[]).unwrap(), (false, false));
        assert_eq!(of(&[endpoint]).unwrap(), (true, true));
        assert_eq!(of(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]).unwrap(), (false, false));
        assert_eq!(of(&[endpoint, ("OTEL_METRICS_EXPORTER", "none")]).unwrap(), (true, false));
        assert_eq!(
            of(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a/v1/traces")]).unwrap(),
            (true, false)
        );
        assert_eq!(of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).unwrap(), (false, false));
    }

    #[test]
    fn another_protocol_is_refused_only_if_it_would_be_used() {
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert_eq!(of(&[grpc]).unwrap(), (false, false));
        let error = of(&[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter2@a")]).unwrap_err();
        assert!(error.to_string().contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{error}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}
