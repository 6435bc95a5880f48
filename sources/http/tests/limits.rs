//! FAULTS S5: the cost of clients, over real sockets. Timeouts are short, and tests wait for the server's actions.

#[path = "limits/http2.rs"]
mod http2;
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use oncebox::{Inbox, Memory};
use oncebox_http::{BodyLimits, Endpoint, Ingress, ServerLimits, Verify, listen};
use support::{RunningServer, in_time, request};
use tokio::net::TcpStream;

const SHORT: Duration = Duration::from_millis(200);
const HEADERS: [(&str, &str); 2] = [("message-id", "1"), ("message-type", "t")];

fn limits(set: impl FnOnce(&mut ServerLimits)) -> ServerLimits {
    let mut limits = ServerLimits::default();
    set(&mut limits);
    limits
}

fn bodies(set: impl FnOnce(&mut BodyLimits)) -> BodyLimits {
    let mut bodies = BodyLimits::default();
    set(&mut bodies);
    bodies
}

async fn server(limits: ServerLimits, bodies: BodyLimits) -> RunningServer {
    server_for(Verify::open(), limits, bodies).await
}

async fn server_for(verify: Verify, limits: ServerLimits, bodies: BodyLimits) -> RunningServer {
    let inbox = Inbox::builder("in", Memory::new()).build().expect("a valid inbox");
    let ingress = Ingress::new().bodies(bodies).endpoint(Endpoint::plain("x").verify(verify), &inbox);
    RunningServer::start(ingress.into_router().expect("a valid endpoint"), limits).await
}

async fn serving(limits: ServerLimits) -> RunningServer {
    server(limits, BodyLimits::default()).await
}

/// Asserts that the server answers a well-behaved client.
async fn works(server: &RunningServer) {
    let answer = in_time("a good client is answered", server.post("/in/x", &HEADERS, "{}")).await;
    assert!([200, 202].contains(&answer.status), "{answer:?}");
}

// After a restart all clients connect at once. A client without a backlog slot retries only after seconds.
#[tokio::test]
async fn many_may_wait_to_be_accepted() {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut clients = Vec::new();
    for _ in 0..300 {
        let connected = in_time("a client finds a place", TcpStream::connect(address)).await;
        clients.push(connected.expect("a connection"));
    }
}

#[tokio::test]
async fn heads_that_never_end_are_cut_and_do_not_keep_others_out() {
    let server = serving(limits(|limits| limits.head = SHORT)).await;
    let mut slow = Vec::new();
    for number in 0..300 {
        let mut client = server.connect().await;
        // Some send nothing, some begin, some have written all but the end.
        match number % 3 {
            0 => {}
            1 => client.send("PO").await,
            _ => client.send("POST /in/x HTTP/1.1\r\nhost: x\r\nmessage-id: 1\r\n").await,
        }
        slow.push(client);
    }
    works(&server).await;
    for client in &mut slow {
        in_time("a slow client is cut", client.closed()).await;
    }
    works(&server).await;
}

/// An occasional byte does not extend the limit.
#[tokio::test]
async fn a_head_that_dribbles_is_cut() {
    let server = serving(limits(|limits| limits.head = SHORT)).await;
    let mut client = server.connect().await;
    // The second head of a connection, too.
    client.post("/in/x", &HEADERS, "{}").await;
    client.send("POST /in/x HTTP/1.1\r\n").await;
    let (mut read, mut write) = client.stream.into_split();
    let dribble = async {
        let mut beat = tokio::time::interval(SHORT / 10);
        loop {
            beat.tick().await;
            if tokio::io::AsyncWriteExt::write_all(&mut write, b"a: b\r\n").await.is_err() {
                return;
            }
        }
    };
    let closed = async { tokio::io::AsyncReadExt::read(&mut read, &mut [0; 1]).await };
    let ended = in_time("the connection is cut", async {
        tokio::select! { () = dribble => true, read = closed => read.map_or(true, |len| len == 0) }
    });
    assert!(ended.await);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = serving(limits(|limits| limits.idle = SHORT)).await;
    let mut client = server.connect().await;
    assert_eq!(client.post("/in/x", &HEADERS, "{}").await.status, 202);
    assert_eq!(
        client.post("/in/x", &HEADERS, "{}").await.status,
        200,
        "it is kept alive for the next request"
    );
    assert_eq!(in_time("it is closed", client.closed()).await, "");
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_refused() {
    let server = serving(limits(|limits| (limits.headers, limits.head_bytes) = (20, 8_192))).await;
    let many: Vec<String> = (0..21).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "v")).collect();
    assert_eq!(in_time("an answer", server.post("/in/x", &many, "")).await.status, 431);
    let long = "v".repeat(20_000);
    let mut client = server.connect().await;
    client.send(request("/in/x", &[("x-long", &long)], "")).await;
    let answer = in_time("the connection is closed", client.closed()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    works(&server).await;
}

// FAULTS G3, A18
#[tokio::test]
async fn bodies_that_are_too_large_are_refused_before_and_while_they_come() {
    let server = server(ServerLimits::default(), bodies(|bodies| bodies.max = 50_000)).await;
    let mut client = server.connect().await;
    // Announced: refused before a byte of it is sent.
    client.send("POST /in/x HTTP/1.1\r\nhost: x\r\ncontent-length: 50001\r\n\r\n").await;
    let answer = in_time("an answer", client.answer()).await.unwrap();
    assert_eq!((answer.status, &*answer.problem()), (413, "too-large"));
    // Not announced: it would continue for ever.
    let client = server.connect().await;
    let (read, mut write) = client.stream.into_split();
    let endless = tokio::spawn(async move {
        let head = "POST /in/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut sent = tokio::io::AsyncWriteExt::write_all(&mut write, head.as_bytes()).await;
        let chunk = [b"1000\r\n", &[b'x'; 0x1000][..], b"\r\n"].concat();
        let mut chunks = 0_u64;
        while sent.is_ok() {
            sent = tokio::io::AsyncWriteExt::write_all(&mut write, &chunk).await;
            chunks += 1;
        }
        chunks
    });
    let mut answer = vec![0; 12];
    let mut read = read;
    in_time("an answer", tokio::io::AsyncReadExt::read_exact(&mut read, &mut answer)).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    drop(read);
    in_time("the server does not listen any more", endless).await.unwrap();
    works(&server).await;
}

#[tokio::test]
async fn bodies_that_come_too_slowly_are_given_up() {
    let limits_of_bodies = bodies(|bodies| (bodies.pause, bodies.timeout) = (SHORT, 3 * SHORT));
    let server = server(ServerLimits::default(), limits_of_bodies).await;
    let head =
        "POST /in/x HTTP/1.1\r\nhost: x\r\nmessage-id: 1\r\nmessage-type: t\r\ncontent-length: 1000\r\n\r\n";
    // A body that stalls.
    let mut client = server.connect().await;
    client.send(format!("{head}abc")).await;
    let answer = in_time("an answer", client.answer()).await.unwrap();
    assert_eq!((answer.status, &*answer.problem()), (408, "timeout"));
    // A body without long pauses that never ends.
    let client = server.connect().await;
    let (mut read, mut write) = client.stream.into_split();
    tokio::io::AsyncWriteExt::write_all(&mut write, head.as_bytes()).await.unwrap();
    let drip = async {
        let mut beat = tokio::time::interval(SHORT / 8);
        loop {
            beat.tick().await;
            // The response arrives on the other half.
            if tokio::io::AsyncWriteExt::write_all(&mut write, b"x").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut answer = vec![0; 12];
    let read = async { tokio::io::AsyncReadExt::read_exact(&mut read, &mut answer).await.unwrap() };
    in_time("an answer", async {
        tokio::select! { () = drip => {}, _ = read => {} }
    })
    .await;
    assert_eq!(answer, b"HTTP/1.1 408");
    // A body that ends too early.
    let mut client = server.connect().await;
    client.send(format!("{head}abc")).await;
    tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
    in_time("a half closed connection ends", client.closed()).await;
    works(&server).await;
}

// FAULTS A18: received bytes count; an announcement takes nothing from others.
#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let room = bodies(|bodies| bodies.in_flight = 60_000);
    let server = server_for(Verify::loopback(), ServerLimits::default(), room).await;
    let head = |announced: usize| {
        format!(
            "POST /in/x HTTP/1.1\r\nhost: localhost\r\nmessage-id: 1\r\nmessage-type: t\r\ncontent-length: {announced}\r\n\r\n"
        )
    };
    let mut announces = server.connect().await;
    announces.send(head(60_000)).await;
    works(&server).await;
    let mut holds = server.connect().await;
    holds.send(head(60_000)).await;
    holds.send(vec![b'x'; 50_000]).await;
    let other = || async {
        server.post("/in/x", &[("message-id", "2"), ("message-type", "t")], vec![b'x'; 20_000]).await
    };
    // The server needs a moment to read the bytes.
    let refused = async {
        loop {
            let answer = other().await;
            if answer.status == 503 {
                return answer;
            }
        }
    };
    let answer = in_time("there is no room", refused).await;
    assert_eq!(answer.problem(), "unavailable");
    assert!(answer.header("retry-after").is_some());
    drop(holds);
    let taken = async { while other().await.status == 503 {} };
    in_time("there is room again", taken).await;
}

// FAULTS A18, S5: bodies of unverified senders have a bound of their own; the largest holder is evicted.
#[tokio::test]
async fn bodies_of_untrusted_clients_together_are_bounded() {
    let room = bodies(|bodies| (bodies.unverified, bodies.in_flight) = (64 << 10, usize::MAX));
    let server = server(ServerLimits::default(), room).await;
    let head =
        "POST /in/x HTTP/1.1\r\nhost: x\r\nmessage-id: 1\r\nmessage-type: t\r\ncontent-length: 60000\r\n\r\n";
    let mut holds = server.connect().await;
    holds.send(head).await;
    holds.send(vec![b'x'; 40_000]).await;
    // The server needs a moment to read the bytes.
    let given_way = async {
        loop {
            let small =
                server.post("/in/x", &[("message-id", "2"), ("message-type", "t")], vec![b'x'; 10_000]).await;
            assert!([200, 202].contains(&small.status), "{small:?}");
            if let Ok(answer) = tokio::time::timeout(SHORT, holds.answer()).await {
                return answer.unwrap();
            }
        }
    };
    let answer = in_time("the large one gives way", given_way).await;
    assert_eq!((answer.status, &*answer.problem()), (503, "unavailable"));
    assert!(answer.header("retry-after").is_some());
}

// FAULTS S2: an address with many failed proofs waits for its responses; other addresses and valid requests do not.
#[tokio::test]
async fn refusals_become_slow() {
    let set = limits(|limits| limits.refusals = 3);
    let server = server_for(Verify::tokens(["token"]).expect("a token"), set, BodyLimits::default()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        assert_eq!(client.post("/in/x", &HEADERS, "{}").await.status, 401);
    }
    client.send(request("/in/x", &HEADERS, "{}")).await;
    let early = tokio::time::timeout(Duration::from_millis(50), client.answer()).await;
    let good = [HEADERS[0], HEADERS[1], ("authorization", "Bearer token")];
    assert_eq!(in_time("a good one is answered", server.post("/in/x", &good, "{}")).await.status, 202);
    if early.is_err() {
        assert_eq!(in_time("the refused one, too", client.answer()).await.unwrap().status, 401);
    }
    // A later wait is longer.
    let start = std::time::Instant::now();
    let refused = (0..5).map(|_| server.post("/in/x", &HEADERS, "{}"));
    for answer in futures(refused).await {
        assert_eq!(answer.status, 401);
    }
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

/// Runs all futures at once.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|one| (Some(Box::pin(one)), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in &mut all {
            if let Some(waiting) = future
                && let std::task::Poll::Ready(ended) = waiting.as_mut().poll(cx)
            {
                (*future, *output) = (None, Some(ended));
            }
        }
        if all.iter().all(|(_, output)| output.is_some()) {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

/// Returns a router whose request stays open until the test ends it.
fn gated(gate: &tokio::sync::watch::Sender<bool>) -> Router {
    let gate = gate.clone();
    let wait = async move || {
        let _ = gate.subscribe().wait_for(|open| *open).await;
        "done"
    };
    Router::new().route("/", get(async || "done")).route("/wait", get(wait))
}

const ASK: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const WAIT: &str = "GET /wait HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn connections_wait_for_room_only_while_all_are_at_work() {
    let gate = tokio::sync::watch::Sender::new(false);
    let server = RunningServer::start(gated(&gate), limits(|limits| limits.connections = 2)).await;
    let mut senders = [server.connect().await, server.connect().await];
    for sender in &mut senders {
        sender.send(ASK).await;
        assert_eq!(sender.answer().await.unwrap().status, 200);
        sender.send(WAIT).await;
    }
    let mut third = server.connect().await;
    third.send(ASK).await;
    let early = tokio::time::timeout(SHORT, third.answer()).await;
    assert!(early.is_err(), "there is no room for it: {early:?}");
    gate.send_replace(true);
    assert_eq!(in_time("one of the others is idle", third.answer()).await.unwrap().status, 200);
    let [mut first, mut second] = senders;
    assert_eq!(in_time("it was answered", first.answer()).await.unwrap().body, "done");
    assert_eq!(in_time("it was answered", second.answer()).await.unwrap().body, "done");
    assert_eq!(in_time("it was idle for longest", first.closed()).await, "");
    second.send(ASK).await;
    assert_eq!(in_time("it was kept", second.answer()).await.unwrap().status, 200);
}

// FAULTS S5: early untrusted clients make room, whatever they keep open; a sender keeps its connection.
#[tokio::test]
async fn the_connections_of_untrusted_clients_make_room() {
    let set = |limits: &mut ServerLimits| limits.connections_per_address = 4;
    let server =
        server_for(Verify::tokens(["a-long-token"]).expect("a token"), limits(set), bodies(|_| {})).await;
    let good = [HEADERS[0], HEADERS[1], ("authorization", "Bearer a-long-token")];
    let mut sender = server.connect().await;
    assert_eq!(sender.post("/in/x", &good, "{}").await.status, 202);
    let mut strangers = Vec::new();
    for number in 0..30 {
        let mut stranger = server.connect().await;
        match number % 3 {
            0 => {}
            1 => stranger.send("POST /in/x HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n").await,
            _ => {
                let (client, connection) = h2::client::handshake(stranger.stream).await.expect("a handshake");
                let mut driver = tokio::task::JoinSet::new();
                driver.spawn(connection);
                let open =
                    client.ready().await.map(|mut client| client.send_request(http2::http2_request(), false));
                strangers.push(Box::new((driver, open)) as Box<dyn std::any::Any>);
                continue;
            }
        }
        strangers.push(Box::new(stranger));
    }
    for _ in 0..5 {
        let answer = in_time("a new connection is served", server.post("/in/x", &good, "{}")).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(in_time("the sender was kept", sender.post("/in/x", &good, "{}")).await.status, 200);
}

/// A client that does not read its response.
#[tokio::test]
async fn an_answer_that_the_client_does_not_read_is_given_up() {
    let big = Router::new().route("/", get(|| async { vec![b'x'; 64 << 20] }));
    let server =
        RunningServer::start(big, limits(|limits| (limits.write, limits.connections) = (SHORT, 1))).await;
    let mut deaf = server.connect().await;
    deaf.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    // There is one connection slot.
    let mut next = server.connect().await;
    next.send("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(in_time("the deaf one is given up", next.answer()).await.unwrap().status, 404);
}

#[tokio::test]
async fn a_stop_lets_open_requests_end_and_closes_the_rest() {
    let (begun, gate) = (tokio::sync::watch::Sender::new(0), tokio::sync::watch::Sender::new(false));
    let router = {
        let (begun, gate) = (begun.clone(), gate.clone());
        Router::new().route(
            "/",
            get(move || {
                begun.send_modify(|count| *count += 1);
                let gate = gate.subscribe();
                async move {
                    let _ = gate.clone().wait_for(|open| *open).await;
                    "done"
                }
            }),
        )
    };
    let mut server = RunningServer::start(router.clone(), ServerLimits::default()).await;
    let (mut idle, mut open) = (server.connect().await, server.connect().await);
    idle.send("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").await;
    idle.answer().await.unwrap();
    open.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let _ = begun.subscribe().wait_for(|count| *count == 1).await;
    server.stop();
    in_time("the idle one is closed", idle.closed()).await;
    gate.send_replace(true);
    assert_eq!(in_time("the open one is answered", open.answer()).await.unwrap().body, "done");
    in_time("the server stops", server.stopped()).await;
    // The server does not wait for a response that never ends.
    gate.send_replace(false);
    let server = RunningServer::start(router, limits(|limits| limits.grace = SHORT)).await;
    let mut open = server.connect().await;
    open.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let _ = begun.subscribe().wait_for(|count| *count == 2).await;
    in_time("the server stops", server.stopped()).await;
    assert_eq!(in_time("the open one is cut", open.closed()).await, "");
}
