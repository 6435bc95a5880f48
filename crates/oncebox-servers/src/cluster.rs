//! A PostgreSQL server with its data. Tests: `tests/cluster.rs`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};

use crate::builder::ClusterBuilder;
use crate::port::Port;
use crate::postgres::{PostgresInstall, PostgresVersion};
use crate::scratch::Scratch;
use crate::{SUPERUSER, process, tls};

/// A PostgreSQL server for tests. Dropping it ends the server and deletes its data.
///
/// The superuser is [`SUPERUSER`](crate::SUPERUSER) and needs no password.
#[derive(Debug)]
pub struct Cluster {
    version: PostgresVersion,
    postgres: PostgresInstall,
    scratch: Scratch,
    data: PathBuf,
    port: Port,
    replicas: AtomicU32,
}

impl Cluster {
    /// Starts an empty cluster, fast rather than durable.
    pub fn start(version: PostgresVersion) -> Result<Self> {
        Self::builder(version).start()
    }

    /// Returns a builder with other settings.
    pub fn builder(version: PostgresVersion) -> ClusterBuilder {
        ClusterBuilder::new(version)
    }

    pub(crate) fn new(
        version: PostgresVersion,
        postgres: PostgresInstall,
        scratch: Scratch,
        port: Port,
    ) -> Self {
        let data = scratch.path().join("data");
        Self { version, postgres, scratch, data, port, replicas: AtomicU32::new(0) }
    }

    /// Returns the version of PostgreSQL.
    pub fn version(&self) -> PostgresVersion {
        self.version
    }

    /// Returns the URL of a database. Each cluster starts with a database `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port())
    }

    /// Returns the port on 127.0.0.1, which stays reserved while the server is down.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the directory of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the directory of the data.
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// Returns the certificate of the authority that signed the server's, if the cluster was built with
    /// [`tls`](ClusterBuilder::tls).
    pub fn ca_file(&self) -> Option<PathBuf> {
        Some(tls::ca_file(&self.scratch)).filter(|file| file.exists())
    }

    /// Creates a database.
    pub fn create_database(&self, name: &str) -> Result<()> {
        self.sql("postgres", &format!("create database \"{}\"", name.replace('"', "\"\""))).map(drop)
    }

    /// Runs a statement with `psql` and returns the rows, one per line, with `|` between the columns.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String> {
        self.psql(self.socket_dir(), self.port(), database, statement)
    }

    pub(crate) fn psql(
        &self,
        host: impl AsRef<OsStr>,
        port: u16,
        database: &str,
        statement: &str,
    ) -> Result<String> {
        let mut psql = self.command("psql");
        // A suspended server accepts the connection and never responds.
        psql.env("PGCONNECT_TIMEOUT", process::PATIENCE.as_secs().to_string());
        psql.args(["-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER, "-d", database]);
        psql.arg("-h").arg(host).arg("-p").arg(port.to_string()).args(["-c", statement]);
        process::run(&mut psql)
    }

    /// Waits until a condition in SQL is true.
    pub fn wait_for(&self, database: &str, condition: &str) -> Result<()> {
        process::until(condition, || {
            let answer = self.sql(database, &format!("select ({condition})"))?;
            Ok((answer == "t").then_some(()))
        })
    }

    /// Changes a setting of the running server that needs no restart.
    pub fn configure(&self, name: &str, value: &str) -> Result<()> {
        let value = value.replace('\'', "''");
        self.sql("postgres", &format!("alter system set {name} = '{value}'"))?;
        self.sql("postgres", "select pg_reload_conf()").map(drop)
    }

    /// Ends all connections and shuts the server down.
    pub fn stop(&self) -> Result<()> {
        self.pg_ctl(&["stop", "-m", "fast"])?;
        self.gone()
    }

    /// Stops the server as a power cut would, but ends all of its processes. It recovers when it starts.
    pub fn stop_immediate(&self) -> Result<()> {
        self.pg_ctl(&["stop", "-m", "immediate"])?;
        self.gone()
    }

    /// Waits until no process of the server is left. `pg_ctl` waits for the lock file alone, which the server removes before it
    /// ends.
    fn gone(&self) -> Result<()> {
        process::until("the processes of a stopped server end", || {
            Ok(process::working_in(&self.data)?.is_empty().then_some(()))
        })
    }

    /// Starts a stopped or killed server, and waits until it accepts connections.
    pub fn start_again(&self) -> Result<()> {
        self.clear_lock_files()?;
        let log = self.log();
        self.pg_ctl(&["start", "-l", &log.to_string_lossy()]).with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("the log ends with:\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"))
        })
    }

    /// Shuts the server down and starts it again.
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Returns the whole log of the server.
    pub fn log_text(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log())?)
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// Removes files of a killed server with its process number. PostgreSQL would take them for a running server if another process
    /// has that number now.
    fn clear_lock_files(&self) -> Result<()> {
        let running = process::working_in(&self.data)?;
        if let Some(&pid) = running.first() {
            bail!("the server on port {} is still running (process {pid})", self.port());
        }
        let socket_lock = self.socket_dir().join(format!(".s.PGSQL.{}.lock", self.port()));
        for file in [self.data.join("postmaster.pid"), socket_lock] {
            let pid = first_line(&file).filter(|pid| Path::new("/proc").join(pid).exists());
            if pid.is_some() {
                fs::remove_file(&file)?;
            }
        }
        Ok(())
    }

    /// Returns the first process of the server, which started the others.
    pub(crate) fn postmaster(&self) -> Result<u32> {
        let pid = first_line(&self.data.join("postmaster.pid")).and_then(|line| line.parse().ok());
        let pid =
            pid.filter(|pid| process::working_in(&self.data).is_ok_and(|running| running.contains(pid)));
        pid.with_context(|| format!("the server on port {} is not running", self.port()))
    }

    pub(crate) fn pg_ctl(&self, args: &[&str]) -> Result<()> {
        let mut pg_ctl = self.command("pg_ctl");
        pg_ctl
            .arg("-D")
            .arg(&self.data)
            .args(["-w", "-s", "-t"])
            .arg(process::PATIENCE.as_secs().to_string());
        process::run(pg_ctl.args(args)).map(drop)
    }

    /// Returns a command of this PostgreSQL, as the user of the servers.
    pub(crate) fn command(&self, tool: &str) -> Command {
        self.scratch.command(self.postgres.tool(tool))
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn postgres(&self) -> &PostgresInstall {
        &self.postgres
    }

    /// Returns the number of the next replica.
    pub(crate) fn next_replica(&self) -> u32 {
        self.replicas.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes the file of our settings: `lines`, then the server's own address, which overrides them.
    pub(crate) fn configure_here(&self, lines: &str) -> Result<()> {
        let mut text = lines.to_owned();
        text += &conf_line("listen_addresses", "127.0.0.1");
        text += &conf_line("port", &self.port().to_string());
        text += &conf_line("unix_socket_directories", &self.socket_dir().to_string_lossy());
        self.scratch.write(&self.data.join("oncebox.conf"), &text)
    }
}

/// Returns a line of `postgresql.conf`.
pub(crate) fn conf_line(name: &str, value: &str) -> String {
    format!("{name} = '{}'\n", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn first_line(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.lines().next()?.trim().to_owned())
}
