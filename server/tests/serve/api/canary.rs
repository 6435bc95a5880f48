//! Puts canaries into all secrets and payloads, and searches for them in all output.

use serde_json::json;

use super::super::support::{Sidecar, get, request};
use super::{Depot, Operator, config, fresh, key_of, token};

/// Canary in everything secret or private.
const CANARY: &str = "canary7f3a";

// FAULTS J4, S12, S18.
#[test]
fn a_viewer_sees_no_secret_and_no_payload() {
    for format in ["text", "json"] {
        expect_no_canary(format);
    }
}

fn expect_no_canary(format: &str) {
    let depot = Depot::closed();
    let (viewer, table) = token("viewer", &["viewer"]);
    let (admin, more) = token("root", &["admin"]);
    let mut text = config(&depot.handler.url(), &(table + &more));
    text.push_str(
        "secret = \"env:HOOK\"\nheaders = { authorization = \"env:AUTH\", x-api-key = \"env:AUTH\" }\n",
    );
    let hook = format!("whsec_{}", base64(CANARY.repeat(4).as_bytes()));
    let env = [("HOOK", hook.as_str()), ("AUTH", CANARY), ("OTEL_SERVICE_NAME", "shop")];
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("oncebox.toml"), text).unwrap();
    let args = ["--log", "debug,hyper=info,reqwest=info", "--log-format", format];
    let sidecar = Sidecar::start(dir, &args, &env);
    let private = [("authorization", CANARY), ("cookie", CANARY), ("x-api-key", CANARY), ("x-note", CANARY)];
    let send = |id: &str, body: &str| {
        let headers = [&[("message-id", id), ("message-type", "order.placed")][..], &private].concat();
        request("POST", &sidecar.url("orders"), &headers, body.as_bytes()).unwrap()
    };
    for id in ["evt_1", "evt_2"] {
        send(id, &format!(r#"{{"card":"{CANARY}","note":"{CANARY}"}}"#));
    }
    send("evt_1", &format!(r#"{{"other":"{CANARY}"}}"#));
    send("", CANARY);
    sidecar.wait_lines("both are poisoned", |lines| {
        lines.iter().filter(|line| line.contains("poisoned") && line.contains("evt_")).count() >= 2
    });
    let (root, viewer) = (Operator::new(&sidecar, Some(&admin)), Operator::new(&sidecar, Some(&viewer)));
    let key = key_of(&root, "evt_1");
    // A payload reader sees it, so the canary exists.
    assert!(root.get(&format!("/inboxes/orders/messages/{key}/payload")).body.contains(CANARY));
    let body = json!({ "operation": fresh(), "reason": "x", "handler": "ship" });
    let mut answers = vec![root.post(&format!("/inboxes/orders/messages/{key}/retry"), &body).body];
    for path in [
        "/me",
        "/inboxes",
        "/inboxes/orders/counts",
        "/inboxes/orders/entries",
        "/inboxes/orders/quarantine",
        "/inboxes/orders/blocked",
        "/inboxes/orders/handlers",
        "/inboxes/orders/retention",
        "/inboxes/orders/doctor",
        "/inboxes/orders/audit",
        "/openapi.json",
        &format!("/inboxes/orders/messages/{key}"),
        &format!("/inboxes/orders/messages/{key}/explain"),
        &format!("/inboxes/orders/messages/{key}/payload"),
    ] {
        answers.push(viewer.get(path).body);
    }
    // A wrong token, in the query or path, is not quoted.
    let untrusted = Operator { token: Some(CANARY.into()), ..Operator::new(&sidecar, None) };
    answers.push(untrusted.get("/inboxes").body);
    for path in ["/livez", "/readyz"] {
        answers.push(get(&format!("{}{path}", sidecar.operators())).body);
    }
    let bearer = format!("Bearer {admin}");
    let metrics = format!("{}/metrics", sidecar.operators());
    answers.push(request("GET", &metrics, &[("authorization", &bearer)], b"").unwrap().body);
    let lines = sidecar.stop();
    for secret in [CANARY, hook.as_str(), admin.as_str()] {
        for told in answers.iter().chain(&lines) {
            assert!(!told.contains(secret), "{secret} is in {told}");
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
