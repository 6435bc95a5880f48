//! sqlxmq ships its migrations as files without a call that runs them: pass their path to the program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

fn main() -> Result<()> {
    let cargo = std::env::var_os("CARGO").context("cargo does not say where it is")?;
    let output = Command::new(cargo).args(["metadata", "--offline", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == "sqlxmq")
        .find_map(|package| package["manifest_path"].as_str())
        .context("sqlxmq is not among the dependencies")?;
    let migrations = Path::new(manifest).with_file_name("migrations");
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rustc-env=MIGRATIONS={}", migrations.display());
    Ok(())
}
