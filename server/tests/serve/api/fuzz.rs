//! The API is what its description says, whatever it is sent.

use std::process::Command;

use oncebox_servers::Python;

use super::{Depot, failing, poison, token};

/// Requests that are made from the description, good and bad ones, by a program that others wrote.
#[test]
fn the_description_is_kept_whatever_is_sent() {
    let (depot, (token, table)) = (Depot::closed(), token("fuzz", &["admin"]));
    let sidecar = failing(&depot, &table);
    poison(&sidecar, &["evt_1", "evt_2"]);
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(Python::binary().expect("the clients are installed"))
        .current_dir(dir.path())
        .args(["-m", "schemathesis.cli", "run", "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args([
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            "15",
            "--seed",
            "7",
            "--generation-deterministic",
        ])
        .args(["--generation-database", "none", "--workers", "2", "--request-timeout", "20"])
        .arg(format!("{}/api/v1/openapi.json", sidecar.operators()))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    let lines = sidecar.stop();
    assert!(!lines.iter().any(|line| line.contains("panicked")), "{lines:#?}");
}
