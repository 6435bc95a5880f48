//! The server process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use oncebox::{Config, Context, Inbox, Message, Store, handler};
use oncebox_http::{BodyLimits, Endpoint, Ingress, Server, ServerLimits, Verify, listen};
use oncebox_postgres::Postgres;
use oncebox_sqlite::Sqlite;
use tokio::io::AsyncReadExt as _;

/// Type of every message.
pub(crate) const KIND: &str = "bench";
/// Token of the clients.
pub(crate) const TOKEN: &str = "bench-token";

/// Serves until its standard input ends, which its parent's end closes.
pub(crate) async fn run(store: &str) -> Result<()> {
    if store.starts_with("postgres") {
        serve(postgres(store).await?).await
    } else {
        serve(inbox(Sqlite::open(store)?)?).await
    }
}

/// Opens the measured inbox.
pub(crate) async fn postgres(url: &str) -> Result<Inbox<Postgres>> {
    let store = Postgres::connect(url).await?;
    inbox(store)
}

fn inbox<S: Store>(store: S) -> Result<Inbox<S>> {
    let noop = |_: Message, _: &mut Context<S>| async { Ok::<(), oncebox::Error>(()) };
    let config = Config::default();
    Inbox::builder("http", store).config(config).on(KIND, handler("noop", noop)).build().context("the inbox")
}

async fn serve<S: Store>(inbox: Inbox<S>) -> Result<()> {
    let tokens = || Verify::tokens([TOKEN]);
    let mut bodies = BodyLimits::default();
    // Short limits, so that bad clients have many turns per minute and meet every limit.
    (bodies.pause, bodies.timeout, bodies.in_flight) =
        (Duration::from_secs(2), Duration::from_secs(5), 64 << 20);
    let router = Ingress::new()
        .bodies(bodies)
        .endpoint(Endpoint::plain("plain").verify(tokens()?), &inbox)
        .endpoint(Endpoint::cloud_events("events").verify(tokens()?), &inbox)
        .into_router()?;
    let mut limits = ServerLimits::default();
    // All clients have one address here.
    limits.connections_per_address = limits.connections;
    limits.head = Duration::from_secs(5);
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    println!("{}", listener.local_addr()?);
    let ended = async {
        let mut input = tokio::io::stdin();
        // Any byte, or the end of the input, stops the server.
        let _ = input.read(&mut [0; 1]).await;
    };
    Server::new(listener, router).limits(limits).serve(ended).await;
    Ok(())
}
