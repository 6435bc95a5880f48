//! Rule: a module begins with its purpose and the place of its tests. Tests: below.

use super::{Breach, Sources};

/// Paths whose modules need not name their tests, with the reason.
const WITHOUT_TESTS: &[(&str, &str)] = &[
    ("crates/oncebox-testkit/src/conformance/", "the cases are tests, which every store runs"),
    ("crates/oncebox-testkit/src/source/", "the cases are tests, which every source runs"),
    ("crates/oncebox/", "the headers are not converted yet"),
    ("crates/oncebox-core/", "the headers are not converted yet"),
    ("crates/oncebox-tokio/", "the headers are not converted yet"),
    ("crates/oncebox-macros/", "the headers are not converted yet"),
    ("server/src/api/wire/", "the headers are not converted yet"),
    ("server/src/cli/", "the headers are not converted yet"),
    ("server/src/config/model.rs", "its comments are the documentation of the settings"),
];

pub(super) fn are_there(sources: &Sources) -> Vec<Breach> {
    let modules = sources.rust().filter(|file| is_module(&file.path));
    let breaches = modules.filter_map(|file| {
        let path = file.path.clone();
        let header: Vec<&str> = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let text = if header.is_empty() {
            "begin the module with a `//!` line: what it is for, where its tests are"
        } else if names_tests(&header) || is_test(&path) || is_excepted(&path) {
            return None;
        } else {
            "name the tests in the `//!` lines: `Tests: below.` or `Tests:` and their file"
        };
        Some(Breach { text: format!("{path}:1: {text}"), path })
    });
    breaches.collect()
}

fn names_tests(header: &[&str]) -> bool {
    header.iter().any(|line| line.contains("Tests: ") || line.ends_with("Tests:"))
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn is_excepted(path: &str) -> bool {
    WITHOUT_TESTS.iter().any(|(prefix, _)| path.starts_with(prefix))
}

/// Returns whether a Rust file belongs to a library or a program, and not to its tests, examples or benchmarks.
fn is_module(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates" | "stores" | "sources") => parts.nth(1) == Some("src"),
        Some("server" | "xtask") => parts.next() == Some("src"),
        Some("chaos") => parts.any(|part| part == "src"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_module_begins_with_its_purpose() {
        for path in [
            "crates/a/src/lib.rs",
            "stores/s/src/a/b.rs",
            "server/src/main.rs",
            "chaos/src/a.rs",
            "chaos/model/src/lib.rs",
            "xtask/src/a.rs",
        ] {
            for text in ["", "use a;\n//! Late.\n", "\n//! Late.\n", "/// Other.\n", "// Other.\n"] {
                assert_eq!(found(are_there, &[(path, text)]).len(), 1, "{path} {text}");
            }
            assert!(found(are_there, &[(path, "//! Purpose. Tests: below.\n")]).is_empty());
        }
        for path in ["crates/a/tests/a.rs", "bench/src/main.rs", "chaos/tests/a.rs", "crates/a/build.rs"] {
            assert!(found(are_there, &[(path, "fn a() {}")]).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_module_names_its_tests() {
        let breaches = |path: &str, text: &str| found(are_there, &[(path, text)]).len();
        let path = "crates/a/src/a.rs";
        assert_eq!(breaches(path, "//! Purpose.\nfn a() {}\n// Tests: below.\n"), 1);
        assert_eq!(breaches(path, "//! Purpose.\n//!\n//! More. Tests: `tests/a.rs`.\n"), 0);
        for path in ["crates/a/src/tests.rs", "crates/a/src/tests/b.rs"] {
            assert_eq!(breaches(path, "//! Tests of a.\n"), 0);
        }
        for (path, reason) in WITHOUT_TESTS {
            assert!(reason.contains(' '));
            let path = format!("{path}src/a.rs");
            assert_eq!(breaches(&path, "//! Purpose.\n"), 0, "{path}");
        }
    }
}
