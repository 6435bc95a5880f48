//! The programs of the README and of the first steps in Rust are the files in `examples/`, and behave as these pages
//! describe.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads a page or an example by its path from the root of the repository.
fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the code block after the marker of an example.
fn block<'a>(page: &'a str, name: &str) -> &'a str {
    let marker = format!("<!-- example: {name} -->\n```rust\n");
    let start = page.find(&marker).unwrap_or_else(|| panic!("the page has no example {name}")) + marker.len();
    let end = page[start..].find("```").expect("the block ends");
    page[start..start + end].trim()
}

fn code(example: &str) -> String {
    let lines: Vec<&str> = example.lines().filter(|line| !line.starts_with("//!")).collect();
    lines.join("\n").trim().to_owned()
}

/// Builds an example, and returns its program.
fn build(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet", "--locked", "--offline", "--example", name]);
    // The test command names its built packages and features. Any others would be built a second time.
    if let Ok(selection) = std::env::var("BUILT_SELECTION") {
        cargo.args(selection.split_whitespace());
    }
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let this = std::env::current_exe().expect("this program has a path");
    let profile = this.ancestors().nth(2).expect("this program is in `deps` of the profile's directory");
    profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn check(name: &str, expected_output: &str) {
    let page = read("docs/getting-started.md");
    assert_eq!(
        block(&page, name),
        code(&read(&format!("examples/{name}.rs"))),
        "the first steps in Rust and example {name}"
    );
    let dir = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(build(name)).current_dir(dir.path()).output().expect("the example runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected_output);
}

#[test]
fn once_charges_one_time() {
    check("once", "charged 1 time(s)\n");
}

#[test]
fn the_readme_shows_how_the_example_begins() {
    let readme = read("README.md");
    let shown = block(&readme, "once");
    assert!(code(&read("examples/once.rs")).starts_with(shown), "README and example once");
    assert_eq!(shown.lines().count(), 12, "the heading of the README says twelve lines");
}

#[test]
fn the_readme_is_a_front_page() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 100, "the README has grown to {lines} lines");
}

#[test]
fn durable_ships_one_time() {
    check("durable", "shipped order 7\n");
}

#[test]
fn inline_runs_one_time() {
    check("inline", "delivery 1: Done\ndelivery 2: Duplicate\ndelivery 3: Duplicate\n");
}

#[test]
fn a_first_inbox_is_short() {
    for (name, max) in [("once", 22), ("durable", 26), ("inline", 20)] {
        let lines = code(&read(&format!("examples/{name}.rs")))
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count();
        assert!(lines <= max, "{name} has grown to {lines} lines");
    }
}
