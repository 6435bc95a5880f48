//! The whole path: from the queue into the inbox, each message acknowledged when stored.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use oncebox::store::Admin as _;
use oncebox::{Config, Context, HandlerKey, Inbox, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, Connection as _, Executor as _, PgConnection};
use oncebox_rabbitmq::RabbitMq;

use crate::queue::{BrokerClient, NAME};
use crate::rate;

async fn never(_: Message, _: &mut Context<Postgres>) -> Result<(), oncebox::Error> {
    Ok(())
}

/// Creates an empty inbox. Its handler is paused: the row measures accept, not processing.
pub(crate) async fn inbox(postgres: &str, prefetch: u16) -> Result<Inbox<Postgres>> {
    let mut connection = PgConnection::connect(postgres).await?;
    connection.execute(sqlx::raw_sql("DROP SCHEMA IF EXISTS bench_rabbitmq CASCADE")).await?;
    let store = Postgres::options(postgres)?.schema("bench_rabbitmq").open().await?;
    let config = Config { prefetch: usize::from(prefetch), ..Config::default() };
    let inbox = Inbox::builder("bench", store).config(config).on("bench", handler("never", never)).build()?;
    inbox.store().pause(inbox.name(), &HandlerKey::new("never")?).await?;
    Ok(inbox)
}

pub(crate) async fn receive(amqp: &str, postgres: &str, messages: usize, prefetch: u16) -> Result<f64> {
    let client = BrokerClient::connect(amqp).await?;
    client.fill(messages).await?;
    let inbox = inbox(postgres, prefetch).await?;
    let source = RabbitMq::builder(amqp).queue(NAME).discard_rejected(true).prefetch(prefetch).build()?;
    let start = Instant::now();
    let running = inbox.start();
    running.receive(source)?;
    // A few reads per second cost nothing beside thousands of messages.
    let mut reads = tokio::time::interval(Duration::from_millis(20));
    loop {
        reads.tick().await;
        if client.waiting().await? == 0
            && inbox.store().count(inbox.name()).await?.messages >= messages as u64
        {
            break;
        }
    }
    // Wait for the last acknowledgement.
    running.shutdown().await;
    let rate = rate(messages, start);
    let waiting = client.waiting().await?;
    ensure!(waiting == 0, "{waiting} messages came back: they were not acknowledged");
    Ok(rate)
}
