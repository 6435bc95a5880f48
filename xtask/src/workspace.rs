//! The workspace: its members, their manifests and their dependencies. Tests: below.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::run;

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// A manifest and its directory.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// Directory of the package, relative to the root, with forward slashes.
    pub(crate) dir: String,
    /// Text of its `Cargo.toml`.
    pub(crate) text: String,
}

/// A package of the dependency tree, members included.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) rust_version: Option<String>,
}

/// The workspace, as cargo describes it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// The target directory.
    pub(crate) target: PathBuf,
    /// Text of the root's `Cargo.toml`.
    pub(crate) manifest: String,
    pub(crate) members: Vec<Manifest>,
    pub(crate) packages: Vec<Package>,
    /// Names of the members whose tests need the servers.
    pub(crate) with_servers: Vec<String>,
    pub(crate) without_servers: Vec<String>,
}

impl Workspace {
    /// Runs `cargo metadata`, and reads the manifests.
    pub(crate) fn load() -> Result<Self> {
        let root = root();
        let mut metadata = run::cargo(&root);
        metadata.args(["metadata", "--locked", "--format-version", "1"]);
        let text = run::output(&mut metadata)?;
        let metadata: Value =
            serde_json::from_str(&text).context("the answer of `cargo metadata` is not JSON")?;
        let read =
            |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));

        let ids: Vec<&str> = list(&metadata, "workspace_members").filter_map(Value::as_str).collect();
        let mut members = Vec::new();
        let mut packages = Vec::new();
        let (mut with_servers, mut without_servers) = (Vec::new(), Vec::new());
        for package in list(&metadata, "packages") {
            if ids.contains(&string(package, "id")) {
                let path = Path::new(string(package, "manifest_path"));
                let dir = path.parent().and_then(|dir| dir.strip_prefix(&root).ok()).unwrap_or(path);
                let group = if needs_servers(package) { &mut with_servers } else { &mut without_servers };
                group.push(string(package, "name").into());
                members.push(Manifest { dir: slashes(dir), text: read(path)? });
            }
            packages.push(Package {
                name: string(package, "name").into(),
                version: string(package, "version").into(),
                rust_version: package["rust_version"].as_str().map(Into::into),
            });
        }
        Ok(Self {
            target: string(&metadata, "target_directory").into(),
            manifest: read(&root.join("Cargo.toml"))?,
            members,
            packages,
            with_servers,
            without_servers,
            root,
        })
    }
}

/// Returns true if the tests of a package use servers: it starts them, or depends on the package that does.
fn needs_servers(package: &Value) -> bool {
    const STARTS: &str = "oncebox-servers";
    let uses = || list(package, "dependencies").any(|dependency| string(dependency, "name") == STARTS);
    match string(package, "name") {
        STARTS => true,
        name => name != env!("CARGO_PKG_NAME") && uses(),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns a path with forward slashes, on any system.
pub(crate) fn slashes(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Returns the raw value of `key` in `[section]` of a manifest. Dotted keys are plain keys: the project writes
/// inheritance as `rust-version.workspace = true`, and checks can require that.
pub(crate) fn value<'a>(manifest: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            inside = header.strip_suffix(']') == Some(section);
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_their_own_section_only() {
        let manifest =
            "[package]\nname = \"a\"\nrust-version.workspace = true\n\n[lints]\nworkspace = true\n";
        assert_eq!(value(manifest, "package", "rust-version.workspace"), Some("true"));
        assert_eq!(value(manifest, "lints", "workspace"), Some("true"));
        assert_eq!(value(manifest, "package", "workspace"), None);
        assert_eq!(value(manifest, "lints", "name"), None);
    }

    #[test]
    fn who_uses_servers_needs_them() {
        let package = |name: &str, dependency: &str| serde_json::json!({ "name": name, "dependencies": [{ "name": "anyhow" }, { "name": dependency }] });
        assert!(needs_servers(&package("oncebox-servers", "tempfile")));
        assert!(needs_servers(&package("oncebox-postgres", "oncebox-servers")));
        assert!(!needs_servers(&package("oncebox-sqlite", "oncebox")));
        assert!(!needs_servers(&package("xtask", "oncebox-servers")));
    }

    #[test]
    fn the_root_holds_this_package() {
        assert!(root().join("xtask/Cargo.toml").is_file());
    }
}
