//! FAULTS S5, A18: large bodies that wait for their digests. The only thread for digests is busy until the test frees
//! it.

mod support;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oncebox::{Inbox, Memory};
use oncebox_http::{BodyLimits, Endpoint, Ingress, ServerLimits};
use ring::hmac;
use support::{HttpResponse, RawHttpClient, RunningServer, in_time};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const FORGED: &str = "whsec_c3RyYW5nZXIgd2l0aCBhIHNlY3JldA==";
const LARGE: usize = 200 << 10;

/// Creates a server runtime whose one thread for digests is busy until the sender is dropped.
fn runtime() -> (Runtime, Sender<()>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).enable_all().build();
    let (busy, released) = std::sync::mpsc::channel();
    let runtime = runtime.expect("a runtime");
    runtime.spawn_blocking(move || released.recv().is_ok());
    (runtime, busy)
}

async fn server(bodies: BodyLimits) -> RunningServer {
    let inbox = Inbox::builder("in", Memory::new()).build().expect("a valid inbox");
    let hook = Endpoint::standard_webhooks("hook", [SECRET]).expect("a secret");
    let router = Ingress::new().bodies(bodies).endpoint(hook, &inbox).into_router().expect("an endpoint");
    let mut limits = ServerLimits::default();
    limits.refusals = 10_000;
    RunningServer::start(router, limits).await
}

async fn connect(server: &RunningServer, from: [u8; 4]) -> RawHttpClient {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::from(from), 0).into()).expect("an address of this machine");
    RawHttpClient::new(socket.connect(server.address).await.expect("a connection"))
}

/// Sends a webhook with a large body.
async fn post(mut client: RawHttpClient, secret: &str, id: &str) -> Option<HttpResponse> {
    let body = format!(r#"{{"type":"t","data":"{}"}}"#, "x".repeat(LARGE));
    let key = BASE64.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("base64");
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    let time = time.as_secs().to_string();
    let content = [id.as_bytes(), b".", time.as_bytes(), b".", body.as_bytes()].concat();
    let tag = BASE64.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &content));
    let signature = format!("v1,{tag}");
    let headers = [("webhook-id", id), ("webhook-timestamp", &*time), ("webhook-signature", &*signature)];
    client.try_post("/in/hook", &headers, body).await
}

#[test]
fn a_body_that_gives_way_while_it_waits_for_its_digest_is_let_go() {
    let (runtime, busy) = runtime();
    runtime.block_on(async {
        let mut bodies = BodyLimits::default();
        // Room for eight requests of 256 KiB each.
        bodies.unverified = 2 << 20;
        let server = Arc::new(server(bodies).await);
        let mut strangers = JoinSet::new();
        for number in 0..40 {
            let server = Arc::clone(&server);
            strangers.spawn(async move {
                let client = connect(&server, [127, 0, 0, 2]).await;
                post(client, FORGED, &number.to_string()).await
            });
        }
        // All but those with room, and those whose digest runs.
        let turns = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..40 - 8 - turns {
            let answer = in_time("one gives way", strangers.join_next()).await.unwrap().unwrap();
            // A client that still writes may lose the response.
            assert!(answer.as_ref().is_none_or(|answer| answer.status == 503), "{answer:?}");
        }
        drop(busy);
        while let Some(answer) = in_time("the rest is answered", strangers.join_next()).await {
            let answer = answer.unwrap();
            assert!(answer.as_ref().is_none_or(|answer| [401, 503].contains(&answer.status)), "{answer:?}");
        }
    });
}

#[test]
fn digests_take_turns_by_address() {
    let (runtime, busy) = runtime();
    runtime.block_on(async {
        let server = Arc::new(server(BodyLimits::default()).await);
        let (answered, mut strangers) = (Arc::<AtomicUsize>::default(), JoinSet::new());
        for number in 0..200 {
            let (server, answered) = (Arc::clone(&server), Arc::clone(&answered));
            strangers.spawn(async move {
                let client = connect(&server, [127, 0, 0, 2]).await;
                let answer = post(client, FORGED, &number.to_string()).await;
                answered.fetch_add(1, Ordering::Relaxed);
                assert_eq!(answer.map(|answer| answer.status), Some(401));
            });
        }
        // By then the server has read most of what they send.
        for _ in 0..300 {
            assert_eq!(in_time("a refusal", server.post("/in/nothing", &[], "")).await.status, 401);
        }
        let client = connect(&server, [127, 0, 0, 1]).await;
        let sender = tokio::spawn(post(client, SECRET, "honest"));
        for _ in 0..300 {
            assert_eq!(in_time("a refusal", server.post("/in/nothing", &[], "")).await.status, 401);
        }
        drop(busy);
        let answer = in_time("the sender is answered", sender).await.unwrap();
        assert_eq!(answer.map(|answer| answer.status), Some(202));
        let before = answered.load(Ordering::Relaxed);
        assert!(before < 100, "{before} strangers were answered first");
        while let Some(ended) = in_time("the strangers are answered", strangers.join_next()).await {
            ended.unwrap();
        }
    });
}
