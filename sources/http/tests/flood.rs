//! FAULTS S5, A18: verified senders get through while untrusted clients flood the port.

mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::Request;
use oncebox::{Inbox, Memory};
use oncebox_http::{BodyLimits, Endpoint, Ingress, ServerLimits, Tls, Verify};
use ring::hmac;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use support::{RunningServer, request};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const CONNECTIONS: usize = 40;
const STREAMS: usize = 127;
/// Bytes of a body that never ends.
const HELD: usize = 65_000;
/// Bytes of the largest complete body.
const COMPLETE: usize = 4 << 20;
/// Bytes of a large body.
const LARGE: usize = 200 << 10;
/// Requests of each sender.
const REQUESTS: usize = 120;
/// Maximum time of any step.
const PATIENCE: Duration = Duration::from_secs(90);
/// Maximum p99 of a verified sender during a flood.
const BOUND: Duration = Duration::from_millis(500);
/// With a p99 above this for requests without work, the machine is loaded.
const LOADED: Duration = Duration::from_millis(50);
/// Maximum time until a flood has left nothing.
const RECOVERY: Duration = Duration::from_mins(1);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TOKEN: &str = "a-long-random-token";

/// A certificate of this machine and its key.
fn certificate() -> Vec<u8> {
    let made = Command::new("openssl")
        .args([
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-x509",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            "/dev/stdout",
            "-out",
            "/dev/stdout",
        ])
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    made.stdout
}

fn connector(pem: &[u8], protocol: &[u8]) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem).expect("a certificate")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("known versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

fn router(bodies: BodyLimits) -> Router {
    let inbox = Inbox::builder("in", Memory::new()).build().expect("a valid inbox");
    let tokens = Verify::tokens([TOKEN]).expect("a token");
    let ingress = Ingress::new()
        .bodies(bodies)
        .endpoint(Endpoint::plain("shop").message_type("t").verify(tokens), &inbox)
        .endpoint(Endpoint::standard_webhooks("hook", [SECRET]).expect("a secret"), &inbox);
    ingress.into_router().expect("valid endpoints")
}

/// Returns the headers of a webhook; with a wrong secret they look the same.
fn signed(secret: &str, id: &str, body: &[u8]) -> Vec<(&'static str, String)> {
    let key = BASE64.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time after 1970")
        .as_secs()
        .to_string();
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
    let tag = BASE64.encode(hmac::sign(&key, &signed));
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", time),
        ("webhook-signature", format!("v1,{tag}")),
        ("content-type", "application/json".to_owned()),
    ]
}

/// Turns a hang into a failure.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, future).await;
    ended.unwrap_or_else(|_| panic!("waited too long for this: {what}"))
}

/// Counts of untrusted requests, and the stop flag.
#[derive(Debug, Default)]
struct UntrustedCounts {
    stop: AtomicBool,
    sent: AtomicUsize,
    refused: AtomicUsize,
}

/// Untrusted clients that run until they are stopped.
struct UntrustedFlood {
    counts: Arc<UntrustedCounts>,
    connections: JoinSet<()>,
}

impl UntrustedFlood {
    fn start(server: &RunningServer, tls: Option<&TlsConnector>) -> Self {
        let (counts, mut connections) = (Arc::<UntrustedCounts>::default(), JoinSet::new());
        for number in 0..CONNECTIONS {
            let (counts, tls, address) = (Arc::clone(&counts), tls.cloned(), server.address);
            connections.spawn(async move {
                while !counts.stop.load(Ordering::Relaxed) {
                    let stream = TcpStream::connect(address).await.expect("the port takes connections");
                    if let Some(tls) = &tls {
                        let name = ServerName::try_from("localhost").expect("a name");
                        let stream = tls.connect(name, stream).await.expect("a handshake");
                        connection(stream, number, &counts).await;
                    } else {
                        connection(stream, number, &counts).await;
                    }
                }
            });
        }
        Self { counts, connections }
    }

    /// Waits until every stream of every connection has sent a body, and untrusted clients are refused.
    async fn is_at_its_height(&self) {
        let mut beat = tokio::time::interval(Duration::from_millis(50));
        let reached = |counts: &UntrustedCounts| {
            counts.sent.load(Ordering::Relaxed) >= CONNECTIONS * STREAMS
                && counts.refused.load(Ordering::Relaxed) >= CONNECTIONS
        };
        let height = async {
            while !reached(&self.counts) {
                beat.tick().await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, height).await;
        assert!(ended.is_ok(), "the flood does not reach its height: {:?}", self.counts);
    }

    async fn end(mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        in_time("the untrusted clients are gone", self.connections.shutdown()).await;
    }
}

/// Fills one connection with requests. Most hold what they have sent, and each restarts when it is refused.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    number: usize,
    counts: &Arc<UntrustedCounts>,
) {
    let Ok((client, connection)) = h2::client::handshake(stream).await else { return };
    // Everything of a connection ends with it.
    let (mut driver, mut streams) = (JoinSet::new(), JoinSet::new());
    driver.spawn(async move {
        // The server may close the connection.
        let _ = connection.await;
    });
    let forged = signed("whsec_c3RyYW5nZXI=", "msg", b"");
    let held = Bytes::from(vec![b'x'; HELD]);
    let (small, large) = (held.slice(..1_000), Bytes::from(vec![b'x'; COMPLETE]));
    for stream in 0..STREAMS {
        let (client, counts) = (client.clone(), Arc::clone(counts));
        let forged = forged.clone();
        // Some have no path, some no token; for most, only the body shows the forgery.
        let path = match (number + stream) % 8 {
            0 => "/in/nothing",
            1 => "/in/shop",
            _ => "/in/hook",
        };
        // Some bodies are complete, so that their signatures are checked.
        let (body, whole) = match stream {
            0 => (large.clone(), true),
            1..=8 => (small.clone(), true),
            _ => (held.clone(), false),
        };
        streams.spawn(async move {
            while !counts.stop.load(Ordering::Relaxed) {
                let Ok(mut ready) = client.clone().ready().await else { return };
                let mut request = Request::post(format!("http://localhost{path}"));
                for (name, value) in &forged {
                    request = request.header(*name, value);
                }
                let Ok((answer, mut sending)) =
                    ready.send_request(request.body(()).expect("a request"), false)
                else {
                    return;
                };
                if sending.send_data(body.clone(), whole).is_err() {
                    return;
                }
                counts.sent.fetch_add(1, Ordering::Relaxed);
                let Ok(answer) = answer.await else { return };
                assert!(!answer.status().is_success(), "{answer:?}");
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while let Some(ended) = streams.join_next().await {
        ended.expect("no untrusted client is let in");
    }
}

/// Sends one message on a new TLS connection, and returns the status of the response.
async fn post_over_tls(server: &RunningServer, tls: &TlsConnector, head: &[(&str, &str)], body: &str) -> u16 {
    let stream = TcpStream::connect(server.address).await.expect("the port takes connections");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = tls.connect(name, stream).await.expect("a handshake");
    stream.write_all(&request("/in/hook", head, body)).await.expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    std::str::from_utf8(&answer[9..]).expect("a status").parse().expect("a status")
}

/// Sends over TLS while its port is flooded, one after the other, and returns how long each took, in order.
async fn honest_over_tls(server: &RunningServer, tls: &TlsConnector) -> Vec<Duration> {
    let mut took = Vec::new();
    for number in 0..REQUESTS {
        let id = format!("tls_{number}");
        let body = format!(r#"{{"type":"t","data":"{}"}}"#, "x".repeat(number * 100));
        let headers = signed(SECRET, &id, body.as_bytes());
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let start = Instant::now();
        let status = in_time("a sender over TLS", post_over_tls(server, tls, &headers, &body)).await;
        took.push(start.elapsed());
        assert_eq!(status, 202, "message {number} over TLS");
    }
    took.sort();
    took
}

/// Asserts the bound on senders, and prints which one applied.
fn assert_quick(what: &str, took: &[Duration], controls: &[Duration]) {
    let (slowest, control) = (percentile(took, 99), percentile(controls, 99));
    // If the machine is too slow even for requests without work, the flood is not the cause.
    let (bound, why) = if control < LOADED {
        (BOUND, "the machine has time")
    } else {
        (control * 10, "the machine is loaded: ten times a request without work")
    };
    println!(
        "{what}: p50 {:?}, p99 {slowest:?}; without work p50 {:?}, p99 {control:?}; bound {bound:?}, {why}",
        percentile(took, 50),
        percentile(controls, 50)
    );
    assert!(slowest < bound, "{what}: p99 {slowest:?}, bound {bound:?}");
}

/// Sends with a token, with signatures on one connection, and with signatures on new connections, one after the other.
/// After each message it sends a request that costs nothing. Returns the times of all messages and of those requests,
/// in order.
async fn honest(server: &RunningServer, round: &str) -> (Vec<Duration>, Vec<Duration>) {
    let (mut took, mut controls) = (Vec::new(), Vec::new());
    let (mut by_token, mut by_signature) = (server.connect().await, server.connect().await);
    let mut control = server.connect().await;
    let bearer = format!("Bearer {TOKEN}");
    for number in 0..REQUESTS {
        let id = format!("{round}_{number}");
        let len = if number % 10 == 1 { LARGE } else { number * 100 };
        let body = format!(r#"{{"type":"t","data":"{}"}}"#, "x".repeat(len));
        let headers = signed(SECRET, &id, body.as_bytes());
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let start = Instant::now();
        let answer = match number % 3 {
            0 => {
                let headers = [("message-id", &*id), ("authorization", &*bearer)];
                in_time("a sender with a token", by_token.post("/in/shop", &headers, &body)).await
            }
            1 => in_time("a signed message", by_signature.post("/in/hook", &headers, &body)).await,
            _ => in_time("a signed message", server.post("/in/hook", &headers, &body)).await,
        };
        took.push(start.elapsed());
        assert_eq!(answer.status, 202, "message {number} of {round}: {answer:?}");
        let start = Instant::now();
        control.send("GET /control HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let answer = in_time("an answer that costs nothing", control.answer()).await;
        controls.push(start.elapsed());
        assert_eq!(answer.map(|answer| answer.status), Some(200));
    }
    took.sort();
    controls.sort();
    (took, controls)
}

fn percentile(took: &[Duration], percent: usize) -> Duration {
    took[(took.len() * percent / 100).min(took.len() - 1)]
}

async fn senders_get_through(tls: bool, pem: &[u8]) {
    let mut bodies = BodyLimits::default();
    let room = bodies.unverified;
    bodies.max = room;
    let router = router(bodies).route("/control", axum::routing::get(async || "ok"));
    let plain = RunningServer::start(router.clone(), ServerLimits::default()).await;
    let encrypted = RunningServer::start_tls(router, Tls::from_pem(pem, pem).expect("a certificate")).await;
    let flooded = if tls { &encrypted } else { &plain };
    let flood = UntrustedFlood::start(flooded, tls.then(|| connector(pem, b"h2")).as_ref());
    flood.is_at_its_height().await;
    // All ports share the limits on bodies.
    let (took, controls) = honest(&plain, "flooded").await;
    assert_quick(&format!("plain port, flood over TLS {tls}"), &took, &controls);
    if tls {
        let took = honest_over_tls(&encrypted, &connector(pem, b"http/1.1")).await;
        assert_quick("flooded TLS port", &took, &controls);
    }
    println!("{:?}", flood.counts);
    flood.end().await;
    let recovery = Instant::now();
    all_room_is_free_again(&plain, room).await;
    println!("the pool of unverified bodies is free after {:?}", recovery.elapsed());
    in_time("the plain port stops", plain.stopped()).await;
    in_time("the port with TLS stops", encrypted.stopped()).await;
}

/// Sends a body that needs the whole pool: it passes only if nothing else is held.
async fn all_room_is_free_again(server: &RunningServer, room: usize) {
    let body = vec![b'x'; room / 2 + 1];
    let headers = signed(SECRET, "all", &body);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    let (mut last, mut beat) = (None, tokio::time::interval(Duration::from_millis(200)));
    let free = tokio::time::timeout(RECOVERY, async {
        loop {
            beat.tick().await;
            last = server.connect().await.try_post("/in/hook", &headers, &body).await;
            // The body is no JSON, as only a verified sender learns.
            if last.as_ref().is_some_and(|answer| answer.status == 400) {
                break;
            }
        }
    });
    assert!(free.await.is_ok(), "the room is not free again: {last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn verified_senders_get_through_a_flood_on_either_port() {
    let pem = certificate();
    // The pool is free again after each. The test of the sidecar looks at the memory of a process without the clients.
    for tls in [false, true, false, true] {
        senders_get_through(tls, &pem).await;
    }
}

/// Many clients that only announce, or send slowly, leave room for a sender of large messages.
#[tokio::test]
async fn a_large_signed_body_finds_room_among_many_small_ones() {
    let mut bodies = BodyLimits::default();
    bodies.unverified = 1 << 20;
    let server = RunningServer::start(router(bodies), ServerLimits::default()).await;
    let mut holding = Vec::new();
    for number in 0..32 {
        let headers = signed("whsec_c3RyYW5nZXI=", &number.to_string(), b"");
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let mut client = server.connect().await;
        let head = request("/in/hook", &headers, vec![b'x'; 40_000]);
        // All but the end.
        client.send(&head[..head.len() - 1]).await;
        holding.push(client);
    }
    let body = format!(r#"{{"type":"t","data":"{}"}}"#, "x".repeat(30_000));
    let headers = signed(SECRET, "large", body.as_bytes());
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    for _ in 0..5 {
        let answer = in_time("there is room", server.post("/in/hook", &headers, &body)).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
    }
}
