//! Checks of both ports for requests without credentials, and their failures.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use super::support::{HttpReply, PATIENCE, Receiver, Sidecar, get, one_handler, raw, request};

/// The address in a URL.
fn address(base: &str) -> &str {
    base.strip_prefix("http://").unwrap()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

// FAULTS S1, S7, S9: without tokens one rule says who is on this machine, for messages and for operators.
#[test]
fn both_ports_let_in_this_machine_alone() {
    let sidecar = Sidecar::quick(&[]);
    let operators = sidecar.operators();
    let (messages, operators) = (address(&sidecar.base), address(&operators));
    let mut number = 0;
    let mut both = |line: &str, headers: &str| {
        number += 1;
        let post = format!(
            "POST /in/messages {line}\r\n{headers}connection: close\r\nmessage-id: {number}\r\nmessage-type: t\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        let look = format!("GET /api/v1/inboxes {line}\r\n{headers}connection: close\r\n\r\n");
        let answers = [raw(messages, post.as_bytes()), raw(operators, look.as_bytes())];
        answers.map(|answer| status(&answer))
    };
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8471", "[::1]:8471"] {
        assert_eq!(both("HTTP/1.1", &format!("host: {host}\r\n")), [202, 200], "{host}");
    }
    let refused = [401, 403];
    for host in ["evil.example", "localhost.evil.example", "10.1.2.3", "oncebox"] {
        assert_eq!(both("HTTP/1.1", &format!("host: {host}\r\n")), refused, "{host}");
    }
    assert_eq!(both("HTTP/1.0", "host: localhost\r\n"), refused, "as nginx asks unless it is told otherwise");
    assert_eq!(both("HTTP/1.1", "host: localhost\r\nhost: localhost\r\n")[1], 403);
    for header in [
        "forwarded: for=10.0.0.1",
        "x-forwarded-for: 10.0.0.1",
        "X-Forwarded-Proto: https",
        "x-forwarded-host: inbox.example",
        "x-forwarded-port: 443",
        "x-forwarded-server: edge",
        "via: 1.1 edge",
        "x-real-ip: 10.0.0.1",
        "x-client-ip: 10.0.0.1",
        "cf-connecting-ip: 10.0.0.1",
        "true-client-ip: 10.0.0.1",
        "fastly-client-ip: 10.0.0.1",
        "x-original-host: inbox.example",
        "x-envoy-external-address: 10.0.0.1",
        "origin: http://evil.example",
        "origin: null",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        assert_eq!(both("HTTP/1.1", &format!("host: localhost\r\n{header}\r\n")), refused, "{header}");
    }
    // A dashboard is a page of the operators' port; nothing sends messages from one.
    for own in ["sec-fetch-site: same-origin", "origin: http://localhost"] {
        assert_eq!(both("HTTP/1.1", &format!("host: localhost\r\n{own}\r\n")), [401, 200], "{own}");
    }
}

// FAULTS S7: a page whose name was made to lead here learns nothing about the inbox.
#[test]
fn health_and_description_are_not_shown_to_foreign_names() {
    let sidecar = Sidecar::quick(&[]);
    let operators = sidecar.operators();
    let ask = |path: &str, host: &str| -> HttpReply {
        request("GET", &format!("{operators}{path}"), &[("host", host)], b"").unwrap()
    };
    for path in ["/livez", "/readyz"] {
        for host in ["localhost", "10.1.2.3:8472", "oncebox:8472"] {
            let answer = ask(path, host);
            assert_eq!(answer.status, 200, "{path} {host}");
            assert_eq!(answer.json()["inboxes"][0]["inbox"], "messages", "{path} {host}");
        }
        let answer = ask(path, "inbox.evil.example");
        assert_eq!((answer.status, &*answer.body), (200, "ok\n"), "{path}: a probe still gets its answer");
    }
    assert_eq!(ask("/api/v1/openapi.json", "localhost").status, 200);
    assert_eq!(ask("/api/v1/openapi.json", "inbox.evil.example").status, 403);
    assert_eq!(ask("/metrics", "inbox.evil.example").status, 403);
}

// FAULTS S2, J6: guesses are seen by operators, in the log and in the metrics.
#[test]
fn refused_logins_are_logged_and_counted() {
    let handler = Receiver::good();
    let (token, table) = super::api::token("ada", &["viewer"]);
    let sidecar = Sidecar::with(&format!(
        "{}\n[api]\nlisten = \"127.0.0.1:0\"\n{table}",
        one_handler(&handler.url(), "")
    ));
    let url = format!("{}/api/v1/inboxes", sidecar.operators());
    let ask = |url: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        request("GET", url, &[("authorization", &bearer)], b"").unwrap()
    };
    for guess in 0..7 {
        assert_eq!(ask(&url, &format!("obx_guess_{guess}")).status, 401);
    }
    assert_eq!(get(&url).status, 401);
    assert_eq!(ask(&url, &token).status, 200);
    let line = sidecar.wait_words(&["API request refused", "127.0.0.1", "/api/v1/inboxes"]);
    assert!(!line.contains("obx_"), "{line}");
    let lines = sidecar.lines().iter().filter(|line| line.contains("API request refused")).count();
    assert_eq!(lines, 1, "further ones are counted in the next line");
    let metrics = ask(&format!("{}/metrics", sidecar.operators()), &token).body;
    let counted =
        metrics.lines().find(|line| line.starts_with("oncebox_api_refused_total")).unwrap_or_default();
    assert!(counted.contains("reason=\"token\"") && counted.ends_with(" 8"), "{counted}");
}

/// A connection to the operators' port.
struct TokenClient(BufReader<TcpStream>);

impl TokenClient {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, path: &str, token: &str) {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
        self.0.get_mut().write_all(head.as_bytes()).unwrap();
    }

    /// Returns the status, true if the connection is closed after it, and the body.
    fn answer(&mut self) -> (u16, bool, String) {
        let lines = self.0.by_ref().lines().map(Result::unwrap);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        let closes = head.iter().any(|line| line == "connection: close");
        (status(&head[0]), closes, String::from_utf8(body).unwrap())
    }

    /// Returns the status, and true if the connection is closed after it.
    fn exchange(&mut self, token: &str) -> (u16, bool) {
        self.ask("/api/v1/inboxes", token);
        let (status, closes, _) = self.answer();
        (status, closes)
    }

    /// Returns the number of requests that the API refused for their token.
    fn guesses(&mut self, token: &str) -> u64 {
        self.ask("/metrics", token);
        let (_, _, metrics) = self.answer();
        let line =
            metrics.lines().find(|line| line.starts_with("oncebox_api_refused_total{reason=\"token\"}"));
        line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
    }
}

// FAULTS S2: neither parallel connections nor hanging up make guesses faster, and a right guess is no exception.
#[test]
fn parallel_guesses_of_tokens_are_throttled() {
    let handler = Receiver::good();
    let (token, table) = super::api::token("ada", &["viewer"]);
    let more = format!("[api]\nlisten = \"127.0.0.1:0\"\n{table}");
    let sidecar = Sidecar::with(&one_handler(&handler.url(), &more));
    let operators = sidecar.operators();
    let connect = || TokenClient::new(address(&operators));
    let mut known = connect();
    assert_eq!(known.exchange(&token), (200, false));
    let (start, mut guesser) = (Instant::now(), connect());
    for _ in 0..100 {
        assert_eq!(guesser.exchange("guess"), (401, false));
    }
    // Answers wait on 16 of 64 connections. Further connections are closed.
    let mut waiting: Vec<_> = (0..16).map(|_| connect()).collect();
    for client in &mut waiting {
        client.ask("/api/v1/inboxes", "guess");
    }
    let mut further: Vec<_> = (0..60).map(|_| connect()).collect();
    for client in &mut further {
        client.ask("/api/v1/inboxes", "guess");
    }
    let statuses = further.iter_mut().map(TokenClient::answer);
    let further: Vec<_> = statuses.map(|(status, closes, _)| (status, closes)).collect();
    assert!(further.contains(&(429, true)), "{further:?}");
    assert!(further.iter().all(|answer| [(429, true), (401, false)].contains(answer)), "{further:?}");
    // A client that does not wait for its answer gains nothing.
    for _ in 0..600 {
        connect().ask("/api/v1/inboxes", "guess");
    }
    let right: Vec<_> = (0..60)
        .map(|_| {
            connect().ask("/api/v1/inboxes", "guess");
            connect().exchange(&token)
        })
        .collect();
    assert!(right.contains(&(429, true)), "{right:?}");
    assert_eq!(get(&format!("{operators}/livez")).status, 200, "a probe is no guess");
    let (guesses, elapsed) = (known.guesses(&token), start.elapsed());
    // A hundred at once, fifty that wait, the connections that may wait, and ten each second.
    let limit = 100 + 50 + 2 * 16 + 10 * (elapsed.as_secs() + 1);
    assert!(guesses <= limit, "{guesses} tokens compared in {elapsed:?}, not {limit}");
    let again = std::iter::repeat_with(|| connect().exchange(&token).0);
    assert_eq!(again.take(1_000_000).find(|status| *status != 429), Some(200), "it ends");
}
