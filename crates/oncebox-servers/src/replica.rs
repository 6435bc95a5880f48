//! A replica of a server. Tests: `tests/replica.rs`.

use std::fs;

use anyhow::{Context as _, Result};

use crate::cluster::{Cluster, conf_line};
use crate::port::Port;
use crate::scratch::Scratch;
use crate::{SUPERUSER, process, tls};

/// Setting that makes a commit wait for replicas.
const WAITS_FOR: &str = "synchronous_standby_names";

impl Cluster {
    /// Returns an up-to-date streaming replica, with a slot on this server. The first is called `replica1` in
    /// `synchronous_standby_names`, the next `replica2`. It has this server's settings but waits for no replica: otherwise a commit
    /// would never return after [`promote`](Self::promote).
    pub fn replica(&self) -> Result<Self> {
        let name = format!("replica{}", self.next_replica());
        let replica = Self::new(self.version(), self.postgres().clone(), Scratch::new(None)?, Port::free()?);
        let source = format!("host=127.0.0.1 port={} user={SUPERUSER} application_name={name}", self.port());
        let mut backup = replica.command("pg_basebackup");
        backup.args([
            "-d",
            &source,
            "-R",
            "-X",
            "stream",
            "-C",
            "-S",
            &name,
            "--checkpoint=fast",
            "--no-sync",
        ]);
        process::run(backup.arg("-D").arg(replica.data_dir())).context("cannot copy the server")?;

        let mut lines = fs::read_to_string(self.data_dir().join("oncebox.conf"))?;
        if self.ca_file().is_some() {
            lines += &tls::copy(self.scratch(), replica.scratch())?;
        }
        lines += &conf_line(WAITS_FOR, "");
        replica.configure_here(&lines)?;
        // The file of `alter system` was copied, and overrides all others.
        let altered = replica.data_dir().join("postgresql.auto.conf");
        let text = fs::read_to_string(&altered)?;
        let others: Vec<&str> = text.lines().filter(|line| !line.starts_with(WAITS_FOR)).collect();
        replica.scratch().write(&altered, &(others.join("\n") + "\n"))?;
        replica.start_again()?;
        replica.wait_for_replay(self)?;
        Ok(replica)
    }

    /// Waits until this replica shows everything that is committed on `primary` now.
    pub fn wait_for_replay(&self, primary: &Self) -> Result<()> {
        let position = primary.sql("postgres", "select pg_current_wal_flush_lsn()")?;
        self.wait_for("postgres", &format!("pg_last_wal_replay_lsn() >= '{position}'::pg_lsn"))
    }

    /// Promotes this replica, and waits until it accepts writes.
    pub fn promote(&self) -> Result<()> {
        self.pg_ctl(&["promote"])
    }
}
