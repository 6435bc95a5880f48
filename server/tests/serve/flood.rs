//! FAULTS A18, S5: untrusted clients flood a sidecar with few file descriptors. Verified senders, operators and deliveries continue,
//! and the memory is reused.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use axum::http::Request as HttpRequest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::support::{PATIENCE, Receiver, Request, Sidecar, get, one_handler, request};

const CONNECTIONS: usize = 40;
const STREAMS: usize = 127;
/// Bytes of a body that never ends.
const HELD: usize = 65_000;
/// Bytes of the largest body that is whole.
const COMPLETE: usize = 4 << 20;
/// Bytes of a body that is not small.
const LARGE: usize = 200 << 10;
const MESSAGES: usize = 200;
/// Known key of `whsec_`, and an unknown one.
const KEY: &[u8] = b"a key that both sides know well.";
const FORGED: &[u8] = b"a key that a forger has made up.";
const ROUNDS: usize = 3;
/// Maximum memory growth in a flood, in bytes: three times the limit for bodies of untrusted clients.
const MAX_GROWTH: u64 = 192 << 20;

/// Returns the headers of a signed webhook.
fn signed(key: &[u8], id: &str, body: &[u8]) -> [(&'static str, String); 4] {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
    let content = [id.as_bytes(), b".", now.as_bytes(), b".", body].concat();
    let tag = STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &content));
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", now),
        ("webhook-signature", format!("v1,{tag}")),
        ("content-type", "application/json".to_owned()),
    ]
}

#[derive(Debug, Default)]
struct FloodCounts {
    stop: AtomicBool,
    sent: AtomicUsize,
    refused: AtomicUsize,
}

/// Sends a request with a whole body, or with all of it but its end, and repeats a refused request.
async fn stream(
    client: h2::client::SendRequest<Bytes>,
    counts: Arc<FloodCounts>,
    body: Bytes,
    whole: bool,
) -> Option<()> {
    while !counts.stop.load(Ordering::Relaxed) {
        let mut head = HttpRequest::post("http://localhost/in/hook");
        for (name, value) in signed(FORGED, "evt", b"") {
            head = head.header(name, value);
        }
        let mut ready = client.clone().ready().await.ok()?;
        let (answer, mut sending) = ready.send_request(head.body(()).unwrap(), false).ok()?;
        sending.send_data(body.clone(), whole).ok()?;
        counts.sent.fetch_add(1, Ordering::Relaxed);
        let answer = answer.await.ok()?;
        assert!(!answer.status().is_success(), "{answer:?}");
        counts.refused.fetch_add(1, Ordering::Relaxed);
    }
    None
}

/// Connects from the address of the senders, or from another one.
async fn connect(address: &str, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = Ipv4Addr::new(127, 0, 0, if number.is_multiple_of(2) { 1 } else { 2 });
    socket.bind((from, 0).into()).expect("an address of this machine");
    socket.connect(address.parse().expect("an address")).await.expect("the port takes connections")
}

/// Runs an untrusted client: a connection with the maximum requests, and a new one after it is closed.
async fn untrusted_client(address: String, number: usize, counts: Arc<FloodCounts>) {
    while !counts.stop.load(Ordering::Relaxed) {
        let socket = connect(&address, number).await;
        let Ok((client, connection)) = h2::client::handshake(socket).await else { continue };
        let (mut driver, mut streams) = (JoinSet::new(), JoinSet::new());
        driver.spawn(connection);
        for number in 0..STREAMS {
            // Some bodies are whole, so that their signatures are checked.
            let (len, whole) = match number {
                0 => (COMPLETE, true),
                1..=8 => (1_000, true),
                _ => (HELD, false),
            };
            let body = Bytes::from(vec![b'x'; len]);
            streams.spawn(stream(client.clone(), Arc::clone(&counts), body, whole));
        }
        while let Some(ended) = streams.join_next().await {
            ended.expect("no untrusted client is let in");
        }
    }
}

/// Untrusted clients at the peak of their flood. Disconnected when dropped.
struct Flood {
    counts: Arc<FloodCounts>,
    untrusted: JoinSet<()>,
    runtime: Runtime,
}

impl Flood {
    fn start(sidecar: &Sidecar) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (counts, mut untrusted) = (Arc::<FloodCounts>::default(), JoinSet::new());
        let address = sidecar.base.strip_prefix("http://").unwrap();
        for number in 0..CONNECTIONS {
            untrusted.spawn_on(
                untrusted_client(address.to_owned(), number, Arc::clone(&counts)),
                runtime.handle(),
            );
        }
        let is_high = |counts: &FloodCounts| {
            counts.sent.load(Ordering::Relaxed) >= CONNECTIONS * STREAMS
                && counts.refused.load(Ordering::Relaxed) >= CONNECTIONS
        };
        let height = async {
            let mut beat = tokio::time::interval(Duration::from_millis(50));
            while !is_high(&counts) {
                beat.tick().await;
            }
        };
        let reached = runtime.block_on(async { tokio::time::timeout(PATIENCE, height).await });
        assert!(reached.is_ok(), "the flood does not reach its height: {counts:?}");
        Self { counts, untrusted, runtime }
    }

    fn end(mut self) {
        assert!(self.untrusted.try_join_next().is_none(), "all untrusted clients are still there");
        self.counts.stop.store(true, Ordering::Relaxed);
        self.runtime.block_on(self.untrusted.shutdown());
    }
}

#[test]
fn a_flood_does_not_affect_verified_senders_or_leak_memory() {
    let handler = Receiver::good();
    // One failed attempt would poison a message.
    let more = "retry = \"never\"\n[api]\nlisten = \"127.0.0.1:0\"\n[inbox.orders.http.hook]\nformat = \"standard-webhooks\"\n\
                secret = \"env:HOOK\"\n";
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let sidecar = Sidecar::limited(256, &one_handler(&handler.url(), more), &[("HOOK", &secret)]);
    let operators = sidecar.operators();
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        let id = format!("evt_{sent}");
        let len = if sent % 10 == 1 { LARGE } else { 10 };
        let body = format!(r#"{{"type":"t","data":"{}"}}"#, "x".repeat(len)).into_bytes();
        let headers = signed(KEY, &id, &body);
        let headers = headers.each_ref().map(|(name, value)| (*name, &**value));
        let start = Instant::now();
        let answer = request("POST", &sidecar.url("hook"), &headers, &body).unwrap();
        assert_eq!(answer.status, 202, "{id}: {answer:?}");
        start.elapsed()
    };
    let ask = || {
        let start = Instant::now();
        assert_eq!(get(&format!("{operators}/readyz")).status, 200);
        start.elapsed()
    };
    send();
    let mut memory = vec![sidecar.memory()];
    for round in 1..=ROUNDS {
        let flood = Flood::start(&sidecar);
        let (mut took, mut controls): (Vec<_>, Vec<_>) = (0..MESSAGES).map(|_| (send(), ask())).unzip();
        took.sort();
        controls.sort();
        let percent_99 = |times: &[Duration]| times[times.len() * 99 / 100];
        let (slowest, control) = (percent_99(&took), percent_99(&controls));
        memory.push(sidecar.memory());
        println!(
            "round {round}: p99 {slowest:?}, of the operators' port {control:?}; {:?}; memory {memory:?}",
            flood.counts
        );
        // If a probe is slow too, the machine is loaded by something else than the flood.
        let limit = Duration::from_millis(500).max(control * 10);
        assert!(slowest < limit, "a message took p99 {slowest:?}, a probe {control:?}");
        flood.end();
    }
    // The allocator keeps pages, so the process does not shrink. Later floods reuse the memory of the first.
    let [quiet, first, .., last] = memory[..] else { panic!("{memory:?}") };
    assert!(first < quiet + MAX_GROWTH, "{memory:?}");
    assert!(last < first + MAX_GROWTH / 4, "each flood takes more: {memory:?}");
    handler.wait_for(ROUNDS * MESSAGES + 1);
    let lines = sidecar.stop();
    let words = [" poisoned ", " failed ", "panicked"];
    assert_eq!(lines.iter().find(|line| words.iter().any(|word| line.contains(word))), None);
    let requests = handler.requests();
    let ids: HashSet<&str> = requests.iter().map(Request::id).collect();
    assert_eq!((requests.len(), ids.len()), (sent, sent), "each once");
}
