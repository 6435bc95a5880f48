//! Answers and log lines for duplicates.

mod support;

use oncebox::config::OnDuplicate;
use oncebox::source::{Ack, channel};
use oncebox::{Accepted, Config, Error, ErrorKind, Message, Processed, Receipt};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::log_capture::LogCapture;
use support::{Testbed, in_time, message};

fn setup(on_duplicate: OnDuplicate) -> Testbed {
    Testbed::new(|inbox, script| {
        let config = Config { on_duplicate, ..Config::default() };
        inbox
            .config(config)
            .on(["t", "both"], script.handler("h"))
            .on(["now", "both"], script.handler("now").inline())
    })
}

fn now(id: &str) -> Message {
    Message::new(id.to_owned(), "now", "ok")
}

fn check(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Duplicate);
    let text = error.to_string();
    assert!(text.contains("before") && text.contains("acknowledge the delivery"), "{text}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_duplicate_is_an_answer_a_line_or_an_error() {
    for (how, lines, refused) in
        [(OnDuplicate::Silent, 0, false), (OnDuplicate::Log, 4, false), (OnDuplicate::Refuse, 0, true)]
    {
        let capture = LogCapture::default();
        let _listening = capture.listen();
        let setup = setup(how);
        setup.accept("1", "ok").await;
        assert_eq!(setup.inbox.process(now("1")).await.unwrap(), Processed::Done);
        let accepted = setup.inbox.accept(message("1", "ok")).await;
        let batch = setup.inbox.accept_batch([message("1", "ok"), message("2", "ok")]).await.unwrap();
        let processed = setup.inbox.process(now("1")).await;
        assert_eq!(setup.inbox.receive(message("1", "ok")).await.unwrap(), Receipt::Done, "{how:?}");
        if refused {
            check(&accepted.unwrap_err());
            check(batch[0].as_ref().unwrap_err());
            check(&processed.unwrap_err());
        } else {
            assert!(matches!(accepted.unwrap(), Accepted::Duplicate(_)));
            assert!(matches!(batch[0], Ok(Accepted::Duplicate(_))));
            assert_eq!(processed.unwrap(), Processed::Duplicate);
        }
        assert!(matches!(batch[1], Ok(Accepted::First(_))), "the others are not concerned");
        assert_eq!(capture.logged("duplicate ignored").len(), lines, "{how:?}");
        assert!(capture.logged("duplicate ignored").iter().all(|line| line.starts_with("INFO")));
        assert_eq!(
            capture.counted("oncebox_accepted_total{inbox=test,outcome=duplicate}"),
            3,
            "counted in any case"
        );
        assert_eq!(setup.inbox.drain().await.unwrap(), 2, "and nothing runs twice");
    }
}

#[tokio::test]
async fn a_source_has_its_duplicates_acknowledged_in_any_case() {
    for how in [OnDuplicate::Silent, OnDuplicate::Log, OnDuplicate::Refuse] {
        let setup = setup(how);
        let running = setup.inbox.start();
        let (sender, source) = channel("source", 1);
        running.receive(source).unwrap();
        for _ in 0..3 {
            for message in [message("1", "ok"), now("1"), Message::new("1", "both", "ok").with_source("s")] {
                assert_eq!(in_time(sender.deliver(message)).await.unwrap(), Ack::Done, "{how:?}");
            }
        }
        in_time(running.idle()).await;
        assert_eq!(setup.script.log().len(), 4, "{how:?}");
    }
}

// DESIGN rule 1: busy elsewhere, unknown and added are not duplicates, whatever the inbox is told to do with those.
#[tokio::test]
async fn busy_and_unknown_are_never_called_duplicates() {
    let setup = setup(OnDuplicate::Refuse);
    setup.script.says("now", "1", "wait");
    let inbox = setup.inbox.clone();
    let first = tokio::spawn(async move { inbox.process(now("1")).await });
    in_time(setup.script.started(1)).await;
    assert_eq!(setup.inbox.process(now("1")).await.unwrap(), Processed::Busy);
    assert_eq!(setup.inbox.receive(now("1")).await.unwrap(), Receipt::Busy);
    setup.script.go(1);
    assert_eq!(first.await.unwrap().unwrap(), Processed::Done);

    setup.store().faults().next(StoreVerb::Accept, StoreFault::ErrAfter);
    let unknown = setup.inbox.accept(message("2", "ok")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::CommitUnknown);
    check(&setup.inbox.accept(message("2", "ok")).await.unwrap_err());
}
