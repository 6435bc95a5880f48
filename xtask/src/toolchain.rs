//! Required tools: two parts of the Rust toolchain that small installations omit, and a C compiler, because SQLite is
//! built from its source. Tests: below.

use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::run;

/// Debian packages of a compiler and its headers; `gcc` alone lacks `stdio.h`.
const PACKAGES: [&str; 2] = ["gcc", "libc6-dev"];

/// Ensures that every tool exists, before a later step fails without it.
pub(crate) fn ensure(root: &Path) -> Result<()> {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let version = run::output(run::cargo(root).args([tool, "--version"])).with_context(|| {
            format!("there is no {component}; `rustup component add {component}` adds it")
        })?;
        println!("{}", version.trim());
    }
    ensure_c_compiler()
}

/// Ensures that C compiles: installs a compiler if permitted, otherwise prints instructions.
fn ensure_c_compiler() -> Result<()> {
    let chosen = env::var("CC").ok();
    let compiler = chosen.as_deref().unwrap_or("cc");
    if compiles_c(compiler) {
        println!("`{compiler}` compiles C");
        return Ok(());
    }
    let packages = PACKAGES.join(" ");
    if chosen.is_some() {
        bail!("the environment says CC={compiler}, which does not compile C; correct or unset it");
    }
    if !Path::new("/etc/debian_version").exists() {
        bail!(
            "`cc` does not compile C; install a C compiler with the C library's headers (on Debian: {packages})"
        );
    }
    if !is_root() {
        bail!("`cc` does not compile C; run `sudo apt-get install {packages}`");
    }
    println!("`cc` does not compile C: installing {packages}");
    run::check(Command::new("apt-get").arg("update"))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "--yes", "--no-install-recommends"]);
    run::check(install.args(PACKAGES))?;
    if !compiles_c(compiler) {
        bail!("`cc` still does not compile C after {packages} were installed");
    }
    Ok(())
}

/// Compiles a program: a compiler without the C library's headers is useless.
fn compiles_c(compiler: &str) -> bool {
    // `CC` may have arguments, as in "ccache gcc".
    let mut words = compiler.split_whitespace();
    let Some(program) = words.next() else { return false };
    let mut command = Command::new(program);
    command.args(words).args(["-x", "c", "-fsyntax-only", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // The exit status judges a program that does not read this.
        let _ = input.write_all(b"#include <stdio.h>\n");
    }
    child.wait().is_ok_and(|status| status.success())
}

pub(crate) fn is_root() -> bool {
    run::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_compiles_is_a_compiler() {
        assert!(compiles_c("cc"), "the tests were linked with it");
        assert!(!compiles_c("false"));
        assert!(!compiles_c("/nowhere/cc"));
        assert!(!compiles_c(""));
    }
}
