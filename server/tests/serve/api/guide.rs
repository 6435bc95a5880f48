//! The commands of the guide work.

use std::path::Path;
use std::process::Command;

use super::{Depot, Operator, failing, key_of, poison, token};

/// Returns the commands of the guide as one script.
fn shown() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/operate.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Over HTTP").expect("the section");
    let blocks = section.split("```").skip(1).step_by(2);
    let lines = blocks.filter_map(|block| block.strip_prefix("console\n")).flat_map(str::lines);
    // Another test creates tokens, and the port differs here.
    let here = |line: &&str| !line.contains("oncebox token") && !line.starts_with("$ API=");
    let lines: Vec<&str> = lines.filter(here).map(|line| line.strip_prefix("$ ").unwrap_or(line)).collect();
    lines.join("\n")
}

#[test]
fn the_commands_of_the_guide_work() {
    let (depot, (token, table)) = (Depot::closed(), token("ada", &["operator", "payload-reader"]));
    let sidecar = failing(&depot, &table);
    poison(&sidecar, &["evt_1", "evt_2"]);
    let ada = Operator::new(&sidecar, Some(&token));
    // A retry succeeds, so one message remains for the bulk operation.
    depot.mend();
    let script = shown();
    assert!(script.matches("ask ").count() >= 12, "{script}");
    let ran = Command::new("sh")
        .args(["-euc", &format!("uuidgen() {{ cat /proc/sys/kernel/random/uuid; }}\n{script}")])
        .envs([("API", ada.base.as_str()), ("TOKEN", &token), ("KEY", &key_of(&ada, "evt_1"))])
        .output()
        .expect("sh runs");
    let (said, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}\n{errors}");
    assert!(said.contains("waits for a person") && said.contains("the depot is back"), "{said}");
}
