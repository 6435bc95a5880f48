//! A short run of each store in every test run. `cargo xtask chaos` runs longer.

use std::process::Command;

use serde_json::Value;

/// Runs the rig, and returns its result.
fn run(args: &[&str]) -> (bool, Value, String) {
    let mut rig = Command::new(env!("CARGO_BIN_EXE_oncebox-chaos"));
    let output = rig.arg("run").args(args).output().expect("the rig starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().last().unwrap_or_default();
    (output.status.success(), serde_json::from_str(last).unwrap_or(Value::Null), errors)
}

/// Runs one round. Its record has to count one of the faults of the mix: a round without faults proves nothing.
fn survives_for(seconds: &str, store: &str, mix: &str, seed: &str, faults: &[&str]) {
    let (success, result, errors) =
        run(&["--store", store, "--mix", mix, "--rounds", "1", "--round", seconds, "--seed", seed, "--json"]);
    assert!(success, "{result}\n{errors}");
    for none in ["lost", "doubled", "unexplained", "phantom"] {
        assert_eq!(result[none], 0, "{result}");
    }
    assert_eq!(result["violations"], Value::Array(Vec::new()), "{result}");
    let count = |name: &str| result[name].as_u64().unwrap_or(0);
    assert!(count("messages") > 0 && faults.iter().any(|fault| count(fault) > 0), "{result}");
}

fn survives(store: &str, mix: &str, seed: &str) {
    survives_for("4", store, mix, seed, &["kills", "early_kills"]);
}

// FAULTS A1, A2, B2, B4, C1, C3, C5, D1, D2, E13; I1 to I13
#[test]
fn sqlite_survives_a_short_run() {
    survives("sqlite", "all", "11");
}

// FAULTS A1, A2, A4, B2, B3, B4, B7, C1, C3, C5, D1, D2, E4, E5; I1 to I13
#[test]
fn postgres_survives_a_short_run() {
    survives("postgres", "all", "12");
}

// FAULTS I1: processes from before and after the rename of every handler, together.
#[test]
fn sqlite_survives_a_rolling_rename() {
    survives("sqlite", "rename", "13");
}

// FAULTS I1: the same, with both keys known as two handlers before.
#[test]
fn postgres_survives_a_rolling_rename_that_names_the_former_key_late() {
    survives("postgres", "rename", "16");
}

// FAULTS E4, E5: logins, rights or connections are refused.
#[test]
fn postgres_survives_refusals() {
    // The first refusal comes within eight seconds.
    survives_for("12", "postgres", "denied", "14", &["server_faults"]);
}

#[test]
fn a_normal_build_has_no_planted_bugs() {
    let (success, result, errors) = run(&["--sabotage", "unfenced-complete", "--rounds", "1"]);
    assert!(!success && result.is_null() && errors.contains("no planted bugs"), "{result} {errors}");
}
