//! The start, while a database is unavailable.

use oncebox_servers::{Cluster, PostgresVersion};

use super::support::{AT_ONCE, Receiver, Sidecar, get, one_handler, post, request};

const TOKEN: &str = "Bearer a-token-that-is-long-enough-to-count";
const TOKEN_HASH: &str = "sha256:3f04b3a3a683aa585c2386a61f51c9f25324f072683d154fe411982d842c1301";

/// FAULTS A15: the sidecar waits for a database that starts later, and accepts no messages meanwhile. Both ports respond to probes
/// from the start, with the name of the store. The API requires its tokens from the start too.
#[test]
fn both_ports_respond_while_the_database_is_unavailable() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    let url = cluster.url("orders");
    cluster.stop().unwrap();
    let handler = Receiver::good();
    let config = format!(
        "{}\n[store.main]\nurl = \"env:DATABASE_URL\"\n[api]\nlisten = \"127.0.0.1:0\"\n[api.token.ops]\n\
         hash = \"env:OPS_HASH\"\nroles = [\"viewer\"]\n",
        one_handler(&handler.url(), AT_ONCE)
    );
    let env = [("DATABASE_URL", url.as_str()), ("OPS_HASH", TOKEN_HASH)];
    let sidecar = Sidecar::early(&config, &env);
    let told = sidecar.wait_words(&["waiting for the store", "/readyz and http://"]);
    let operators = told.split("/readyz and ").nth(1).and_then(|rest| rest.split("/readyz").next()).unwrap();
    let token = [("authorization", TOKEN)];
    let with_token = |path: &str| request("GET", &format!("{operators}{path}"), &token, b"").unwrap();
    let status = |base: &str, path: &str| get(&format!("{base}{path}")).status;

    assert_eq!((status(&sidecar.base, "/livez"), status(operators, "/livez")), (200, 200));
    let ready = get(&format!("{}/readyz", sidecar.base));
    assert_eq!((ready.status, &*ready.body), (503, "waiting for a store\n"));
    let ready = get(&format!("{operators}/readyz"));
    assert_eq!((ready.status, ready.header("retry-after")), (503, Some("5")));
    assert_eq!(ready.json()["waiting_for"], serde_json::json!({"store": "main", "reason": "unavailable"}));
    assert_eq!((status(operators, "/metrics"), with_token("/metrics").status), (401, 200));
    let asked = with_token("/api/v1/inboxes/orders/counts");
    assert_eq!((status(operators, "/api/v1/inboxes"), asked.status), (401, 503));
    assert!(asked.body.contains("main") && asked.header("retry-after").is_some(), "{asked:?}");
    let sent = post(&sidecar.url("orders"), "1", "t", "{}");
    assert_eq!((sent.status, sent.header("retry-after")), (503, Some("5")));

    cluster.start_again().unwrap();
    sidecar.wait_line("ready", |line| line.starts_with("ready;"));
    assert_eq!((status(&sidecar.base, "/readyz"), status(operators, "/readyz")), (200, 200));
    let ready = get(&format!("{operators}/readyz")).json();
    assert!(ready.get("waiting_for").is_none() && ready["inboxes"][0]["inbox"] == "orders", "{ready}");
    assert_eq!(with_token("/api/v1/inboxes").status, 200);
    assert_eq!(post(&sidecar.url("orders"), "1", "t", "{}").status, 202);
    handler.wait_for(1);
    sidecar.stop();
}
