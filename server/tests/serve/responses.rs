//! FAULTS C15: the outcome of each response of a handler.

use oncebox_servers::Port;

use super::support::{AT_ONCE, Receiver, Reply, Sidecar, one_handler, post};

/// Starts a sidecar whose handler sends this response, and posts a message.
fn answered(reply: Reply, more: &str) -> (Sidecar, Receiver) {
    let handler = Receiver::new(move |_| reply.clone());
    let sidecar = Sidecar::with(&one_handler(&handler.url(), more));
    post(&sidecar.url("orders"), "evt_1", "t", "{}");
    (sidecar, handler)
}

#[test]
fn every_2xx_is_done() {
    let handler = Receiver::new(|request| Reply::status(request.id().parse().unwrap()));
    let sidecar = Sidecar::with(&one_handler(&handler.url(), AT_ONCE));
    for status in ["200", "201", "202", "204", "299"] {
        post(&sidecar.url("orders"), status, "t", "{}");
        sidecar.wait_words(&["delivered", &format!("t {status}"), "attempt 1"]);
    }
}

#[test]
fn errors_and_redirects_are_retried_until_the_attempts_are_used_up() {
    let handler = Receiver::new(|request| match request.id() {
        "302" => Reply::Status(302, "location: http://127.0.0.1:1/elsewhere\r\n", String::new()),
        status => Reply::Status(status.parse().unwrap(), "", "sorry".into()),
    });
    let retry = "retry = { attempts = 2, first = \"20ms\", max = \"20ms\" }";
    let sidecar = Sidecar::with(&one_handler(&handler.url(), retry));
    for status in ["500", "502", "504", "429", "503", "400", "401", "404", "422", "302"] {
        post(&sidecar.url("orders"), status, "t", "{}");
        sidecar.wait_words(&[
            "failed",
            &format!("t {status}"),
            "attempt 1",
            &format!("responded with {status}"),
        ]);
        sidecar.wait_words(&["poisoned", &format!("t {status}"), "after 2 attempts"]);
    }
    sidecar.wait_words(&[
        "failed",
        "t 302",
        "to http://127.0.0.1:1/elsewhere, and redirects are not followed",
    ]);
    assert_eq!(handler.requests().len(), 20, "nothing was followed");
}

#[test]
fn a_410_parks_the_message_at_once() {
    let (sidecar, handler) = answered(Reply::Status(410, "", "we no longer do this".into()), AT_ONCE);
    sidecar.wait_words(&["poisoned", "t evt_1", "by ship", "410", "we no longer do this"]);
    assert_eq!(handler.requests().len(), 1);
}

#[test]
fn other_4xx_poison_where_that_is_set() {
    let (sidecar, handler) =
        answered(Reply::Status(422, "", "no".into()), &format!("{AT_ONCE}on_4xx = \"poison\""));
    sidecar.wait_words(&["poisoned", "t evt_1", "by ship", "422"]);
    assert_eq!(handler.requests().len(), 1);
}

#[test]
fn a_retry_after_is_honoured_and_burns_no_attempt() {
    for status in [429, 503] {
        let handler =
            Receiver::new(move |request| match request.header("oncebox-fence").parse::<i64>().unwrap() {
                1 | 2 => Reply::Status(status, "retry-after: 1\r\n", String::new()),
                _ => Reply::status(200),
            });
        // One attempt: whatever is counted poisons.
        let sidecar = Sidecar::with(&one_handler(&handler.url(), "retry = \"never\""));
        post(&sidecar.url("orders"), "evt_1", "t", "{}");
        sidecar.wait_words(&["postponed", "t evt_1", "by ship for 1s, not counted"]);
        sidecar.wait_words(&["delivered", "t evt_1", "attempt 1"]);
        let attempts: Vec<String> =
            handler.requests().iter().map(|request| request.header("oncebox-attempt").to_owned()).collect();
        assert_eq!(attempts, ["1", "1", "1"]);
    }
}

#[test]
fn a_retry_after_as_a_date_and_a_very_long_one_are_bounded() {
    let (sidecar, _handler) = answered(Reply::Status(429, "retry-after: 99999999\r\n", String::new()), "");
    sidecar.wait_words(&["postponed", "t evt_1", "by ship for 1day"]);
    let date = "retry-after: Tue, 31 Dec 2999 23:59:59 GMT\r\n";
    let (sidecar, _handler) = answered(Reply::Status(503, date, String::new()), "");
    sidecar.wait_words(&["postponed", "t evt_1", "by ship for 1day"]);
}

#[test]
fn silence_is_a_failure_when_the_timeout_is_over() {
    let (sidecar, _handler) = answered(Reply::Silence, &format!("{AT_ONCE}timeout = \"100ms\""));
    sidecar.wait_words(&["failed", "t evt_1", "did not respond within 100ms"]);
    sidecar.wait_words(&["poisoned", "t evt_1", "after 5 attempts"]);
}

#[test]
fn garbage_and_broken_connections_are_failures() {
    for reply in [
        Reply::Raw(b"\x16\x03\x01 this is no HTTP\r\n\r\n".to_vec()),
        Reply::Raw(b"HTTP/1.1 ".to_vec()),
        Reply::Raw(Vec::new()),
    ] {
        let (sidecar, _handler) = answered(reply, AT_ONCE);
        sidecar.wait_words(&["failed", "t evt_1", "no response from the handler"]);
        sidecar.wait_words(&["poisoned", "t evt_1", "after 5 attempts"]);
    }
}

#[test]
fn a_2xx_whose_body_never_ends_is_done_and_an_error_body_is_cut() {
    let broken = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec();
    let (sidecar, handler) = answered(Reply::Raw(broken), AT_ONCE);
    sidecar.wait_words(&["delivered", "t evt_1", "attempt 1"]);
    assert_eq!(handler.requests().len(), 1);

    let flood = format!("\u{1b}[31mhead {}", "x".repeat(1_000_000));
    let (sidecar, _handler) = answered(Reply::Status(500, "", flood), AT_ONCE);
    let line = sidecar.wait_words(&["failed", "t evt_1", "head"]);
    assert!(line.len() < 600 && !line.contains('\u{1b}'), "{}", line.len());
}

#[test]
fn a_handler_that_was_down_gets_its_messages_when_it_is_up() {
    let reserved = Port::free().unwrap();
    let port = reserved.number();
    let retry = "retry = { attempts = 1000, first = \"50ms\", max = \"50ms\" }";
    let sidecar = Sidecar::with(&one_handler(&format!("http://127.0.0.1:{port}/hook"), retry));
    for id in ["a", "b", "c"] {
        post(&sidecar.url("orders"), id, "t", "{}");
        sidecar.wait_words(&["failed", &format!("t {id}"), "cannot connect to the handler"]);
    }
    let handler = Receiver::at(port, |_| Reply::status(200));
    for id in ["a", "b", "c"] {
        sidecar.wait_words(&["delivered", &format!("t {id}")]);
    }
    assert_eq!(handler.requests().len(), 3);
}

/// C10, J6: an outage neither poisons nor floods the log.
#[test]
fn a_breaker_leaves_a_broken_handler_alone() {
    let handler = Receiver::new(|_| Reply::status(500));
    let more = "retry = { attempts = 3, first = \"2ms\", max = \"2ms\" }\nbreaker = { failures = 2, pause = \"1h\" }\n\
                concurrency = 1";
    let sidecar = Sidecar::with(&one_handler(&handler.url(), more));
    for id in 0..20 {
        post(&sidecar.url("orders"), &id.to_string(), "t", "{}");
    }
    sidecar.wait_words(&["breaker open"]);
    assert_eq!(handler.requests().len(), 2);
    let lines = sidecar.stop();
    assert!(!lines.iter().any(|line| line.contains("poisoned")), "{lines:#?}");
}
