//! One message: what is stuck, why, and what to do about it.

use serde_json::json;

use super::super::support::{Sidecar, post, request};
use super::{Depot, Operator, config, failing, fresh, key_of, poison, problem, token};

#[test]
fn what_is_stuck_is_found_explained_and_retried_once() {
    let (depot, (token, table)) = (Depot::closed(), token("night-shift", &["operator"]));
    let sidecar = failing(&depot, &table);
    poison(&sidecar, &["evt_1", "evt_2"]);
    let night = Operator::new(&sidecar, Some(&token));
    assert_eq!(night.look("/inboxes")["inboxes"][0]["handlers"], json!(["ship"]));

    // `%` and `_` mean themselves.
    for (error, count) in [("50%25", 2), ("50_", 0), ("%25closed", 0), ("closed_", 2)] {
        let page =
            night.look(&format!("/inboxes/orders/entries?status=poisoned&status=running&error={error}"));
        assert_eq!(page["entries"].as_array().unwrap().len(), count, "{error}");
    }
    let first = night.look("/inboxes/orders/entries?limit=1");
    let next = first["next"].as_str().expect("a cursor");
    let second = night.look(&format!("/inboxes/orders/entries?limit=1&after={next}"));
    assert_ne!(first["entries"][0]["key"], second["entries"][0]["key"]);
    assert_eq!((first["entries"].as_array().unwrap().len(), &second["next"]), (1, &json!(null)));

    let key = key_of(&night, "evt_1");
    let message = night.look(&format!("/inboxes/orders/messages/{key}"));
    assert_eq!(message["stored"]["message"]["id"], "evt_1");
    assert_eq!(message["attempts"][0]["event"], "exhaust", "{message}");
    assert!(!message.to_string().contains("secret"), "no payload: {message}");
    let told = night.look(&format!("/inboxes/orders/messages/{key}/explain"));
    assert!(told["entries"][0]["why"].as_str().unwrap().contains("waits for a person"), "{told}");

    depot.mend();
    let retry = format!("/inboxes/orders/messages/{key}/retry");
    let body = json!({ "operation": fresh(), "actor": "ada (token root)", "reason": "the depot is back", "handler": "ship" });
    let done = night.act(&retry, &body);
    assert_eq!((&done["repeated"], &done["entry"]["status"]), (&json!(false), &json!("pending")));
    sidecar.wait_words(&["delivered", "evt_1"]);
    let again = night.act(&retry, &body);
    assert_eq!((&again["repeated"], &again["entry"]), (&json!(true), &done["entry"]), "the same answer");
    let mut other = body.clone();
    other["handler"] = json!("bill");
    assert_eq!(night.refused(&retry, &other), (409, "operation-reused".into()));
    let discard = format!("/inboxes/orders/messages/{key}/discard");
    assert_eq!(night.refused(&discard, &body), (409, "operation-reused".into()));
    let mut reason = body.clone();
    reason["reason"] = json!("the depot is gone");
    assert_eq!(night.refused(&retry, &reason), (409, "operation-reused".into()));
    let late = json!({ "operation": fresh(), "reason": "again", "handler": "ship" });
    assert_eq!(night.refused(&retry, &late), (409, "refused".into()), "it is done");
    let unknown = json!({ "operation": fresh(), "reason": "again", "handler": "other" });
    assert_eq!(night.refused(&retry, &unknown), (404, "not-found".into()));

    let replayed = night.act(&format!("/inboxes/orders/messages/{key}/replay"), &late);
    assert_eq!(replayed["entry"]["generation"], 1);
    let audit = night.look("/inboxes/orders/audit");
    let verbs: Vec<_> = audit["operations"].as_array().unwrap().iter().map(|one| &one["verb"]).collect();
    assert_eq!(verbs, ["replay", "retry"], "what was refused is not recorded");
    // A name may look like anything: the token is told apart from it.
    let asked = |at: usize| [&audit["operations"][at]["actor"], &audit["operations"][at]["token"]];
    assert_eq!(asked(1), ["ada (token root)", "night-shift"]);
    assert_eq!(asked(0), ["night-shift", "night-shift"]);
    let of = |token: &str| {
        night.look(&format!("/inboxes/orders/audit?token={token}"))["operations"].as_array().map(Vec::len)
    };
    assert_eq!((of("night-shift"), of("root")), (Some(2), Some(0)));
    let record = night.look(&format!("/inboxes/orders/operations/{}", body["operation"].as_str().unwrap()));
    assert_eq!(
        (&record["operation"]["reason"], &record["report"]),
        (&json!("the depot is back"), &json!(null))
    );
}

// FAULTS S12.
#[test]
fn payload_readers_see_payloads_and_private_fields_are_hidden() {
    let depot = Depot::closed();
    let (reader, table) = token("reader", &["payload-reader"]);
    let (operator, more) = token("op", &["operator"]);
    let sidecar = failing(&depot, &(table + &more));
    let headers = [
        ("message-id", "evt_1"),
        ("message-type", "t"),
        ("authorization", "Bearer canary"),
        ("x-note", "pan 4111111111111111"),
    ];
    let body = br#"{"card":"canary","order":7,"note":"4111111111111111"}"#;
    request("POST", &sidecar.url("orders"), &headers, body).unwrap();
    post(&sidecar.url("orders"), "evt_1", "t", r#"{"card":"canary","order":8}"#);
    sidecar.wait_words(&["conflict", "evt_1"]);
    let (reader, operator) =
        (Operator::new(&sidecar, Some(&reader)), Operator::new(&sidecar, Some(&operator)));
    let key = key_of(&operator, "evt_1");
    let path = format!("/inboxes/orders/messages/{key}/payload");
    assert_eq!(problem(&operator.get(&path)), (403, "forbidden".into()));
    let shown = reader.look(&path);
    assert_eq!(shown["stored"]["text"], r#"{"card":"***","note":"***","order":7}"#);
    assert_eq!(shown["quarantined"][0]["text"], r#"{"card":"***","order":8}"#);
    assert!(!shown.to_string().contains("canary") && !shown.to_string().contains("4111"), "{shown}");
    let looked = sidecar.wait_words(&["payload read", "by=", "reader"]);
    assert!(looked.contains(&key), "{looked}");
    assert_eq!(reader.refused(&format!("/inboxes/orders/messages/{key}/retry"), &json!({})).0, 403);
}

#[test]
fn a_handler_and_an_ordering_key_are_paused_and_resumed() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    let open = Operator::new(&sidecar, None);
    let hold = |path: &str, line: serde_json::Value| {
        let body =
            json!({ "operation": fresh(), "actor": "ada", "reason": "x", "handler": "ship", "line": line });
        open.act(&format!("/inboxes/orders/{path}"), &body)["changed"].clone()
    };
    let key = json!({ "source": "orders", "ordering_key_hex": "ff00" });
    assert_eq!(hold("pause", json!(null)), true);
    assert_eq!(hold("pause", json!(null)), false, "it is paused already");
    assert_eq!(hold("pause", key.clone()), true);
    let handlers = open.look("/inboxes/orders/handlers");
    assert_eq!(handlers["handlers"][0]["paused"], true, "{handlers}");
    assert_eq!(handlers["paused_keys"][0]["ordering_key_hex"], "ff00", "{handlers}");
    let findings = open.look("/inboxes/orders/doctor");
    assert!(findings.to_string().contains("key_paused"), "{findings}");
    post(&sidecar.url("orders"), "evt_1", "t", "{}");
    let told = open.look(&format!("/inboxes/orders/messages/{}/explain", key_of(&open, "evt_1")));
    assert!(told["entries"][0]["why"].as_str().unwrap().contains("paused"), "{told}");
    depot.mend();
    assert_eq!(hold("resume", json!(null)), true);
    assert_eq!(hold("resume", key), true);
    sidecar.wait_words(&["delivered", "evt_1"]);
    let counts = open.look("/inboxes/orders/counts");
    assert_eq!((&counts["paused"], &counts["paused_keys"]), (&json!([]), &json!([])));
    assert_eq!(counts["entries"][0], json!({ "handler": "ship", "status": "completed", "count": 1 }));
}

// A slip must not be answered as if it had stopped something, nor leave half of a handler running.
#[test]
fn a_pause_is_for_a_handler_that_is_there_and_for_its_former_keys() {
    let depot = Depot::closed();
    let text = config(&depot.handler.url(), "").replace("retry = ", "legacy = [\"shipping\"]\nretry = ");
    let sidecar = Sidecar::with(&text);
    let open = Operator::new(&sidecar, None);
    let mut body = json!({ "operation": fresh(), "actor": "ada", "reason": "x", "handler": "shp" });
    for verb in ["pause", "resume"] {
        let refused = open.post(&format!("/inboxes/orders/{verb}"), &body);
        assert_eq!(problem(&refused), (404, "not-found".into()));
        assert!(refused.body.contains("it has ship, shipping") && refused.body.contains("`unknown`"));
    }
    assert_eq!(open.look("/inboxes/orders/audit")["operations"], json!([]));
    body["unknown"] = json!(true);
    assert_eq!(open.act("/inboxes/orders/pause", &body)["changed"], true);
    body["unknown"] = json!(false);
    assert_eq!(open.act("/inboxes/orders/pause", &body)["repeated"], true);

    let mut body = json!({ "operation": fresh(), "actor": "ada", "reason": "x", "handler": "ship" });
    for repeated in [false, true] {
        let paused = open.act("/inboxes/orders/pause", &body);
        assert_eq!((&paused["changed"], &paused["legacy"]), (&json!(true), &json!(["shipping"])));
        assert_eq!(paused["repeated"], repeated);
    }
    // Both keys are one handler, which goes by its current one.
    assert_eq!(open.look("/inboxes/orders/counts")["paused"], json!(["ship", "shp"]));
    body["operation"] = json!(fresh());
    open.act("/inboxes/orders/resume", &body);
    assert_eq!(open.look("/inboxes/orders/counts")["paused"], json!(["shp"]));
}

#[test]
fn those_behind_a_poisoned_one_are_seen_and_let_go() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    let open = Operator::new(&sidecar, None);
    for id in ["hopeless", "evt_2"] {
        let headers = [("message-id", id), ("message-type", "t"), ("message-ordering-key", "k")];
        request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap();
    }
    sidecar.wait_words(&["poisoned", "hopeless"]);
    let blocked = open.look("/inboxes/orders/blocked");
    let head = &blocked["blocked"][0];
    assert_eq!((&head["ordering_key"], &head["waiting"]), (&json!("k"), &json!(1)), "{blocked}");
    depot.mend();
    let body = json!({ "operation": fresh(), "actor": "ada", "reason": "never mind", "handler": "ship" });
    open.act(&format!("/inboxes/orders/messages/{}/unblock", head["head_key"].as_str().unwrap()), &body);
    sidecar.wait_words(&["delivered", "evt_2"]);
    assert_eq!(open.look("/inboxes/orders/blocked"), json!({ "blocked": [] }));
}

// FAULTS S8, S12: what cannot be undone is for an administrator.
#[test]
fn a_message_is_erased_over_http() {
    let depot = Depot::closed();
    let (operator, table) = token("op", &["operator"]);
    let (admin, more) = token("root", &["admin"]);
    let sidecar = failing(&depot, &(table + &more));
    poison(&sidecar, &["evt_1"]);
    let (operator, admin) = (Operator::new(&sidecar, Some(&operator)), Operator::new(&sidecar, Some(&admin)));
    let key = key_of(&admin, "evt_1");
    let path = format!("/inboxes/orders/messages/{key}/erase");
    let mut body = json!({ "operation": fresh(), "reason": "request 17" });
    assert_eq!(operator.refused(&path, &body), (403, "forbidden".into()));
    assert_eq!(admin.refused(&path, &body), (409, "refused".into()), "it is poisoned");
    body["discard_unfinished"] = json!(true);
    let erased = admin.act(&path, &body);
    assert_eq!(erased["erased"], json!({ "discarded": 1, "quarantined": 0 }));
    let again = admin.act(&path, &body);
    assert_eq!((&again["repeated"], &again["erased"]), (&json!(true), &erased["erased"]));
    let view = operator.look(&format!("/inboxes/orders/messages/{key}"));
    assert_eq!((&view["erased"], &view["stored"]), (&json!(true), &json!(null)), "{view}");
    assert!(!operator.look("/inboxes/orders/audit").to_string().contains("evt_1"));
    let unknown = format!("/inboxes/orders/messages/{}/erase", "0".repeat(64));
    assert_eq!(
        admin.refused(&unknown, &json!({ "operation": fresh(), "reason": "x" })),
        (404, "not-found".into())
    );
}
