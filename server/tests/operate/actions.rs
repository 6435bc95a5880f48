//! Commands that change data.

use oncebox::state::Status;
use oncebox::store::Inspect;
use serde_json::Value;

use crate::fixture::{ADA, OperateFixture, inbox, lines, oncebox, said, text};

const ID: &str = "5d0b9f5e-4f52-4b2e-9f2a-3f6f6c1f2b10";

// FAULTS J1
#[tokio::test(flavor = "multi_thread")]
async fn one_entry_is_retried_once_and_recorded() {
    let fixture = OperateFixture::new().await;
    let one = [&ADA[..], &["--operation", ID]].concat();
    let entry = ["--id", "evt_1", "--source", "shop", "--handler", "ship-order"];
    let first = &fixture.json("retry", &[&one[..], &entry].concat())[0];
    assert_eq!(
        (&first["repeated"], &first["entry"]["status"]),
        (&false.into(), &"pending".into()),
        "{first}"
    );
    let again = &fixture.json("retry", &[&one[..], &entry].concat())[0];
    assert_eq!((&again["repeated"], &again["entry"]), (&true.into(), &first["entry"]));
    let other = fixture.run("discard", &[&one[..], &entry].concat());
    assert_eq!(other.status.code(), Some(5), "the identity is taken");
    assert!(said(&other).contains(ID) && said(&other).contains("use a new operation id"), "{other:?}");
    let reason = ["--actor", "ada", "--reason", "something else", "--operation", ID];
    let other = fixture.run("retry", &[&reason[..], &entry].concat());
    assert_eq!(other.status.code(), Some(5), "the identity has a reason");
    assert!(said(&other).contains("another reason"), "{other:?}");
    let done = [&ADA[..], &["--id", "evt_4", "--source", "shop", "--handler", "ship-order"]].concat();
    assert_eq!(fixture.code("retry", &done), 5, "it did not fail");
    let audit = fixture.json("audit", &["--by", "ada"]);
    assert_eq!(audit.len(), 2, "{audit:?}");
    assert_eq!((&audit[0]["verb"], &audit[0]["reason"]), (&"retry".into(), &"depot is back".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_and_a_reason_are_required() {
    let fixture = OperateFixture::new().await;
    let entry = ["--id", "evt_1", "--source", "shop", "--handler", "ship-order"];
    let code = |more: &[&str]| fixture.code("retry", &[&entry[..], more].concat());
    assert_eq!(code(&["--reason", "x"]), 2, "no actor");
    assert_eq!(code(&["--actor", "ada"]), 2, "no reason");
    assert_eq!(code(&["--actor", "ada", "--reason", " "]), 2);
    assert_eq!(code(&["--actor", "ada", "--reason", "x", "--operation", "7"]), 2);
    let mut by_name = fixture.command("retry", &[&entry[..], &["--reason", "x"]].concat());
    assert!(by_name.env("ONCEBOX_ACTOR", "ada").output().expect("it runs").status.success());
    assert_eq!(fixture.json("audit", &["--by", "ada"]).len(), 2);
}

// FAULTS J1: an ambiguous command changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn one_entry_and_a_filter_are_not_mixed() {
    let fixture = OperateFixture::new().await;
    let one = [&ADA[..], &["--id", "evt_1", "--source", "shop"]].concat();
    let code = |more: &[&str]| fixture.code("discard", &[&one[..], more].concat());
    assert_eq!(code(&[]), 2, "which handler?");
    for more in [&["--error", "refused"][..], &["--confirm"], &["--everything"], &["--type", "order.placed"]]
    {
        assert_eq!(code(&[&["--handler", "ship-order"], more].concat()), 2, "{more:?}");
    }
    let empty = [&ADA[..], &["--id", "", "--error", "refused", "--confirm"]].concat();
    assert_eq!(fixture.code("discard", &empty), 2, "an empty variable of a script is not a filter");
    assert_eq!(fixture.count(Status::Poisoned).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantined_messages_are_deleted_when_confirmed() {
    let fixture = OperateFixture::new().await;
    let store = fixture.store();
    let kept = async || store.count(&inbox(), None).await.expect("count").quarantined;
    let purge = [&ADA[..], &["--older-than", "0s"]].concat();
    assert_eq!(fixture.json("purge", &purge)[0]["count"], 1);
    assert!(said(&fixture.run("purge", &purge)).is_empty());
    assert_eq!(kept().await, 1, "nothing is done without --confirm");
    let wrong = [&purge[..], &["--confirm", "--expect", "2"]].concat();
    assert_eq!(fixture.code("purge", &wrong), 5, "another count was seen");
    assert_eq!(kept().await, 1);
    let once = [&purge[..], &["--confirm", "--expect", "1", "--operation", ID]].concat();
    for repeated in [false, true] {
        let acted = &fixture.json("purge", &once)[0];
        assert_eq!((&acted["purged"], &acted["repeated"]), (&1.into(), &repeated.into()), "{acted}");
    }
    assert_eq!(kept().await, 0);
    let unseen = [&purge[..], &["--confirm", "--operation", ID]].concat();
    assert_eq!(fixture.json("purge", &unseen)[0]["repeated"], true, "though another count is seen by now");
    assert_eq!(fixture.code("purge", &[&ADA[..], &["--older-than", "soon"]].concat()), 2);
    assert_eq!(fixture.code("purge", &[&purge[..], &["--limit", "10001"]].concat()), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_or_an_ordering_key_is_paused_and_resumed() {
    let fixture = OperateFixture::new().await;
    let handler = [&ADA[..], &["--handler", "ship-order"]].concat();
    let line = [&handler[..], &["--ordering-key", "k", "--source", "shop"]].concat();
    fixture.json("pause", &handler);
    fixture.json("pause", &line);
    assert_eq!(said(&fixture.run("pause", &handler)), "");
    let status = &fixture.json("status", &[])[0];
    assert_eq!(
        (&status["paused"][0], &status["paused_keys"][0]["ordering_key"]),
        (&"ship-order".into(), &"k".into())
    );
    assert_eq!(fixture.json("resume", &handler)[0]["changed"], true);
    assert_eq!(fixture.json("resume", &handler)[0]["changed"], false);
    fixture.json("resume", &line);
    let status = &fixture.json("status", &[])[0];
    assert_eq!((&status["paused"], &status["paused_keys"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(fixture.code("pause", &[&handler[..], &["--source", "shop"]].concat()), 2);
}

// A typing error must not look like a success.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_handler_is_not_paused_by_accident() {
    let fixture = OperateFixture::new().await;
    let slip = [&ADA[..], &["--handler", "ship-ordre"]].concat();
    for (verb, more) in [("pause", &[][..]), ("resume", &[]), ("pause", &["--ordering-key", "k"])] {
        let refused = fixture.run(verb, &[&slip[..], more].concat());
        assert_eq!(refused.status.code(), Some(5), "{refused:?}");
        let said = said(&refused);
        assert!(said.contains("it has ship-order") && said.contains("--unknown"), "{said}");
    }
    assert!(fixture.json("audit", &[]).len() < 2, "nothing was recorded");
    let meant = [&slip[..], &["--unknown", "--operation", ID]].concat();
    assert_eq!(fixture.json("pause", &meant)[0]["changed"], true);
    assert_eq!(fixture.json("status", &[])[0]["paused"][0], "ship-ordre");
    assert_eq!(fixture.json("resume", &slip)[0]["changed"], true, "it is known by now");
    let again = [&slip[..], &["--operation", ID]].concat();
    assert_eq!(fixture.json("pause", &again)[0]["repeated"], true, "what was done is answered as it was");
    let empty = OperateFixture::empty();
    assert!(said(&empty.run("pause", &slip)).contains("it has none yet"));
}

// Entries under a former key of the handler would run on.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_is_paused_under_its_former_keys_too() {
    let fixture = OperateFixture::new().await;
    let config = format!(
        "[store.main]\nurl = \"{}\"\n[inbox.orders]\n[inbox.orders.handler.ship]\nurl = \"https://example.com\"\n\
         legacy = [\"ship-order\", \"shipping\"]\n",
        fixture.url()
    );
    let file = fixture.dir.path().join("oncebox.toml");
    std::fs::write(&file, config).expect("a file");
    let run = |verb: &str, more: &[&str]| {
        let file = file.display().to_string();
        let args = [&[verb, "--config", &file, "--handler", "ship"], &ADA[..], more].concat();
        oncebox(args).output().expect("the binary runs")
    };
    let paused = &lines(&run("pause", &["--operation", ID, "--json"]))[0];
    assert_eq!(paused["legacy"], serde_json::json!(["ship-order", "shipping"]), "{paused}");
    let now = || fixture.json("status", &[])[0]["paused"].clone();
    assert_eq!(now(), serde_json::json!(["ship", "ship-order", "shipping"]));
    assert_eq!(lines(&run("pause", &["--operation", ID, "--json"]))[0]["repeated"], true);
    let told = run("resume", &[]);
    assert!(text(&told).contains("also for the former keys ship-order, shipping"), "{told:?}");
    assert_eq!(now(), serde_json::json!([]));
    let records = fixture.json("audit", &["--by", "ada"]);
    assert_eq!(records.iter().filter(|one| one["verb"] == "pause").count(), 3, "each is recorded");
}

// FAULTS I2
#[tokio::test(flavor = "multi_thread")]
async fn a_new_handler_gets_stored_messages() {
    let fixture = OperateFixture::new().await;
    let late = [&ADA[..], &["--handler", "send-receipt", "--type", "order.*"]].concat();
    assert_eq!(fixture.json("backfill", &late)[0]["messages"], 4);
    assert_eq!(fixture.count(Status::Pending).await, 0, "nothing is done without --confirm");
    let some = [&late[..], &["--confirm", "--operation", ID, "--limit", "3"]].concat();
    let report = &fixture.json("backfill", &some)[0];
    assert_eq!((&report["state"], &report["done"]), (&"capped".into(), &3.into()), "{report}");
    let again = &fixture.json("backfill", &some)[0];
    assert_eq!(again, report, "the same again is done once");
    let all = [&late[..], &["--confirm"]].concat();
    assert_eq!(fixture.json("backfill", &all)[0]["done"], 1, "those that it has are passed over");
    assert_eq!(fixture.count(Status::Pending).await, 4);
    let renamed =
        [&ADA[..], &["--handler", "receipt", "--legacy", "send-receipt", "--type", "*", "--confirm"]]
            .concat();
    assert_eq!(fixture.json("backfill", &renamed)[0]["done"], 0, "it has had them under its former name");
    let untyped = [&ADA[..], &["--handler", "x", "--confirm"]].concat();
    let untyped = fixture.run("backfill", &untyped);
    assert_eq!(untyped.status.code(), Some(2));
    assert!(said(&untyped).contains("--type"), "{untyped:?}");
    assert_eq!(fixture.json("audit", &[]).iter().filter(|one| one["verb"] == "backfill").count(), 3);
}
