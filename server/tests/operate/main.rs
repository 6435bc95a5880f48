//! The commands of an operator, as one runs them.

use std::process::{Command, Output};

use oncebox::store::Admin as _;
use oncebox::{BoxError, Context, Inbox, Message, Reject, handler};
use oncebox_sqlite::Sqlite;
use serde_json::Value;

async fn ship(message: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    match message.payload().first() {
        Some(b'!') => Err(Reject("connection refused: 50% of the depot".into()).into()),
        _ => Ok(()),
    }
}

/// A store with three poisoned entries, one that is done and a conflict.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Sqlite::open(dir.path().join("inbox.db")).expect("the file opens");
        let inbox = Inbox::builder("orders", store).on("order.placed", handler("ship-order", ship)).build();
        let inbox = inbox.expect("an inbox");
        for (id, payload) in
            [("evt_1", "!"), ("evt_\u{1b}[31m2", "!"), ("evt_3", "!"), ("evt_4", "ok"), ("evt_4", "?")]
        {
            inbox
                .accept(Message::new(id, "order.placed", payload).with_source("shop"))
                .await
                .expect("accept");
        }
        inbox.drain().await.expect("drain");
        Self { dir }
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        let store = format!("sqlite:{}", self.dir.path().join("inbox.db").display());
        Command::new(env!("CARGO_BIN_EXE_oncebox"))
            .args([command, "--store", &store, "--inbox", "orders"])
            .args(args)
            .output()
            .expect("the binary runs")
    }

    /// What a command that must succeed says, line by line.
    fn json(&self, command: &str, args: &[&str]) -> Vec<Value> {
        let output = self.run(command, &[args, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.lines().map(|line| serde_json::from_str(line).expect("an object on a line")).collect()
    }

    fn code(&self, command: &str, args: &[&str]) -> i32 {
        self.run(command, args).status.code().expect("it ends by itself")
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stuck_is_seen_and_explained() {
    let world = World::new().await;
    let status = &world.json("status", &[])[0];
    assert_eq!((&status["messages"], &status["conflicts"]), (&4.into(), &1.into()), "{status}");
    assert!(text(&world.run("status", &[])).contains("ship-order"));
    let poisoned = world.json("list", &["--status", "poisoned", "--error", "50%"]);
    assert_eq!(poisoned.len(), 4, "three, and where to go on: {poisoned:?}");
    assert_eq!(poisoned[3]["next"], Value::Null);
    let two = world.json("list", &["--status", "poisoned", "--limit", "2"]);
    let next = two[2]["next"].as_str().expect("a cursor");
    assert_eq!(world.json("list", &["--status", "poisoned", "--after", next]).len(), 2);
    let table = text(&world.run("list", &["--status", "poisoned"]));
    assert!(
        table.contains("evt_\\u{1b}[31m2") && !table.contains('\u{1b}'),
        "no terminal is told what to do: {table}"
    );
    let told = text(&world.run("explain", &["--id", "evt_1", "--source", "shop"]));
    assert!(told.contains("waits for a person") && told.contains("connection refused"), "{told}");
    assert_eq!(world.code("explain", &["--id", "evt_1"]), 5, "another source, another message");
    assert_eq!(world.code("explain", &[]), 2);
    assert_eq!(world.code("list", &["--status", "stuck"]), 2);
    assert_eq!(world.code("doctor", &[]), 0);
    assert_eq!(
        world.code("doctor", &["--handlers", "another"]),
        0,
        "nothing waits: what failed needs a person"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_entry_is_retried_once_and_recorded() {
    let world = World::new().await;
    let id = "5d0b9f5e-4f52-4b2e-9f2a-3f6f6c1f2b10";
    let one = ["--actor", "ada", "--reason", "depot is back", "--operation", id];
    let entry = ["--id", "evt_1", "--source", "shop", "--of", "ship-order"];
    let first = &world.json("retry", &[&one[..], &entry].concat())[0];
    assert_eq!(first["repeated"], false, "{first}");
    let again = &world.json("retry", &[&one[..], &entry].concat())[0];
    assert_eq!((&again["repeated"], &again["answer"]), (&true.into(), &first["answer"]));
    assert_eq!(world.code("discard", &[&one[..], &entry].concat()), 5, "the identity is taken");
    let done = ["--id", "evt_4", "--source", "shop", "--of", "ship-order", "--actor", "ada"];
    assert_eq!(world.code("retry", &done), 5, "it did not fail");
    let audit = world.json("audit", &["--by", "ada"]);
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!((&audit[0]["verb"], &audit[0]["reason"]), (&"retry".into(), &"depot is back".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_shown_first_and_done_when_confirmed() {
    let world = World::new().await;
    let store = Sqlite::open(world.dir.path().join("inbox.db")).expect("the file opens");
    let inbox = oncebox::InboxName::new("orders").expect("a good name");
    let poisoned = async || store.count(&inbox).await.expect("count").with_status(oncebox::Status::Poisoned);
    let filter = ["--actor", "ada", "--error", "refused"];
    assert_eq!(world.json("discard", &filter)[0]["count"], 3);
    assert_eq!(poisoned().await, 3, "nothing is done without --confirm");
    assert_eq!(world.code("discard", &["--actor", "ada"]), 5, "everything is never meant by accident");
    assert_eq!(world.code("discard", &["--error", "refused"]), 2, "somebody has to ask for it");
    let report = &world.json("discard", &[&filter[..], &["--confirm", "--most", "2"]].concat())[0];
    assert_eq!((&report["state"], &report["done"]), (&"capped".into(), &2.into()), "{report}");
    assert_eq!(poisoned().await, 1);
    assert_eq!(world.json("purge", &["--actor", "ada", "--older-than", "0s"])[0]["count"], 1);
    assert_eq!(store.count(&inbox).await.expect("count").kept_aside, 1);
    world.json("purge", &["--actor", "ada", "--older-than", "0s", "--confirm"]);
    assert_eq!(store.count(&inbox).await.expect("count").kept_aside, 0);
    world.json("pause", &["--actor", "ada", "--of", "ship-order"]);
    world.json("pause", &["--actor", "ada", "--of", "ship-order", "--ordering-key", "k", "--source", "shop"]);
    let status = &world.json("status", &[])[0];
    assert_eq!(
        (&status["paused"][0], &status["paused_keys"][0]["ordering_key"]),
        (&"ship-order".into(), &"k".into())
    );
    world.json("resume", &["--actor", "ada", "--of", "ship-order"]);
    assert_eq!(world.json("status", &[])[0]["paused"], Value::Array(Vec::new()));
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("none.db");
    let run = |store: &str| {
        let args = ["status", "--inbox", "orders", "--store", store];
        Command::new(env!("CARGO_BIN_EXE_oncebox")).args(args).output().expect("the binary runs")
    };
    assert_eq!(run(&format!("sqlite:{}", file.display())).status.code(), Some(3));
    assert!(!file.exists());
    let wrong = run("mysql://app:hunter2@db/shop");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains("hunter2"), "{wrong:?}");
}

#[test]
fn every_command_shows_an_example_and_its_exit_codes() {
    let commands = [
        "status", "list", "explain", "audit", "doctor", "retry", "discard", "replay", "unblock", "pause",
        "resume", "purge",
    ];
    for command in commands {
        let output =
            Command::new(env!("CARGO_BIN_EXE_oncebox")).args([command, "--help"]).output().expect("it runs");
        let help = text(&output);
        assert!(help.contains("Example") && help.contains("Exit codes:"), "{command}: {help}");
    }
}
