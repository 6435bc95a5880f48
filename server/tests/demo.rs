//! The demo as a user runs it.

use std::process::{Command, Output};

fn oncebox(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncebox")).args(args).output().expect("the binary runs")
}

#[test]
fn nothing_is_lost_or_doubled_though_workers_die() {
    let args = ["demo", "--messages", "300", "--duplicates", "2", "--workers", "3", "--seed", "11", "--json"];
    let output = oncebox(&args);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let last = out.lines().last().expect("a line");
    let report: serde_json::Value = serde_json::from_str(last).expect("one object on one line");
    assert_eq!(report["offered"], 300, "{last}");
    assert_eq!(report["effects"], 300, "{last}");
    assert_eq!(report["lost"], 0, "{last}");
    assert_eq!(report["doubled"], 0, "{last}");
    // Every order three times, and the unacknowledged ones of dead workers again.
    assert!(report["deliveries"].as_u64().is_some_and(|count| count >= 900), "{last}");
    // The number of kills depends on the speed of the machine.
    assert!(report["crashes"].as_u64().is_some_and(|count| count >= 1), "{last}");
    assert!(
        last.starts_with(r#"{"offered":300,"deliveries":"#),
        "the order of the fields is part of the interface: {last}"
    );
}

#[test]
fn a_directory_that_holds_a_file_is_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("shop.db"), "mine").expect("a file");
    let output = oncebox(&["demo", "--keep", &dir.path().display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("choose another directory"), "{output:?}");
    assert_eq!(std::fs::read(dir.path().join("shop.db")).expect("the file"), b"mine");
}

#[test]
fn arguments_out_of_range_are_refused() {
    for args in [["demo", "--messages", "0"], ["demo", "--workers", "0"], ["demo", "--seed", "x"]] {
        let output = oncebox(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--help"), "{output:?}");
    }
}

#[test]
fn help_shows_an_example() {
    let output = oncebox(&["demo", "--help"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Example:"), "{output:?}");
}
