//! Faults of a server. Tests: `tests/faults.rs`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cluster::Cluster;
use crate::process;

impl Cluster {
    /// Kills the server and all of its processes, so that they neither close connections nor write anything.
    /// [`start_again`](Self::start_again) recovers it.
    pub fn kill9(&self) -> Result<()> {
        // First the process that would start others.
        process::signal("KILL", &[self.postmaster()?])?;
        process::until("the processes of a killed server end", || {
            let left = process::working_in(self.data_dir())?;
            process::signal("KILL", &left)?;
            Ok(left.is_empty().then_some(()))
        })
    }

    /// Suspends the process that accepts connections. New connections reach the kernel and then wait for ever. Existing ones
    /// continue.
    pub fn suspend(&self) -> Result<()> {
        process::stop(&[self.postmaster()?])
    }

    /// Suspends every process of the server, like a machine that hangs.
    pub fn suspend_all(&self) -> Result<()> {
        // First the process that would start others.
        self.suspend()?;
        process::stop(&process::working_in(self.data_dir())?)
    }

    /// Resumes a suspended server.
    pub fn resume(&self) -> Result<()> {
        process::signal("CONT", &process::working_in(self.data_dir())?)
    }

    /// Fills the disk of the data. Dropping the result frees the space. Only for a cluster built with
    /// [`tmpfs`](crate::ClusterBuilder::tmpfs).
    pub fn fill_disk(&self) -> Result<DiskFiller> {
        let mut mounted = std::process::Command::new("mountpoint");
        process::run(mounted.arg("-q").arg(self.data_dir()))
            .context("this cluster is on the machine's own disk; build it with `tmpfs`")?;
        let ballast = DiskFiller { path: self.data_dir().join("ballast") };
        let mut file = File::create(&ballast.path)?;
        // The last page matters: a server could use it.
        for size in [1 << 20, 1 << 12] {
            let block = vec![1; size];
            loop {
                match file.write_all(&block) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("cannot fill the disk"),
                }
            }
        }
        Ok(ballast)
    }
}

/// Fills a disk until it is dropped; see [`Cluster::fill_disk`].
#[derive(Debug)]
#[must_use = "the disk has room again as soon as this is dropped"]
pub struct DiskFiller {
    path: PathBuf,
}

impl Drop for DiskFiller {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("the disk stays full: {error}");
        }
    }
}
