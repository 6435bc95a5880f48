//! The API matches its `OpenAPI` document for any input.

use std::process::{Command, Output};

use oncebox_servers::PythonEnv;

use super::{Depot, Operator, failing, key_of, poison, token};

/// Validates the document against the standard.
const VALID: &str = "import json, sys
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
OPENAPI_31_VALIDATOR.validate(json.load(sys.stdin))";

fn python(dir: &std::path::Path, args: &[&str], input: &str) -> Output {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = Command::new(PythonEnv::binary().expect("the clients are installed"))
        .current_dir(dir)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("its end")
}

fn succeeds(output: &Output) {
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
}

/// Sends valid and invalid requests that schemathesis generates from the document.
#[test]
fn the_document_is_valid_and_the_api_matches_it() {
    let (depot, (token, table)) = (Depot::closed(), token("fuzz", &["admin"]));
    let sidecar = failing(&depot, &table);
    poison(&sidecar, &["evt_1", "evt_2"]);
    let admin = Operator::new(&sidecar, Some(&token));
    let dir = tempfile::tempdir().unwrap();
    succeeds(&python(dir.path(), &["-c", VALID], &admin.get("/openapi.json").body));
    // Messages to find. A schema cannot express that a filter must not match everything.
    let key = key_of(&admin, "evt_1");
    let config = format!(
        "[parameters]\n\"path.inbox\" = \"orders\"\n\"path.key\" = \"{key}\"\n\
         [[operations]]\n\
         include-name = [\"POST /api/v1/inboxes/{{inbox}}/bulk\", \"POST /api/v1/inboxes/{{inbox}}/bulk/preview\"]\n\
         checks.positive_data_acceptance.enabled = false\n"
    );
    std::fs::write(dir.path().join("schemathesis.toml"), config).unwrap();
    let (bearer, url) = (format!("Authorization: Bearer {token}"), format!("{}/openapi.json", admin.base));
    let run = [
        "-m",
        "schemathesis.cli",
        "run",
        "--no-color",
        "--header",
        &bearer,
        "--phases",
        "coverage,fuzzing",
        "--max-examples",
        "5",
        "--generation-deterministic",
        "--workers",
        "1",
        "--request-timeout",
        "20",
        &url,
    ];
    succeeds(&python(dir.path(), &run, ""));
    let lines = sidecar.stop();
    assert!(!lines.iter().any(|line| line.contains("panicked")), "{lines:#?}");
}
