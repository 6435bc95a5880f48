//! Fixture of this store's tests: tables per test on a real server, and short helpers.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../src/sections.rs"]
pub(crate) mod sections;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::{
    Accepted, ClaimParams, ClaimQuota, Claimed, Inspect, NewMessage, RescueParams, Route, Store as _,
};
use oncebox::{Error, HandlerKey, InboxName, Key, KeyStrategy, Message};
use oncebox_postgres::sqlx::{self, AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use oncebox_postgres::{Postgres, PostgresOptions};
use oncebox_servers::{Cluster, shared};
use oncebox_testkit::TestClock;

pub(crate) const LEASE: Duration = Duration::from_mins(1);
/// A time after the lease: longer by the store's precision.
pub(crate) const PAST_LEASE: Duration = Duration::from_millis(60_001);
/// Maximum time for an event that must happen by itself.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// A schema that only one test uses. It is dropped with the test.
pub(crate) struct Schema {
    /// URL of the server, without the pooler.
    url: String,
    /// URL of the pooler, if the store connects through one.
    pooler: Option<String>,
    pub(crate) name: String,
    /// True if the server stops with the test.
    with_server: bool,
}

impl Schema {
    /// Creates a schema on the server with this URL.
    pub(crate) fn new(url: impl Into<String>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url: url.into(), pooler: None, name, with_server: false }
    }

    /// Creates a schema on the shared server with Debian's version of PostgreSQL.
    pub(crate) fn shared() -> Self {
        Self::new(shared::debian_url())
    }

    /// Creates a schema on the same server, through a pooler in transaction mode.
    pub(crate) fn pooled() -> Self {
        let mut schema = Self::shared();
        schema.pooler = Some(shared::pgbouncer_url());
        schema
    }

    /// Returns a schema of the same name on another server.
    pub(crate) fn twin(&self) -> Self {
        let mut twin = Self::new(shared::newest_url());
        twin.name.clone_from(&self.name);
        twin
    }

    /// Creates a schema on the test's own server.
    pub(crate) fn on(cluster: &Cluster) -> Self {
        let mut schema = Self::new(cluster.url("postgres"));
        schema.with_server = true;
        schema
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        let url = self.pooler.as_ref().unwrap_or(&self.url);
        let options = Postgres::options(url).expect("a good URL").schema(&self.name).checks(true);
        options.pooled(self.pooler.is_some())
    }

    pub(crate) async fn open(&self, clock: &TestClock) -> Postgres {
        self.options().clock(clock.shared()).open().await.expect("the store opens")
    }

    /// Opens a store with the server's clock, and creates a business table.
    pub(crate) async fn shop(&self) -> Postgres {
        self.shop_with(self.options()).await
    }

    pub(crate) async fn shop_with(&self, options: PostgresOptions) -> Postgres {
        let store = options.open().await.expect("the store opens");
        self.run("CREATE TABLE @shipment (id text NOT NULL)").await;
        store
    }

    /// Opens another connection, to read the tables or to block the store.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("another connection")
    }

    /// Returns the one number that a query finds. `@` stands for the schema and prefix.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = self.sql(sql);
        let mut connection = self.connect().await;
        let number = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await;
        number.expect("a number")
    }

    pub(crate) async fn text(&self, sql: &str) -> String {
        let sql = self.sql(sql);
        let mut connection = self.connect().await;
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.expect("a text")
    }

    /// Counts the rows of a table, with an optional condition.
    pub(crate) async fn count(&self, rows: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {rows}")).await
    }

    pub(crate) async fn run(&self, sql: &str) {
        let mut connection = self.connect().await;
        run(&mut connection, &self.sql(sql)).await.expect("a statement");
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace('@', &format!("{}.oncebox_", self.name))
    }

    /// Waits until a condition in SQL is true.
    pub(crate) async fn wait_for(&self, condition: &str) {
        let mut connection = self.connect().await;
        let sql = self.sql(&format!("SELECT ({condition})"));
        let waiting = async {
            loop {
                let holds: bool = sqlx::query_scalar(AssertSqlSafe(sql.clone()))
                    .fetch_one(&mut connection)
                    .await
                    .expect("a condition");
                if holds {
                    return;
                }
                // Each query is a round trip to the server. Other tasks run meanwhile.
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(ended.is_ok(), "waited {PATIENCE:?} for this: {condition}");
    }

    /// Checks that the tables are consistent.
    pub(crate) async fn check(&self) {
        for (what, sql) in [
            ("a key is stored twice", "SELECT count(*) - count(DISTINCT digest) FROM @proof"),
            (
                "an entry is in two places",
                "SELECT count(*) FROM (SELECT 1 FROM (SELECT seq, handler FROM @entry UNION ALL
                 SELECT seq, handler FROM @scheduled UNION ALL
                 SELECT seq, handler FROM @poisoned) e GROUP BY seq, handler HAVING count(*) > 1) e",
            ),
            (
                "an entry has no message",
                "SELECT count(*) FROM (SELECT seq FROM @entry UNION ALL SELECT seq FROM @scheduled UNION ALL
                 SELECT seq FROM @poisoned) e
                 WHERE NOT EXISTS (SELECT 1 FROM @message m WHERE m.seq = e.seq)",
            ),
            (
                "a message lacks one of its entries",
                "SELECT count(*) FROM @proof p WHERE octet_length(p.handlers) / 2 <>
                 (SELECT count(DISTINCT handler) FROM (SELECT seq, handler FROM @entry UNION ALL
                 SELECT seq, handler FROM @scheduled UNION ALL
                  SELECT seq, handler FROM @poisoned UNION ALL SELECT seq, handler FROM @outcome) e
                  WHERE e.seq = p.seq)",
            ),
        ] {
            assert_eq!(self.number(sql).await, 0, "{what}");
        }
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if self.with_server {
            return;
        }
        let (url, name) = (self.url.clone(), self.name.clone());
        // Drop may run on a thread of a runtime, where blocking is not allowed.
        let left = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await?;
                run(
                    &mut connection,
                    &format!("SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {name} CASCADE"),
                )
                .await?;
                connection.close().await
            })
        });
        if let Ok(Err(error)) = left.join() {
            eprintln!("the schema {} was left behind: {error}", self.name);
        }
    }
}

/// Runs statements without values.
pub(crate) async fn run(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.map(drop)
}

/// Returns the process id of a session.
pub(crate) async fn pid(connection: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.expect("a number")
}

/// Waits for an event that must happen by itself, and soon.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it does not hang")
}

/// Writes to the business table in a handler's transaction.
pub(crate) async fn ship(schema: &Schema, tx: &mut PgConnection, id: &str) {
    let sql = schema.sql("INSERT INTO @shipment VALUES ($1)");
    sqlx::query(AssertSqlSafe(sql)).bind(id.to_owned()).execute(tx).await.expect("a business write");
}

pub(crate) fn inbox() -> InboxName {
    InboxName::new("orders").expect("a good name")
}

pub(crate) fn handler(name: &str) -> HandlerKey {
    HandlerKey::new(name).expect("a good name")
}

pub(crate) fn route(name: &str) -> Route {
    Route::new(handler(name))
}

pub(crate) fn message(id: &str) -> Message {
    Message::new(id.to_owned(), "order.placed", id.to_owned())
}

pub(crate) fn key(id: &str) -> Key {
    KeyStrategy::MessageId.key(&inbox(), &message(id)).expect("an id")
}

/// Returns an offer of a message for the handler `h`.
pub(crate) fn offer(id: &str) -> NewMessage {
    NewMessage::new(inbox(), key(id), Arc::new(message(id)), [route("h")].into_iter().collect())
}

/// Returns an offer with an ordering key.
pub(crate) fn offer_ordered(id: &str, order: &str) -> NewMessage {
    let message = message(id).with_ordering_key(order.to_owned());
    NewMessage::new(inbox(), key(id), Arc::new(message), [route("h")].into_iter().collect())
}

/// Offers one message.
pub(crate) async fn accept(store: &Postgres, id: &str) -> Result<Accepted, Error> {
    store.accept(&[offer(id)]).await.map(|accepted| accepted[0])
}

/// Offers one message that must be new.
pub(crate) async fn first(store: &Postgres, id: &str) {
    let accepted = accept(store, id).await.expect("accept");
    assert!(matches!(accepted, Accepted::First(_)), "{id} is {accepted:?}");
}

pub(crate) fn claim_params(limit: usize) -> ClaimParams {
    ClaimParams::new(inbox(), vec![ClaimQuota { route: route("h"), limit }], LEASE)
}

pub(crate) fn rescue_params() -> RescueParams {
    RescueParams::new(inbox(), vec![route("h")], LEASE, 10)
}

pub(crate) async fn claim(store: &Postgres, limit: usize) -> Vec<Claimed> {
    store.claim(&claim_params(limit)).await.expect("claim")
}

/// Claims the only claimable entry.
pub(crate) async fn claim_one(store: &Postgres) -> Claimed {
    let mut claimed = claim(store, 2).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed.remove(0)
}

/// Returns the status of the entry of `h`. `None` if the message is not stored.
pub(crate) async fn status(store: &Postgres, id: &str) -> Option<Status> {
    let view = store.show(&inbox(), &key(id)).await.expect("show")?;
    view.entries.iter().filter(|entry| entry.handler == handler("h")).map(|entry| entry.status).next_back()
}

/// A statement of the store, from its file.
pub(crate) struct StatementFile {
    pub(crate) name: String,
    /// SQL, with `@` for the schema and prefix.
    pub(crate) sql: String,
    /// Types of the parameters, from the header.
    pub(crate) types: Vec<String>,
}

/// Returns all statements of the files in `sql`.
pub(crate) fn statements() -> Vec<StatementFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut found = Vec::new();
    for file in std::fs::read_dir(root).expect("the folder of statements") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("a file of statements");
        let mut sections = text.split("-- name: ");
        assert_eq!(sections.next(), Some(""), "a file begins with a section");
        for section in sections {
            let name = section.lines().next().expect("a name").to_owned();
            let types =
                section.lines().skip(1).take_while(|line| line.starts_with("--")).filter_map(|line| {
                    let (_, parameter) = line.strip_prefix("-- $")?.split_once(' ')?;
                    let (_, kind) = parameter.split_once(' ')?;
                    kind.split([' ', ':', ',']).next().map(str::to_owned)
                });
            let sql = sections::section(&text, &name).replace("oncebox_", "@");
            found.push(StatementFile { types: types.collect(), name, sql });
        }
    }
    found
}

/// Returns the statement with a name.
pub(crate) fn statement(name: &str) -> StatementFile {
    let found = statements().into_iter().find(|statement| statement.name == name);
    found.unwrap_or_else(|| panic!("there is no statement {name}"))
}
