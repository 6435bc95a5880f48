//! FAULTS A18: a process with few file descriptors, or none left.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::support::{PATIENCE, Receiver, Reply, Request, Sidecar, get, one_handler};

/// A sender with a persistent connection.
struct KeptConnection(TcpStream);

impl KeptConnection {
    fn new(sidecar: &Sidecar) -> Self {
        let stream = TcpStream::connect(sidecar.base.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn post(&mut self, id: &str) -> u16 {
        let head = "POST /in/orders HTTP/1.1\r\nhost: localhost\r\nmessage-type: t\r\ncontent-length: 2\r\n";
        self.0.write_all(format!("{head}message-id: {id}\r\n\r\n{{}}").as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            let mut bytes = [0; 1_024];
            let read = self.0.read(&mut bytes);
            let len = read.unwrap_or_else(|error| panic!("no answer for {id}: {error}; {answer:?}"));
            assert!(len > 0, "it hung up on {id}: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&bytes[..len]);
        }
        String::from_utf8_lossy(&answer[9..12]).parse().unwrap()
    }
}

/// Returns true if a response is complete.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let mut lengths = head.lines().filter_map(|line| line.split_once(": "));
    let length = lengths.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.and_then(|(_, length)| length.parse().ok()).is_none_or(|length: usize| body.len() >= length)
}

/// Opens connections that send nothing.
fn idle(address: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).expect("a place to wait")).collect()
}

/// Waits until every message was delivered, and stops. Each was delivered once, and no attempt failed. The lines about single
/// messages cannot be counted: the log leaves many of them out.
fn all_delivered_once(sidecar: Sidecar, handler: &Receiver, count: usize) {
    handler.wait_for(count);
    let lines = sidecar.stop();
    let bad = lines.iter().find(|line| [" poisoned ", " failed "].iter().any(|word| line.contains(word)));
    assert_eq!(bad, None);
    let requests = handler.requests();
    let ids: HashSet<&str> = requests.iter().map(Request::id).collect();
    assert_eq!((requests.len(), ids.len()), (count, count), "each once");
}

#[test]
fn idle_connections_do_not_affect_deliveries_and_operators() {
    let handler = Receiver::good();
    // One failed attempt would poison a message.
    let config = one_handler(&handler.url(), "retry = \"never\"\n[api]\nlisten = \"127.0.0.1:0\"\n");
    let sidecar = Sidecar::limited(256, &config, &[]);
    let operators = sidecar.operators();
    let mut sender = KeptConnection::new(&sidecar);
    assert_eq!(sender.post("first"), 202);
    let untrusted = idle(sidecar.base.strip_prefix("http://").unwrap(), 600);
    for number in 0..200 {
        assert_eq!(sender.post(&format!("evt_{number}")), 202);
        if number % 50 == 0 {
            assert_eq!(get(&format!("{operators}/readyz")).status, 200);
        }
    }
    handler.wait_for(201);
    assert_eq!(get(&format!("{operators}/api/v1/inboxes/orders/counts")).status, 200);
    all_delivered_once(sidecar, &handler, 201);
    drop(untrusted);
}

/// Opens connections of untrusted clients: silent ones, probes, and requests that never end.
fn untrusted(address: &str, count: usize) -> Vec<TcpStream> {
    let says = |number: usize| match number % 3 {
        0 => "",
        1 => "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        _ => "POST /in/orders HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
    };
    let mut untrusted = idle(address, count);
    for (number, client) in untrusted.iter_mut().enumerate() {
        // It may have been closed for another one.
        let _ = client.write_all(says(number).as_bytes());
    }
    untrusted
}

/// FAULTS S5: idle connections do not keep later clients out, on either port.
#[test]
fn a_sender_and_a_probe_are_served_after_idle_clients() {
    let handler = Receiver::good();
    let config = one_handler(&handler.url(), "retry = \"never\"\n[api]\nlisten = \"127.0.0.1:0\"\n");
    let sidecar = Sidecar::limited(256, &config, &[]);
    let operators = sidecar.operators();
    let address = |base: &str| base.strip_prefix("http://").unwrap().to_owned();
    let untrusted = [untrusted(&address(&sidecar.base), 600), untrusted(&address(&operators), 60)];
    for number in 0..30 {
        // Far less than the time after which an idle connection ends.
        let start = Instant::now();
        assert_eq!(KeptConnection::new(&sidecar).post(&format!("evt_{number}")), 202);
        assert_eq!(get(&format!("{operators}/readyz")).status, 200);
        assert_eq!(get(&format!("{}/readyz", sidecar.base)).status, 200);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
    all_delivered_once(sidecar, &handler, 30);
    drop(untrusted);
}

#[test]
fn a_delivery_without_a_descriptor_counts_no_attempt() {
    let open = Arc::new((Mutex::new(false), Condvar::new()));
    let gate = Arc::clone(&open);
    // Each delivery keeps its connection until none is left.
    let handler = Receiver::new(move |_| {
        let guard = gate.0.lock().unwrap();
        let _opened = gate.1.wait_timeout_while(guard, PATIENCE, |open| !*open).unwrap();
        Reply::status(200)
    });
    let config = one_handler(&handler.url(), "retry = \"never\"\nconcurrency = 200\ntimeout = \"10m\"");
    let sidecar = Sidecar::limited(72, &config, &[]);
    let mut sender = KeptConnection::new(&sidecar);
    for number in 0..120 {
        assert_eq!(sender.post(&format!("evt_{number}")), 202);
    }
    sidecar.wait_words(&["no file descriptor for a delivery", "raise the limit"]);
    *open.0.lock().unwrap() = true;
    open.1.notify_all();
    all_delivered_once(sidecar, &handler, 120);
}
