//! Entries of handlers that this process does not know: told of once, and shown by a gauge.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use oncebox::observe::names;
use oncebox::{Config, ErrorKind, Memory};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use parking_lot::Mutex;
use support::{Testbed, in_time, quiet};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

const LOOK: Duration = Duration::from_mins(10);

/// Records warnings, and the gauges of orphans.
#[derive(Clone, Default)]
struct OrphanLog {
    warnings: Arc<Mutex<Vec<String>>>,
    gauges: Arc<Mutex<BTreeMap<String, Arc<Value>>>>,
}

#[derive(Default)]
struct Value(AtomicU64);

impl GaugeFn for Value {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::SeqCst);
    }
}

impl OrphanLog {
    fn orphaned(&self, handler: &str) -> Option<f64> {
        self.gauges.lock().get(handler).map(|value| f64::from_bits(value.0.load(Ordering::SeqCst)))
    }

    /// The handlers that warnings were about.
    fn warned(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }
}

impl Recorder for OrphanLog {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() != names::ORPHANED {
            return Gauge::noop();
        }
        let labels: BTreeMap<_, _> = key.labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels["inbox"], "test");
        Gauge::from_arc(Arc::clone(self.gauges.lock().entry(labels["handler"].to_owned()).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// The handler and the text of an event.
#[derive(Default)]
struct OrphanEvent {
    handler: String,
    text: String,
}

impl Visit for OrphanEvent {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "handler" => self.handler = format!("{value:?}"),
            "message" => self.text = format!("{value:?}"),
            _ => {}
        }
    }
}

impl Subscriber for OrphanLog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = OrphanEvent::default();
        event.record(&mut said);
        if said.text.contains("entries wait for an unknown handler") {
            self.warnings.lock().push(said.handler);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn settings() -> Config {
    Config { sweep: Some(LOOK), ..Config::default() }
}

/// Lets it look so many times.
async fn pass(setup: &Testbed, looks: usize) {
    quiet().await;
    for _ in 0..looks {
        setup.clock.advance(LOOK);
        quiet().await;
    }
}

// FAULTS I1: a handler was removed in a deployment, and comes back with another one.
#[tokio::test]
async fn unknown_handlers_are_reported_once_and_again_when_they_come_back() {
    let ears = OrphanLog::default();
    let _heard = tracing::subscriber::set_default(ears.clone());
    let _seen = metrics::set_default_local_recorder(&ears);
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let before = Testbed::over(store.clone(), clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("gone")).on("t", script.handler("former")).on("t", script.handler("h"))
    });
    before.accept("1", "ok").await;
    let after = Testbed::over(store, clock, |inbox, script| {
        let inbox = inbox.config(settings());
        inbox.on("t", script.handler("h")).on("t", script.handler("renamed").legacy("former"))
    });
    let running = after.inbox.start();
    pass(&after, 5).await;
    assert_eq!((ears.warned().len(), ears.orphaned("gone")), (0, None), "the grace is not over");
    pass(&after, 12).await;
    assert_eq!(ears.warned(), ["gone"], "once, and not at every look");
    assert_eq!((ears.orphaned("gone"), ears.orphaned("former")), (Some(1.0), None));
    before.accept("2", "ok").await;
    pass(&after, 3).await;
    assert_eq!((ears.warned().len(), ears.orphaned("gone")), (1, Some(2.0)), "the gauge follows");
    before.inbox.drain().await.unwrap();
    pass(&after, 3).await;
    assert_eq!((ears.warned().len(), ears.orphaned("gone")), (1, Some(0.0)));
    before.accept("3", "ok").await;
    pass(&after, 12).await;
    assert_eq!((ears.warned(), ears.orphaned("gone")), (vec!["gone".into(); 2], Some(1.0)));
    in_time(running.shutdown()).await;
}

#[tokio::test]
async fn looking_for_orphans_survives_its_own_failures() {
    let ears = OrphanLog::default();
    let _heard = tracing::subscriber::set_default(ears.clone());
    let setup = Testbed::new(|inbox, script| inbox.config(settings()).on("t", script.handler("h")));
    let other = Testbed::over(setup.store().clone(), setup.clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("gone"))
    });
    other.accept("1", "ok").await;
    let faults = setup.store().faults();
    let away = StoreFault::ErrBefore(ErrorKind::Unavailable);
    faults.script(StoreVerb::Orphans, std::iter::repeat_n([away, StoreFault::Panic], 5).flatten().map(Some));
    let running = setup.inbox.start();
    pass(&setup, 18).await;
    assert_eq!(ears.warned(), ["gone"]);
    in_time(running.shutdown()).await;
}
