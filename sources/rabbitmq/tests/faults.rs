//! A broker that is killed, hangs, runs out of memory, or closes a slow channel.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Confirmation, ConnectionProperties};
use oncebox::source::Ack;
use oncebox::{BoxError, Config, Context, Inbox, Memory, Message, Store, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, Connection as _};
use oncebox_rabbitmq::{ConnectionState, Queue, RabbitMq};
use oncebox_servers::{Cluster, PostgresVersion, RabbitMqServer as Broker};
use oncebox_sqlite::{Sqlite, rusqlite};
use oncebox_testkit::FaultyStore;
use support::{Effects, QueueClient, SECOND, in_time, inbox, next, properties, until};
use tokio::sync::{Mutex, MutexGuard};

/// The broker that these tests break, one after the other.
async fn broker() -> (MutexGuard<'static, ()>, &'static Broker) {
    static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);
    static BROKER: OnceLock<Broker> = OnceLock::new();
    let turn = TURN.lock().await;
    let broker = tokio::task::spawn_blocking(|| BROKER.get_or_init(|| Broker::start().unwrap()));
    (turn, broker.await.unwrap())
}

async fn blocking(work: impl FnOnce() -> anyhow::Result<()> + Send + 'static) {
    tokio::task::spawn_blocking(work).await.unwrap().unwrap();
}

async fn book(message: Message, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let tx = cx.tx().await?;
    tx.execute("INSERT INTO effect (id) VALUES (?1)", [String::from_utf8_lossy(message.id())])?;
    Ok(())
}

/// Returns the number of effects of each id.
fn effects(file: &std::path::Path) -> BTreeMap<String, u32> {
    let connection = rusqlite::Connection::open(file).unwrap();
    let mut statement = connection.prepare("SELECT id, count(*) FROM effect GROUP BY id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Maximum time of all messages. Only a failure takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_mins(6);

/// Leases that expire well within the patience: on a busy machine a commit outcome may be unknown, and the entry waits
/// for its lease.
fn config() -> Config {
    Config { lease: 30 * SECOND, ..Config::default() }
}

async fn publishing(url: &str) -> Option<(lapin::Connection, Channel)> {
    let connection = lapin::Connection::connect(url, ConnectionProperties::default()).await.ok()?;
    let channel = connection.create_channel().await.ok()?;
    channel.confirm_select(ConfirmSelectOptions::default()).await.ok()?;
    Some((connection, channel))
}

/// Maximum wait of the publisher for the broker, which may be killed while it connects or confirms.
const ANSWER: Duration = Duration::from_secs(20);

/// Publishes all ids, each until it is confirmed. A lost confirm publishes an id again.
async fn publish_all(url: String, queues: Vec<String>, count: u32, done: tokio::sync::watch::Sender<u32>) {
    let mut open = None;
    for number in 0..count {
        for queue in &queues {
            let id = format!("{queue} {number}");
            let mut pause = tokio::time::interval(Duration::from_millis(50));
            loop {
                if open.is_none() {
                    pause.tick().await;
                    open = tokio::time::timeout(ANSWER, publishing(&url)).await.unwrap_or_default();
                    continue;
                }
                let (_, channel) = open.as_ref().unwrap();
                let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                let queue = queue.as_str().into();
                let sent = channel.basic_publish("".into(), queue, options, b"{}", properties(&id, "t"));
                let confirmed = async { sent.await?.await };
                match tokio::time::timeout(ANSWER, confirmed).await {
                    Ok(Ok(Confirmation::Ack(None))) => break,
                    _ => open = None,
                }
            }
        }
        done.send_replace(number + 1);
    }
}

/// Returns the broker's report of its queues, for a test that gives up.
fn broker_state(broker: &Broker) -> String {
    let columns = ["list_queues", "name", "messages_ready", "messages_unacknowledged", "consumers", "state"];
    format!("queues: {:?}; without a leader: {:?}", broker.ctl(&columns), broker.leaderless())
}

/// Kills a broker twice under load, with two consumers and a third one of a classic queue. Every message must have its
/// effect once in the database that the handler shares with the inbox.
async fn kill_under_load<S: Store>(inbox: Inbox<S>, effects: impl AsyncFn() -> BTreeMap<String, u32>) {
    const MESSAGES: u32 = 600;
    let (_turn, broker) = broker().await;
    let client = QueueClient::at(&broker.url(), "killed").await;
    let quorum = client.quorum();
    let classic = Queue::classic(format!("{}.classic", client.queue))
        .dead_letter_queue(format!("{}.dead.c", client.queue));
    let running = inbox.start();
    let queues = vec![client.queue.clone(), format!("{}.classic", client.queue)];
    for queue in [quorum.clone(), quorum, classic] {
        // The default delay.
        let source = client.source(queue).prefetch(50).reconnect_delay(SECOND).build().unwrap();
        source.check().await.unwrap();
        running.receive(source).unwrap();
    }
    let (done, mut progress) = tokio::sync::watch::channel(0);
    let publisher = tokio::spawn(publish_all(client.url.clone(), queues.clone(), MESSAGES, done));
    for kill in 1..=2 {
        let published =
            tokio::time::timeout(PATIENCE, progress.wait_for(|count| *count >= kill * MESSAGES / 3));
        if !matches!(published.await, Ok(Ok(_))) {
            let count = *progress.borrow();
            let queues = tokio::task::spawn_blocking(move || broker_state(broker)).await.unwrap();
            panic!(
                "{count} of {MESSAGES} are published before kill {kill}; {queues}; {:#?}",
                running.health()
            );
        }
        blocking(|| broker.kill9().and_then(|()| broker.start_again())).await;
    }
    tokio::time::timeout(PATIENCE, publisher).await.unwrap().unwrap();
    let expected =
        || (0..MESSAGES).flat_map(|number| queues.iter().map(move |queue| (format!("{queue} {number}"), 1)));
    let expected: BTreeMap<String, u32> = expected().collect();
    let all = async {
        let mut pause = tokio::time::interval(Duration::from_millis(20));
        while effects().await.len() < expected.len() {
            pause.tick().await;
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let seen = effects().await;
        let missing: Vec<&String> = expected.keys().filter(|id| !seen.contains_key(*id)).collect();
        let queues = tokio::task::spawn_blocking(move || broker_state(broker)).await.unwrap();
        panic!("no effect of {missing:?}; {queues}; {:#?}", running.health());
    }
    in_time(running.shutdown()).await;
    assert_eq!(effects().await, expected, "lost none, doubled none");
    let client = QueueClient::at(&broker.url(), "look").await;
    for queue in &queues {
        assert_eq!(client.ready(queue).await, 0);
        assert_eq!(client.ready(&format!("{queue}.dead")).await, 0);
    }
}

// FAULTS A2, A3, F2, F9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_loses_nothing_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE effect (id TEXT)").unwrap();
    let store = Sqlite::open(&file).unwrap();
    let inbox =
        Inbox::builder("shop", store).config(config()).on("t", handler("book", book)).build().unwrap();
    kill_under_load(inbox, async || effects(&file)).await;
}

// FAULTS A2, A3, F2, F9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_loses_nothing_and_doubles_nothing_with_postgres() {
    async fn book(message: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
        let id = String::from_utf8_lossy(message.id()).into_owned();
        sqlx::query("INSERT INTO effect (id) VALUES ($1)").bind(id).execute(&mut **cx.tx().await?).await?;
        Ok(())
    }
    let cluster =
        tokio::task::spawn_blocking(|| Cluster::start(PostgresVersion::Debian).unwrap()).await.unwrap();
    let url = cluster.url("postgres");
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE effect (id text NOT NULL)").execute(&mut connection).await.unwrap();
    let store = Postgres::options(&url).unwrap().open().await.unwrap();
    let inbox =
        Inbox::builder("shop", store).config(config()).on("t", handler("book", book)).build().unwrap();
    let connection = Mutex::new(connection);
    let effects = async || -> BTreeMap<String, u32> {
        let all = sqlx::query_as("SELECT id, count(*) FROM effect GROUP BY id");
        let rows: Vec<(String, i64)> = all.fetch_all(&mut *connection.lock().await).await.unwrap();
        rows.into_iter().map(|(id, count)| (id, u32::try_from(count).unwrap())).collect()
    };
    kill_under_load(inbox, effects).await;
}

// FAULTS F10: the connection stays open and silent; only heartbeats show it.
#[tokio::test]
async fn a_broker_that_hangs_is_noticed_and_found_again() {
    let (_turn, broker) = broker().await;
    let client = QueueClient::at(&broker.url(), "hangs").await;
    let mut source =
        RabbitMq::builder(&format!("{}?heartbeat=4", client.url)).queue(client.quorum()).build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    let first = next(&mut source).await;
    let monitor = source.monitor();
    blocking(|| broker.suspend()).await;
    let away = |state: &ConnectionState| matches!(state, ConnectionState::Away { error } if error.contains("heartbeat"));
    tokio::select! {
        delivery = support::receive(&mut source) => panic!("{delivery:?}"),
        () = in_time(monitor.wait_for(away)) => {}
    }
    blocking(|| broker.resume()).await;
    let again = next(&mut source).await;
    assert_eq!(again.message().id(), first.message().id());
    first.settle(Ack::Done).await.unwrap_err();
    again.settle(Ack::Done).await.unwrap();
}

// A broker without memory blocks publishers. Consuming and acknowledging continues, and frees memory.
#[tokio::test]
async fn a_broker_without_memory_is_still_emptied() {
    let (_turn, broker) = broker().await;
    let client = QueueClient::at(&broker.url(), "memory").await;
    let source = client.source(client.quorum()).build().unwrap();
    source.check().await.unwrap();
    for number in 0..20 {
        client.publish(&number.to_string(), "t", "x").await;
    }
    let limit = |bytes: &'static str| {
        blocking(move || broker.ctl(&["set_vm_memory_high_watermark", "absolute", bytes]).map(drop))
    };
    limit("1MiB").await;
    let effects = Effects::default();
    let running = inbox(FaultyStore::new(Memory::new()), &effects).start();
    running.receive(source).unwrap();
    effects.wait_for(20).await;
    in_time(running.shutdown()).await;
    // Written, and processed by the broker later.
    until("what was acknowledged is gone", || async {
        let queue = client.queue.clone();
        tokio::task::spawn_blocking(move || broker.total(&queue).unwrap()).await.unwrap() == 0
    })
    .await;
    limit("512MiB").await;
}

// FAULTS F1: the broker closes a channel that holds a delivery too long, and delivers again.
#[tokio::test]
async fn a_delivery_that_is_held_for_too_long_comes_again_and_the_broker_says_why() {
    let (_turn, broker) = broker().await;
    let client = QueueClient::at(&broker.url(), "patience").await;
    let patience = |millis: u32, tick: u32| {
        let set = format!(
            "application:set_env(rabbit, consumer_timeout, {millis}), application:set_env(rabbit, channel_tick_interval, {tick})."
        );
        blocking(move || broker.ctl(&["eval", &set]).map(drop))
    };
    patience(1_000, 200).await;
    let mut source = client.source(client.quorum()).build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    let first = next(&mut source).await;
    let monitor = source.monitor();
    let said = |state: &ConnectionState| matches!(state, ConnectionState::Away { error } if error.contains("consumer timeout"));
    tokio::select! {
        delivery = support::receive(&mut source) => panic!("{delivery:?}"),
        () = in_time(monitor.wait_for(said)) => {}
    }
    patience(1_800_000, 60_000).await;
    let again = next(&mut source).await;
    first.settle(Ack::Done).await.unwrap_err();
    again.settle(Ack::Done).await.unwrap();
    drop(source);
    client.assert_left(0, 0).await;
}

// FAULTS F9: no broker at the start, and for a while after.
#[tokio::test]
async fn a_broker_that_is_down_at_the_start_is_waited_for() {
    let (_turn, broker) = broker().await;
    let client = QueueClient::at(&broker.url(), "down").await;
    let builder = client.source(client.quorum());
    builder.clone().build().unwrap().check().await.unwrap();
    client.publish("1", "t", "x").await;
    blocking(|| broker.stop()).await;
    let mut source = builder.build().unwrap();
    let monitor = source.monitor();
    let away = |state: &ConnectionState| matches!(state, ConnectionState::Away { error } if error.contains("cannot connect"));
    tokio::select! {
        delivery = support::receive(&mut source) => panic!("{delivery:?}"),
        () = in_time(monitor.wait_for(away)) => {}
    }
    let started = Arc::new(tokio::sync::Notify::new());
    let starting = async {
        blocking(|| broker.start_again()).await;
        started.notify_one();
    };
    let (delivery, ()) = tokio::join!(next(&mut source), starting);
    delivery.settle(Ack::Done).await.unwrap();
}
