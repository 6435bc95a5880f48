//! A rolling rename: two sidecars share a store, and each message is delivered once, under one key.

use std::collections::HashSet;
use std::sync::Arc;

use super::support::{AT_ONCE, Receiver, Sidecar, one_handler, post};

/// Returns the configuration after the rename.
fn renamed(url: &str) -> String {
    one_handler(url, AT_ONCE).replace("handler.ship]", "handler.ship-order]\nlegacy = \"ship\"")
}

/// Starts another sidecar on the store of the first.
fn beside(first: &Sidecar, config: &str) -> Sidecar {
    let path = first.dir.path().join("other.toml");
    std::fs::write(&path, config).expect("a file");
    Sidecar::start(Arc::clone(&first.dir), &["--config", path.to_str().expect("a path")], &[])
}

/// I1, I3
#[test]
fn old_and_new_sidecars_deliver_each_message_once_under_one_key() {
    const MESSAGES: usize = 20;
    let handler = Receiver::good();
    let old = Sidecar::with(&one_handler(&handler.url(), AT_ONCE));
    let new = beside(&old, &renamed(&handler.url()));
    let (old_url, new_url) = (old.url("orders"), new.url("orders"));
    for n in 0..MESSAGES {
        let (first, second) = if n % 2 == 0 { (&new_url, &old_url) } else { (&old_url, &new_url) };
        let id = n.to_string();
        assert_eq!(post(first, &id, "t", "{}").status, 202, "{id}");
        handler.wait_for(n + 1);
        // Its delivery is done or running, and known under both keys.
        assert_eq!(post(second, &id, "t", "{}").status, 200, "{id}");
    }
    // A later message, which follows all others in both processes.
    post(&old_url, "last", "t", "{}");
    handler.wait_until("the last one", |requests| requests.iter().any(|request| request.id() == "last"));
    new.stop();
    old.stop();
    let requests = handler.requests();
    assert_eq!(requests.len(), MESSAGES + 1, "each once");
    let keys: HashSet<&str> = requests.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys.len(), MESSAGES + 1);
}

/// A message has the same key in both sidecars, also after a failed delivery.
#[test]
fn a_retry_by_the_other_sidecar_has_the_same_key() {
    let bad = Receiver::new(|_| super::support::Reply::status(503));
    let later = "retry = { attempts = 50, first = \"20ms\", max = \"20ms\" }\n";
    let new = renamed(&bad.url()).replace(AT_ONCE, later);
    let first = Sidecar::with(&new);
    assert_eq!(post(&first.url("orders"), "1", "t", "{}").status, 202);
    bad.wait_for(2);
    let dir = Arc::clone(&first.dir);
    first.stop();
    // The deploy is rolled back.
    let good = Receiver::good();
    std::fs::write(dir.path().join("oncebox.toml"), one_handler(&good.url(), AT_ONCE)).expect("a file");
    let second = Sidecar::start(dir, &[], &[]);
    let delivered = good.wait_for(1);
    second.stop();
    let key = |requests: &[super::support::Request]| requests[0].header("idempotency-key").to_owned();
    assert_eq!(key(&bad.requests()), key(&delivered));
}
