//! `cargo xtask chaos`: builds and starts the fault injection rig. Tests: chaos/tests/short.rs.

use std::ffi::OsString;

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{run, servers};

/// Builds the rig, with planted bugs if requested, and runs it with these arguments. Removes `--release`, which builds
/// with optimisations.
pub(crate) fn chaos(workspace: &Workspace, mut args: Vec<OsString>) -> Result<()> {
    servers::install(workspace)?;
    let optimised = args.iter().position(|arg| arg == "--release").map(|place| args.remove(place));
    let planted = args.iter().any(|arg| arg == "sabotage" || arg == "--sabotage");
    let mut rig = run::cargo(&workspace.root);
    rig.args(["run", "--locked", "--package", "oncebox-chaos"]);
    if optimised.is_some() {
        rig.arg("--release");
    }
    if planted {
        // A separate directory: no other build can pick up these programs.
        rig.args(["--features", "sabotage", "--target-dir"]).arg(workspace.target.join("sabotage"));
    }
    rig.arg("--");
    if !args.first().is_some_and(|first| first == "sabotage" || first == "reliability") {
        rig.arg("run");
    }
    run::check(rig.args(args))
}
