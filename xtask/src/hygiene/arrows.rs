//! Arrows of the architecture: the order of modules within a crate, and the crates that a store or source may use. Tests:
//! below.

use std::collections::BTreeSet;

use super::{RepoFile, RuleInput};
use crate::workspace::Manifest;

const CORE: &str = "crates/oncebox-core";
const PARTS: &str = "crates/oncebox-tokio";

/// The modules of a crate, from the lowest to the highest. A module imports only from the groups below its own. The modules of one
/// group may import from each other: such a group is a known cycle, and its comment has the reason.
struct ModuleOrder {
    /// Sources of the crate.
    src: &'static str,
    groups: &'static [&'static [&'static str]],
}

const ORDERS: [ModuleOrder; 2] = [
    ModuleOrder {
        src: "crates/oncebox-core/src",
        groups: &[
            &["error"],
            &["text"],
            &["time"],
            &["name"],
            &["config"],
            &["message"],
            &["key"],
            &["state"],
            &["store"],
            &["source"],
        ],
    },
    ModuleOrder {
        src: "crates/oncebox/src",
        groups: &[
            &["time"],
            &["source"],
            &["state"],
            &["privacy"],
            &["config"],
            &["fixtures"],
            &["consumers"],
            &["recent"],
            &["direct"],
            &["memory"],
            &["health"],
            &["observe"],
            &["operate"],
            &["retention"],
            &["handler"],
            // An inbox starts its runtime, and every part of the runtime works on what the inbox shares with it.
            &["inbox", "runtime"],
            &["once"],
        ],
    },
];

/// Parts of the standard library that the core crate does without.
const OUTSIDE: [&str; 4] = ["std::fs", "std::net", "std::process", "std::thread"];

/// Crates that may use the library, and the reason.
const USES_LIBRARY: [(&str, &str); 1] =
    [("sources/http", "its router answers a request with the result of `Inbox::receive`")];

/// No module imports one that is above it, and every module has its place in the order.
pub(super) fn modules_import_downwards(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for order in &ORDERS {
        let mut unknown = BTreeSet::new();
        for file in tree.rust() {
            let Some(module) = order.module_of(file) else { continue };
            let Some(own) = order.level(module) else {
                unknown.insert(module);
                continue;
            };
            for (number, line) in (1..).zip(file.text.lines()) {
                for target in imports(line, order.depth(file)) {
                    if order.level(target).is_some_and(|level| level > own) {
                        breaches.push(format!(
                            "{}:{number}: `{module}` imports `{target}`, which is above it: move what both need down",
                            file.path
                        ));
                    }
                }
            }
        }
        breaches.extend(unknown.into_iter().map(|module| {
            format!(
                "{}: the module `{module}` has no place in the order of xtask/src/hygiene/arrows.rs",
                order.src
            )
        }));
    }
    breaches
}

/// The core crate touches no file, socket, process or thread.
pub(super) fn the_core_has_no_io(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with(&format!("{CORE}/src/"))) {
        let lines = (1..).zip(file.text.lines()).take_while(|(_, line)| *line != "mod tests {");
        for (number, line) in lines.filter(|(_, line)| is_code(line)) {
            for name in OUTSIDE.iter().filter(|name| line.contains(**name)) {
                breaches.push(format!("{}:{number}: `{name}`: the core crate has no I/O", file.path));
            }
        }
    }
    breaches
}

/// The core crate has no runtime, and stores and sources depend on the core crates alone.
pub(super) fn crates_depend_downwards(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for member in tree.members {
        for dependency in dependencies(&member.text) {
            if let Some(why) = refused(member, dependency) {
                breaches.push(format!("{}/Cargo.toml: depends on `{dependency}`: {why}", member.dir));
            }
        }
    }
    breaches
}

/// Returns the reason if a package must not depend on another.
fn refused(member: &Manifest, dependency: &str) -> Option<&'static str> {
    let (folder, _) = member.dir.split_once('/')?;
    let ours = dependency == "oncebox" || dependency.starts_with("oncebox-");
    match (&*member.dir, folder) {
        (CORE, _) if ours => Some("the core crate depends on no other of ours"),
        (CORE, _) if dependency.split('-').next() == Some("tokio") => Some("the core crate has no runtime"),
        (PARTS, _) if ours && dependency != "oncebox-core" => Some("it stands directly above the core crate"),
        (dir, "stores" | "sources") if ours => {
            let library = dependency == "oncebox" && USES_LIBRARY.iter().any(|(user, _)| *user == dir);
            let shared = folder == "sources" && dependency == "oncebox-cloudevents";
            let core = ["oncebox-core", "oncebox-tokio"].contains(&dependency);
            (!(library || shared || core))
                .then_some("stores and sources depend on oncebox-core and oncebox-tokio; for tests use [dev-dependencies]")
        }
        _ => None,
    }
}

/// Returns the names of the packages that a manifest needs outside of tests. A renamed package has its own name.
fn dependencies(manifest: &str) -> Vec<&str> {
    let (mut names, mut inside) = (Vec::new(), false);
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            let (section, table) = match header.rsplit_once("dependencies.") {
                Some((section, table)) => (format!("{section}dependencies"), Some(table)),
                None => (header.to_owned(), None),
            };
            let last = section.rsplit('.').next().unwrap_or_default();
            inside = ["dependencies", "build-dependencies"].contains(&last);
            names.extend(table.filter(|_| inside));
            // Below the header of one dependency are its settings.
            inside &= table.is_none();
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            let name = name.split('.').next().unwrap_or_default();
            names.push(renamed.unwrap_or_else(|| name.trim().trim_matches('"')));
        }
    }
    names
}

impl ModuleOrder {
    /// Returns the top-level module of a file; `None` for the root of the crate and for files of other crates.
    fn module_of<'a>(&self, file: &'a RepoFile) -> Option<&'a str> {
        let path = file.path.strip_prefix(self.src)?.strip_prefix('/')?;
        let first = path.split('/').next().unwrap_or(path);
        let module = first.strip_suffix(".rs").unwrap_or(first);
        (module != "lib").then_some(module)
    }

    fn level(&self, module: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.contains(&module))
    }

    /// Returns how often a file says `super::` to reach the root of its crate.
    fn depth(&self, file: &RepoFile) -> usize {
        let path = file.path.strip_prefix(self.src).unwrap_or_default();
        path.trim_end_matches("/mod.rs").matches('/').count()
    }
}

fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

/// Returns the names right below the root of the crate that a line of code uses.
fn imports(line: &str, depth: usize) -> Vec<&str> {
    if !is_code(line) {
        return Vec::new();
    }
    let root = "super::".repeat(depth);
    let mut names = Vec::new();
    for prefix in ["crate::", &root] {
        for (at, _) in line.match_indices(prefix) {
            let longer = line[..at].ends_with(|c: char| c == ':' || c == '_' || c.is_alphanumeric());
            let rest = &line[at + prefix.len()..];
            if !longer {
                match rest.strip_prefix('{') {
                    Some(list) => names.extend(list.split([',', '}']).map(first_name)),
                    None => names.push(first_name(rest)),
                }
            }
        }
    }
    names
}

fn first_name(path: &str) -> &str {
    let path = path.trim_start();
    let end = path.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(path.len());
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree<T>(files: &[(&str, &str)], manifests: &[(&str, &str)], rule: fn(&RuleInput<'_>) -> T) -> T {
        let files: Vec<RepoFile> = files
            .iter()
            .map(|(path, text)| RepoFile { path: (*path).into(), text: (*text).into() })
            .collect();
        let members: Vec<Manifest> = manifests
            .iter()
            .map(|(dir, text)| Manifest { dir: (*dir).into(), text: (*text).into() })
            .collect();
        rule(&RuleInput { files: &files, members: &members })
    }

    #[test]
    fn an_import_from_above_is_named() {
        let broken = |path: &str, line: &str| tree(&[(path, line)], &[], modules_import_downwards);
        let state = "crates/oncebox-core/src/state/decide.rs";
        assert_eq!(
            broken(state, "//! Rules.\n\nuse crate::store::Claim;"),
            [format!("{state}:3: `state` imports `store`, which is above it: move what both need down")]
        );
        for line in [
            "    let claim: crate::store::Claim = claim;",
            "use crate::{key::Key, store::Claim};",
            "pub use crate::source;",
            "use super::super::store::Claim;",
        ] {
            assert_eq!(broken(state, line).len(), 1, "{line}");
        }
        for line in [
            "use crate::key::Key;",
            "use crate::state::Outcome;",
            "use super::store::Claim;",
            "/// See [`Store`](crate::store::Store).",
            "use other_crate::store::Claim;",
        ] {
            assert!(broken(state, line).is_empty(), "{line}");
        }
        assert_eq!(broken("crates/oncebox-core/src/name.rs", "use super::message::Message;").len(), 1);
        assert_eq!(broken("crates/oncebox/src/handler/mod.rs", "use crate::inbox::Inbox;").len(), 1);
        assert!(
            broken("crates/oncebox/src/inbox/receive.rs", "use crate::runtime;").is_empty(),
            "a known cycle"
        );
        assert!(broken("crates/oncebox-core/src/lib.rs", "pub use crate::store::Store;").is_empty());
        assert!(broken("stores/sqlite/src/state.rs", "use crate::store;").is_empty(), "another crate");
    }

    #[test]
    fn a_module_needs_a_place_in_the_order() {
        let broken = tree(&[("crates/oncebox-core/src/extra.rs", "")], &[], modules_import_downwards);
        assert_eq!(
            broken,
            [
                "crates/oncebox-core/src: the module `extra` has no place in the order of xtask/src/hygiene/arrows.rs"
            ]
        );
    }

    #[test]
    fn no_module_stands_twice_in_an_order() {
        for order in ORDERS {
            let all: Vec<_> = order.groups.iter().copied().flatten().collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{}", order.src);
        }
    }

    #[test]
    fn io_in_the_core_is_named() {
        let broken = |line: &str| tree(&[("crates/oncebox-core/src/time.rs", line)], &[], the_core_has_no_io);
        assert_eq!(broken("use std::thread;").len(), 1);
        for line in [
            "/// Not `std::thread`.",
            "use std::sync::Arc;",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
        ] {
            assert!(broken(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_dependency_on_what_is_above_is_named() {
        let broken = |dir: &str, text: &str| tree(&[], &[(dir, text)], crates_depend_downwards);
        assert_eq!(
            broken(CORE, "[dependencies]\ntokio.workspace = true\n"),
            ["crates/oncebox-core/Cargo.toml: depends on `tokio`: the core crate has no runtime"]
        );
        for (dir, text) in [
            (CORE, "[dependencies]\noncebox.workspace = true\n"),
            (CORE, "[dependencies]\noncebox-tokio = { workspace = true }\n"),
            (CORE, "[target.'cfg(unix)'.dependencies]\ntokio-util = \"1\"\n"),
            (CORE, "[dependencies.tokio]\nversion = \"1\"\n"),
            (CORE, "[build-dependencies]\nrt = { package = \"tokio\", version = \"1\" }\n"),
            (PARTS, "[dependencies]\noncebox.workspace = true\n"),
            ("stores/sqlite", "[dependencies]\noncebox = { workspace = true, optional = true }\n"),
            ("stores/sqlite", "[dependencies]\noncebox-postgres.workspace = true\n"),
            ("stores/sqlite", "[dependencies]\noncebox-cloudevents.workspace = true\n"),
            ("sources/rabbitmq", "[dependencies.oncebox]\nworkspace = true\n"),
        ] {
            assert_eq!(broken(dir, text).len(), 1, "{dir}: {text}");
        }
        for (dir, text) in [
            (
                CORE,
                "[dependencies]\nbytes.workspace = true\n\n[dev-dependencies]\noncebox.workspace = true\n",
            ),
            (CORE, "[dev-dependencies.tokio]\nversion = \"1\"\n"),
            (PARTS, "[dependencies]\noncebox-core.workspace = true\ntokio.workspace = true\n"),
            ("stores/sqlite", "[dependencies]\noncebox-core.workspace = true\ntokio.workspace = true\n"),
            (
                "stores/sqlite",
                "[dependencies.rusqlite]\nworkspace = true\n\n[dev-dependencies]\noncebox.workspace = true\n",
            ),
            (
                "sources/rabbitmq",
                "[dependencies]\noncebox-cloudevents.workspace = true\n# oncebox.workspace = true\n",
            ),
            ("sources/http", "[dependencies]\noncebox.workspace = true\n"),
            ("server", "[dependencies]\noncebox.workspace = true\n"),
        ] {
            assert!(broken(dir, text).is_empty(), "{dir}: {text}");
        }
    }
}
