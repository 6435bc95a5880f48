//! The API on PostgreSQL, also while it is unavailable.

use oncebox_servers::{Cluster, PostgresVersion};
use serde_json::json;

use super::super::support::{Sidecar, post, request};
use super::{Depot, Operator, config, fresh, key_of, poison, problem};

#[test]
fn the_api_works_on_postgresql() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    let url = cluster.url("orders");
    let depot = Depot::closed();
    let text = config(&depot.handler.url(), "[store.main]\nurl = \"env:DATABASE_URL\"\n");
    let sidecar = Sidecar::with_env(&text, &[("DATABASE_URL", &url)]);
    let open = Operator::new(&sidecar, None);
    poison(&sidecar, &["evt_1", "evt_2"]);
    post(&sidecar.url("orders"), "evt_1", "order.placed", "{}");
    let key = key_of(&open, "evt_1");
    for path in
        ["counts", "entries?error=50%25", "quarantine", "blocked", "handlers", "retention", "doctor", "audit"]
    {
        open.look(&format!("/inboxes/orders/{path}"));
    }
    for path in ["", "/explain", "/payload"] {
        open.look(&format!("/inboxes/orders/messages/{key}{path}"));
    }
    assert_eq!(open.look("/inboxes/orders/counts")["conflicts"], 1);
    assert_eq!(open.look("/inboxes/orders/entries?error=50%25")["entries"].as_array().unwrap().len(), 2);
    depot.mend();
    let body = json!({ "operation": fresh(), "actor": "ada", "reason": "it is back", "handler": "ship" });
    let retry = format!("/inboxes/orders/messages/{key}/retry");
    let done = open.act(&retry, &body);
    sidecar.wait_words(&["delivered", "evt_1"]);
    let again = open.act(&retry, &body);
    assert_eq!((&again["repeated"], &again["entry"]), (&json!(true), &done["entry"]));
    let bulk = json!({ "operation": fresh(), "actor": "ada", "reason": "it is back", "verb": "retry",
        "which": { "handler": "ship" }, "expected": 1 });
    open.act("/inboxes/orders/bulk", &bulk);
    sidecar.wait_words(&["delivered", "evt_2"]);
    sidecar.wait_words(&["operation ended", "finished"]);
    let purge = json!({ "operation": fresh(), "actor": "ada", "reason": "settled", "older_than_seconds": 0,
        "expected": 1 });
    assert_eq!(open.act("/inboxes/orders/purge", &purge)["purged"], 1);

    // Clients are told to retry, without details of the database.
    drop(cluster);
    let answer = open.get("/inboxes/orders/counts");
    assert_eq!(problem(&answer), (503, "unavailable".into()));
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert!(!answer.body.contains("orders_") && !answer.body.contains("postgres"), "{answer:?}");
    let live = request("GET", &format!("{}/livez", sidecar.operators()), &[], b"").unwrap();
    assert_eq!(live.status, 200, "a restart does not bring a database back");
}
