//! A connection pooler in front of a server. Tests: below, and `tests/replica.rs`.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context as _, Result, bail};

use crate::cluster::Cluster;
use crate::port::Port;
use crate::scratch::{Scratch, search_path};
use crate::{INSTALL, SUPERUSER, process};

/// Time at which a server connection returns to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// When the client disconnects.
    Session,
    /// After every transaction. Prepared statements, locks and listeners of a session are gone in the next one.
    Transaction,
    /// After every statement. Transactions with several statements are refused.
    Statement,
}

impl fmt::Display for PoolMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        })
    }
}

/// A `PgBouncer` for tests in front of a [`Cluster`]. Dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    scratch: Scratch,
    port: Port,
    child: Child,
}

impl PgBouncer {
    /// Starts a pooler for all databases of the cluster. It trusts every client, and connects as the cluster's superuser.
    pub fn start(cluster: &Cluster, mode: PoolMode) -> Result<Self> {
        let program = Self::binary()?;
        let scratch = Scratch::new(None)?;
        let port = Port::free()?;
        let config = scratch.path().join("pgbouncer.ini");
        scratch.write(&config, &configuration(cluster, mode, &scratch, &port))?;
        let log = File::create(scratch.path().join("log"))?;
        let mut command = scratch.command(program);
        let child = command.arg(&config).stdout(log.try_clone()?).stderr(log).spawn();
        let child = child.context("cannot start `pgbouncer`")?;
        let mut pgbouncer = Self { scratch, port, child };
        pgbouncer.wait(cluster)?;
        Ok(pgbouncer)
    }

    /// Returns the program. If it is missing, the error shows the command that installs it.
    pub fn binary() -> Result<PathBuf> {
        let path = search_path();
        let mut programs = path.split(':').map(|dir| Path::new(dir).join("pgbouncer"));
        programs
            .find(|program| program.is_file())
            .with_context(|| format!("pgbouncer is not installed; `{INSTALL}` installs it. Looked in {path}"))
    }

    /// Returns the URL of a database of the cluster through the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port())
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Waits until a query through it succeeds: an open port is not enough.
    fn wait(&mut self, cluster: &Cluster) -> Result<()> {
        process::until("pgbouncer takes connections", || {
            if let Some(status) = self.child.try_wait()? {
                let log = std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
                bail!("pgbouncer ended at once ({status}); its log:\n{log}");
            }
            Ok(cluster.psql("127.0.0.1", self.port(), "postgres", "select 1").ok())
        })
        .map(drop)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // It has no data to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(cluster: &Cluster, mode: PoolMode, scratch: &Scratch, port: &Port) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={} user={SUPERUSER}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {}\n\
         unix_socket_dir = {}\n\
         auth_type = any\n\
         pool_mode = {mode}\n\
         max_client_conn = 1000\n\
         default_pool_size = 20\n",
        cluster.port(),
        port.number(),
        scratch.path().display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_named_as_the_configuration_wants_them() {
        let modes = [PoolMode::Session, PoolMode::Transaction, PoolMode::Statement];
        assert_eq!(modes.map(|mode| mode.to_string()), ["session", "transaction", "statement"]);
    }
}
