//! Settings of a new cluster. Tests: `tests/cluster.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cluster::{Cluster, conf_line};
use crate::port::Port;
use crate::postgres::{PostgresInstall, PostgresVersion};
use crate::scratch::{Scratch, search_path};
use crate::{SUPERUSER, process, tls, user};

/// Builder of a cluster; see [`Cluster::builder`].
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    version: PostgresVersion,
    settings: Vec<(String, String)>,
    durable: bool,
    tls: bool,
    hba: Option<String>,
    tmpfs: Option<u64>,
    parent: Option<PathBuf>,
}

impl ClusterBuilder {
    pub(crate) fn new(version: PostgresVersion) -> Self {
        Self {
            version,
            settings: Vec::new(),
            durable: false,
            tls: false,
            hba: None,
            tmpfs: None,
            parent: None,
        }
    }

    /// Sets a setting of `postgresql.conf`, without quotes.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Sets whether a commit waits for the disk (`fsync`). Default: false, which is safe unless the machine crashes: the kernel has
    /// the writes of a killed server. Benchmarks set it to true.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Offers TLS, with a certificate for `localhost` and 127.0.0.1 by an authority of its own; see [`Cluster::ca_file`]. Only
    /// [`PostgresVersion::Debian`] supports it.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets the whole `pg_hba.conf`, for tests of passwords or TLS. Default: the server trusts every client. Keep a `local all all
    /// trust`, which [`Cluster::sql`] uses.
    pub fn hba(mut self, lines: &str) -> Self {
        self.hba = Some(lines.into());
        self
    }

    /// Stores the data in memory with a limit in bytes, for tests of a full disk; see [`Cluster::fill_disk`]. An empty cluster
    /// takes about 60 MB. Needs root.
    pub fn tmpfs(mut self, bytes: u64) -> Self {
        self.tmpfs = Some(bytes);
        self
    }

    /// Sets the parent of the throwaway directory, for benchmarks on a certain disk. The user of the servers must be able to enter
    /// it, and the path must be short enough for a socket.
    pub fn inside(mut self, parent: impl AsRef<Path>) -> Self {
        self.parent = Some(parent.as_ref().to_path_buf());
        self
    }

    /// Initialises the cluster and starts its server.
    pub fn start(self) -> Result<Cluster> {
        let postgres = PostgresInstall::binaries(self.version)?;
        if self.tls && self.version == PostgresVersion::Newest {
            bail!("{} was built without TLS; use `PostgresVersion::Debian`", self.version);
        }
        let scratch = Scratch::new(self.parent.as_deref())?;
        let port = Port::free()?;
        let cluster = Cluster::new(self.version, postgres, scratch, port);
        if let Some(bytes) = self.tmpfs {
            mount_tmpfs(&cluster, bytes)?;
        }
        self.initdb(&cluster)?;
        cluster.configure_here(&self.all_settings(&cluster)?)?;
        cluster.start_again()?;
        Ok(cluster)
    }

    fn initdb(&self, cluster: &Cluster) -> Result<()> {
        let mut initdb = cluster.command("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
        initdb.arg(format!("--username={SUPERUSER}")).arg("-D").arg(cluster.data_dir());
        process::run(&mut initdb).with_context(|| format!("cannot make a cluster of {}", self.version))?;
        if let Some(hba) = &self.hba {
            fs::write(cluster.data_dir().join("pg_hba.conf"), hba)?;
        }
        let main = cluster.data_dir().join("postgresql.conf");
        let text = fs::read_to_string(&main)?;
        fs::write(&main, format!("{text}\ninclude 'oncebox.conf'\n"))?;
        Ok(())
    }

    /// Our settings come first: of two settings with one name the last counts.
    fn all_settings(&self, cluster: &Cluster) -> Result<String> {
        let mut lines = String::new();
        if !self.durable {
            lines += "fsync = off\nfull_page_writes = off\n";
            // In files of the directory: a killed server leaves its segments in /dev/shm.
            lines += "dynamic_shared_memory_type = mmap\n";
        }
        if self.tls {
            lines += &tls::make(cluster.scratch())?;
        }
        for (name, value) in &self.settings {
            lines += &conf_line(name, value);
        }
        Ok(lines)
    }
}

fn mount_tmpfs(cluster: &Cluster, bytes: u64) -> Result<()> {
    if !user::is_root()? {
        bail!("a data directory of limited size has to be mounted, which only root may do");
    }
    let data = cluster.data_dir();
    fs::create_dir(data)?;
    let owner = cluster.scratch().user().map(|user| format!(",uid={},gid={}", user.uid, user.gid));
    let options = format!("size={bytes},mode=0700{}", owner.unwrap_or_default());
    let mut mount = Command::new("mount");
    mount.env("PATH", search_path()).args(["-t", "tmpfs", "-o", &options, "oncebox"]).arg(data);
    process::run(&mut mount)
        .context("a data directory of limited size has to be mounted; is that allowed here?")?;
    Ok(())
}
