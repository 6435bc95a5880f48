//! Recorder of the library's metrics for Prometheus and OpenTelemetry. Tests: `tests/otlp.rs` and `tests/ways.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use metrics_exporter_prometheus::PrometheusRecorder;
use oncebox::observe::Metric;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use parking_lot::RwLock;

use crate::prometheus::{SECONDS, SIZES};

/// Records every metric for Prometheus, and for OpenTelemetry if metrics are exported.
pub(crate) struct DualRecorder {
    prometheus: PrometheusRecorder,
    otel: Option<OtelRecorder>,
}

impl DualRecorder {
    pub(crate) fn new(prometheus: PrometheusRecorder, meter: Option<Meter>) -> Self {
        Self { prometheus, otel: meter.map(OtelRecorder::new) }
    }
}

impl Recorder for DualRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.prometheus.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.prometheus.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.prometheus.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let first = self.prometheus.register_counter(key, metadata);
        match &self.otel {
            None => first,
            Some(otel) => Counter::from_arc(Arc::new(InstrumentPair(first, otel.counter(key)))),
        }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let first = self.prometheus.register_gauge(key, metadata);
        match &self.otel {
            None => first,
            Some(otel) => Gauge::from_arc(Arc::new(InstrumentPair(first, otel.gauge(key)))),
        }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let first = self.prometheus.register_histogram(key, metadata);
        match &self.otel {
            None => first,
            Some(otel) => Histogram::from_arc(Arc::new(InstrumentPair(first, otel.histogram(key)))),
        }
    }
}

struct InstrumentPair<A, B>(A, B);

impl CounterFn for InstrumentPair<Counter, Arc<OtelCounter>> {
    fn increment(&self, value: u64) {
        self.0.increment(value);
        self.1.instrument.add(value, &self.1.labels);
    }

    /// The library never sets a counter, and OpenTelemetry cannot.
    fn absolute(&self, value: u64) {
        self.0.absolute(value);
    }
}

impl GaugeFn for InstrumentPair<Gauge, Arc<OtelGauge>> {
    fn increment(&self, value: f64) {
        self.0.increment(value);
        self.1.change(|now| now + value);
    }

    fn decrement(&self, value: f64) {
        self.0.decrement(value);
        self.1.change(|now| now - value);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
        self.1.change(|_| value);
    }
}

impl HistogramFn for InstrumentPair<Histogram, Arc<OtelHistogram>> {
    fn record(&self, value: f64) {
        self.0.record(value);
        self.1.instrument.record(value, &self.1.labels);
    }
}

struct OtelCounter {
    instrument: opentelemetry::metrics::Counter<u64>,
    labels: Vec<KeyValue>,
}

struct OtelHistogram {
    instrument: opentelemetry::metrics::Histogram<f64>,
    labels: Vec<KeyValue>,
}

struct OtelGauge {
    instrument: opentelemetry::metrics::Gauge<f64>,
    labels: Vec<KeyValue>,
    now: AtomicU64,
}

impl OtelGauge {
    fn change(&self, change: impl Fn(f64) -> f64) {
        let step = |bits| Some(change(f64::from_bits(bits)).to_bits());
        // The closure always returns a value.
        let _ = self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        self.instrument.record(f64::from_bits(self.now.load(Ordering::SeqCst)), &self.labels);
    }
}

/// Instruments, made once for each metric and set of labels, whose number is bounded.
type Cache<T> = RwLock<HashMap<Key, Arc<T>>>;

struct OtelRecorder {
    meter: Meter,
    counters: Cache<OtelCounter>,
    gauges: Cache<OtelGauge>,
    histograms: Cache<OtelHistogram>,
}

impl OtelRecorder {
    fn new(meter: Meter) -> Self {
        let (counters, gauges, histograms) = (Cache::default(), Cache::default(), Cache::default());
        Self { meter, counters, gauges, histograms }
    }

    fn counter(&self, key: &Key) -> Arc<OtelCounter> {
        cached(&self.counters, key, || {
            let (help, unit) = described(key);
            let builder = self.meter.u64_counter(key.name().to_owned());
            OtelCounter {
                instrument: builder.with_description(help).with_unit(unit).build(),
                labels: labels(key),
            }
        })
    }

    fn gauge(&self, key: &Key) -> Arc<OtelGauge> {
        cached(&self.gauges, key, || {
            let (help, unit) = described(key);
            let builder = self.meter.f64_gauge(key.name().to_owned());
            let instrument = builder.with_description(help).with_unit(unit).build();
            OtelGauge { instrument, labels: labels(key), now: AtomicU64::new(0) }
        })
    }

    fn histogram(&self, key: &Key) -> Arc<OtelHistogram> {
        cached(&self.histograms, key, || {
            let (help, unit) = described(key);
            let bounds = if unit == "s" { &SECONDS[..] } else { &SIZES[..] };
            let builder = self.meter.f64_histogram(key.name().to_owned()).with_boundaries(bounds.to_vec());
            OtelHistogram {
                instrument: builder.with_description(help).with_unit(unit).build(),
                labels: labels(key),
            }
        })
    }
}

fn cached<T>(cache: &Cache<T>, key: &Key, make: impl FnOnce() -> T) -> Arc<T> {
    if let Some(known) = cache.read().get(key) {
        return Arc::clone(known);
    }
    Arc::clone(cache.write().entry(key.clone()).or_insert_with(|| Arc::new(make())))
}

fn labels(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned())).collect()
}

/// Returns the table's entry of a metric.
fn described(key: &Key) -> (&'static str, &'static str) {
    Metric::named(key.name())
        .map_or(("", ""), |metric| (metric.help, if metric.unit == Some(Unit::Seconds) { "s" } else { "" }))
}
