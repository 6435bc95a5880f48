//! Hears what the library tells the outside: counters and lines of the log, on the thread of one test.

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
    static EAR: RefCell<Option<Ear>> = const { RefCell::new(None) };
}

/// Makes the log of every thread heard by its ear, if it has one. To be done before anything is logged: where a line is
/// first logged while somebody begins to listen, it may be taken for one that nobody wants.
pub(crate) fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| tracing::subscriber::set_global_default(Log).expect("nobody else listens"));
}

/// Ends when it is dropped.
pub(crate) struct Listening;

impl Drop for Listening {
    fn drop(&mut self) {
        EAR.set(None);
    }
}

/// Counters by name and labels, and lines by level. Clones hear the same.
#[derive(Clone, Default)]
pub(crate) struct Ear {
    counters: Arc<Mutex<BTreeMap<String, u64>>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Ear {
    /// Listens to this thread until what it returns is dropped. The ear itself has to live as long.
    pub(crate) fn listen(&self) -> (metrics::LocalRecorderGuard<'_>, Listening) {
        install();
        EAR.set(Some(self.clone()));
        (metrics::set_default_local_recorder(self), Listening)
    }

    /// What a counter has come to, as `name{label=value}`.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.counters.lock().get(name).copied().unwrap_or(0)
    }

    /// The lines that say this.
    pub(crate) fn heard(&self, part: &str) -> Vec<String> {
        self.lines.lock().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

struct Count(Ear, String);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        *self.0.counters.lock().entry(self.1.clone()).or_default() += value;
    }

    fn absolute(&self, value: u64) {
        self.0.counters.lock().insert(self.1.clone(), value);
    }
}

impl Recorder for Ear {
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

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

struct Log;

impl Subscriber for Log {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        EAR.with_borrow(Option::is_some)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        EAR.with_borrow(|ear| ear.iter().for_each(|ear| ear.lines.lock().push(line.0.clone())));
    }
}
