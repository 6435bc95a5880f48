//! What the tests of this store share: tables of their own on a real server.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::atomic::{AtomicU32, Ordering};

use oncebox_postgres::sqlx::{self, Connection as _, Executor as _, PgConnection};
use oncebox_postgres::{Options, Postgres};
use oncebox_testkit::TestClock;

/// A schema of its own, which leaves with the test.
pub(crate) struct Schema {
    url: String,
    pub(crate) name: String,
}

impl Schema {
    /// On the server with this URL.
    pub(crate) fn new(url: impl Into<String>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url: url.into(), name }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn options(&self) -> Options {
        Postgres::options(&self.url).expect("a good URL").schema(&self.name)
    }

    pub(crate) async fn open(&self, clock: &TestClock) -> Postgres {
        self.options().clock(clock.shared()).open().await.expect("the store opens")
    }

    /// A connection of somebody else's, to look at the tables or to stand in the way.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("another connection")
    }

    /// The one number that a query finds. `@` stands for the schema and prefix.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = self.sql(sql);
        let mut connection = self.connect().await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut connection).await.expect("a number")
    }

    pub(crate) async fn run(&self, sql: &str) {
        let sql = self.sql(sql);
        let mut connection = self.connect().await;
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.expect("a statement");
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace('@', &format!("{}.oncebox_", self.name))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (url, name) = (self.url.clone(), self.name.clone());
        // Dropping may happen on a thread of a runtime, where waiting is not allowed.
        let left = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await?;
                let drop = format!("SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {name} CASCADE");
                connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(drop))).await?;
                connection.close().await
            })
        });
        if let Ok(Err(error)) = left.join() {
            eprintln!("the schema {} was left behind: {error}", self.name);
        }
    }
}
