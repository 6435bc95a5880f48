//! A rolling rename: two sidecars share a store, and each message is delivered once, under one key.

use std::collections::HashSet;
use std::sync::Arc;

use oncebox_servers::{Cluster, PostgresVersion};

use super::support::{AT_ONCE, Receiver, Request, Sidecar, one_handler, post};

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

/// FAULTS I1, I3
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

/// FAULTS I1, I3: both processes of a rolling deploy take the same messages at the same time, over one PostgreSQL.
#[test]
fn old_and_new_sidecars_on_postgres_deliver_each_message_once_under_concurrent_posts() {
    const POSTERS: usize = 8;
    const EACH: usize = 25;
    let cluster = Cluster::start(PostgresVersion::Debian).expect("a server");
    cluster.create_database("orders").expect("a database");
    let url = cluster.url("orders");
    let handler = Receiver::good();
    let store = "[store.main]\nurl = \"env:DATABASE_URL\"\n[inbox.orders]\n";
    let shared = |config: String| config.replacen("[inbox.orders]\n", store, 1);
    let env = [("DATABASE_URL", url.as_str())];
    let old = Sidecar::with_env(&shared(one_handler(&handler.url(), AT_ONCE)), &env);
    let new = Sidecar::with_env(&shared(renamed(&handler.url())), &env);
    let urls = [old.url("orders"), new.url("orders")];
    std::thread::scope(|scope| {
        for poster in 0..POSTERS {
            let urls = &urls;
            scope.spawn(move || {
                for number in 0..EACH {
                    let id = format!("{poster}-{number}");
                    // Both at once: one stores it, the other one knows it.
                    let answers = std::thread::scope(|both| {
                        let sent = [0, 1].map(|which| {
                            let (url, id) = (&urls[(which + number) % 2], &id);
                            both.spawn(move || post(url, id, "t", "{}").status)
                        });
                        sent.map(|sent| sent.join().expect("an answer"))
                    });
                    assert!(matches!(answers, [202, 200] | [200, 202]), "{id}: {answers:?}");
                }
            });
        }
    });
    let ids = |requests: &[Request]| requests.iter().map(|one| one.id().to_owned()).collect::<HashSet<_>>();
    handler.wait_until("every message", |requests| ids(requests).len() == POSTERS * EACH);
    // Each id again, now that its delivery is done or running, and a last one that follows all others in both processes.
    for number in 0..EACH {
        for url in &urls {
            assert_eq!(post(url, &format!("0-{number}"), "t", "{}").status, 200);
        }
    }
    assert_eq!(post(&urls[0], "last", "t", "{}").status, 202);
    handler.wait_until("the last one", |requests| requests.iter().any(|request| request.id() == "last"));
    new.stop();
    old.stop();
    let requests = handler.requests();
    assert_eq!(requests.len(), POSTERS * EACH + 1, "each once");
    let keys: HashSet<&str> = requests.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys.len(), POSTERS * EACH + 1, "each under one key");
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
    let key = |requests: &[Request]| requests[0].header("idempotency-key").to_owned();
    assert_eq!(key(&bad.requests()), key(&delivered));
}
