//! Licences, banned crates and origins of crates: `cargo deny`, in a pinned version. Tests: none; it runs a tool.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// The version that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Checks the dependency tree against `deny.toml`. Checks vulnerabilities only on request, because their database comes
/// from a host that may be unreachable.
pub(crate) fn check(workspace: &Workspace, advisories: bool) -> Result<()> {
    let mut deny = Command::new(find_or_install(workspace)?);
    deny.current_dir(&workspace.root);
    deny.args(["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    if advisories {
        deny.arg("advisories");
    } else {
        println!("known vulnerabilities are NOT checked here: that is `cargo xtask test --advisories`");
    }
    run::check(&mut deny)
}

/// Returns the installed `cargo-deny` if it is the pinned version, or installs it below the target directory.
fn find_or_install(workspace: &Workspace) -> Result<PathBuf> {
    let tools = workspace.target.join("tools");
    let own = tools.join("bin/cargo-deny");
    for candidate in [PathBuf::from("cargo-deny"), own.clone()] {
        if is_pinned(&candidate) {
            return Ok(candidate);
        }
    }
    println!("cargo-deny {VERSION} is not here: building it, once, which takes some minutes");
    let mut install = run::cargo(&workspace.root);
    // It runs for a second; optimising it would take minutes.
    install
        .args(["install", "--locked", "--debug", "cargo-deny", "--version", VERSION, "--root"])
        .arg(&tools);
    install.env("CARGO_PROFILE_DEV_DEBUG", "false");
    run::check(&mut install).context("cargo-deny is missing and could not be built")?;
    if !is_pinned(&own) {
        bail!("{} was installed, but does not say that it is version {VERSION}", own.display());
    }
    Ok(own)
}

fn is_pinned(program: &PathBuf) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|version| version.stdout.trim_ascii() == format!("cargo-deny {VERSION}").as_bytes())
}
