//! A server's directory, and the guardian that removes server and directory. Tests: below, and `tests/faults.rs`.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result};

use crate::user::{self, User};

/// Maximum length: a longer path of a socket would not fit into an address (108 bytes).
const LONGEST_PARENT: usize = 64;

/// Directory that is removed with all processes that work in it, when this is dropped or this process ends.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    user: Option<User>,
    guardian: Child,
}

impl Scratch {
    /// Creates a directory of the user of the servers, in `parent` or in the directory of temporary files.
    pub(crate) fn new(parent: Option<&Path>) -> Result<Self> {
        let user = user::unprivileged()?;
        let parent = parent.map_or_else(temporary, Path::to_path_buf);
        let dir = tempfile::Builder::new()
            .prefix("oncebox-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a directory for a server in {}", parent.display()))?;
        // The kernel reports working directories in this form.
        let path = dir.path().canonicalize()?;
        let guardian = guardian(&path)?;
        // From here on the guardian removes it, after the processes in it have ended.
        let _ = dir.keep();
        let scratch = Self { path, user, guardian };
        scratch.give_away(&scratch.path)?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn user(&self) -> Option<User> {
        self.user
    }

    /// Returns a command that runs as the user of the servers in the directory, where the guardian finds it. It gets nothing of our
    /// environment: a `PGHOST` there would redirect it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.path).stdin(Stdio::null());
        command.env_clear().env("PATH", search_path()).env("HOME", &self.path).env("LC_ALL", "C.UTF-8");
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Writes a file of the user of the servers.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.give_away(path)
    }

    /// Gives a path to the user of the servers.
    pub(crate) fn give_away(&self, path: &Path) -> Result<()> {
        let Some(user) = self.user else { return Ok(()) };
        chown(path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("cannot give {} to the user of the servers", path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The guardian waits for this.
        drop(self.guardian.stdin.take());
        let mut complaints = String::new();
        if let Some(mut errors) = self.guardian.stderr.take() {
            let _ = errors.read_to_string(&mut complaints);
        }
        let ended = self.guardian.wait();
        if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) || self.path.exists() {
            eprintln!("the server in {} was not taken away: {ended:?} {complaints}", self.path.display());
        }
    }
}

fn guardian(dir: &Path) -> Result<Child> {
    let mut guardian = Command::new("sh");
    guardian.args(["-c", include_str!("guardian.sh"), "guardian"]).arg(dir);
    guardian.current_dir("/").env("PATH", search_path()).stdin(Stdio::piped()).stdout(Stdio::null());
    guardian.stderr(Stdio::piped());
    // Its own process group: a kill of the test's group must spare the guardian.
    guardian.process_group(0);
    guardian.spawn().context("cannot start `sh`")
}

/// Search path of programs. Some are in directories that only root searches.
pub(crate) fn search_path() -> String {
    let own = env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

fn temporary() -> PathBuf {
    let usual = env::temp_dir();
    let fits = usual.as_os_str().len() <= LONGEST_PARENT && user::reaches(&usual);
    if fits { usual } else { "/tmp".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn what_works_in_the_directory_is_gone_with_it() {
        let scratch = Scratch::new(None).unwrap();
        let path = scratch.path().to_path_buf();
        let inside = path.join("data");
        fs::create_dir(&inside).unwrap();
        let mut stubborn = Command::new("sh");
        stubborn.args(["-c", "trap '' QUIT; cat; :"]).current_dir(&inside).stdin(Stdio::piped());
        let mut child = stubborn.spawn().unwrap();
        drop(scratch);
        assert!(!path.exists());
        assert!(process::working_in(&inside).unwrap().is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn commands_run_as_the_servers_user_and_without_our_environment() {
        let scratch = Scratch::new(None).unwrap();
        let id = process::run(scratch.command("id").arg("-u")).unwrap();
        assert_ne!(id, "0");
        let variables = process::run(&mut scratch.command("env")).unwrap();
        assert!(env::var_os("CARGO_MANIFEST_DIR").is_some() && !variables.contains("CARGO"), "{variables}");
        process::run(scratch.command("touch").arg("mine")).unwrap();
    }
}
