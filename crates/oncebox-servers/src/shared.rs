//! Servers that many tests share: started once, found by environment variables.
//!
//! Each test makes a database of its own on them.

use std::env;
use std::thread;

use anyhow::{Context as _, Result};

use crate::cluster::Cluster;
use crate::pgbouncer::{PgBouncer, PoolMode};
use crate::postgres::PostgresVersion;

const DEBIAN: &str = "ONCEBOX_POSTGRES";
const NEWEST: &str = "ONCEBOX_POSTGRES_NEWEST";
const PGBOUNCER: &str = "ONCEBOX_PGBOUNCER";

/// The address of the database `postgres` on the shared [`PostgresVersion::Debian`].
///
/// # Panics
///
/// If it was not started: the text says how to do that.
pub fn debian_url() -> String {
    from_environment(DEBIAN)
}

/// The address of the database `postgres` on the shared [`PostgresVersion::Newest`].
///
/// # Panics
///
/// If it was not started: the text says how to do that.
pub fn newest_url() -> String {
    from_environment(NEWEST)
}

/// The address of the database `postgres` on the shared [`PostgresVersion::Debian`], by way of a pooler of transactions.
///
/// # Panics
///
/// If it was not started: the text says how to do that.
pub fn pgbouncer_url() -> String {
    from_environment(PGBOUNCER)
}

fn from_environment(variable: &str) -> String {
    match found(variable, env::var(variable).ok()) {
        Ok(url) => url,
        Err(cure) => panic!("{cure}"),
    }
}

fn found(variable: &str, value: Option<String>) -> Result<String, String> {
    value.filter(|url| !url.is_empty()).ok_or_else(|| {
        format!(
            "{variable} is not set: this test wants a server that all tests share. `cargo xtask test` starts it; \
             for a single test, `cargo xtask servers run -- cargo test -p <package> <test>`"
        )
    })
}

/// The shared servers; dropping them ends them.
#[derive(Debug)]
pub struct SharedServers {
    // The order is that of their end: the pooler before what it pools.
    pgbouncer: PgBouncer,
    debian: Cluster,
    newest: Cluster,
}

impl SharedServers {
    /// Starts them, with room for many tests at once.
    pub fn start() -> Result<Self> {
        let start = |version| {
            let cluster = Cluster::builder(version).set("max_connections", "400").start();
            cluster.with_context(|| format!("cannot start {version}"))
        };
        let (debian, newest) = thread::scope(|scope| {
            let newest = scope.spawn(|| start(PostgresVersion::Newest));
            (start(PostgresVersion::Debian), newest.join())
        });
        let newest = newest.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let debian = debian?;
        let pgbouncer = PgBouncer::start(&debian, PoolMode::Transaction)?;
        Ok(Self { pgbouncer, debian, newest })
    }

    /// The environment variables by which tests find them.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        [
            (DEBIAN, self.debian.url("postgres")),
            (NEWEST, self.newest.url("postgres")),
            (PGBOUNCER, self.pgbouncer.url("postgres")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_variable_names_itself_and_the_cure() {
        for value in [None, Some(String::new())] {
            let text = found(PGBOUNCER, value).unwrap_err();
            assert!(text.contains(PGBOUNCER) && text.contains("cargo xtask servers run --"), "{text}");
        }
        assert_eq!(found(PGBOUNCER, Some("postgres://x".into())).unwrap(), "postgres://x");
    }
}
