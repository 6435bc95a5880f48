//! Every error is a problem document.

use serde_json::json;

use super::{Depot, Operator, failing, fresh, problem};

#[test]
fn every_error_is_a_problem() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    let open = Operator::new(&sidecar, None);
    let key = "0".repeat(64);
    let at = |path: &str| problem(&open.get(path));
    let not_found = (404, "not-found".to_owned());
    for path in [
        "/nothing",
        "/inboxes/other/counts",
        "/inboxes/%00/counts",
        "/inboxes/orders/messages/xyz",
        &format!("/inboxes/orders/messages/{key}"),
        &format!("/inboxes/orders/messages/{key}/payload"),
        &format!("/inboxes/orders/messages/{key}/explain"),
        "/inboxes/orders/entries?after=zz",
        "/inboxes/orders/operations/xyz",
        &format!("/inboxes/orders/operations/{}", fresh()),
    ] {
        assert_eq!(at(path), not_found, "{path}");
    }
    let elsewhere = Operator { base: sidecar.operators(), token: None };
    assert_eq!(problem(&elsewhere.get("/")), not_found);
    assert_eq!(at("/inboxes/%FF/counts"), (400, "malformed".into()));
    for path in [
        "/me?x=1",
        "/inboxes/orders/counts?tenannt=a",
        "/inboxes/orders/entries?limit=x",
        "/inboxes/orders/entries?limit=1&limit=2",
        "/inboxes/orders/entries?handler=a&handler=b",
    ] {
        assert_eq!(at(path), (400, "malformed".into()), "{path}");
    }
    for path in ["limit=0", "limit=1001", "limit=-1", "status=stuck", "since=yesterday", "tenant=%00"] {
        let path = format!("/inboxes/orders/entries?{path}");
        assert_eq!(at(&path), (422, "invalid".into()), "{path}");
    }
    let method = open.ask("DELETE", "/inboxes", &[], b"");
    assert_eq!(problem(&method), (405, "method-not-allowed".into()));
    assert!(method.header("allow").is_some_and(|allow| allow.contains("GET")), "{method:?}");
}

#[test]
fn a_body_is_checked_first() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    let open = Operator::new(&sidecar, None);
    let json = [("content-type", "application/json; charset=utf-8")];
    let pause = |headers: &[(&str, &str)], body: &[u8]| {
        problem(&open.ask("POST", "/inboxes/orders/pause", headers, body))
    };
    assert_eq!(pause(&[], b"{}"), (415, "unsupported-media-type".into()));
    assert_eq!(pause(&[("content-type", "text/plain")], b"{}"), (415, "unsupported-media-type".into()));
    assert_eq!(pause(&json, b"{"), (400, "malformed".into()));
    assert_eq!(pause(&json, b""), (400, "malformed".into()));
    assert_eq!(pause(&json, b"\xff\xff"), (400, "malformed".into()));
    assert_eq!(pause(&json, &vec![b' '; 70_000]), (413, "too-large".into()));
    let good = json!({ "operation": fresh(), "actor": "ada", "reason": "depot", "handler": "ship" });
    let with = |name: &str, value: serde_json::Value| {
        let mut body = good.clone();
        body[name] = value;
        open.refused("/inboxes/orders/pause", &body)
    };
    for (name, value) in [
        ("operation", json!("1")),
        ("operation", json!(null)),
        ("reason", json!("")),
        ("reason", json!("x".repeat(501))),
        ("actor", json!(null)),
        ("actor", json!("a\u{0}b")),
        ("handler", json!("")),
        ("handler", json!(7)),
        ("handlre", json!("ship")),
        ("line", json!({})),
        ("line", json!({ "ordering_key": "a", "ordering_key_hex": "61" })),
        ("line", json!({ "ordering_key_hex": "6" })),
        ("line", json!({ "ordering_key_hex": "+6" })),
    ] {
        assert_eq!(with(name, value.clone()), (422, "invalid".into()), "{name} {value}");
    }
    let slip = json!({ "verb": "discard", "which": { "eror": "x" } });
    assert_eq!(open.refused("/inboxes/orders/bulk/preview", &slip), (422, "invalid".into()));
    assert_eq!(open.look("/inboxes/orders/audit")["operations"], json!([]), "nothing was done");
    assert_eq!(open.look("/inboxes/orders/counts")["paused"], json!([]));
}
