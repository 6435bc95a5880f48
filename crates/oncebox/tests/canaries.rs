//! Secrets go in everywhere, and come out nowhere: not in logs, metrics, errors or health (FAULTS J4, J6, S12, S18).

mod support;

use oncebox::store::Inspect;
use std::fmt::Write as _;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use oncebox::observe::names::{LabelValues, METRICS};
use oncebox::source::channel;
use oncebox::state::Status;
use oncebox::{BoxError, Config, Context, ErrorKind, KeyStrategy, Message, handler};
use oncebox_testkit::{StoreFault, StoreVerb};
use parking_lot::Mutex;
use support::log_capture::LogCapture;
use support::{FaultyMemory, SECOND, Testbed, in_time, quiet};

const CANARY: &str = "canary7f3a";

#[derive(Debug, serde::Deserialize)]
struct CanaryOrder {
    #[expect(dead_code, reason = "only decoded")]
    order: u32,
}

async fn decodes(_: CanaryOrder, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    Ok(())
}

/// Says what a clumsy handler says: the URL of its database, and a token.
async fn fails(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    Err(format!("cannot connect to postgres://app:{CANARY}@db/orders with token={CANARY}").into())
}

async fn panics(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    panic!("password={CANARY}");
}

/// Keeps every name and label, and records those that the table lacks (FAULTS J5). The library would hide its panic.
#[derive(Clone, Default)]
struct Labels {
    all: Arc<Mutex<String>>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Labels {
    fn note(&self, key: &Key) {
        let mut all = self.all.lock();
        let _ = write!(all, "{} ", key.name());
        for label in key.labels() {
            let _ = write!(all, "{}={} ", label.key(), label.value());
        }
        if !is_known(key) {
            self.wrong.lock().push(format!("{key:?}"));
        }
    }
}

fn is_known(key: &Key) -> bool {
    let Some(metric) = METRICS.iter().find(|metric| metric.name == key.name()) else { return false };
    let names = ["test", "decodes", "fails", "panics", "broker"];
    let is_known = |label: &metrics::Label| match metric.label(label.key()).map(|label| label.values) {
        Some(LabelValues::Words(words)) => words.contains(&label.value()),
        Some(LabelValues::Names(_)) => names.contains(&label.value()),
        None => false,
    };
    key.labels().count() == metric.labels.len() && key.labels().all(is_known)
}

impl Recorder for Labels {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.note(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.note(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.note(key);
        Histogram::noop()
    }
}

fn secret(id: &str) -> Message {
    Message::new(id.to_owned(), "t", format!(r#"{{"order":"{CANARY}","card":"{CANARY}"}}"#))
        .with_header("authorization", format!("Bearer {CANARY}"))
        .with_header("cookie", CANARY)
        .with_header("x-internal", CANARY)
        .with_header("x-note", CANARY)
}

#[tokio::test]
async fn no_secret_comes_out() {
    let (capture, labels) = (LogCapture::default(), Labels::default());
    let (recording, _listening) = capture.listen();
    drop(recording);
    let _recording = metrics::set_default_local_recorder(&labels);
    let setup = Testbed::new(|inbox, _| {
        inbox
            .on("t", handler("decodes", decodes))
            .on("t", handler("fails", fails))
            .on("t", handler("panics", panics))
            .config(Config { private_headers: vec!["X-Internal".into()], ..Config::default() })
    });
    let mut told = String::new();

    let running = setup.inbox.start();
    let (sender, source) = channel("broker", 16);
    running.receive(source).unwrap();
    // A store that is away, and one that refuses for good.
    for fault in [
        StoreFault::ErrBefore(ErrorKind::Unavailable),
        StoreFault::ErrAfter,
        StoreFault::ErrBefore(ErrorKind::Corrupt),
    ] {
        setup.store().faults().next(StoreVerb::Accept, fault);
    }
    let sent = tokio::spawn(async move { sender.deliver(secret("1")).await });
    setup.pass(5 * SECOND).await;
    let _ = write!(told, "{:?}", in_time(sent).await.unwrap());
    let too_large = Message::new("2", "t", vec![b'x'; 5 << 20]).with_header("x", CANARY);
    let _ = write!(told, "{:?}", setup.inbox.accept(too_large).await);
    let conflict = Message::new("1", "t", CANARY);
    let _ = write!(told, "{:?}", setup.inbox.accept(conflict).await);
    in_time(running.idle()).await;
    setup.pass(120 * SECOND).await;
    let health = running.health();
    let _ = write!(told, "{health:?} {:?}", setup.inbox);

    // What was stored: the payload, and no private header.
    let key = KeyStrategy::MessageId.key(setup.inbox.name(), &secret("1")).unwrap();
    let view = setup.store().show(setup.inbox.name(), &key).await.unwrap().unwrap();
    let (_, _, stored) = view.stored.unwrap();
    let names: Vec<&str> = stored.headers().iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x-note"]);
    let errors: Vec<String> = view.entries.iter().map(|entry| format!("{:?}", entry.error)).collect();
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().any(|error| error.contains("postgres://***@db")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("invalid type, expected u32")), "{errors:?}");
    assert_ne!(view.entries[0].status, Status::Completed);
    in_time(running.shutdown()).await;
    quiet().await;

    assert_eq!(*labels.wrong.lock(), [""; 0], "all labels are in the table");
    for name in [
        "oncebox_deliveries_total",
        "oncebox_lag_seconds",
        "oncebox_pending_entries",
        "oncebox_refused_total",
    ] {
        assert!(labels.all.lock().contains(name), "{name}");
    }
    let lines = capture.logged("");
    assert!(lines.iter().any(|line| line.contains("failed; trying again")), "{lines:#?}");
    for (where_from, text) in [
        ("logs", lines.join("\n")),
        ("metrics", labels.all.lock().clone()),
        ("answers", told),
        ("errors", errors.join("\n")),
    ] {
        assert!(!text.is_empty());
        assert!(!text.contains(CANARY), "{where_from}: {text}");
    }
}

// FAULTS J6: an outage is told of, not counted out.
#[tokio::test]
async fn an_outage_does_not_fill_the_log() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    let running = setup.inbox.start();
    let (sender, source) = channel("broker", 256);
    running.receive(source).unwrap();
    in_time(running.idle()).await;
    let away = StoreFault::ErrBefore(ErrorKind::Unavailable);
    for verb in [
        StoreVerb::Accept,
        StoreVerb::Claim,
        StoreVerb::Settle,
        StoreVerb::Renew,
        StoreVerb::Rescue,
        StoreVerb::Backlog,
    ] {
        setup.store().faults().always(verb, away);
    }
    for n in 0..200 {
        let sender = sender.clone();
        tokio::spawn(async move { sender.deliver(support::message(&n.to_string(), "ok")).await });
    }
    let before = capture.logged("").len();
    setup.pass(300 * SECOND).await;
    let lines: Vec<String> = capture.logged("").split_off(before);
    let lines: Vec<&String> = lines.iter().filter(|line| !line.starts_with("DEBUG")).collect();
    // Five minutes, and once in each for every verb that is tried.
    assert!(lines.len() <= 6 * 6, "{} lines: {lines:#?}", lines.len());
    assert!(lines.iter().any(|line| line.contains("doing=\"accept\"")), "{lines:#?}");
    assert!(
        lines.iter().any(|line| !line.contains("suppressed=0")),
        "it says how much it left out: {lines:#?}"
    );
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(setup.count(Status::Completed).await, 200);
}

// A handler that only fails has its own share of the log.
#[tokio::test]
async fn a_handler_that_only_fails_does_not_fill_the_log() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    for n in 0..500 {
        setup.accept(&n.to_string(), "fail again").await;
    }
    setup.inbox.drain().await.unwrap();
    let lines = capture.logged("failed; trying again");
    assert_eq!(lines.len(), 20, "{lines:#?}");
    setup.pass(61 * SECOND).await;
    setup.inbox.drain().await.unwrap();
    assert!(capture.logged("suppressed=480").len() == 1, "{:#?}", capture.logged("suppressed"));
}
