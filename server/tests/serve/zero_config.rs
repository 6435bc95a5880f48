//! The first ten minutes: no configuration.

use super::support::{Receiver, Reply, Sidecar, get, oncebox, post, request};

#[test]
fn starts_at_once_and_recognises_duplicates() {
    let sidecar = Sidecar::quick(&[]);
    let url = sidecar.url("messages");
    assert!(sidecar.dir.path().join("oncebox.db").exists());
    sidecar.wait_words(&["curl -i", &url, "message-id: evt_1"]);
    sidecar.wait_words(&["no handler yet"]);

    let first = post(&url, "evt_1", "order.placed", r#"{"card":"canary"}"#);
    assert_eq!(first.status, 202, "{first:?}");
    sidecar.wait_words(&["accepted", "order.placed evt_1", "no handler"]);
    let again = post(&url, "evt_1", "order.placed", r#"{"card":"canary"}"#);
    assert_eq!(again.status, 200, "{again:?}");
    sidecar.wait_words(&["duplicate", "order.placed evt_1", "first seen"]);
    // A10: the same id with another body is quarantined.
    let other = post(&url, "evt_1", "order.placed", r#"{"card":"another canary"}"#);
    assert_eq!(other.status, 422, "{other:?}");
    sidecar.wait_words(&["conflict", "order.placed evt_1", "quarantined"]);
    // A11.
    let nameless = request("POST", &url, &[("message-type", "t")], b"{}").unwrap();
    assert_eq!(nameless.status, 400, "{nameless:?}");

    assert_eq!(get(&format!("{}/livez", sidecar.base)).status, 200);
    assert_eq!(get(&format!("{}/readyz", sidecar.base)).status, 200);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary")), "payloads are not logged: {lines:#?}");
}

#[test]
fn delivers_everything_to_one_handler_once() {
    let handler = Receiver::good();
    let sidecar = Sidecar::quick(&["--to", &handler.url()]);
    for _delivery in 0..3 {
        post(&sidecar.url("messages"), "evt_1", "order.placed", r#"{"order":7}"#);
    }
    sidecar.wait_words(&["delivered", "order.placed evt_1", "attempt 1"]);
    sidecar.wait_count("duplicate", 2);
    let request = &handler.wait_for(1)[0];
    assert_eq!(request.path, "/hook");
    assert_eq!(request.body, br#"{"order":7}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("ce-id", "evt_1"),
        ("ce-type", "order.placed"),
        ("ce-specversion", "1.0"),
        ("oncebox-inbox", "messages"),
        ("oncebox-handler", "handler"),
        ("oncebox-attempt", "1"),
    ] {
        assert_eq!(request.header(name), value, "{name}");
    }
    for name in ["idempotency-key", "webhook-id", "oncebox-fence", "oncebox-key", "ce-source"] {
        assert!(!request.header(name).is_empty(), "{name}");
    }
    sidecar.stop();
    assert_eq!(handler.requests().len(), 1, "one effect for three deliveries");
}

#[test]
fn a_trace_is_forwarded() {
    let handler = Receiver::good();
    let sidecar = Sidecar::quick(&["--to", &handler.url()]);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-type", "t"),
        ("ce-source", "/shop"),
        ("traceparent", trace),
        ("authorization", "Bearer canary-secret"),
        ("cookie", "canary-secret"),
    ];
    let answer = request("POST", &sidecar.url("events"), &headers, b"x").unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
    let request = &handler.wait_for(1)[0];
    assert_eq!(request.header("traceparent"), trace);
    assert!(request.headers.values().all(|value| !value.contains("canary-secret")), "{request:?}");
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary-secret")), "{lines:#?}");
}

#[test]
fn a_retry_has_the_same_idempotency_key() {
    let handler = Receiver::new(|request| match request.header("oncebox-attempt") {
        "1" => Reply::Status(500, "", "the shop is closed".into()),
        _ => Reply::status(204),
    });
    let sidecar = Sidecar::quick(&["--to", &handler.url()]);
    post(&sidecar.url("messages"), "evt_1", "order.placed", "{}");
    sidecar.wait_words(&["failed", "order.placed evt_1", "attempt 1, again in", "500", "the shop is closed"]);
    sidecar.wait_words(&["delivered", "attempt 2"]);
    let requests = handler.wait_for(2);
    assert_eq!(requests[0].header("idempotency-key"), requests[1].header("idempotency-key"));
    let fence = |number: usize| requests[number].header("oncebox-fence").parse::<i64>().unwrap();
    assert!(fence(0) < fence(1), "the fence grows");
}

#[test]
fn the_log_can_be_json() {
    let handler = Receiver::good();
    let sidecar = Sidecar::quick(&["--to", &handler.url(), "--log-format", "json"]);
    post(&sidecar.url("messages"), "evt_1", "order.placed", "{}");
    let line = sidecar.wait_words(&["\"event\":\"delivered\""]);
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&json["inbox"], &json["message_type"], &json["id"]),
        (&"messages".into(), &"order.placed".into(), &"evt_1".into())
    );
    for line in sidecar.stop().iter().filter(|line| *line != "<end>") {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

// FAULTS C1: after kill -9 and a restart on the same file, running deliveries are repeated at once, not after the lease.
#[test]
fn a_restarted_sidecar_repeats_running_deliveries_at_once() {
    const COUNT: usize = 12;
    let stuck = Receiver::new(|_| Reply::Silence);
    let mut sidecar = Sidecar::quick(&["--to", &stuck.url(), "--lease", "1h"]);
    let dir = std::sync::Arc::clone(&sidecar.dir);
    for number in 0..COUNT {
        assert_eq!(post(&sidecar.url("messages"), &number.to_string(), "t", "{}").status, 202);
    }
    stuck.wait_for(COUNT);
    sidecar.signal("KILL");
    sidecar.wait();
    let handler = Receiver::good();
    let killed = std::time::Instant::now();
    let sidecar = Sidecar::start(dir, &["--to", &handler.url(), "--lease", "1h"], &[]);
    let again = handler.wait_for(COUNT);
    // Usually two seconds. The limit allows for a loaded machine, and is far below the lease.
    assert!(killed.elapsed() < std::time::Duration::from_mins(2), "{:?}", killed.elapsed());
    let ids: std::collections::HashSet<&str> = again.iter().map(|request| request.header("ce-id")).collect();
    assert_eq!(ids.len(), COUNT);
    sidecar.stop();
}

#[test]
fn an_invalid_lease_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = oncebox(dir.path(), &["serve", "--lease", "soon"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("soon"), "{refused:?}");
}

#[test]
fn messages_from_before_a_restart_are_delivered() {
    let sidecar = Sidecar::quick(&["--to", "http://127.0.0.1:9/"]);
    post(&sidecar.url("messages"), "evt_1", "order.placed", "{}");
    sidecar.wait_words(&["failed", "cannot connect"]);
    let dir = std::sync::Arc::clone(&sidecar.dir);
    sidecar.stop();
    let handler = Receiver::good();
    let sidecar = Sidecar::start(dir, &["--to", &handler.url()], &[]);
    assert_eq!(handler.wait_for(1)[0].id(), "evt_1");
    sidecar.wait_words(&["delivered", "attempt 2"]);
}

#[test]
fn a_new_handler_gets_earlier_messages() {
    let sidecar = Sidecar::quick(&[]);
    for id in ["evt_1", "evt_2"] {
        post(&sidecar.url("messages"), id, "order.placed", "{}");
    }
    let dir = std::sync::Arc::clone(&sidecar.dir);
    sidecar.stop();
    let handler = Receiver::good();
    let token = format!("{}/canary-token", handler.url());
    for start in 0..2 {
        let sidecar = Sidecar::start(std::sync::Arc::clone(&dir), &["--to", &token], &[]);
        if start == 0 {
            sidecar.wait_words(&["backfill done", "count=2"]);
            sidecar.wait_count("delivered", 2);
        }
        let lines = sidecar.stop();
        assert!(lines.iter().all(|line| !line.contains("canary")), "{lines:#?}");
    }
    assert_eq!(handler.requests().len(), 2, "each once");
}

#[test]
fn an_address_in_use_is_reported() {
    let sidecar = Sidecar::quick(&[]);
    let address = sidecar.base.strip_prefix("http://").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = oncebox(dir.path(), &["serve", "--listen", address]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("{address} is in use")) && said.contains("--listen 127.0.0.1:0"),
        "{said}"
    );
}

#[test]
fn the_command_line_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    for (args, why) in [
        (&["serve", "--to", "ftp://x"][..], "the command line is not valid: not the URL of a handler"),
        (&["serve", "--to", "http://u:p@127.0.0.1/"], "the URL contains a password"),
        (&["serve", "--to", "http://169.254.169.254/"], "a cloud's metadata service"),
        (&["serve", "--store", "mysql:x"], "not the URL of a store"),
        (
            &["serve", "--store", "postgres://u:canary@localhost/x"],
            "every user of this machine can read command lines",
        ),
        (
            &["serve", "--store", "postgres://u:canary@a:1,b:2/x?target_session_attrs=primary"],
            "every user of this machine can read command lines",
        ),
        (
            &["serve", "--store", "postgres://u@localhost/x?password=canary"],
            "every user of this machine can read command lines",
        ),
        (
            &["status", "--store", "postgres://u:canary@a:1,b:2/x"],
            "every user of this machine can read command lines",
        ),
        (&["serve", "--store", "env:ONCEBOX_NOT_SET"], "ONCEBOX_NOT_SET is not set"),
        (&["serve", "--config", "missing.toml"], "cannot read missing.toml"),
        (&["serve", "--config", "x", "--to", "http://127.0.0.1/"], "cannot be used with"),
        (&["serve", "--log", "[["], "the log filter"),
        (&["config", "check"], "start with `oncebox config example`"),
        (&["migrate", "plan"], "name a file with --config"),
    ] {
        let output = oncebox(dir.path(), args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
        assert!(!said.contains("canary"), "{said}");
    }
    std::fs::write(dir.path().join("oncebox.toml"), "[inbox.a]").unwrap();
    let output = oncebox(dir.path(), &["serve", "--to", "http://127.0.0.1/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("oncebox.toml exists"), "{output:?}");
}
