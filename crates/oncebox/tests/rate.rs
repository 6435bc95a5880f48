//! No more of a handler is claimed than its rate allows.

mod support;

use std::time::Duration;

use oncebox::state::Status;
use oncebox::{ErrorKind, Inbox, Memory, Rate};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::{RunScript, SECOND, Testbed, in_time};

fn limited(rate: &Rate) -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h").rate(rate.clone())))
}

async fn accept(setup: &Testbed, count: usize) {
    for n in 0..count {
        setup.accept(&n.to_string(), "ok").await;
    }
}

#[tokio::test]
async fn a_burst_first_and_then_the_rate() {
    let setup = limited(&Rate::per_second(4).burst(10));
    accept(&setup, 40).await;
    let running = setup.inbox.start();
    setup.pass(Duration::ZERO).await;
    assert_eq!(setup.script.log().len(), 10, "the burst");
    for second in 1..=5 {
        setup.pass(SECOND).await;
        let ran = setup.script.log().len();
        assert!(ran <= 10 + 4 * second && ran + 4 >= 10 + 4 * second, "{ran} after {second} s");
    }
    // What the rate holds back is work that is waited for.
    let idle = tokio::spawn(async move { running.idle().await });
    setup.pass(SECOND).await;
    assert!(!idle.is_finished());
    setup.pass(3 * SECOND).await;
    in_time(idle).await.unwrap();
    assert_eq!(setup.count(Status::Completed).await, 40);
    let expected: Vec<String> = (0..40).map(|n| format!("h {n} 1")).collect();
    assert_eq!(setup.script.log(), expected, "in the order of acceptance");
}

// Neither an empty claim nor one that failed uses up what others need.
#[tokio::test]
async fn tokens_without_an_entry_go_back() {
    let setup = limited(&Rate::per_minute(5));
    setup.store().faults().script(StoreVerb::Claim, [Some(StoreFault::ErrBefore(ErrorKind::Unavailable)); 3]);
    let running = setup.inbox.start();
    setup.pass(2 * SECOND).await;
    for n in 0..5 {
        setup.accept(&n.to_string(), "ok").await;
        setup.pass(SECOND / 4).await;
        assert_eq!(setup.script.log().len(), n + 1);
    }
    setup.accept("more", "ok").await;
    setup.pass(SECOND).await;
    assert_eq!(setup.script.log().len(), 5);
    setup.pass(12 * SECOND).await;
    assert_eq!(setup.script.log().len(), 6, "one in twelve seconds");
    drop(running);
}

#[tokio::test]
async fn others_are_not_held_up() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("slow").rate(Rate::per_minute(1))).on("t", script.handler("fast"))
    });
    let running = setup.inbox.start();
    accept(&setup, 20).await;
    setup.pass(SECOND).await;
    assert_eq!(setup.script.log().iter().filter(|line| line.starts_with("fast")).count(), 20);
    assert_eq!(setup.script.log().iter().filter(|line| line.starts_with("slow")).count(), 1);
    drop(running);
}

// By hand nothing is waited for: what is beyond the rate stays due.
#[tokio::test]
async fn by_hand_the_rest_is_left_for_later() {
    let setup = limited(&Rate::per_second(3));
    accept(&setup, 8).await;
    assert_eq!(setup.inbox.process_pending(2).await.unwrap(), 2);
    assert_eq!(setup.inbox.drain().await.unwrap(), 1);
    assert_eq!(setup.inbox.drain().await.unwrap(), 0);
    setup.clock.advance(SECOND);
    assert_eq!(setup.inbox.drain().await.unwrap(), 3);
    setup.clock.advance(10 * SECOND);
    assert_eq!(setup.inbox.drain().await.unwrap(), 2);
    assert_eq!(setup.count(Status::Completed).await, 8);
}

#[test]
fn a_rate_that_cannot_work_is_refused_at_start() {
    let script = RunScript::default();
    for (rate, what) in [
        (Rate::per_second(0), "allows 0 entries"),
        (Rate::per_second(1).burst(0), "burst of 0"),
        (Rate::new(1, Duration::ZERO), "time of 0"),
    ] {
        let inbox = Inbox::builder("test", Memory::new()).on("t", script.handler("h").rate(rate));
        let error = inbox.build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        assert!(error.to_string().contains(what) && error.to_string().contains("\"h\""), "{error}");
    }
}
