//! Commands that only read.

use serde_json::Value;

use crate::fixture::{ADA, OperateFixture, code, lines, oncebox, said, text};

const EVT_1: [&str; 4] = ["--id", "evt_1", "--source", "shop"];

#[tokio::test(flavor = "multi_thread")]
async fn stuck_entries_are_shown() {
    let fixture = OperateFixture::new().await;
    let status = &fixture.json("status", &[])[0];
    assert_eq!((&status["messages"], &status["conflicts"]), (&4.into(), &1.into()), "{status}");
    assert!(text(&fixture.run("status", &[])).contains("ship-order"));
    assert_eq!(fixture.json("status", &["--tenant", "acme"])[0]["messages"], 0);
    assert_eq!(said(&fixture.run("status", &["--tenant", "acme"])), "", "others have messages");
    for command in ["status", "doctor"] {
        let empty = OperateFixture::empty();
        assert!(said(&empty.run(command, &[])).contains("the inbox orders is empty"), "{command}");
    }
    let poisoned = fixture.json("list", &["--status", "poisoned", "--error", "50%"]);
    assert_eq!(poisoned.len(), 4, "three, and where to go on: {poisoned:?}");
    assert_eq!(poisoned[3]["next"], Value::Null);
    assert_eq!(fixture.json("list", &["--error", "5_%"]).len(), 1, "no character means anything else");
    let two = fixture.json("list", &["--status", "poisoned", "--limit", "2"]);
    let next = two[2]["next"].as_str().expect("a cursor");
    assert_eq!(fixture.json("list", &["--status", "poisoned", "--after", next]).len(), 2);
    assert!(said(&fixture.run("list", &["--status", "poisoned", "--limit", "2"])).contains(next));
    assert_eq!(fixture.code("list", &["--after", "here"]), 2);
    assert_eq!(fixture.code("list", &["--status", "stuck"]), 2);
    assert_eq!(fixture.code("list", &["--limit", "0"]), 2);
    assert_eq!(fixture.code("list", &["--limit", "10001"]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantined_messages_are_listed() {
    let fixture = OperateFixture::new().await;
    let listed = fixture.json("quarantine", &[]);
    assert_eq!(listed.len(), 2, "one, and where to go on: {listed:?}");
    assert_eq!((&listed[0]["reason"], &listed[0]["message"]["id"]), (&"conflict".into(), &"evt_4".into()));
    assert_eq!(listed[1]["next"], Value::Null);
    let table = text(&fixture.run("quarantine", &["--reason", "conflict"]));
    assert!(table.contains("evt_4") && !table.contains("evt_1"), "{table}");
    assert_eq!(fixture.json("quarantine", &["--reason", "stale"]).len(), 1);
    assert_eq!(fixture.json("quarantine", &["--tenant", "acme"]).len(), 1);
    assert_eq!(fixture.code("quarantine", &["--reason", "late"]), 2);
    assert_eq!(fixture.code("quarantine", &["--limit", "0"]), 2);
}

// The shown key unblocks the entries behind it.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_ordering_keys_are_listed_with_their_head() {
    let fixture = OperateFixture::in_line(&["evt_1", "evt_2", "evt_3"]).await;
    let listed = fixture.json("blocked", &[]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0]["ordering_key"], &listed[0]["waiting"]), (&"customer-7".into(), &2.into()));
    assert!(text(&fixture.run("blocked", &[])).contains("customer-7"));
    // FAULTS J7: they are not due, so no other count includes them.
    let status = &fixture.json("status", &[])[0]["blocked"][0];
    assert_eq!((&status["handler"], &status["ordering_keys"]), (&"ship-order".into(), &1.into()), "{status}");
    assert!(status["waiting"] == 2 && status["oldest_seconds"].is_u64(), "{status}");
    let table = text(&fixture.run("status", &[]));
    let row = table.lines().find(|line| line.starts_with("ship-order")).expect("the handler");
    assert!(table.contains(" BLOCKED") && row.trim_end().ends_with(" 2"), "{table}");
    assert!(
        table.contains("blocked: 2 entries of ship-order behind 1 ordering keys, the oldest for "),
        "{table}"
    );
    assert_eq!(fixture.json("status", &["--tenant", "acme"])[0]["blocked"], serde_json::json!([]));
    let doctor = fixture.json("doctor", &[]);
    let blocked = doctor.iter().find(|finding| finding["code"] == "blocked").expect("the doctor sees it");
    let what = blocked["what"].as_str().expect("what was found");
    assert!(
        what.contains("hold back 1 ordering keys of") && what.contains("2 entries wait behind them"),
        "{what}"
    );
    let key = listed[0]["head_key"].as_str().expect("a key");
    fixture.json("unblock", &[&ADA[..], &["--key", key, "--handler", "ship-order"]].concat());
    assert_eq!(fixture.json("blocked", &[]), Vec::<Value>::new());
    assert_eq!(fixture.code("blocked", &["--limit", "1001"]), 2);
}

// FAULTS S14: an id may contain any bytes, and an error any text.
#[tokio::test(flavor = "multi_thread")]
async fn output_cannot_control_the_terminal() {
    let fixture = OperateFixture::new().await;
    let table = text(&fixture.run("list", &["--status", "poisoned"]));
    assert!(table.contains("evt_\\u{1b}[31m2") && !table.contains('\u{1b}'), "{table}");
    let evil = ["--actor", "eve\u{1b}]0;x\u{7}", "--reason", "one\n2026-01-01 bob asked to discard"];
    fixture.json("pause", &[&evil[..], &["--handler", "ship-order"]].concat());
    let audit = text(&fixture.run("audit", &[]));
    assert_eq!(audit.lines().count(), 2, "a reason cannot pretend to be another record: {audit}");
    assert!(!audit.contains('\u{1b}') && !audit.contains('\u{7}'), "{audit}");
    let wrong = fixture.run("show", &["--id", "\u{1b}[31m"]);
    assert!(!said(&wrong).contains('\u{1b}'), "{wrong:?}");
    fixture.json(
        "retry",
        &[&evil[..], &["--id", "evt_1", "--source", "shop", "--handler", "ship-order"]].concat(),
    );
    let told = text(&fixture.run("explain", &EVT_1));
    assert!(told.contains("one\\n2026-01-01 bob"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_is_shown_and_its_payload_only_on_demand() {
    let fixture = OperateFixture::new().await;
    let view = &fixture.json("show", &EVT_1)[0];
    assert_eq!(view["entries"][0]["status"], "poisoned", "{view}");
    assert_eq!(view["attempts"][0]["event"], "reject", "{view}");
    assert_eq!((&view["stored"]["payload_bytes"], &view["payloads"]), (&1.into(), &Value::Null));
    let shown = &fixture.json("show", &[&EVT_1[..], &["--payload"]].concat())[0];
    assert_eq!(shown["payloads"]["stored"]["text"], "!", "{shown}");
    assert_eq!(shown["payloads"]["stored"]["headers"][0]["name"], "x");
    let told = text(&fixture.run("show", &EVT_1));
    for part in ["connection refused", "reject", "order.placed", "1 bytes"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("payload is"), "{told}");
    assert!(text(&fixture.run("show", &[&EVT_1[..], &["--payload"]].concat())).contains("payload text  !"));
    let both = &fixture.json("show", &["--id", "evt_4", "--source", "shop", "--payload"])[0];
    assert_eq!(both["quarantined"][0]["quarantine_reason"], "conflict", "{both}");
    assert_eq!(both["payloads"]["quarantined"][0]["text"], "?");
    let key = view["key"].as_str().expect("a key");
    assert_eq!(fixture.json("show", &["--key", key])[0], *view);
    assert_eq!(fixture.json("show", &["--id", "evt_1"])[0], *view, "the only one with this id");
    assert_eq!(fixture.code("show", &["--id", "evt_0"]), 5);
    assert!(said(&fixture.run("show", &["--id", "evt_0"])).contains("without --source"));
    assert!(!said(&fixture.run("show", &["--id", "evt_0", "--source", "shop"])).contains("--source"));
    assert_eq!(fixture.code("show", &["--key", "1f"]), 2);
    assert_eq!(fixture.code("show", &["--key", key, "--source", "shop"]), 2, "a key says it all");
    assert_eq!(fixture.code("show", &["--id", ""]), 2, "no id is no message, and not every message");
    assert_eq!(fixture.code("show", &[]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_is_explained() {
    let fixture = OperateFixture::new().await;
    let told = text(&fixture.run("explain", &EVT_1));
    assert!(told.contains("waits for a person") && told.contains("connection refused"), "{told}");
    assert!(told.contains("Z delivered first"), "times are dates: {told}");
    let explained = &fixture.json("explain", &EVT_1)[0];
    assert_eq!(explained["entries"][0]["entry"]["status"], "poisoned", "{explained}");
    assert_eq!(fixture.code("explain", &[]), 2);
}

// An id belongs to a source, and an operator often knows only the id.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_without_a_source_selects_the_only_message_with_it() {
    let fixture = OperateFixture::new().await;
    let found = fixture.run("explain", &["--id", "evt_1"]);
    assert_eq!(text(&found), text(&fixture.run("explain", &EVT_1)), "{found:?}");
    assert!(said(&found).contains("the only message with this id, from \"shop\""), "{found:?}");
    for (id, tenant) in [("evt", None), ("evt_1", Some("acme")), ("evt_0", None)] {
        let tenant = tenant.map_or(vec![], |tenant| vec!["--tenant", tenant]);
        let none = fixture.run("explain", &[&["--id", id][..], &tenant].concat());
        assert_eq!(code(&none), 5, "{none:?}");
        assert!(said(&none).contains("without --source"), "{none:?}");
    }
    let entry = ["--id", "evt_1", "--handler", "ship-order"];
    assert_eq!(fixture.code("discard", &[&ADA[..], &entry].concat()), 5, "an action does not guess");
    fixture.accept("evt_1", "depot").await;
    let both = fixture.run("explain", &["--id", "evt_1"]);
    assert_eq!(code(&both), 2, "{both:?}");
    assert!(
        said(&both).contains("2 messages have this id, with sources like \"depot\", \"shop\""),
        "{both:?}"
    );
    assert_eq!(fixture.code("explain", &["--id", "evt_1", "--source", "depot"]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_pages() {
    let fixture = OperateFixture::new().await;
    for handler in ["a", "b", "c"] {
        fixture.json("pause", &[&ADA[..], &["--handler", handler, "--unknown"]].concat());
    }
    let retry = [&ADA[..], &EVT_1, &["--handler", "ship-order"]].concat();
    fixture.json("retry", &retry);
    let all = fixture.json("audit", &[]);
    assert_eq!(all.len(), 5, "four, and where to go on: {all:?}");
    let two = fixture.json("audit", &["--limit", "2"]);
    let next = two[2]["next"].as_i64().expect("a number").to_string();
    assert_eq!(fixture.json("audit", &["--after", &next])[..2], all[2..4]);
    assert_eq!(fixture.json("audit", &EVT_1).len(), 2, "of one message, by its id and source");
    assert_eq!(fixture.json("audit", &["--by", "bob"]).len(), 1);
    assert_eq!(fixture.code("audit", &["--id", ""]), 2, "not everything");
}

#[test]
fn a_missing_store_is_not_created() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("none.db");
    let run = |store: &str| {
        oncebox(["status", "--inbox", "orders", "--store", store])
            .current_dir(dir.path())
            .output()
            .expect("it runs")
    };
    let none = run(&format!("sqlite:{}", file.display()));
    assert_eq!(code(&none), 3, "{none:?}");
    assert!(said(&none).contains("does not exist") && said(&none).contains("check the path"), "{none:?}");
    assert!(!file.exists());
    // FAULTS S18
    for url in ["mysql://app:hunter2@db/shop", "postgres://app:hunter2@db/shop"] {
        let wrong = run(url);
        assert_eq!(code(&wrong), 2, "{wrong:?}");
        assert!(!said(&wrong).contains("hunter2"), "{wrong:?}");
    }
    std::fs::write(&file, "no database").expect("a file");
    let junk = said(&run(&format!("sqlite:{}", file.display())));
    assert!(
        !junk.contains("stored") && junk.contains("; stop, keep a copy"),
        "a read has only advice: {junk}"
    );
    let store = format!("sqlite:{}", file.display());
    for (command, more) in [
        ("discard", &["--error", "x"][..]),
        ("purge", &["--older-than", "1d"]),
        ("erase", &["--id", "evt_1", "--source", "shop"]),
        ("backfill", &["--handler", "ship", "--type", "*"]),
    ] {
        let dry = [&[command, "--store", &store, "--inbox", "orders"], &ADA[..], more].concat();
        let dry = said(&oncebox(dry).output().expect("it runs"));
        assert!(!dry.contains("stored") && dry.contains("; stop, keep a copy"), "{command}: {dry}");
    }
    let unset = run("env:ONCEBOX_TEST_UNSET");
    assert_eq!(code(&unset), 2);
    assert!(said(&unset).contains("ONCEBOX_TEST_UNSET is not set"), "{unset:?}");
    let nowhere = oncebox(["status", "--inbox", "orders"]).current_dir(dir.path()).output().expect("it runs");
    assert_eq!(code(&nowhere), 2);
    assert!(said(&nowhere).contains("--api") && said(&nowhere).contains("--store"), "{nowhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_comes_from_a_flag_the_environment_or_a_configuration() {
    let fixture = OperateFixture::new().await;
    let here = fixture.dir.path();
    let messages = |command: &mut std::process::Command| {
        let output = command.args(["--json"]).current_dir(here).output().expect("it runs");
        lines(&output)[0]["messages"].clone()
    };
    assert_eq!(messages(oncebox(["status", "--inbox", "orders"]).env("ONCEBOX_STORE", "sqlite:inbox.db")), 4);
    let flag = ["status", "--inbox", "orders", "--store", "env:WHERE"];
    let mut flagged = oncebox(flag);
    assert_eq!(messages(flagged.env("WHERE", fixture.url()).env("ONCEBOX_STORE", "sqlite:none.db")), 4);
    std::fs::write(here.join("url"), fixture.url()).expect("a file");
    assert_eq!(messages(&mut oncebox(["status", "--inbox", "orders", "--store", "file:url"])), 4);
    let config = "[store.main]\nurl = \"sqlite:inbox.db\"\n[inbox.orders]\n";
    std::fs::write(here.join("oncebox.toml"), config).expect("a file");
    assert_eq!(
        messages(&mut oncebox(["status"])),
        4,
        "the configuration in this directory, and its only inbox"
    );
    std::fs::write(here.join("two.toml"), format!("{config}[inbox.bills]\n")).expect("a file");
    let which = oncebox(["status", "--config", "two.toml"]).current_dir(here).output().expect("it runs");
    assert_eq!(code(&which), 2);
    assert!(said(&which).contains("bills, orders"), "{which:?}");
    let none = oncebox(["status", "--config", "two.toml", "--inbox", "x"])
        .current_dir(here)
        .output()
        .expect("it runs");
    assert_eq!(code(&none), 2);
}

// An operator of a store needs no secrets of sources and handlers.
#[tokio::test(flavor = "multi_thread")]
async fn only_secrets_that_open_stores_are_read() {
    let fixture = OperateFixture::new().await;
    let config = "[store.main]\nurl = \"env:WHERE\"\n\
                  [inbox.orders.http.shop]\nverify = \"hmac\"\nsignature_header = \"x-signature\"\nsecret = \"env:NOT_HERE\"\n\
                  [inbox.orders.rabbitmq.depot]\nurl = \"env:NOT_HERE\"\nqueue = \"orders\"\ndead_letter_exchange = \"dead\"\n\
                  [inbox.orders.handler.ship-order]\ntypes = [\"order.placed\"]\nurl = \"https://shop.example/ship\"\n\
                  secret = \"file:not-here\"\n";
    std::fs::write(fixture.dir.path().join("oncebox.toml"), config).expect("a file");
    let status = |url: Option<String>| {
        let mut command = oncebox(["status"]);
        command.envs(url.map(|url| ("WHERE", url)));
        command.env_remove("NOT_HERE").current_dir(fixture.dir.path()).output().expect("it runs")
    };
    let seen = status(Some(fixture.url()));
    assert_eq!(code(&seen), 0, "{seen:?}");
    assert!(text(&seen).starts_with("4 messages"), "{seen:?}");
    let unset = status(None);
    assert_ne!(code(&unset), 0);
    assert!(said(&unset).contains("WHERE is not set"), "{unset:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_found_by_time() {
    let fixture = OperateFixture::new().await;
    for (flags, found) in [
        (["--since", "2026-01-31"], 4),
        (["--since", "2026-01-31T12:00:00Z"], 4),
        (["--before", "2026-01-31"], 0),
        (["--since", "2999-01-31"], 0),
    ] {
        let listed = fixture.run("list", &[&flags[..], &["--json"]].concat());
        assert_eq!(lines(&listed).len() - 1, found, "{flags:?}: {listed:?}");
    }
    let unclear = fixture.run("list", &["--since", "yesterday"]);
    assert_eq!(code(&unclear), 2);
    assert!(said(&unclear).contains("2026-01-31T12:00:00Z"), "{unclear:?}");
}

// A filter that matches little reads the whole inbox, which takes long.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_ends_in_time_with_advice() {
    let fixture = OperateFixture::with(2_500, || oncebox::state::Outcome::Done).await;
    let nothing = ["--id-contains", "nowhere"];
    assert_eq!(fixture.json("list", &nothing)[0]["next"], Value::Null, "all of it was searched");
    let hurried = ["--id-contains", "nowhere", "--search", "0s"];
    let next = fixture.json("list", &hurried)[0]["next"].clone();
    let said = said(&fixture.run("list", &hurried));
    assert!(said.contains("stopped after 0s") && said.contains("--handler"), "{said}");
    let next = next.as_str().expect("where to go on");
    assert!(said.contains(next), "{said}");
    assert_eq!(fixture.json("list", &["--id-contains", "nowhere", "--after", next])[0]["next"], Value::Null);
}
