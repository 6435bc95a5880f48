//! FAULTS S5, A18: senders that are verified get through while strangers flood the port.

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
use oncebox_http::{BodyLimits, Endpoint, Ingress, Limits, Tls, Verify};
use ring::hmac;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use support::{Running, in_time, request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const CONNECTIONS: usize = 40;
const STREAMS: usize = 127;
/// Bytes of one body that never ends.
const HELD: usize = 65_000;
/// Requests of each sender.
const REQUESTS: usize = 120;
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

fn connector(pem: &[u8]) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

fn router(bodies: BodyLimits) -> Router {
    let inbox = Inbox::builder("in", Memory::new()).build().expect("a valid inbox");
    let tokens = Verify::tokens([TOKEN]).expect("a token");
    let ingress = Ingress::new()
        .bodies(bodies)
        .endpoint(Endpoint::plain("shop").kind("t").verify(tokens), &inbox)
        .endpoint(Endpoint::standard_webhooks("hook", [SECRET]).expect("a secret"), &inbox);
    ingress.into_router().expect("valid endpoints")
}

/// The headers of a webhook; with another secret than ours, they look the same.
fn signed(secret: &str, id: &str, body: &[u8]) -> Vec<(&'static str, String)> {
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
    let tag = BASE64.encode(hmac::sign(&key, &signed));
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", time),
        ("webhook-signature", format!("v1,{tag}")),
        ("content-type", "application/json".to_owned()),
    ]
}

/// Strangers, until they are told to stop.
struct StrangerFlood {
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    connections: JoinSet<()>,
}

impl StrangerFlood {
    fn start(server: &Running, tls: Option<&TlsConnector>) -> Self {
        let (stop, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut connections = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (stop, refused, tls) = (Arc::clone(&stop), Arc::clone(&refused), tls.cloned());
            let address = server.address;
            connections.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(stream) = TcpStream::connect(address).await else { continue };
                    if let Some(tls) = &tls {
                        let name = ServerName::try_from("localhost").unwrap();
                        let Ok(stream) = tls.connect(name, stream).await else { continue };
                        connection(stream, number, &stop, &refused).await;
                    } else {
                        connection(stream, number, &stop, &refused).await;
                    }
                }
            });
        }
        Self { stop, refused, connections }
    }
}

/// One connection: as many requests as it may have, each of which holds what it has sent, and is made anew when it is refused.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    number: usize,
    stop: &Arc<AtomicBool>,
    refused: &Arc<AtomicUsize>,
) {
    let Ok((client, connection)) = h2::client::handshake(stream).await else { return };
    let connection = tokio::spawn(connection);
    let mut streams = JoinSet::new();
    let (body, forged) = (Bytes::from(vec![b'x'; HELD]), signed("whsec_c3RyYW5nZXI=", "msg", b""));
    for stream in 0..STREAMS {
        let (client, stop, refused) = (client.clone(), Arc::clone(stop), Arc::clone(refused));
        let (body, forged) = (body.clone(), forged.clone());
        // Some know no address, some no token; most look like those that can only be told by their bodies.
        let path = match (number + stream) % 8 {
            0 => "/in/nothing",
            1 => "/in/shop",
            _ => "/in/hook",
        };
        streams.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut ready) = client.clone().ready().await else { return };
                let mut request = Request::post(format!("http://localhost{path}"));
                for (name, value) in &forged {
                    request = request.header(*name, value);
                }
                let Ok((answer, mut sending)) = ready.send_request(request.body(()).unwrap(), false) else {
                    return;
                };
                if sending.send_data(body.clone(), false).is_err() {
                    continue;
                }
                if let Ok(answer) = answer.await {
                    assert!(!answer.status().is_success(), "{answer:?}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while streams.join_next().await.is_some() {}
    connection.abort();
}

/// Sends by a token, by signatures on one connection, and by signatures on new connections, one after the other; returns how long
/// each request took, in order.
async fn honest(server: &Running, round: &str) -> Vec<Duration> {
    let mut took = Vec::new();
    let (mut by_token, mut by_signature) = (server.connect().await, server.connect().await);
    let bearer = format!("Bearer {TOKEN}");
    for number in 0..REQUESTS {
        let id = format!("{round}_{number}");
        let body = format!(r#"{{"type":"t","data":"{}"}}"#, "x".repeat(number * 100));
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
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    took.sort();
    took
}

fn percentile(took: &[Duration], percent: usize) -> Duration {
    took[(took.len() * percent / 100).min(took.len() - 1)]
}

/// Asks for something that costs nothing, again and again; returns how long each took, in order.
async fn control(server: &Running, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let (mut took, mut client) = (Vec::new(), server.connect().await);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        client.send("GET /control HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert_eq!(in_time("an answer", client.answer()).await.expect("an answer").status, 200);
        took.push(start.elapsed());
    }
    took.sort();
    took
}

async fn senders_get_through(tls: bool, pem: &[u8]) {
    let mut bodies = BodyLimits::default();
    let room = bodies.unverified;
    bodies.max = room;
    let router = router(bodies).route("/control", axum::routing::get(async || "ok"));
    let plain = Arc::new(Running::start(router.clone(), Limits::default()).await);
    let encrypted = Running::start_tls(router, Tls::from_pem(pem, pem).expect("a certificate")).await;
    // Senders come over the plain port in any case: all ports share what bodies may cost.
    let flooded = if tls { &encrypted } else { &*plain };
    let mut flood = StrangerFlood::start(flooded, tls.then(|| connector(pem)).as_ref());
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    in_time("the strangers are refused", async {
        while flood.refused.load(Ordering::Relaxed) < CONNECTIONS * STREAMS / 4 {
            beat.tick().await;
        }
    })
    .await;
    let stop = Arc::<AtomicBool>::default();
    let cheap = {
        let (plain, stop) = (Arc::clone(&plain), Arc::clone(&stop));
        tokio::spawn(async move { control(&plain, stop).await })
    };
    let took = honest(&plain, "flooded").await;
    stop.store(true, Ordering::Relaxed);
    let cheap = percentile(&cheap.await.expect("no panic"), 99);
    let (median, slowest) = (percentile(&took, 50), percentile(&took, 99));
    println!("tls {tls}: p50 {median:?}, p99 {slowest:?}; without work p99 {cheap:?}");
    // Where the machine has no time even for requests without any work, it is not the flood that takes it from senders.
    assert!(slowest < Duration::from_millis(500).max(cheap * 4), "p99 {slowest:?}, without work {cheap:?}");
    flood.stop.store(true, Ordering::Relaxed);
    flood.connections.shutdown().await;
    // A body that needs all the room there is gets it only if nothing is held any more.
    let (end, body) = (Instant::now() + Duration::from_mins(1), vec![b'x'; room / 2 + 1]);
    loop {
        beat.tick().await;
        let headers = signed(SECRET, "all", &body);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let mut client = plain.connect().await;
        let sent = client.try_post("/in/hook", &headers, &body).await;
        if sent.is_some_and(|answer| answer.status != 503) {
            break;
        }
        assert!(Instant::now() < end, "the room is not free again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn verified_senders_get_through_a_flood_on_either_port() {
    let pem = certificate();
    for tls in [false, true] {
        senders_get_through(tls, &pem).await;
    }
}

/// Many who only announce or send slowly leave room for a sender of large messages.
#[tokio::test]
async fn a_large_signed_body_finds_room_among_many_small_ones() {
    let mut bodies = BodyLimits::default();
    bodies.unverified = 1 << 20;
    let server = Running::start(router(bodies), Limits::default()).await;
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
