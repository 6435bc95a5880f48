//! `oncebox erase`: erases the content of one message.

use oncebox::state::Status;
use serde_json::Value;

use crate::fixture::{ADA, OperateFixture, said, text};

const EVT_4: [&str; 4] = ["--id", "evt_4", "--source", "shop"];
const EVT_1: [&str; 4] = ["--id", "evt_1", "--source", "shop"];

fn erase(fixture: &OperateFixture, args: &[&[&str]]) -> Value {
    fixture.json("erase", &[&ADA[..], &args.concat()].concat()).swap_remove(0)
}

// FAULTS S12
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_erased_after_a_dry_run() {
    let fixture = OperateFixture::new().await;
    let shown = erase(&fixture, &[&EVT_4]);
    assert_eq!((&shown["dry_run"], &shown["quarantined"]), (&true.into(), &1.into()), "{shown}");
    assert_eq!((&shown["stored"], &shown["refused"]), (&true.into(), &false.into()), "{shown}");
    assert_eq!(fixture.json("audit", &[]).len(), 1, "nothing is done, and nothing recorded");
    let done = erase(&fixture, &[&EVT_4, &["--confirm"]]);
    assert_eq!(done["erased"]["quarantined"], 1, "{done}");
    let view = &fixture.json("show", &EVT_4)[0];
    assert_eq!(
        (&view["erased"], &view["stored"], &view["quarantined"]),
        (&true.into(), &Value::Null, &Value::Array(vec![]))
    );
    assert_eq!(view["entries"][0]["status"], "completed", "{view}");
    assert!(text(&fixture.run("show", &EVT_4)).contains("content erased"));
    assert!(text(&fixture.run("explain", &EVT_4)).contains("ada asked to erase"));
    let audit = &fixture.json("audit", &[])[0];
    assert_eq!(
        (&audit["verb"], &audit["actor"], &audit["reason"]),
        (&"erase".into(), &"ada".into(), &"depot is back".into())
    );
    assert!(!audit.to_string().contains("evt_4"), "{audit}");
    assert!(erase(&fixture, &[&EVT_4])["erased"] == true);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_entries_are_discarded_only_with_the_flag() {
    let fixture = OperateFixture::new().await;
    let shown = fixture.run("erase", &[&ADA[..], &EVT_1].concat());
    assert!(text(&shown).contains("refused: 1 entries are pending or poisoned"), "{shown:?}");
    let refused = fixture.run("erase", &[&ADA[..], &EVT_1, &["--confirm"]].concat());
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert!(said(&refused).contains("while an entry of it is poisoned"), "{refused:?}");
    assert_eq!(fixture.count(Status::Poisoned).await, 3);
    let done = erase(&fixture, &[&EVT_1, &["--confirm", "--discard-unfinished"]]);
    assert_eq!(done["erased"]["discarded"], 1, "{done}");
    assert_eq!((fixture.count(Status::Poisoned).await, fixture.count(Status::Discarded).await), (2, 1));
    let unknown = ["--id", "unknown", "--source", "shop"];
    for more in [&[][..], &["--confirm"]] {
        assert_eq!(fixture.code("erase", &[&ADA[..], &unknown, more].concat()), 5, "{more:?}");
    }
    assert_eq!(
        fixture.code("erase", &[&EVT_1[..], &["--reason", "x", "--confirm"]].concat()),
        2,
        "who asks?"
    );
    assert_eq!(fixture.code("erase", &ADA), 2, "which message?");
}
