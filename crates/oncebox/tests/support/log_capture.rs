//! Captures the counters and log lines of the library on the thread of one test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Subscriber};

thread_local! {
    static CAPTURE: RefCell<Option<LogCapture>> = const { RefCell::new(None) };
}

/// Sends the log of every thread to its capture, if it has one. Call it before the first log line, because `tracing` caches
/// that a line has no subscriber.
pub(crate) fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let set = tracing::subscriber::set_global_default;
    INSTALLED.get_or_init(|| set(CaptureSubscriber).expect("no other subscriber"));
}

/// Ends when it is dropped.
pub(crate) struct Listening;

impl Drop for Listening {
    fn drop(&mut self) {
        CAPTURE.set(None);
    }
}

/// Counters by name and labels, and lines by level. Clones share both.
#[derive(Clone, Default)]
pub(crate) struct LogCapture {
    counters: Arc<Mutex<BTreeMap<String, u64>>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl LogCapture {
    /// Captures this thread until the returned guards are dropped.
    pub(crate) fn listen(&self) -> (metrics::LocalRecorderGuard<'_>, Listening) {
        install();
        CAPTURE.set(Some(self.clone()));
        (metrics::set_default_local_recorder(self), Listening)
    }

    /// Returns the value of a counter, as `name{label=value}`.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.counters.lock().get(name).copied().unwrap_or(0)
    }

    /// Returns the log lines that contain `part`.
    pub(crate) fn logged(&self, part: &str) -> Vec<String> {
        self.lines.lock().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

struct Count(LogCapture, String);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        *self.0.counters.lock().entry(self.1.clone()).or_default() += value;
    }

    fn absolute(&self, value: u64) {
        self.0.counters.lock().insert(self.1.clone(), value);
    }
}

impl Recorder for LogCapture {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Counter::from_arc(Arc::new(Count(self.clone(), name)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

struct CaptureSubscriber;

impl Subscriber for CaptureSubscriber {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        CAPTURE.with_borrow(Option::is_some)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = EventText(event.metadata().level().to_string());
        event.record(&mut line);
        CAPTURE.with_borrow(|open| open.iter().for_each(|open| open.lines.lock().push(line.0.clone())));
    }
}
