//! Bulk operations: counted first, refused if the count changed, stopped by failures.

use serde_json::json;

use super::super::support::{Receiver, Sidecar, post};
use super::{Depot, Operator, config, failing, fresh, poison, problem, token};

#[test]
fn a_bulk_operation_is_previewed_then_done_once() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    poison(&sidecar, &["evt_1", "evt_2", "evt_3"]);
    let open = Operator::new(&sidecar, None);
    let which = json!({ "error": "50%" });
    let preview = open.act("/inboxes/orders/bulk/preview", &json!({ "verb": "discard", "which": which }));
    assert_eq!((&preview["count"], &preview["more"]), (&json!(3), &json!(false)));
    assert_eq!(preview["first"].as_array().unwrap().len(), 3);
    let everything = json!({ "verb": "discard", "which": {} });
    assert_eq!(open.refused("/inboxes/orders/bulk/preview", &everything), (422, "invalid".into()));
    // FAULTS J1: it would read all completed entries and change nothing.
    let never = json!({ "verb": "discard", "which": { "error": "50%", "status": ["completed"] } });
    assert_eq!(open.refused("/inboxes/orders/bulk/preview", &never), (422, "invalid".into()));
    let mut never = never;
    never.as_object_mut().unwrap().extend(
        json!({ "operation": fresh(), "actor": "ada", "reason": "x", "expected": 0 })
            .as_object()
            .unwrap()
            .clone(),
    );
    let refused = open.post("/inboxes/orders/bulk", &never);
    assert_eq!(problem(&refused), (422, "invalid".into()));
    assert!(refused.body.contains("pending or poisoned, never completed"), "{refused:?}");

    let id = fresh();
    let body = json!({ "operation": id, "actor": "ada", "reason": "closed for good", "verb": "discard", "which": which,
        "limit": 2, "expected": 2, "per_second": 1000 });
    let mut wrong = body.clone();
    wrong["expected"] = json!(3);
    assert_eq!(open.refused("/inboxes/orders/bulk", &wrong), (409, "count-changed".into()));
    let counts = open.look("/inboxes/orders/counts");
    assert_eq!(counts["entries"][0]["count"], 3, "nothing was done: {counts}");

    let begun = open.act("/inboxes/orders/bulk", &body);
    assert_eq!(begun["operation"], json!(id));
    sidecar.wait_words(&["operation ended", "capped"]);
    let again = open.act("/inboxes/orders/bulk", &body);
    assert_eq!((&again["state"], &again["done"]), (&json!("capped"), &json!(2)), "{again}");
    let mut other = body.clone();
    other["verb"] = json!("retry");
    assert_eq!(open.refused("/inboxes/orders/bulk", &other), (409, "operation-reused".into()));
    let progress = open.look(&format!("/inboxes/orders/operations/{id}"));
    assert_eq!((&progress["report"]["done"], &progress["operation"]["verb"]), (&json!(2), &json!("bulk")));
    let parts = open.look(&format!("/inboxes/orders/audit?parent={id}"));
    assert_eq!(parts["operations"].as_array().unwrap().len(), 2, "each entry has a record of its own");
}

#[test]
fn failures_stop_an_operation_and_so_does_an_operator() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    poison(&sidecar, &["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let open = Operator::new(&sidecar, None);
    let id = fresh();
    let body = json!({ "operation": id, "actor": "ada", "reason": "try", "verb": "retry",
        "which": { "type": "order.placed" }, "expected": 9, "failures": 0, "per_second": 1 });
    open.act("/inboxes/orders/bulk", &body);
    // One per second, so that it still runs at the stop.
    let stopped = open.ask("POST", &format!("/inboxes/orders/operations/{id}/stop"), &[], b"");
    assert_eq!((stopped.status, &stopped.json()["report"]["active"]), (200, &json!(false)), "{stopped:?}");
    // Continued: the depot is still closed, so retried entries are poisoned again, and it stops itself.
    open.act("/inboxes/orders/bulk", &body);
    sidecar.wait_words(&["operation ended", "stopped"]);
    let report = open.look(&format!("/inboxes/orders/operations/{id}"))["report"].clone();
    assert_eq!(report["state"], "stopped", "{report}");
    assert!(report["done"].as_u64().unwrap() < 9 && report["failed"].as_u64().unwrap() > 0, "{report}");
}

/// FAULTS J3: after a crash in the middle, repeating the request continues, and nothing is done twice.
#[test]
fn an_operation_outlives_its_process() {
    let depot = Depot::closed();
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("oncebox.toml"), config(&depot.handler.url(), "")).unwrap();
    let start = || Sidecar::start(std::sync::Arc::clone(&dir), &[], &[]);
    let sidecar = start();
    poison(&sidecar, &["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let id = fresh();
    let mut body = json!({ "operation": id, "actor": "ada", "reason": "closed", "verb": "discard",
        "which": { "handler": "ship" }, "expected": 9, "per_second": 1 });
    Operator::new(&sidecar, None).act("/inboxes/orders/bulk", &body);
    sidecar.stop();
    let sidecar = start();
    let open = Operator::new(&sidecar, None);
    let report = open.look(&format!("/inboxes/orders/operations/{id}"))["report"].clone();
    assert_eq!((&report["state"], &report["active"]), (&json!("running"), &json!(false)), "{report}");
    // The rate may change; the count has changed by now.
    body["per_second"] = json!(1000);
    body["expected"] = json!(8);
    open.act("/inboxes/orders/bulk", &body);
    sidecar.wait_words(&["operation ended", "finished"]);
    let report = open.look(&format!("/inboxes/orders/operations/{id}"))["report"].clone();
    assert_eq!((&report["done"], &report["refused"]), (&json!(9), &json!(0)), "{report}");
    let parts = open.look(&format!("/inboxes/orders/audit?parent={id}"));
    assert_eq!(parts["operations"].as_array().unwrap().len(), 9, "each once");
}

#[test]
fn quarantined_messages_are_listed_and_purged() {
    let (depot, (token, table)) = (Depot::closed(), token("root", &["admin"]));
    let sidecar = failing(&depot, &table);
    let admin = Operator::new(&sidecar, Some(&token));
    for body in ["{}", r#"{"other":1}"#, r#"{"other":2}"#] {
        post(&sidecar.url("orders"), "evt_1", "t", body);
    }
    let quarantined = admin.look("/inboxes/orders/quarantine?reason=conflict&limit=1");
    assert_eq!(quarantined["quarantined"].as_array().unwrap().len(), 1, "{quarantined}");
    let next = quarantined["next"].as_i64().expect("another");
    assert_eq!(admin.look(&format!("/inboxes/orders/quarantine?after={next}"))["next"], json!(null));
    assert_eq!(admin.look("/inboxes/orders/quarantine?reason=stale")["quarantined"], json!([]));
    let plan = json!({ "older_than_seconds": 0 });
    assert_eq!(admin.act("/inboxes/orders/purge/preview", &plan)["count"], 2);
    let body = json!({ "operation": fresh(), "reason": "settled", "older_than_seconds": 0, "expected": 2 });
    let mut wrong = body.clone();
    wrong["expected"] = json!(1);
    assert_eq!(admin.refused("/inboxes/orders/purge", &wrong), (409, "count-changed".into()));
    for repeated in [false, true] {
        let purged = admin.act("/inboxes/orders/purge", &body);
        assert_eq!((&purged["purged"], &purged["repeated"]), (&json!(2), &json!(repeated)));
    }
    let mut later = body.clone();
    later["expected"] = json!(0);
    assert_eq!(admin.act("/inboxes/orders/purge", &later)["repeated"], true, "it was begun for two");
    assert_eq!(admin.look("/inboxes/orders/counts")["quarantined"], 0);
}

#[test]
fn a_backfill_adds_stored_messages() {
    let depot = Depot::closed();
    depot.mend();
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let first = config(&depot.handler.url(), "");
    std::fs::write(dir.path().join("oncebox.toml"), &first).unwrap();
    let sidecar = Sidecar::start(std::sync::Arc::clone(&dir), &[], &[]);
    for id in ["evt_1", "evt_2"] {
        post(&sidecar.url("orders"), id, "t", "{}");
    }
    sidecar.wait_count("delivered", 2);
    sidecar.stop();
    let late = Receiver::good();
    let more = format!("{first}[inbox.orders.handler.bill]\nurl = \"{}\"\n", late.url());
    std::fs::write(dir.path().join("oncebox.toml"), more).unwrap();
    let sidecar = Sidecar::start(dir, &[], &[]);
    let open = Operator::new(&sidecar, None);
    let body = json!({ "operation": fresh(), "actor": "ada", "reason": "it is new", "handler": "bill" });
    assert_eq!(open.act("/inboxes/orders/backfill", &body)["operation"], body["operation"]);
    late.wait_for(2);
    sidecar.wait_count("delivered", 2);
    open.act("/inboxes/orders/backfill", &body);
    let mut other = body.clone();
    other["handler"] = json!("unknown");
    assert_eq!(open.refused("/inboxes/orders/backfill", &other), (404, "not-found".into()));
    other["handler"] = json!("ship");
    assert_eq!(open.refused("/inboxes/orders/backfill", &other), (409, "operation-reused".into()));
    let audit = open.look("/inboxes/orders/audit?actor=ada");
    assert_eq!(audit["operations"].as_array().unwrap().len(), 1, "asked for twice, recorded once: {audit}");
    sidecar.stop();
    assert_eq!(late.requests().len(), 2, "each once");
}
