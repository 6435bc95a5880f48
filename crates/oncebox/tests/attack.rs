//! Suspicions.
mod support;
use oncebox::state::Status;
use oncebox::{Config, ErrorKind};
use oncebox_testkit::{Fault, Verb};
use std::time::Duration;
use support::*;

// more handlers than one claim has room for
#[tokio::test]
async fn s1_many_handlers() {
    let world = World::new(|b, s| {
        let keys = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"];
        keys.iter().fold(b, |b, k| b.on(*k, s.handler(k)))
    });
    let running = world.inbox.start();
    quiet().await;
    for k in 0..10 {
        world
            .inbox
            .accept(oncebox::Message::new("m", format!("h{k}"), "ok").with_source(format!("s{k}")))
            .await
            .unwrap();
        quiet().await;
    }
    assert_eq!(world.stage.log().len(), 10, "{:?}", world.stage.log());
    drop(running);
}
// idle with no durable handler
#[tokio::test]
async fn s2_idle_without_handlers() {
    let world = World::new(|b, _| b);
    let running = world.inbox.start();
    tokio::time::timeout(Duration::from_secs(1), running.idle()).await.expect("idle returns");
}
// huge delays
#[tokio::test]
async fn s3_huge_delay() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    world.inbox.accept_after(message("1", "ok"), Duration::MAX).await.unwrap();
}
#[tokio::test]
async fn s3b_huge_snooze() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    world.accept("1", &format!("snooze {}", u64::MAX)).await;
    world.accept("2", "ok").await;
    quiet().await;
    assert_eq!(world.stage.log().len(), 2);
    assert_eq!(running.in_flight(), 0);
}
#[tokio::test]
async fn s3c_huge_lease() {
    let world = World::new(|b, s| {
        b.on("t", s.handler("h")).config(Config {
            lease: Duration::MAX,
            retention: None,
            ..Config::default()
        })
    });
    let running = world.inbox.start();
    world.accept("1", "ok").await;
    quiet().await;
    assert_eq!(world.stage.log().len(), 1);
    drop(running);
}
// renewal hangs
#[tokio::test]
async fn s4_renewal_hangs() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    world.store().faults().always(Verb::Renew, Fault::Hang);
    world.accept("1", "wait").await;
    world.stage.started(1).await;
    world.pass(Duration::from_secs(299)).await;
    assert_eq!(world.stage.cut(), 1, "stopped before its lease ended");
    drop(running);
}
// claim unknown, then unavailable: the claim id must be kept
#[tokio::test]
async fn s5_claim_id_kept() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    quiet().await;
    // suspect claim first (initially), so script from now on
    world
        .store()
        .faults()
        .script(Verb::Claim, [Some(Fault::ErrAfter), Some(Fault::ErrBefore(ErrorKind::Unavailable))]);
    world.accept("1", "ok").await;
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.stage.log(), ["h 1 1"]);
    drop(running);
}
// settle panics -> see lifecycle (needs wrapper). shutdown with hung claim
#[tokio::test]
async fn s6_shutdown_hung_claim() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    quiet().await;
    world.store().faults().always(Verb::Claim, Fault::Hang);
    world.accept("1", "ok").await;
    quiet().await;
    let end = tokio::spawn(running.shutdown());
    world.pass(Duration::from_secs(61)).await;
    assert!(end.is_finished());
}
// non-retryable settle error loses settlements and counts a crash
#[tokio::test]
async fn s7_read_only_settle() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    quiet().await;
    world.store().faults().next(Verb::Settle, Fault::ErrBefore(ErrorKind::ReadOnly));
    world.accept("1", "ok").await;
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(world.status("1", "h").await, Status::Completed);
    drop(running);
}
// store outage longer than the lease burns no crash
#[tokio::test]
async fn s8_long_outage() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    world.accept("1", "wait").await;
    world.stage.started(1).await;
    for verb in [Verb::Renew, Verb::Settle, Verb::Claim, Verb::Rescue, Verb::Sweep] {
        world.store().faults().always(verb, Fault::ErrBefore(ErrorKind::Unavailable));
    }
    world.pass(Duration::from_secs(1000)).await;
    world.stage.go(10);
    world.store().faults().clear();
    world.pass(Duration::from_secs(60)).await;
    let e = world.entry("1", "h").await;
    assert_eq!((e.status, e.attempts, e.crashes), (Status::Completed, 0, 0), "{:?}", world.stage.log());
    drop(running);
}
// drive: a settle error abandons the rest of the batch
#[tokio::test]
async fn s9_drive_error() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    for i in 0..5 {
        world.accept(&i.to_string(), "ok").await;
    }
    world.store().faults().next(Verb::Settle, Fault::ErrBefore(ErrorKind::Unavailable));
    let _ = world.inbox.drain().await;
    world.inbox.drain().await.unwrap();
    assert_eq!(world.count(Status::Running).await, 0);
}
// drive: claim unknown
#[tokio::test]
async fn s10_drive_unknown() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    world.accept("1", "ok").await;
    world.store().faults().next(Verb::Claim, Fault::ErrAfter);
    let _ = world.inbox.drain().await;
    world.inbox.drain().await.unwrap();
    assert_eq!(world.count(Status::Running).await, 0);
}
// drive: long handlers outlive the lease of those behind
#[tokio::test]
async fn s11_drive_lease() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    world.accept("1", "wait").await;
    world.accept("2", "ok").await;
    let inbox = world.inbox.clone();
    let drain = tokio::spawn(async move { inbox.drain().await });
    world.stage.started(1).await;
    world.pass(Duration::from_secs(400)).await;
    world.inbox.process_pending(0).await.unwrap(); // rescues what ran out
    assert_eq!(world.entry("2", "h").await.crashes, 0);
    world.stage.go(1);
    drain.await.unwrap().unwrap();
}
// prefetch beyond the semaphore
#[tokio::test]
async fn s12_prefetch() {
    assert!(Config { prefetch: usize::MAX, ..Config::default() }.validate().is_err());
}
// suspect starves under steady traffic
#[tokio::test]
async fn s13_suspect_starves() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    // a crashed entry
    world.accept("x", "fail a;ok").await;
    {
        let running = world.inbox.start();
        world.stage.says("h", "x", "wait");
        world.stage.started(1).await;
        drop(running);
    }
    world.stage.says("h", "x", "fail no;ok");
    world.clock.advance(Duration::from_secs(301));
    let running = world.inbox.start();
    quiet().await;
    world.stage.started(2).await; // attempt 1 of the suspect failed; due in 2..4 s
    for i in 0..400 {
        world.accept(&i.to_string(), "ok").await;
        world.clock.advance(Duration::from_millis(100));
        quiet().await;
    }
    assert_eq!(world.stage.runs("h", "x"), 3, "40 s have passed");
    drop(running);
}
// rescue unknown
#[tokio::test]
async fn s14_rescue_unknown() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    world.accept("x", "wait").await;
    let running = world.inbox.start();
    world.stage.started(1).await;
    drop(running);
    world.clock.advance(Duration::from_secs(301));
    world.store().faults().next(Verb::Rescue, Fault::ErrAfter);
    let running = world.inbox.start();
    world.stage.go(1);
    world.pass(Duration::from_secs(60)).await;
    let e = world.entry("x", "h").await;
    assert_eq!((e.status, e.crashes), (Status::Completed, 1));
    drop(running);
}
// two started on one inbox: idle
#[tokio::test]
async fn s15_two_running() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let a = world.inbox.start();
    let b = world.inbox.start();
    quiet().await;
    tokio::time::timeout(Duration::from_secs(1), a.idle()).await.expect("idle returns");
    tokio::time::timeout(Duration::from_secs(1), b.idle()).await.expect("idle returns");
}
// hung accept at shutdown of a receiver
#[tokio::test]
async fn s16_shutdown_hung_accept() {
    let world = World::new(|b, s| b.on("t", s.handler("h")));
    let running = world.inbox.start();
    let (sender, source) = oncebox::source::channel("c", 1);
    running.receive(source);
    world.store().faults().always(Verb::Accept, Fault::Hang);
    let delivered = tokio::spawn(async move { sender.deliver(message("1", "ok")).await });
    quiet().await;
    let end = tokio::spawn(running.shutdown());
    world.pass(Duration::from_secs(61)).await;
    assert!(end.is_finished());
    quiet().await;
    assert!(delivered.is_finished());
}
#[tokio::test]
async fn s1b_many_handlers() {
    let world = World::new(|b, s| {
        let keys = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"];
        keys.iter().fold(b, |b, k| b.on(*k, s.handler(k)))
    });
    let running = world.inbox.start();
    quiet().await;
    for k in 0..10 {
        let before = world.store().faults().calls(Verb::Claim);
        world
            .inbox
            .accept(
                oncebox::Message::new("m", format!("h{}", (k * 7) % 10), "ok").with_source(format!("s{k}")),
            )
            .await
            .unwrap();
        quiet().await;
        println!("{k} {} {:?}", world.store().faults().calls(Verb::Claim) - before, world.stage.log().len());
    }
    assert_eq!(world.stage.log().len(), 10, "{:?}", world.stage.log());
    drop(running);
}
