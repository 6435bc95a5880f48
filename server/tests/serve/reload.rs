//! SIGHUP: applies a new configuration completely, or not at all.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::support::{AT_ONCE, Receiver, Reply, Request, Sidecar, one_handler, post};

#[test]
fn handlers_and_sources_change_without_a_restart() {
    let (old, new) = (Receiver::good(), Receiver::good());
    let sidecar = Sidecar::with(&one_handler(&old.url(), AT_ONCE));
    post(&sidecar.url("orders"), "1", "t", "{}");
    old.wait_for(1);
    let changed = one_handler(&new.url(), AT_ONCE) + "[inbox.orders.http.shop]\ntype = \"shop\"\n";
    sidecar.write_config(&changed);
    sidecar.signal("HUP");
    sidecar.wait_words(&["configuration reloaded"]);
    assert_eq!(post(&sidecar.url("orders"), "2", "t", "{}").status, 401, "the old endpoint is gone");
    assert_eq!(post(&sidecar.url("shop"), "2", "t", "{}").status, 202);
    let requests = new.wait_for(1);
    assert_eq!((requests[0].id(), requests[0].header("ce-type")), ("2", "shop"));
    assert_eq!(old.requests().len(), 1);
    sidecar.stop();
}

#[test]
fn the_old_configuration_finishes_running_deliveries() {
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let slow = Receiver::new(move |_| {
        opened.lock().unwrap().recv().unwrap();
        Reply::status(200)
    });
    let new = Receiver::good();
    let sidecar = Sidecar::with(&one_handler(&slow.url(), AT_ONCE));
    post(&sidecar.url("orders"), "slow", "t", "{}");
    slow.wait_for(1);
    sidecar.write_config(&one_handler(&new.url(), AT_ONCE));
    sidecar.signal("HUP");
    sidecar.wait_words(&["configuration reloaded"]);
    post(&sidecar.url("orders"), "fast", "t", "{}");
    assert_eq!(new.wait_for(1)[0].id(), "fast");
    gate.send(()).unwrap();
    sidecar.wait_words(&["delivered", "t slow to ship (attempt 1)"]);
    sidecar.stop();
    assert_eq!((slow.requests().len(), new.requests().len()), (1, 1), "each once");
}

/// I1, I4: two configurations that run at the same time lose and repeat nothing.
#[test]
fn reloading_under_load_loses_nothing() {
    let handler = Receiver::good();
    let sidecar = Sidecar::with(&one_handler(&handler.url(), AT_ONCE));
    let (url, stop) = (sidecar.url("orders"), Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let (url, stop) = (url.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut acknowledged = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let id = format!("{sender}-{}", acknowledged.len());
                    // No message is refused meanwhile.
                    assert_eq!(post(&url, &id, "t", "{}").status, 202, "{id}");
                    acknowledged.push(id);
                }
                acknowledged
            })
        })
        .collect();
    for reload in 1..=5 {
        handler.wait_for(reload * 20);
        sidecar.signal("HUP");
        let again = |line: &&String| line.contains("configuration reloaded");
        sidecar.wait_lines("the reload", |lines| lines.iter().filter(again).count() >= reload);
    }
    stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<String> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    handler.wait_until("every acknowledged message", |requests| {
        let delivered: HashSet<&str> = requests.iter().map(Request::id).collect();
        acknowledged.iter().all(|id| delivered.contains(&**id))
    });
    sidecar.stop();
    assert_eq!(handler.requests().len(), acknowledged.len(), "nothing was delivered twice");
}

/// I8: a reload replaces a secret without a gap.
#[test]
fn secrets_are_reloaded() {
    let handler = Receiver::good();
    let [first, second] =
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, format!("{first}\n")).unwrap();
    let secret = format!("{AT_ONCE}secret = \"file:{}\"", file.display());
    let sidecar = Sidecar::with(&one_handler(&handler.url(), &secret));
    post(&sidecar.url("orders"), "1", "t", "{}");
    let signed = handler.wait_for(1)[0].clone();
    assert!(signed.header("webhook-signature").starts_with("v1,"), "{signed:?}");
    std::fs::write(&file, second).unwrap();
    sidecar.signal("HUP");
    sidecar.wait_words(&["configuration reloaded"]);
    post(&sidecar.url("orders"), "2", "t", "{}");
    assert_ne!(handler.wait_for(2)[1].header("webhook-signature"), signed.header("webhook-signature"));
    std::fs::write(&file, "canary-not-a-secret").unwrap();
    sidecar.signal("HUP");
    sidecar.wait_words(&["old configuration kept", "starts with `whsec_`"]);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary") && !line.contains("AAAAAA")), "{lines:#?}");
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_kept() {
    let handler = Receiver::good();
    let good = one_handler(&handler.url(), AT_ONCE);
    let sidecar = Sidecar::with(&good);
    for (bad, why) in [
        (good.replace("poll", "pol"), "did you mean `poll`?"),
        (good.clone() + "retry = 5\n", "duplicate key"),
        (
            good.replace("[inbox.orders]", "[store.main]\nurl = \"sqlite:other.db\"\n[inbox.orders]"),
            "[store] changed",
        ),
        (String::new(), "no inbox is configured"),
    ] {
        sidecar.write_config(&bad);
        sidecar.signal("HUP");
        sidecar.wait_words(&["old configuration kept", why]);
    }
    post(&sidecar.url("orders"), "1", "t", "{}");
    sidecar.wait_words(&["delivered", "t 1"]);
    sidecar.stop();
}
