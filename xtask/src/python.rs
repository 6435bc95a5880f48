//! Python for the clients in tests, and its packages. Tests: below.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use oncebox_servers::PythonEnv;

use crate::run;

const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Returns true if Python and its packages are installed.
pub(crate) fn is_installed(target: &Path) -> bool {
    // Written last, so it proves a complete installation.
    let installed = fs::read_to_string(PythonEnv::home(target).join("requirements.txt"));
    PythonEnv::binary().is_ok() && installed.is_ok_and(|installed| installed == REQUIREMENTS)
}

/// Creates an environment with the packages. Replaces an outdated one.
pub(crate) fn install(target: &Path) -> Result<()> {
    let home = PythonEnv::home(target);
    println!("installing the clients of the tests into {}", home.display());
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let result = fill(&home);
    result
        .context("the Python packages of the tests could not be installed; `cargo xtask servers` tries again")
}

fn fill(home: &Path) -> Result<()> {
    run::check(Command::new("python3").args(["-m", "venv"]).arg(home))?;
    let list = home.join("requirements.part");
    fs::write(&list, REQUIREMENTS)?;
    let mut pip = Command::new(home.join("bin/python3"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    pip.args(["--only-binary", ":all:", "--require-hashes", "--requirement"]).arg(&list);
    run::check(&mut pip)?;
    fs::rename(&list, home.join("requirements.txt"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_a_version_and_a_checksum() {
        let packages = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
        for package in packages {
            let (name, checksums) = package.split_once(" --hash=sha256:").expect("a checksum");
            assert!(name.contains("=="), "{package}");
            // Compiled packages have a checksum for every Python and machine.
            for checksum in checksums.split(" --hash=sha256:") {
                assert!(checksum.len() == 64 && checksum.bytes().all(|b| b.is_ascii_hexdigit()), "{package}");
            }
        }
    }
}
