//! The same on PostgreSQL.

use std::process::Output;

use oncebox::{BoxError, Context, Inbox, Message, Reject, handler};
use oncebox_postgres::Postgres;
use oncebox_servers::{Cluster, PostgresVersion};

use crate::fixture::{ADA, code, lines, oncebox, said, text};

async fn ship(message: Message, _: &mut Context<Postgres>) -> Result<(), BoxError> {
    match message.payload().first() {
        Some(b'!') => Err(Reject("connection refused".into()).into()),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_on_tables_in_a_schema_of_their_own() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("a server");
    let url = cluster.url("postgres");
    let run = |command: &[&str], args: &[&str]| -> Output {
        let place = ["--store", "env:WHERE", "--schema", "shop", "--prefix", "inbox_"];
        oncebox(command).args(place).args(args).env("WHERE", &url).output().expect("the binary runs")
    };
    let orders = |command: &str, args: &[&str]| run(&[command, "--inbox", "orders"], args);
    let json = |command: &str, args: &[&str]| lines(&orders(command, &[args, &["--json"]].concat()));
    let missing = orders("doctor", &["--json"]);
    assert!(code(&missing) == 1 && text(&missing).contains("\"schema\""), "{missing:?}");
    assert_eq!(code(&orders("status", &[])), 3, "its tables are not made by looking");
    let checked = run(&["migrate", "check"], &[]);
    assert_eq!(code(&checked), 1);
    let next = "run `oncebox migrate apply --store env:WHERE --schema shop --prefix inbox_`";
    assert!(text(&checked).contains(next), "{checked:?}");
    let wait = oncebox(["migrate", "plan", "--store", &url]).output().expect("the binary runs");
    assert!(text(&wait).contains("apply --store postgres://…`"), "no password in what is said: {wait:?}");
    let grants = text(&run(&["migrate", "grants", "--role", "wor\"ker"], &[]));
    assert!(grants.contains("GRANT USAGE ON SCHEMA \"shop\" TO \"wor\"\"ker\";"), "{grants}");
    assert!(text(&run(&["migrate", "print"], &[])).contains("\"shop\".\"inbox_entry\""));
    assert_eq!(text(&run(&["migrate", "apply"], &[])), "main: applied steps 2 (inbox), 2 (functions)\n");
    assert_eq!(code(&run(&["migrate", "check"], &[])), 0);
    assert_eq!(text(&run(&["migrate", "prune"], &[])), "main: no function of an earlier release\n");
    let store = Postgres::options(&url)
        .expect("a URL")
        .schema("shop")
        .prefix("inbox_")
        .open()
        .await
        .expect("a store");
    let inbox = Inbox::builder("orders", store)
        .on("order.placed", handler("ship-order", ship))
        .build()
        .expect("an inbox");
    for (id, payload) in [("evt_1", "!"), ("evt_2", "!"), ("evt_3", "ok")] {
        inbox.accept(Message::new(id, "order.placed", payload).with_source("shop")).await.expect("accept");
    }
    inbox.drain().await.expect("drain");
    assert_eq!(json("status", &[])[0]["messages"], 3);
    assert_eq!(json("list", &["--status", "poisoned"]).len(), 3);
    let one = ["--id", "evt_1", "--source", "shop"];
    assert_eq!(json("show", &one)[0]["attempts"][0]["event"], "reject");
    assert!(text(&orders("explain", &one)).contains("waits for a person"));
    let retry = [&ADA[..], &one, &["--handler", "ship-order"]].concat();
    assert_eq!(json("retry", &retry)[0]["entry"]["status"], "pending");
    let many = [&ADA[..], &["--error", "refused", "--status", "poisoned", "--confirm"]].concat();
    assert_eq!(json("discard", &many)[0]["done"], 1);
    let late = [&ADA[..], &["--handler", "receipt", "--type", "*", "--confirm"]].concat();
    assert_eq!(json("backfill", &late)[0]["done"], 3);
    assert_eq!(
        json("audit", &["--by", "ada"]).len(),
        5,
        "retry, many, its part, backfill, and where to go on"
    );
    // The test servers run without fsync.
    let doctor = orders("doctor", &["--json"]);
    assert!(code(&doctor) == 1 && text(&doctor).contains("fsync_off"), "{doctor:?}");
    drop(cluster);
    let away = orders("status", &[]);
    assert_eq!(code(&away), 3, "{away:?}");
    assert!(said(&away).contains("cannot open the store"), "{away:?}");
}
