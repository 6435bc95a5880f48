//! FAULTS A18, S5: untrusted clients flood a sidecar with few file descriptors. Verified senders, operators and deliveries continue,
//! and the memory is reused.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use axum::http::Request as HttpRequest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::support::{PATIENCE, Receiver, Request, Sidecar, one_handler, request};

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
/// Maximum growth by a flood that follows another, in bytes, and the maximum time until the memory is back. The allocator keeps
/// freed pages.
const MARGIN: u64 = 96 << 20;
const RECOVERY: Duration = Duration::from_mins(1);
/// Maximum p99 of a verified sender, unless a probe has a greater p99 than `LOADED`.
const BOUND: Duration = Duration::from_millis(500);
const LOADED: Duration = Duration::from_millis(50);

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

/// A certificate of this machine with its key, and the configuration of its clients.
fn certificate(dir: &Path, protocol: &str) -> Arc<ClientConfig> {
    let pem = CertificateDer::from_pem_file(dir.join("both.pem")).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(pem).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

fn make_certificate(dir: &Path) {
    let line = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -x509 -days 2 -subj /CN=localhost -addext \
                subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout both.pem -out both.crt";
    let made = Command::new("openssl").current_dir(dir).args(line.split_whitespace()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let both = ["both.pem", "both.crt"].map(|name| std::fs::read(dir.join(name)).unwrap()).concat();
    std::fs::write(dir.join("both.pem"), both).unwrap();
}

fn server_name() -> ServerName<'static> {
    ServerName::try_from("127.0.0.1").expect("an address")
}

/// Sends a request on a new connection to `https://` or `http://`, and returns the status.
fn ask(tls: Option<&Arc<ClientConfig>>, url: &str, method: &str, head: &[(&str, &str)], body: &[u8]) -> u16 {
    // The operators' port of this machine has no TLS.
    let (Some(tls), Some(rest)) = (tls, url.strip_prefix("https://")) else {
        return request(method, url, head, body).unwrap().status;
    };
    let (address, path) = rest.split_once('/').expect("a path");
    let stream = std::net::TcpStream::connect(address).expect("the port takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let session = ClientConnection::new(Arc::clone(tls), server_name()).expect("a session");
    let mut stream = StreamOwned::new(session, stream);
    let mut text =
        format!("{method} /{path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in head {
        text.extend([name, ": ", value, "\r\n"]);
    }
    stream.write_all(&[text.as_bytes(), b"\r\n", body].concat()).expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
}

/// Connects from the address of the senders, or from another one.
async fn connect(address: &str, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = Ipv4Addr::new(127, 0, 0, if number.is_multiple_of(2) { 1 } else { 2 });
    socket.bind((from, 0).into()).expect("an address of this machine");
    socket.connect(address.parse().expect("an address")).await.expect("the port takes connections")
}

/// Runs an untrusted client: a connection with the maximum requests, and a new one after it is closed.
async fn untrusted_client(
    tls: Option<TlsConnector>,
    address: String,
    number: usize,
    counts: Arc<FloodCounts>,
) {
    while !counts.stop.load(Ordering::Relaxed) {
        let socket = connect(&address, number).await;
        if let Some(tls) = &tls {
            let Ok(socket) = tls.connect(server_name(), socket).await else { continue };
            untrusted_connection(socket, &counts).await;
        } else {
            untrusted_connection(socket, &counts).await;
        }
    }
}

/// Sends the maximum requests on one connection, until it is closed.
async fn untrusted_connection(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    counts: &Arc<FloodCounts>,
) {
    let Ok((client, connection)) = h2::client::handshake(socket).await else { return };
    {
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
            streams.spawn(stream(client.clone(), Arc::clone(counts), body, whole));
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
    fn start(sidecar: &Sidecar, tls: Option<&TlsConnector>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (counts, mut untrusted) = (Arc::<FloodCounts>::default(), JoinSet::new());
        let (_, address) = sidecar.base.split_once("://").unwrap();
        for number in 0..CONNECTIONS {
            untrusted.spawn_on(
                untrusted_client(tls.cloned(), address.to_owned(), number, Arc::clone(&counts)),
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
    flooded(false);
}

#[test]
fn nor_does_a_flood_of_tls_connections() {
    flooded(true);
}

fn flooded(tls: bool) {
    let (handler, files) = (Receiver::good(), tempfile::tempdir().unwrap());
    // One failed attempt would poison a message.
    let mut more = String::from(
        "retry = \"never\"\n[api]\nlisten = \"127.0.0.1:0\"\n[inbox.orders.http.hook]\nformat = \"standard-webhooks\"\n\
         secret = \"env:HOOK\"\n",
    );
    if tls {
        make_certificate(files.path());
        let path = files.path().join("both.pem").display().to_string();
        more.extend(["[tls]\ncertificate = \"", &path, "\"\nkey = \"", &path, "\"\n"]);
    }
    let http1 = tls.then(|| certificate(files.path(), "http/1.1"));
    let http2 = tls.then(|| TlsConnector::from(certificate(files.path(), "h2")));
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let sidecar = Sidecar::limited(256, &one_handler(&handler.url(), &more), &[("HOOK", &secret)]);
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
        assert_eq!(ask(http1.as_ref(), &sidecar.url("hook"), "POST", &headers, &body), 202, "{id}");
        start.elapsed()
    };
    let probe = || {
        let start = Instant::now();
        assert_eq!(ask(http1.as_ref(), &format!("{operators}/readyz"), "GET", &[], b""), 200);
        start.elapsed()
    };
    send();
    let quiet = sidecar.memory();
    let mut warm = quiet;
    for round in 1..=ROUNDS {
        let flood = Flood::start(&sidecar, http2.as_ref());
        let (mut took, mut controls): (Vec<_>, Vec<_>) = (0..MESSAGES).map(|_| (send(), probe())).unzip();
        took.sort();
        controls.sort();
        let percent_99 = |times: &[Duration]| times[times.len() * 99 / 100];
        let (slowest, control) = (percent_99(&took), percent_99(&controls));
        // If a probe is slow too, the machine is loaded by something else than the flood.
        let (bound, why) = if control < LOADED {
            (BOUND, "the machine has time")
        } else {
            (control * 10, "the machine is loaded: ten times a probe")
        };
        println!(
            "TLS {tls}, round {round}: p99 {slowest:?}, of the operators' port {control:?}; bound {bound:?}, {why}; {:?}; memory {}",
            flood.counts,
            sidecar.memory()
        );
        assert!(slowest < bound, "a message took p99 {slowest:?}, a probe {control:?}");
        flood.end();
        // The allocator keeps pages, so the process does not shrink below the level of the first flood.
        if round == 1 {
            warm = sidecar.memory();
            assert!(warm < quiet + MAX_GROWTH, "{quiet} bytes before, {warm} bytes after");
        } else {
            memory_is_back(&sidecar, warm);
        }
    }
    handler.wait_for(ROUNDS * MESSAGES + 1);
    let lines = sidecar.stop();
    let words = [" poisoned ", " failed ", "panicked"];
    assert_eq!(lines.iter().find(|line| words.iter().any(|word| line.contains(word))), None);
    let requests = handler.requests();
    let ids: HashSet<&str> = requests.iter().map(Request::id).collect();
    assert_eq!((requests.len(), ids.len()), (sent, sent), "each once");
}

/// Waits until the memory is near its level before a flood, or fails.
fn memory_is_back(sidecar: &Sidecar, before: u64) {
    let (start, mut last) = (Instant::now(), u64::MAX);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let back = runtime.block_on(async {
        let mut beat = tokio::time::interval(Duration::from_millis(200));
        let back = async {
            while last >= before + MARGIN {
                beat.tick().await;
                last = sidecar.memory();
            }
        };
        tokio::time::timeout(RECOVERY, back).await
    });
    println!("memory {before} before, {last} after {:?}", start.elapsed());
    assert!(back.is_ok(), "{last} bytes after {RECOVERY:?}, {before} before the flood");
}
