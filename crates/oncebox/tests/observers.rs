//! Observers, metric recorders and propagators get every event, and cannot affect a delivery, even if they panic.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use oncebox::observe::{Observer, ObserverResult, Propagate, TraceContext};
use oncebox::state::{EntryEvent, Status};
use oncebox::store::{Accepted, Claim, NewMessage};
use oncebox::{Error, Message};
use parking_lot::Mutex;
use support::log_capture::LogCapture;
use support::{SECOND, Testbed, in_time, message};

#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, line: String) {
        self.0.lock().push(line);
    }
}

impl Observer for Diary {
    fn accepted(&self, message: &NewMessage, answer: Accepted) -> ObserverResult {
        self.write(format!("{} {}", String::from_utf8_lossy(message.message.id()), answer.as_str()));
        Ok(())
    }

    fn refused(&self, _: &Message, error: &Error) -> ObserverResult {
        self.write(format!("refused {}", error.kind().as_str()));
        Ok(())
    }

    fn started(&self, _: &Claim, message: &Message) -> ObserverResult {
        self.write(format!("{} started", String::from_utf8_lossy(message.id())));
        Ok(())
    }

    fn settled(&self, claim: &Claim, event: EntryEvent) -> ObserverResult {
        self.write(format!("{} {}", claim.handler, event.as_str()));
        Ok(())
    }
}

#[tokio::test]
async fn an_observer_sees_what_happens() {
    let diary = Diary::default();
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")).observer(diary.clone()));
    setup.accept("1", "fail once;ok").await;
    setup.accept("1", "fail once;ok").await;
    assert!(setup.inbox.accept(Message::new("", "t", "")).await.is_err());
    setup.inbox.drain().await.unwrap();
    setup.clock.advance(10 * SECOND);
    setup.inbox.drain().await.unwrap();
    let lines = diary.0.lock().clone();
    assert_eq!(
        lines,
        ["1 first", "1 duplicate", "refused missing_key", "1 started", "h fail", "1 started", "h done"]
    );
}

/// Fails at everything.
#[derive(Clone, Copy)]
enum FailingObserver {
    Panics,
    Errs,
}

impl FailingObserver {
    fn fail(self) -> ObserverResult {
        match self {
            Self::Panics => panic!("an observer with a bug"),
            Self::Errs => Err("an observer that cannot".into()),
        }
    }
}

impl Observer for FailingObserver {
    fn accepted(&self, _: &NewMessage, _: Accepted) -> ObserverResult {
        self.fail()
    }

    fn refused(&self, _: &Message, _: &Error) -> ObserverResult {
        self.fail()
    }

    fn started(&self, _: &Claim, _: &Message) -> ObserverResult {
        self.fail()
    }

    fn settled(&self, _: &Claim, _: EntryEvent) -> ObserverResult {
        self.fail()
    }
}

impl Propagate for FailingObserver {
    fn parent(&self, _: &tracing::Span, _: &TraceContext) {
        panic!("a propagator with a bug");
    }
}

impl Recorder for FailingObserver {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        panic!("a recorder with a bug")
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("a recorder with a bug")
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("a recorder with a bug")
    }
}

/// Accept, handle, retry, poison and settle, by hand and in the background.
async fn everything_works(setup: &Testbed) {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    setup.inbox.accept(message("1", "ok").with_header("traceparent", trace)).await.unwrap();
    setup.inbox.accept(message("1", "ok")).await.unwrap();
    setup.accept("2", "reject no").await;
    assert!(setup.inbox.accept(Message::new("", "t", "")).await.is_err());
    setup.inbox.drain().await.unwrap();
    assert_eq!(setup.status("1", "h").await, Status::Completed);
    assert_eq!(setup.status("2", "h").await, Status::Poisoned);
    let running = setup.inbox.start();
    setup.accept("3", "ok").await;
    in_time(running.idle()).await;
    assert_eq!(setup.status("3", "h").await, Status::Completed);
    in_time(running.shutdown()).await;
}

#[tokio::test]
async fn observers_that_fail_harm_nothing_and_are_counted() {
    for broken in [FailingObserver::Panics, FailingObserver::Errs] {
        let capture = LogCapture::default();
        let _listening = capture.listen();
        let setup = Testbed::new(|inbox, script| {
            inbox.on("t", script.handler("h")).observer(broken).propagate(FailingObserver::Panics)
        });
        everything_works(&setup).await;
        assert!(capture.counted("oncebox_observer_failures_total{inbox=test}") >= 8);
        assert_eq!(capture.logged("observer failed").len(), 1, "once in a while");
    }
}

/// Counts what it is asked.
#[derive(Clone, Default)]
struct CountingPropagate(Arc<AtomicUsize>);

impl Propagate for CountingPropagate {
    fn parent(&self, _: &tracing::Span, _: &TraceContext) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn link(&self, _: &tracing::Span, _: &TraceContext) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn context(&self, _: &tracing::Span) -> Option<TraceContext> {
        self.0.fetch_add(1, Ordering::SeqCst);
        None
    }
}

#[tokio::test]
async fn nothing_is_propagated_where_no_subscriber_wants_spans() {
    let asked = CountingPropagate::default();
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")).propagate(asked.clone()));
    everything_works(&setup).await;
    assert_eq!(asked.0.load(Ordering::SeqCst), 0);
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")).propagate(asked.clone()));
    let capture = LogCapture::default();
    let _wants = capture.listen();
    everything_works(&setup).await;
    assert!(asked.0.load(Ordering::SeqCst) > 0, "a subscriber wants them");
}

#[tokio::test]
async fn a_recorder_of_metrics_that_panics_harms_nothing() {
    let _guard = metrics::set_default_local_recorder(&FailingObserver::Panics);
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    everything_works(&setup).await;
}
