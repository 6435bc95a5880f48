//! The oldest supported compiler. Clippy checks our use of the standard library (`incompatible_msrv`); this checks our
//! dependencies. Tests: below.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Manifest, Package, Workspace, value};

/// Fails if a dependency needs a newer compiler than the workspace declares, or a member declares its own.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let promised = value(&workspace.manifest, "workspace.package", "rust-version")
        .map(|text| text.trim_matches('"'))
        .context("the root's Cargo.toml has no `rust-version` in [workspace.package]")?;
    let problems = problems(promised, &workspace.members, &workspace.packages)?;
    if !problems.is_empty() {
        let mut list = String::new();
        for problem in &problems {
            // Writing to a String cannot fail.
            let _ = write!(list, "\n  {problem}");
        }
        bail!("rust-version {promised} is not kept:{list}");
    }
    println!("{} packages build with Rust {promised}, by their own account", workspace.packages.len());
    Ok(())
}

fn problems(promised: &str, members: &[Manifest], packages: &[Package]) -> Result<Vec<String>> {
    let limit = version(promised)?;
    let mut problems = Vec::new();
    for member in members {
        if value(&member.text, "package", "rust-version.workspace") != Some("true") {
            problems.push(format!("{}/Cargo.toml lacks `rust-version.workspace = true`", member.dir));
        }
    }
    for package in packages {
        let Some(needed) = &package.rust_version else { continue };
        if version(needed)? > limit {
            problems.push(format!("{} {} needs Rust {needed}", package.name, package.version));
        }
    }
    Ok(problems)
}

/// Parses major, minor and patch; missing parts are 0.
fn version(text: &str) -> Result<[u64; 3]> {
    let mut version = [0; 3];
    // A pre-release counts as its release.
    let text = text.split_once('-').map_or(text, |(release, _)| release);
    for (place, part) in version.iter_mut().zip(text.split('.')) {
        *place = part.parse().with_context(|| format!("{text:?} is not a version of Rust"))?;
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(rust_version: Option<&str>) -> Package {
        Package { name: "p".into(), version: "1.2.3".into(), rust_version: rust_version.map(Into::into) }
    }

    #[test]
    fn a_dependency_may_not_need_more_than_is_promised() {
        let kept = [None, Some("1"), Some("1.9"), Some("1.94"), Some("1.94.0")].map(package);
        assert!(problems("1.94", &[], &kept).unwrap().is_empty());
        let broken = [Some("1.94.1"), Some("1.95"), Some("1.100"), Some("2.0")].map(package);
        assert_eq!(problems("1.94", &[], &broken).unwrap().len(), 4);
        assert_eq!(problems("1.94", &[], &broken[1..2]).unwrap(), ["p 1.2.3 needs Rust 1.95"]);
        assert!(problems("1.94", &[], &[package(Some("new"))]).is_err());
    }

    #[test]
    fn a_member_may_not_promise_its_own() {
        let manifest = |line: &str| Manifest { dir: "a".into(), text: format!("[package]\n{line}\n") };
        let own =
            [manifest("rust-version = \"1.94\""), manifest(""), manifest("rust-version.workspace = true")];
        let problems = problems("1.94", &own, &[]).unwrap();
        assert_eq!(problems, ["a/Cargo.toml lacks `rust-version.workspace = true`"; 2]);
    }
}
