//! `oncebox migrate`: plans, prints, creates and checks the tables of a store.

use oncebox_sqlite::rusqlite::Connection;
use serde_json::Value;

use crate::fixture::{code, lines, oncebox, said, text};

#[test]
fn tables_are_planned_printed_created_and_checked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("inbox.db");
    let url = format!("sqlite:{}", file.display());
    let run = |what: &str, more: &[&str]| {
        oncebox(["migrate", what, "--store", &url]).args(more).output().expect("the binary runs")
    };
    let planned = run("plan", &[]);
    let next = format!("run `oncebox migrate apply --store {url}`");
    assert_eq!(text(&planned), format!("main: version 0; missing: 2 (inbox); {next}\n"));
    assert_eq!((code(&planned), code(&run("check", &[]))), (0, 1));
    assert!(text(&run("print", &[])).contains("CREATE TABLE oncebox_entry"));
    assert!(!file.exists(), "looking makes nothing");
    let plan = &lines(&run("plan", &["--json"]))[0];
    assert_eq!((&plan["version"], &plan["missing"][0]["name"]), (&0.into(), &"inbox".into()), "{plan}");
    assert!(plan["missing"][0]["sql"].as_str().is_some_and(|sql| sql.contains("CREATE TABLE")));
    assert_eq!(lines(&run("apply", &["--json"]))[0]["applied"][0]["version"], 2);
    assert_eq!(text(&run("apply", &[])), "main: up to date\n");
    assert_eq!(
        (code(&run("check", &[])), text(&run("check", &[]))),
        (0, "main: up to date (version 2)\n".into())
    );
    assert_eq!(lines(&run("check", &["--json"]))[0]["missing"], Value::Array(vec![]));
    let newer = "INSERT INTO oncebox_schema (version, name, applied_at) VALUES (99, 'later', 0)";
    Connection::open(&file).and_then(|file| file.execute_batch(newer)).expect("a newer schema");
    let checked = run("check", &[]);
    assert_eq!(code(&checked), 1, "{checked:?}");
    assert!(said(&checked).contains("newer build"), "{checked:?}");
    assert_eq!(
        lines(&run("prune", &["--json"]))[0]["dropped"],
        Value::Array(vec![]),
        "a SQLite file has none"
    );
    let grants = run("grants", &["--role", "worker"]);
    assert!(code(&grants) == 3 && said(&grants).contains("has no roles"), "{grants:?}");
    for what in ["plan", "apply"] {
        let newer = run(what, &[]);
        assert_eq!(code(&newer), 3, "{newer:?}");
        assert!(said(&newer).contains("use the newer build"), "{newer:?}");
    }
}

#[test]
fn stores_come_from_the_configuration() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config =
        "[store.a]\nurl = \"sqlite:a.db\"\n[store.b]\nurl = \"sqlite:b.db\"\n[inbox.orders]\nstore = \"a\"\n";
    std::fs::write(dir.path().join("oncebox.toml"), config).expect("a file");
    let run = |args: &[&str]| oncebox(args).current_dir(dir.path()).output().expect("the binary runs");
    assert_eq!(text(&run(&["migrate", "apply", "--store", "b"])), "b: applied steps 2 (inbox)\n");
    assert_eq!(code(&run(&["migrate", "check"])), 1, "the other one");
    assert_eq!(lines(&run(&["migrate", "apply", "--json"])).len(), 2);
    assert_eq!(code(&run(&["migrate", "check"])), 0);
    let unknown = run(&["migrate", "apply", "--store", "c"]);
    assert_eq!(code(&unknown), 2);
    assert!(said(&unknown).contains("it has a, b"), "{unknown:?}");
    assert_eq!(code(&run(&["migrate"])), 2, "it is not said what to do");
    let elsewhere = oncebox(["migrate", "plan"]).current_dir(std::env::temp_dir()).output().expect("it runs");
    assert_eq!(code(&elsewhere), 2, "{elsewhere:?}");
}
