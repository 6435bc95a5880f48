//! Servers that many tests share. They are started once, and environment variables name them. Tests: below.
//!
//! Each test creates its own database on them.

use std::env;
use std::thread;

use anyhow::{Context as _, Result};

use crate::cluster::Cluster;
use crate::pgbouncer::{PgBouncer, PoolMode};
use crate::postgres::PostgresVersion;

const DEBIAN: &str = "ONCEBOX_POSTGRES";
const NEWEST: &str = "ONCEBOX_POSTGRES_NEWEST";
const PGBOUNCER: &str = "ONCEBOX_PGBOUNCER";

/// Returns the URL of the database `postgres` on the shared [`PostgresVersion::Debian`].
///
/// # Panics
///
/// If it was not started. The message shows the command.
pub fn debian_url() -> String {
    from_environment(DEBIAN)
}

/// Returns the URL of the database `postgres` on the shared [`PostgresVersion::Newest`].
///
/// # Panics
///
/// If it was not started. The message shows the command.
pub fn newest_url() -> String {
    from_environment(NEWEST)
}

/// Returns the URL of the database `postgres` on the shared [`PostgresVersion::Debian`], through a pooler in transaction mode.
///
/// # Panics
///
/// If it was not started. The message shows the command.
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

/// The shared servers. Dropping them ends them.
#[derive(Debug)]
pub struct SharedServers {
    // Dropped in this order: the pooler before its server.
    pgbouncer: PgBouncer,
    debian: Cluster,
    newest: Cluster,
}

impl SharedServers {
    /// Starts the servers, with capacity for many concurrent tests.
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

    /// Returns the environment variables that name them for tests.
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
