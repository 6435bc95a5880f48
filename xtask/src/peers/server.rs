//! PostgreSQL server for peers, through `psql`. Tests: below.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;

/// A server with permission to create databases.
pub(super) struct PeerServer {
    url: String,
    psql: PathBuf,
}

impl PeerServer {
    pub(super) fn new(url: &str) -> Result<Self> {
        if with_database(url, "x").is_none() {
            bail!("`{url}` is not of the form postgres://user@host:port/database");
        }
        Ok(Self { url: url.into(), psql: find_psql() })
    }

    /// Returns the version and settings of the server. Refuses a server without durable writes, whose figures would not
    /// compare with ours.
    pub(super) fn describe(&self) -> Result<String> {
        let settings = "select format('PostgreSQL %s, fsync %s, synchronous_commit %s, shared_buffers %s', \
            current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'), \
            current_setting('shared_buffers'))";
        let text = run::output(self.psql(&[settings]).args(["--tuples-only", "--no-align"]))
            .context("the server cannot be asked for its settings")?;
        if !text.contains("fsync on, synchronous_commit on") {
            bail!("the server does not write durably ({}): no figures from it", text.trim());
        }
        Ok(text.trim().into())
    }

    /// Creates an empty database, and replaces an old one.
    pub(super) fn create(&self, database: &str) -> Result<()> {
        self.drop(database)?;
        run::output(&mut self.psql(&[&format!("create database \"{database}\"")])).map(drop)
    }

    pub(super) fn drop(&self, database: &str) -> Result<()> {
        let drop_it = format!("drop database if exists \"{database}\" with (force)");
        run::output(&mut self.psql(&[&drop_it])).map(drop)
    }

    pub(super) fn url_of(&self, database: &str) -> String {
        with_database(&self.url, database).unwrap_or_default()
    }

    fn psql(&self, statements: &[&str]) -> Command {
        let mut psql = Command::new(&self.psql);
        psql.args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname"]).arg(&self.url);
        // Hide the notice about a missing database.
        psql.env("PGOPTIONS", "-c client_min_messages=warning");
        for statement in statements {
            psql.args(["--command", statement]);
        }
        psql
    }
}

/// Returns the `psql` on the path, or the newest of Debian's.
fn find_psql() -> PathBuf {
    let on_path = PathBuf::from("psql");
    if Command::new(&on_path).arg("--version").output().is_ok() {
        return on_path;
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin/psql")).filter(|psql| psql.exists()).max();
    newest.unwrap_or(on_path)
}

/// Returns the URL of another database on the same server.
fn with_database(url: &str, database: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return None;
    }
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let authority = rest.split('/').next().filter(|authority| !authority.is_empty())?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{scheme}://{authority}/{database}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_changes() {
        let cases = [
            ("postgres://a@h:1/postgres", "postgres://a@h:1/x"),
            ("postgresql://a:b@h", "postgresql://a:b@h/x"),
            ("postgres://h/y?sslmode=disable", "postgres://h/x?sslmode=disable"),
        ];
        for (url, expected) in cases {
            assert_eq!(with_database(url, "x").as_deref(), Some(expected));
        }
        for url in ["mysql://h/y", "h:5432", "postgres:///y"] {
            assert_eq!(with_database(url, "x"), None, "{url}");
        }
    }
}
