//! Checks the compiler's messages for wrong uses of the attribute. `UI=overwrite cargo test -p oncebox-macros` updates the expected
//! messages.
//!
//! `rustc` compiles each file of `ui/` with the `oncebox` that was built for this test. A second target directory would cost
//! minutes and hundreds of megabytes.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// These programs must fail. Programs that must compile are in the tests of `oncebox`.
#[test]
fn mistakes_are_explained() {
    let overwrite = std::env::var_os("UI").is_some_and(|value| value == "overwrite");
    let mut programs: Vec<PathBuf> = fs::read_dir("tests/ui").unwrap().map(|e| e.unwrap().path()).collect();
    programs.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    programs.sort();
    assert!(!programs.is_empty(), "there are no programs in tests/ui");
    let mut wrong = Vec::new();
    for program in &programs {
        let (printed, expected) = (compile(program), program.with_extension("stderr"));
        if overwrite {
            fs::write(&expected, &printed).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != printed {
            wrong.push(format!("{} is not what the compiler prints:\n{printed}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compiles a program that must fail, and returns the compiler's messages.
fn compile(program: &Path) -> String {
    let dependencies = dependencies();
    let out = tempfile::tempdir().unwrap();
    // Cargo names the compiler only to build scripts. rustup passes its own choice in the environment.
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--color=never"]);
    rustc.args(["--diagnostic-width=140", "--out-dir"]).arg(out.path());
    rustc.arg("-L").arg(format!("dependency={}", dependencies.display()));
    rustc.arg("--extern").arg(format!("oncebox={}", newest(&dependencies).display()));
    let output = rustc.arg(program).output().unwrap();
    assert!(!output.status.success(), "{} compiles, though it must not", program.display());
    normalized(&String::from_utf8(output.stderr).unwrap())
}

/// Returns the directory of the compiled dependencies, which is also this program's.
fn dependencies() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// Returns the latest build of `oncebox`. Others are from earlier builds, or have other features.
fn newest(dependencies: &Path) -> PathBuf {
    let entries = fs::read_dir(dependencies).unwrap().map(|entry| entry.unwrap().path());
    let libraries = entries.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("liboncebox-") && name.ends_with(".rlib")
    });
    let built = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    libraries.max_by_key(built).expect("`oncebox` is a dependency of this test, so it is built")
}

/// Returns the messages without line numbers of the library and without the path of the repository, which change.
fn normalized(printed: &str) -> String {
    let mut text = String::new();
    for line in printed.lines() {
        if line.starts_with("error: aborting due to") || line.starts_with("For more information about") {
            continue;
        }
        // The name of a file in a temporary directory, and advice about it.
        if line.contains("the full name for the type has been written to")
            || line.contains("consider using `--verbose`")
        {
            continue;
        }
        if line.starts_with("Some errors have detailed explanations") {
            continue;
        }
        text.push_str(&place(line).or_else(|| margin(line)).unwrap_or_else(|| line.to_owned()));
        text.push('\n');
    }
    format!("{}\n", text.trim_end())
}

/// `--> /somewhere/crates/oncebox/src/a.rs:3:5`, without the number of the line.
fn place(line: &str) -> Option<String> {
    let (arrow, path) =
        line.trim_start().split_once(' ').filter(|(arrow, _)| ["-->", ":::"].contains(arrow))?;
    // The compiler prints a path from the root of the workspace or a whole one: it depends on the build of the library.
    let path = path.strip_prefix("crates/").map_or_else(|| path.to_owned(), |name| format!("/crates/{name}"));
    let name = match path.rsplit_once("/crates/") {
        Some((_, place)) => format!("$WORKSPACE/crates/{}", place.split(':').next()?),
        None => path,
    };
    Some(format!(" {arrow} {name}"))
}

/// The margin of a line of source, without the number of the line.
fn margin(line: &str) -> Option<String> {
    let number = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
    let is_margin =
        number.len() < line.len() && ["|", "=", "..."].iter().any(|mark| number.starts_with(mark));
    is_margin.then(|| format!("  {number}"))
}
