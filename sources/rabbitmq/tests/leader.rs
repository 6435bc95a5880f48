//! A quorum queue without a leader, and the broker's time to elect one.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use oncebox::health::{Check, HealthStatus, Subject};
use oncebox::source::Ack;
use oncebox::time::{Clock, Sleep, SystemClock, Timestamp};
use oncebox::{Memory, Running};
use oncebox_rabbitmq::{ConnectionState, RabbitMq};
use oncebox_servers::RabbitMqServer as Broker;
use oncebox_testkit::FaultyStore;
use support::proxy::BrokerProxy;
use support::{Effects, FaultyInbox, QueueClient, SECOND, in_time, inbox, next, receive, until};
use tokio::sync::{Semaphore, watch};

fn source(running: &Running<FaultyInbox>) -> Check {
    let health = running.health();
    health.checks.into_iter().find(|check| check.subject == Subject::Source).unwrap()
}

/// Completes when health names the queue and the missing leader.
async fn names_the_queue(running: &Running<FaultyInbox>, queue: &str) {
    let reason = format!("the queue {queue:?} has no leader");
    until("health names the queue without a leader", || async {
        let Check { status, detail, .. } = source(running);
        status == HealthStatus::Degraded && detail.contains(&reason)
    })
    .await;
}

// FAULTS F9: the source never restarts; the queue loses its leader before it connects, and while it is away.
#[tokio::test]
async fn a_queue_without_a_leader_is_named_and_consumed_when_it_has_one() {
    let client = QueueClient::new("leader").await;
    let broker = Broker::shared();
    let proxy = BrokerProxy::start(broker.port()).await;
    let queue = client.queue.clone();
    let act = async |act: fn(&Broker, &str) -> anyhow::Result<()>| {
        let queue = queue.clone();
        tokio::task::spawn_blocking(move || act(broker, &queue)).await.unwrap().unwrap();
    };
    let builder = client.source(client.quorum());
    builder.clone().build().unwrap().check().await.unwrap();
    for number in 0..10 {
        client.publish(&number.to_string(), "t", "x").await;
    }
    act(Broker::stop_queue).await;

    let effects = Effects::default();
    let running = inbox(FaultyStore::new(Memory::new()), &effects).start();
    let at_proxy = client.through(&proxy, client.quorum()).build().unwrap();
    let monitor = at_proxy.monitor();
    running.receive(at_proxy).unwrap();
    names_the_queue(&running, &queue).await;
    assert!(running.health().ready, "other sources can take messages");
    let ConnectionState::Away { error } = monitor.connection() else { panic!("{:?}", monitor.connection()) };
    assert!(error.contains("quorum_status") && error.contains("INTERNAL_ERROR"), "{error}");
    act(Broker::start_queue).await;
    effects.wait_for(10).await;
    until("it is healthy", || async { source(&running).status == HealthStatus::Healthy }).await;

    act(Broker::stop_queue).await;
    proxy.cut();
    names_the_queue(&running, &queue).await;
    act(Broker::start_queue).await;
    client.publish("10", "t", "x").await;
    effects.wait_for(11).await;

    until("the queue is empty", || async { client.total().await == 0 }).await;
    in_time(running.shutdown()).await;
    effects.assert_once(0..11);
    client.assert_left(0, 0).await;
}

/// A clock without pauses or broker timeouts; the delay after a reconnect lasts until the test ends it.
struct DelayClock {
    system: SystemClock,
    delays: watch::Sender<Vec<Duration>>,
    ended: Arc<Semaphore>,
}

impl Clock for DelayClock {
    fn now(&self) -> Timestamp {
        self.system.now()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if duration < SECOND {
            return async {}.boxed();
        }
        if duration > 10 * SECOND {
            return std::future::pending().boxed();
        }
        self.delays.send_modify(|delays| delays.push(duration));
        let ended = Arc::clone(&self.ended);
        async move { ended.acquire().await.unwrap().forget() }.boxed()
    }
}

// FAULTS F9: a broker that starts opens its port before its quorum queues have leaders.
#[tokio::test]
async fn a_broker_that_was_lost_is_given_a_second_before_it_is_asked_for_messages() {
    let client = QueueClient::new("delay").await;
    let proxy = BrokerProxy::start(Broker::shared().port()).await;
    let (delays, ended) = (watch::Sender::new(Vec::new()), Arc::new(Semaphore::new(0)));
    let clock =
        DelayClock { system: SystemClock::default(), delays: delays.clone(), ended: Arc::clone(&ended) };
    let builder = RabbitMq::builder(&proxy.url(&client.url)).queue(client.quorum()).clock(Arc::new(clock));
    let mut source = builder.build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    next(&mut source).await.settle(Ack::Done).await.unwrap();
    assert!(delays.borrow().is_empty(), "the first connection does not wait");
    assert_eq!(proxy.made(), 2, "the check and a session");

    for lost in 1..=5 {
        until("what was acknowledged is gone", || async { client.total().await == 0 }).await;
        proxy.cut();
        let mut seen = delays.subscribe();
        let mut delivery = std::pin::pin!(receive(&mut source));
        tokio::select! {
            delivery = &mut delivery => panic!("{delivery:?}"),
            seen = in_time(seen.wait_for(|delays| delays.len() == lost)) => drop(seen.unwrap()),
        }
        // During the delay it is connected, and does not consume.
        assert_eq!(proxy.made(), 2 + lost);
        until("no consumer is left", || async { client.consumers().await == 0 }).await;
        client.publish("2", "t", "x").await;
        assert_eq!(client.ready(&client.queue).await, 1);
        ended.add_permits(1);
        in_time(delivery).await.unwrap().settle(Ack::Done).await.unwrap();
    }
    let delays = delays.borrow().clone();
    assert!(delays.iter().all(|delay| (SECOND..SECOND * 3 / 2).contains(delay)), "{delays:?}");
    assert!(delays.iter().any(|delay| *delay != delays[0]), "many consumers do not come at once: {delays:?}");
}
