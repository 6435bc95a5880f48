//! Gradual adoption: consumers that have no inbox yet are found, and handlers can run without a store.

mod support;

use std::time::Duration;

use oncebox::config::{Guarantee, Tenants};
use oncebox::source::{Ack, channel};
use oncebox::{Config, Consumers, Direct, ErrorKind, Inbox, Message, Receipt, Requirement, Retry};
use support::log_capture::LogCapture;
use support::{RunScript, SECOND, in_time, message};

fn direct(script: &RunScript) -> Inbox<Direct> {
    let h = script.handler("h").retry(Retry::new(3, 2 * SECOND, 2 * SECOND));
    Inbox::direct("test").on("t", h).on("t", script.handler("i")).build().expect("it builds")
}

#[tokio::test]
async fn without_a_store_handlers_run_at_once_and_at_every_delivery() {
    let script = RunScript::default();
    let inbox = direct(&script);
    for _ in 0..2 {
        assert_eq!(inbox.receive(message("1", "ok")).await.unwrap(), Receipt::Done);
    }
    assert_eq!(inbox.receive(message("", "ok")).await.unwrap(), Receipt::Done, "nothing is compared");
    assert_eq!(script.log(), ["h 1 1", "i 1 1", "h 1 1", "i 1 1", "h  1", "i  1"]);
}

#[tokio::test]
async fn what_its_handlers_say_is_for_the_broker() {
    let script = RunScript::default();
    let inbox = direct(&script);
    for (play, receipt) in [
        ("fail no", Receipt::Failed { after: 2 * SECOND }),
        ("panic oh", Receipt::Failed { after: 2 * SECOND }),
        ("after 7", Receipt::Failed { after: 7 * SECOND }),
        ("reject no", Receipt::Rejected { reason: "no".into() }),
        ("discard old", Receipt::Done),
    ] {
        script.says("h", "1", play);
        assert_eq!(inbox.receive(message("1", "ok")).await.unwrap(), receipt, "{play}");
    }
    assert_eq!(script.runs("i", "1"), 5, "one that fails keeps no other from its work");
    let running = inbox.start();
    let (sender, source) = channel("source", 1);
    running.receive(source).unwrap();
    let deliver = async |id: &'static str| in_time(sender.deliver(message(id, "ok"))).await.unwrap();
    assert_eq!(deliver("2").await, Ack::Done);
    script.says("h", "3", "fail no");
    assert_eq!(deliver("3").await, Ack::Redeliver { after: 2 * SECOND });
    assert_eq!(deliver("4").await, Ack::Done);
    in_time(running.idle()).await;
    in_time(running.shutdown()).await;
}

#[tokio::test]
async fn it_keeps_the_rules_for_messages_and_promises_nothing() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let script = RunScript::default();
    let inbox = direct(&script);
    assert_eq!(capture.logged("no store: every").len(), 1, "said once, at build");
    let refused = inbox.receive(message("1", "ok").with_tenant("a")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Tenant);
    assert_eq!(inbox.receive(Message::new("1", "", "")).await.unwrap_err().kind(), ErrorKind::InvalidMessage);
    let error = inbox.accept(message("1", "ok")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.what().contains("a direct inbox cannot accept"), "{error}");
    assert_eq!(inbox.drain().await.unwrap(), 0);
    assert!(script.log().is_empty());
    assert_eq!(capture.logged("no store: every").len(), 1);
    let config = Config { guarantee: Guarantee::Durable, ..Config::default() };
    let error = Inbox::direct("test").config(config).build().unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.what().contains("the direct store"), "{error}");
    let config = Config { tenants: Tenants::Required, ..Config::default() };
    let inbox = Inbox::direct("test").config(config).on("t", script.handler("h")).build().unwrap();
    assert_eq!(inbox.receive(message("1", "ok").with_tenant("a")).await.unwrap(), Receipt::Done);
}

async fn many(_: Vec<Message>, _: &mut oncebox::BatchContext<Direct>) -> Result<(), oncebox::BoxError> {
    Ok(())
}

#[tokio::test]
async fn fire_and_forget_runs_too_and_batches_are_refused() {
    let script = RunScript::default();
    let forget = script.handler("f").fire_and_forget();
    let inbox = Inbox::direct("test").on("t", forget).build().unwrap();
    assert_eq!(inbox.receive(message("1", "fail no")).await.unwrap(), Receipt::Done);
    assert_eq!(script.runs("f", "1"), 1);
    let error = Inbox::direct("test").on("t", oncebox::batch_handler("b", many)).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.what().contains("\"b\" takes batches"), "{error}");
}

fn consumers(requirement: Requirement) -> Consumers {
    Consumers::new(requirement)
        .consumer("orders", Some("orders"))
        .consumer("mails", None)
        .without_inbox("metrics")
        .consumer("invoices", None)
}

#[test]
fn a_consumer_without_an_inbox_is_allowed_warned_of_or_refused() {
    for (requirement, warnings, refused) in
        [(Requirement::Allow, 0, false), (Requirement::Warn, 2, false), (Requirement::Fail, 0, true)]
    {
        let capture = LogCapture::default();
        let _listening = capture.listen();
        let checked = consumers(requirement).check();
        let warned = capture.logged("no inbox: every delivery runs");
        assert_eq!(warned.len(), warnings, "{requirement:?}");
        assert!(warnings == 0 || (warned[0].contains("\"invoices\"") && warned[1].contains("\"mails\"")));
        assert_eq!(checked.is_err(), refused, "{requirement:?}");
        if let Err(error) = checked {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            for part in ["`requirement` is Fail", "[\"invoices\", \"mails\"]", "`without_inbox`"] {
                assert!(error.what().contains(part), "{error} does not say {part:?}");
            }
        }
    }
    let all = Consumers::new(Requirement::Fail).consumer("orders", Some("orders")).without_inbox("metrics");
    all.check().unwrap();
    Consumers::new(Requirement::Fail).check().unwrap();
    assert_eq!(Requirement::default(), Requirement::Warn);
}

#[test]
fn a_consumer_that_is_declared_in_two_ways_is_refused() {
    let twice = || Consumers::new(Requirement::Allow).consumer("orders", Some("orders"));
    for consumers in [
        twice().without_inbox("orders"),
        twice().consumer("orders", Some("other")),
        twice().consumer("orders", None),
    ] {
        let error = consumers.check().unwrap_err();
        assert!(error.what().contains("the consumer \"orders\" is declared in several ways"), "{error}");
    }
    twice().consumer("orders", Some("orders")).check().unwrap();
}

// A handler that takes long is stopped where there is no store, too.
#[tokio::test]
async fn a_timeout_is_a_failure() {
    let script = RunScript::default();
    let clock = oncebox_testkit::TestClock::new();
    let h = script.handler("h").timeout(SECOND).retry(Retry::quick());
    let inbox = Inbox::direct("test").on("t", h).clock(clock.shared()).build().unwrap();
    let late = tokio::spawn(async move { inbox.receive(message("1", "wait")).await });
    in_time(script.started(1)).await;
    support::pass(&clock, 2 * SECOND).await;
    assert_eq!(in_time(late).await.unwrap().unwrap(), Receipt::Failed { after: Duration::from_secs(1) });
}
