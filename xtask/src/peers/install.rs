//! Peers and their dependencies, installed below the target directory only. Tests: none; it runs package managers.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use super::PeerRuntime;
use crate::run;
use crate::workspace::Workspace;

/// Installed peers, and the errors of the others.
pub(super) struct Installed {
    sources: PathBuf,
    target: PathBuf,
    node: Result<(), String>,
    python: Result<(), String>,
}

impl Installed {
    /// Installs the runtimes and packages of these kinds.
    pub(super) fn new(workspace: &Workspace, kinds: impl Iterator<Item = PeerRuntime>) -> Result<Self> {
        let kinds: Vec<PeerRuntime> = kinds.collect();
        let (sources, target) = (workspace.root.join("bench/peers"), workspace.target.join("peers"));
        fs::create_dir_all(&target)?;
        let wanted = |kind| kinds.contains(&kind);
        let said = |result: Result<()>| result.map_err(|error| format!("not installed: {error:#}"));
        let mut installed = Self { node: Ok(()), python: Ok(()), sources, target };
        if wanted(PeerRuntime::Node) {
            installed.node = said(installed.node());
        }
        if wanted(PeerRuntime::Python) {
            installed.python = said(installed.python());
        }
        let programs: Vec<&str> = kinds
            .iter()
            .filter_map(|kind| if let PeerRuntime::Rust(program) = kind { Some(*program) } else { None })
            .collect();
        if !programs.is_empty() {
            installed.rust(&workspace.root, &programs)?;
        }
        Ok(installed)
    }

    /// Returns the command that measures a row of this peer, without the row, the URL and the number of messages.
    pub(super) fn command(&self, peer: &str, kind: PeerRuntime) -> Result<Command> {
        match kind {
            PeerRuntime::Rust(program) => {
                let program = self.program(program);
                if !program.exists() {
                    return Err(anyhow!("not installed: it does not build"));
                }
                Ok(Command::new(program))
            }
            PeerRuntime::Node => {
                self.node.clone().map_err(|error| anyhow!(error))?;
                let mut node = Command::new("node");
                node.arg(self.target.join("node/run.mjs")).arg(peer);
                Ok(node)
            }
            PeerRuntime::Python => {
                self.python.clone().map_err(|error| anyhow!(error))?;
                let mut python = Command::new(self.target.join("python/bin/python"));
                // Keeps compiled files out of the sources.
                python.env("PYTHONDONTWRITEBYTECODE", "1").arg(self.sources.join("python/run.py")).arg(peer);
                Ok(python)
            }
        }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.target.join("rust/release").join(name)
    }

    /// Copies the scripts to the packages: Node looks for packages beside the script only.
    fn node(&self) -> Result<()> {
        let (from, to) = (self.sources.join("node"), self.target.join("node"));
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                fs::copy(&path, to.join(name))?;
            }
        }
        once(&to.join("package-lock.json"), &to.join("node_modules/.lock"), || {
            run::check(Command::new("npm").current_dir(&to).args([
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
            ]))
        })
    }

    fn python(&self) -> Result<()> {
        let (requirements, venv) = (self.sources.join("python/requirements.txt"), self.target.join("python"));
        once(&requirements, &venv.join("requirements.lock"), || {
            run::check(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
            let mut pip = Command::new(venv.join("bin/pip"));
            run::check(pip.args(["install", "--quiet", "--requirement"]).arg(&requirements))
        })
    }

    /// Builds all of them even if one fails; a program without a file afterwards did not build.
    fn rust(&self, root: &Path, programs: &[&str]) -> Result<()> {
        for program in programs {
            let program = self.program(program);
            if program.exists() {
                fs::remove_file(program)?;
            }
        }
        let manifest = self.sources.join("rust/Cargo.toml");
        // A build script asks cargo about packages for all systems, and may not fetch them itself.
        run::check(run::cargo(root).args(["fetch", "--locked", "--manifest-path"]).arg(&manifest))?;
        let mut build = run::cargo(root);
        build.args(["build", "--release", "--locked", "--keep-going", "--manifest-path"]);
        build.arg(&manifest).arg("--target-dir").arg(self.target.join("rust"));
        // Remove variables of our own cargo: some build scripts read them, and would rerun after a manual build.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                build.env_remove(&*name);
            }
        }
        if let Err(error) = run::check(&mut build) {
            println!("{error:#}");
        }
        Ok(())
    }
}

/// Runs `install` unless it succeeded before with the same `lock`.
fn once(lock: &Path, stamp: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let text = fs::read_to_string(lock).with_context(|| format!("cannot read {}", lock.display()))?;
    if fs::read_to_string(stamp).is_ok_and(|before| before == text) {
        return Ok(());
    }
    install()?;
    Ok(fs::write(stamp, text)?)
}
