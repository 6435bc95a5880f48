//! Python with the packages that tests use as clients. Tests: its users in `sources/*/tests`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::INSTALL;
use crate::postgres::target_dirs;

/// Python with independent clients of our protocols.
#[derive(Debug)]
pub struct PythonEnv;

impl PythonEnv {
    /// Returns the directory of the packages below the target directory.
    pub fn home(target: &Path) -> PathBuf {
        target.join("servers/python")
    }

    /// Returns the program. If it is missing, the error shows the command that installs it.
    pub fn binary() -> Result<PathBuf> {
        let programs = target_dirs().into_iter().map(|target| Self::home(&target).join("bin/python3"));
        let programs: Vec<PathBuf> = programs.collect();
        let found = programs.iter().find(|program| program.is_file()).cloned();
        found.with_context(|| {
            format!(
                "the Python clients are not installed; `{INSTALL}` installs them. Looked for {programs:?}"
            )
        })
    }
}
