//! A small separate disk that can be filled. Tests: tests/short.rs.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A directory of limited size. Needs root.
pub(super) struct Disk {
    dir: tempfile::TempDir,
}

/// A file that fills the disk until it is dropped.
pub(super) struct DiskFill(PathBuf);

impl Disk {
    pub(super) fn mount(bytes: u64) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("oncebox-chaos-disk-").tempdir()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "oncebox-chaos"]).arg(dir.path());
        let done = mount.status().context("cannot mount a disk")?;
        ensure!(done.success(), "a disk of limited size has to be mounted, which only root may do");
        Ok(Self { dir })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Fills the disk.
    pub(super) fn fill(&self) -> Result<DiskFill> {
        let ballast = DiskFill(self.path().join("ballast"));
        let mut file = File::create(&ballast.0)?;
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

impl Drop for DiskFill {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            eprintln!("chaos: the disk stays full: {error}");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Even if a process has an open file: the directory must be removed.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}
