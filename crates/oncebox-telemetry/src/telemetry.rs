//! Setup and shutdown of recorders and exporters. Tests: `tests/otlp.rs` and `tests/ways.rs`.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{Filtered, LevelFilter};
use tracing_subscriber::layer::Layer as _;
use tracing_subscriber::registry::LookupSpan;

use crate::bridge::DualRecorder;
use crate::client::OtlpClient;
use crate::{OtlpSettings, TelemetryError, prometheus};

/// Name of the instrumentation scope.
const SCOPE: &str = "oncebox";
/// Interval of the upkeep of recorded values, so that they do not accumulate without scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Layer that exports spans from a level on.
pub type SpanLayer<S> = Filtered<OpenTelemetryLayer<S, SdkTracer>, LevelFilter, S>;

/// Recorders and exporters of metrics and traces. Create it once per process, within its Tokio runtime.
///
/// ```no_run
/// use oncebox_telemetry::{OtlpSettings, Telemetry, metrics_router};
/// use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let telemetry = Telemetry::new(&OtlpSettings::from_env("shop")?)?;
/// telemetry.install()?;
/// tracing_subscriber::registry().with(telemetry.layer()).init();
/// let routes = metrics_router(telemetry.prometheus());
/// // ... serve the routes, run the inbox ...
/// telemetry.shutdown().await; // sends what is left
/// # drop(routes);
/// # Ok(()) }
/// ```
pub struct Telemetry {
    recorder: parking_lot::Mutex<Option<DualRecorder>>,
    handle: PrometheusHandle,
    tracer: Option<SdkTracerProvider>,
    meter: Option<SdkMeterProvider>,
}

impl Telemetry {
    /// Creates exporters and recorders. Nothing is global before [`install`](Self::install).
    pub fn new(settings: &OtlpSettings) -> Result<Self, TelemetryError> {
        let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
        let resource = || Resource::builder().with_service_name(service(settings)).build();
        let client =
            |signal| OtlpClient::new(runtime.clone()).map_err(|_| TelemetryError::Exporter { signal });
        let tracer = if settings.traces {
            let exporter = span_exporter(settings, client("traces")?)?;
            let builder = SdkTracerProvider::builder().with_resource(resource());
            Some(builder.with_batch_exporter(exporter).build())
        } else {
            None
        };
        let meter = if settings.metrics {
            let exporter = metric_exporter(settings, client("metrics")?)?;
            let builder = SdkMeterProvider::builder().with_resource(resource());
            Some(builder.with_periodic_exporter(exporter).build())
        } else {
            None
        };
        let prometheus = prometheus::recorder();
        let handle = prometheus.handle();
        let both = DualRecorder::new(prometheus, meter.as_ref().map(|provider| provider.meter(SCOPE)));
        Ok(Self { recorder: parking_lot::Mutex::new(Some(both)), handle, tracer, meter })
    }

    /// Records the metrics of this process from now on, and describes those of the library. Call it once.
    pub fn install(&self) -> Result<(), TelemetryError> {
        let recorder = self.recorder.lock().take().ok_or(TelemetryError::Installed)?;
        metrics::set_global_recorder(recorder).map_err(|_| TelemetryError::Installed)?;
        oncebox::observe::describe();
        let handle = self.handle.clone();
        tokio::spawn(async move {
            let mut every = tokio::time::interval(UPKEEP);
            loop {
                every.tick().await;
                handle.run_upkeep();
            }
        });
        Ok(())
    }

    /// Records the metrics of a part of the program only, for example of a test.
    pub fn recorder(&self) -> Option<Arc<dyn metrics::Recorder + Send + Sync>> {
        self.recorder.lock().take().map(|both| Arc::new(both) as _)
    }

    /// Returns the layer that exports spans and events of level INFO and above. `None` if traces are not exported. At this level
    /// each message has one trace, without the calls of the store.
    pub fn layer<S>(&self) -> Option<SpanLayer<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        self.layer_at(LevelFilter::INFO)
    }

    /// Returns the layer for spans and events of `level` and above. Store calls are spans of level DEBUG.
    pub fn layer_at<S>(&self, level: LevelFilter) -> Option<SpanLayer<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.tracer.as_ref()?.tracer(SCOPE);
        Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(level))
    }

    /// Returns the metrics in the text format of Prometheus.
    pub fn prometheus(&self) -> PrometheusHandle {
        self.handle.clone()
    }

    /// Sends the remaining data and shuts down. Waits a few seconds at most for a collector.
    pub async fn shutdown(self) {
        let Self { tracer, meter, .. } = self;
        // The wait for the sender threads must not block the runtime that they use.
        let ended = tokio::task::spawn_blocking(move || {
            let traces = tracer.map(|provider| provider.shutdown());
            let metrics = meter.map(|provider| provider.shutdown());
            [traces, metrics].into_iter().flatten().any(|ended| ended.is_err())
        });
        if ended.await.unwrap_or(true) {
            tracing::warn!("cannot send last traces or metrics");
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry")
            .field("traces", &self.tracer.is_some())
            .field("metrics", &self.meter.is_some())
            .finish_non_exhaustive()
    }
}

fn service(settings: &OtlpSettings) -> String {
    std::env::var("OTEL_SERVICE_NAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or(settings.service.clone())
}

/// Returns the URL of a signal at a collector.
fn endpoint(settings: &OtlpSettings, path: &str) -> Option<String> {
    settings.endpoint.as_ref().map(|endpoint| format!("{}{path}", endpoint.trim_end_matches('/')))
}

fn span_exporter(settings: &OtlpSettings, client: OtlpClient) -> Result<SpanExporter, TelemetryError> {
    let mut builder = SpanExporter::builder().with_http().with_http_client(client);
    if let Some(endpoint) = endpoint(settings, "/v1/traces") {
        builder = builder.with_endpoint(endpoint);
    }
    // The cause may contain values of the environment, such as passwords.
    builder.build().map_err(|_| TelemetryError::Exporter { signal: "traces" })
}

fn metric_exporter(settings: &OtlpSettings, client: OtlpClient) -> Result<MetricExporter, TelemetryError> {
    let mut builder = MetricExporter::builder().with_http().with_http_client(client);
    if let Some(endpoint) = endpoint(settings, "/v1/metrics") {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().map_err(|_| TelemetryError::Exporter { signal: "metrics" })
}
