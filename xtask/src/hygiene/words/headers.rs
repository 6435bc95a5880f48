//! Rule: a module begins with its purpose and the place of its tests. Tests: below.

use super::{Breach, Sources};

pub(super) fn are_there(sources: &Sources) -> Vec<Breach> {
    let bare = sources.rust().filter(|file| is_module(&file.path) && !file.text.starts_with("//!"));
    bare.map(|file| Breach {
        path: file.path.clone(),
        text: format!(
            "{}:1: begin the module with a `//!` line: what it is for, where its tests are",
            file.path
        ),
    })
    .collect()
}

/// Returns whether a Rust file belongs to a library or a program, and not to its tests, examples or benchmarks.
fn is_module(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates" | "stores" | "sources") => parts.nth(1) == Some("src"),
        Some("server" | "chaos") => parts.next() == Some("src"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_module_begins_with_its_purpose() {
        for path in ["crates/a/src/lib.rs", "stores/s/src/a/b.rs", "server/src/main.rs", "chaos/src/a.rs"] {
            for text in ["", "use a;\n//! Late.\n", "\n//! Late.\n", "/// Other.\n", "// Other.\n"] {
                assert_eq!(found(are_there, &[(path, text)]).len(), 1, "{path} {text}");
            }
            assert!(found(are_there, &[(path, "//! Purpose.\n")]).is_empty());
        }
        for path in ["crates/a/tests/a.rs", "bench/src/main.rs", "chaos/tests/a.rs", "crates/a/build.rs"] {
            assert!(found(are_there, &[(path, "fn a() {}")]).is_empty(), "{path}");
        }
    }
}
