//! Health: each fault leads to what it should be told as (FAULTS J7).

mod support;

use oncebox_testkit::OperatorSteps as _;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::health::Subject;
use oncebox::source::{BrokerLink, Delivery, Source, channel};
use oncebox::{ErrorKind, HandlerKey, Health, HealthLimits, HealthStatus};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::meter::Meter;
use support::{SECOND, Testbed, in_time, message, quiet};

const MINUTE: Duration = Duration::from_mins(1);

fn setup() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

fn status(health: &Health, subject: Subject, name: &str) -> HealthStatus {
    let found = health.checks.iter().find(|check| check.subject == subject && &*check.name == name);
    found.unwrap_or_else(|| panic!("no check of {name} in {health:#?}")).status
}

#[tokio::test]
async fn an_inbox_that_does_not_run_is_unhealthy() {
    let setup = setup();
    let health = setup.inbox.health();
    assert_eq!((health.status, health.live, health.ready), (HealthStatus::Unhealthy, false, false));
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    let health = setup.inbox.health();
    assert_eq!(
        (health.status, health.live, health.ready),
        (HealthStatus::Healthy, true, true),
        "{health:#?}"
    );
    assert_eq!(running.health(), health);
    drop(running);
    quiet().await;
    assert!(!setup.inbox.health().live);
}

// Idle is a loop that does not turn, not an inbox without messages.
#[tokio::test]
async fn an_inbox_with_nothing_to_do_stays_healthy() {
    let setup = setup();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    for _ in 0..30 {
        setup.pass(MINUTE).await;
        let health = running.health();
        assert_eq!(health.status, HealthStatus::Healthy, "{health:#?}");
    }
}

#[tokio::test]
async fn a_loop_that_does_not_turn_is_degraded_and_then_unhealthy() {
    let setup = setup();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    setup.store().faults().always(StoreVerb::Claim, StoreFault::Hang);
    setup.accept("1", "ok").await;
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    let dispatcher = || status(&running.health(), Subject::Component, "dispatcher");
    assert_eq!(dispatcher(), HealthStatus::Healthy);
    // It may wait for as long as a poll, and then for two minutes.
    setup.pass(30 * SECOND + 2 * MINUTE).await;
    assert_eq!(dispatcher(), HealthStatus::Degraded);
    assert!(running.health().live && running.health().ready);
    setup.pass(3 * MINUTE).await;
    assert_eq!(dispatcher(), HealthStatus::Unhealthy);
    assert!(!running.health().live, "{:#?}", running.health());
    setup.store().faults().clear();
    setup.store().faults().release();
    in_time(running.idle()).await;
    assert_eq!(running.health().status, HealthStatus::Healthy, "{:#?}", running.health());
}

// A restart would not bring the store back: live, and not ready.
#[tokio::test]
async fn a_store_that_is_away_makes_it_not_ready_and_leaves_it_live() {
    let setup = setup();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    setup.store().faults().always(StoreVerb::Claim, StoreFault::ErrBefore(ErrorKind::Unavailable));
    setup.accept("1", "ok").await;
    setup.pass(SECOND).await;
    let health = running.health();
    assert_eq!(status(&health, Subject::Store, "claim"), HealthStatus::Degraded, "{health:#?}");
    assert!(health.ready);
    setup.pass(40 * SECOND).await;
    let health = running.health();
    assert_eq!(status(&health, Subject::Store, "claim"), HealthStatus::Unhealthy);
    assert_eq!((health.live, health.ready), (true, false), "{health:#?}");
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(running.health().status, HealthStatus::Healthy, "{:#?}", running.health());
}

// Senders skip a process that is not ready. It must become ready again, or no call would show that the store works.
#[tokio::test]
async fn a_verb_without_calls_does_not_keep_it_from_being_ready() {
    let setup = setup();
    let running = setup.inbox.start();
    setup.store().faults().always(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Full));
    for _ in 0..40 {
        assert!(setup.inbox.accept(message("1", "ok")).await.is_err());
        setup.pass(SECOND).await;
    }
    assert!(!running.health().ready);
    setup.pass(MINUTE).await;
    let health = running.health();
    assert_eq!(status(&health, Subject::Store, "accept"), HealthStatus::Degraded);
    assert!(health.ready, "{health:#?}");
}

// A verb that is only asked while there is work, such as a renewal, may not be asked for hours after it failed.
#[tokio::test]
async fn an_outage_is_over_for_every_verb_once_the_store_answers() {
    use HealthStatus::{Degraded, Healthy};
    for (kind, after) in
        [(ErrorKind::Unavailable, Healthy), (ErrorKind::Full, Healthy), (ErrorKind::Corrupt, Degraded)]
    {
        let setup = setup();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        setup.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(kind));
        setup.pass(12 * SECOND).await;
        let renew = || status(&running.health(), Subject::Store, "renew");
        assert_eq!(renew(), Degraded, "{kind:?}");
        setup.script.go(1);
        in_time(running.idle()).await;
        setup.store().faults().clear();
        let asked = setup.store().faults().calls(StoreVerb::Renew);
        setup.pass(40 * SECOND).await;
        assert_eq!(setup.store().faults().calls(StoreVerb::Renew), asked, "there is nothing to renew");
        assert_eq!(renew(), after, "{kind:?}: {:#?}", running.health());
    }
}

// What only reads says nothing about the disk.
#[tokio::test]
async fn a_full_store_is_not_well_because_it_can_be_read() {
    let setup = setup();
    let running = setup.inbox.start();
    setup.store().faults().always(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Full));
    assert!(setup.inbox.accept(message("1", "ok")).await.is_err());
    setup.store().faults().clear();
    setup.pass(10 * MINUTE).await;
    let accept = || status(&running.health(), Subject::Store, "accept");
    assert_eq!(accept(), HealthStatus::Degraded, "{:#?}", running.health());
    setup.accept("1", "ok").await;
    assert_eq!(accept(), HealthStatus::Healthy);
}

#[tokio::test]
async fn a_source_tells_what_it_holds_and_when_it_is_over() {
    let setup = setup();
    let running = setup.inbox.start();
    let (sender, source) = channel("broker", 16);
    running.receive(source).unwrap();
    in_time(running.idle()).await;
    let source = || status(&running.health(), Subject::Source, "broker");
    assert_eq!(source(), HealthStatus::Healthy);
    setup.store().faults().always(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let sent = tokio::spawn(async move { sender.deliver(message("1", "ok")).await });
    setup.pass(2 * SECOND).await;
    assert_eq!(source(), HealthStatus::Degraded);
    assert!(format!("{:?}", running.health().checks).contains("holds 1 deliveries"));
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    in_time(sent).await.unwrap().unwrap();
    // The sender is gone with its task: nothing more will come.
    quiet().await;
    assert_eq!(source(), HealthStatus::Degraded, "{:#?}", running.health());
    assert!(format!("{:?}", running.health().checks).contains("ended: nothing more"));
}

/// A source that brings nothing, and knows how its broker is.
struct Linked(BrokerLink);

#[async_trait]
impl Source for Linked {
    fn name(&self) -> &'static str {
        "linked"
    }

    fn link(&self) -> BrokerLink {
        self.0.clone()
    }

    async fn recv(&mut self) -> Option<Delivery> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_source_without_its_broker_is_degraded_with_the_reason_until_it_is_back() {
    let setup = setup();
    let running = setup.inbox.start();
    let link = BrokerLink::default();
    running.receive(Linked(link.clone())).unwrap();
    let source = || status(&running.health(), Subject::Source, "linked");
    assert_eq!(source(), HealthStatus::Healthy);
    link.down("the queue \"orders\" has no leader");
    let health = running.health();
    assert_eq!(source(), HealthStatus::Degraded);
    assert!(format!("{:?}", health.checks).contains("not receiving: the queue"), "{health:#?}");
    assert!(health.ready && health.live, "other ways in are open, and a restart does not help");
    link.up();
    assert_eq!(source(), HealthStatus::Healthy);
}

#[tokio::test]
async fn a_component_that_fails_again_and_again_is_degraded_and_then_unhealthy() {
    let setup = setup();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    setup.store().faults().always(StoreVerb::Claim, StoreFault::Panic);
    setup.accept("1", "ok").await;
    setup.pass(SECOND).await;
    assert_eq!(status(&running.health(), Subject::Component, "dispatcher"), HealthStatus::Degraded);
    setup.pass(6 * MINUTE).await;
    assert_eq!(status(&running.health(), Subject::Component, "dispatcher"), HealthStatus::Unhealthy);
    setup.store().faults().clear();
    setup.pass(2 * MINUTE).await;
    assert_eq!(running.health().status, HealthStatus::Healthy, "{:#?}", running.health());
}

#[tokio::test]
async fn backlog_and_lag_have_limits() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").concurrency(1)));
    for n in 0..4 {
        setup.accept(&n.to_string(), "wait").await;
    }
    let running = setup.inbox.start();
    in_time(setup.script.started(1)).await;
    setup.pass(MINUTE).await;
    let mut limits = HealthLimits::default();
    assert_eq!(running.health().status, HealthStatus::Healthy, "{:#?}", running.health());
    limits.backlog_degraded = Some(3);
    assert_eq!(status(&running.health_by(&limits), Subject::Handler, "h"), HealthStatus::Degraded);
    limits.backlog_unhealthy = Some(3);
    assert!(!running.health_by(&limits).ready);
    setup.pass(15 * MINUTE).await;
    let health = running.health();
    assert_eq!(status(&health, Subject::Handler, "h"), HealthStatus::Degraded, "{health:#?}");
    assert!(health.live && health.ready, "late, and at work");
    setup.script.go(4);
    in_time(running.idle()).await;
    setup.pass(MINUTE).await;
    assert_eq!(running.health().status, HealthStatus::Healthy, "{:#?}", running.health());
}

// Messages behind a poisoned one are not due: they have limits of their own.
#[tokio::test]
async fn what_a_poisoned_entry_holds_back_has_limits() {
    let meter = Meter::default();
    let _measured = metrics::set_default_local_recorder(&meter);
    let setup = setup();
    let running = setup.inbox.start();
    for (id, does) in [("1", "reject"), ("2", "ok"), ("3", "ok")] {
        setup.inbox.accept(message(id, does).with_ordering_key("k")).await.unwrap();
    }
    in_time(running.idle()).await;
    setup.pass(MINUTE).await;
    let health = running.health();
    assert_eq!(status(&health, Subject::Handler, "h"), HealthStatus::Healthy, "{health:#?}");
    let labels = "{inbox=test,handler=h}";
    assert_eq!(meter.gauge(&format!("oncebox_blocked_ordering_keys{labels}")), Some(1.0));
    assert_eq!(meter.gauge(&format!("oncebox_blocked_entries{labels}")), Some(2.0));
    setup.pass(5 * MINUTE).await;
    let health = running.health();
    assert_eq!(status(&health, Subject::Handler, "h"), HealthStatus::Degraded, "{health:#?}");
    assert!(health.live && health.ready, "one bad message takes nothing out of service");
    let said = "poisoned entries hold back 2 others with 1 ordering keys, the oldest accepted 36";
    assert!(format!("{:?}", health.checks).contains(said), "{health:#?}");
    assert!(meter.gauge(&format!("oncebox_blocked_oldest_seconds{labels}")).is_some_and(|age| age >= 300.0));
    let mut limits = HealthLimits::default();
    limits.blocked_unhealthy = Some(5 * MINUTE);
    assert!(!running.health_by(&limits).ready);
    limits.blocked_unhealthy = Some(60 * MINUTE);
    assert!(running.health_by(&limits).ready);
    let key = setup.entry("1", "h").await.key;
    let handler = HandlerKey::new("h").unwrap();
    setup.store().unblock(setup.inbox.name(), &key, &handler).await.unwrap();
    setup.pass(MINUTE).await;
    in_time(running.idle()).await;
    assert_eq!(running.health().status, HealthStatus::Healthy, "{:#?}", running.health());
    assert_eq!(meter.gauge(&format!("oncebox_blocked_entries{labels}")), Some(0.0));
}

#[tokio::test]
async fn one_that_stops_is_not_ready_and_still_live() {
    let setup = setup();
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    let stopping = tokio::spawn(running.shutdown());
    quiet().await;
    let health = setup.inbox.health();
    assert_eq!((health.live, health.ready), (true, false), "{health:#?}");
    setup.script.go(1);
    in_time(stopping).await.unwrap();
}
