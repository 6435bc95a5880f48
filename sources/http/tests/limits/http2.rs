//! Limits of HTTP/2 connections: streams, windows and resets.

use bytes::Bytes;
use h2::Reason;
use http::Request;
use oncebox_http::ServerLimits;
use tokio::net::TcpStream;

use super::support::{RunningServer, in_time};
use super::{SHORT, limits, serving, works};

async fn http2(
    server: &RunningServer,
) -> (h2::client::SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("a handshake");
    (client, tokio::spawn(connection))
}

pub(super) fn http2_request() -> Request<()> {
    let request = Request::post("http://x/in/x").header("message-id", "1").header("message-type", "t");
    request.body(()).expect("a request")
}

#[tokio::test]
async fn http2_is_served_and_closed_when_idle() {
    let server = serving(limits(|limits| (limits.idle, limits.streams) = (SHORT, 7))).await;
    let (client, connection) = http2(&server).await;
    let mut client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(http2_request(), false).unwrap();
    body.send_data(Bytes::from_static(b"{}"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 202);
    assert_eq!(client.current_max_send_streams(), 7);
    let ended = in_time("it is closed", connection).await.unwrap();
    assert!(ended.is_ok(), "with a farewell: {ended:?}");
}

/// A client that never makes room for a response loses its connection.
#[tokio::test]
async fn http2_answers_without_window_are_given_up() {
    let set = |limits: &mut ServerLimits| (limits.write, limits.head) = (SHORT, SHORT);
    let server = serving(limits(set)).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (client, connection) =
        builder.initial_window_size(0).handshake::<_, Bytes>(stream).await.expect("a handshake");
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(http2_request(), false).unwrap();
    body.send_data(Bytes::from_static(b"{}"), true).unwrap();
    // The head needs no room.
    let answer = in_time("a head", answer).await.unwrap();
    assert_eq!(answer.status(), 202);
    let _ = in_time("it is closed", connection).await.unwrap();
    drop(answer);
    works(&server).await;
}

/// Requests that are cancelled at once cost the server more than the client.
#[tokio::test]
async fn http2_resets_without_end_end_the_connection() {
    let server = serving(limits(|limits| limits.resets = 50)).await;
    let (client, connection) = http2(&server).await;
    let flood = async {
        let mut client = client;
        for count in 0..100_000 {
            let Ok(ready) = client.ready().await else { return count };
            client = ready;
            let Ok((_, mut body)) = client.send_request(http2_request(), false) else { return count };
            body.send_reset(Reason::CANCEL);
            tokio::task::yield_now().await;
        }
        panic!("nothing stops it");
    };
    let count = in_time("the flood is stopped", flood).await;
    assert!(count >= 50, "honest clients take requests back, too: {count}");
    assert!(in_time("the connection ends", connection).await.is_ok());
    works(&server).await;
}

/// A client that resets a few streams keeps its connection.
#[tokio::test]
async fn a_few_resets_are_nothing() {
    let server = serving(limits(|limits| limits.resets = 50)).await;
    let (client, _connection) = http2(&server).await;
    let mut client = client;
    for _ in 0..20 {
        client = client.ready().await.unwrap();
        let (_, mut body) = client.send_request(http2_request(), false).unwrap();
        body.send_reset(Reason::CANCEL);
    }
    client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(http2_request(), false).unwrap();
    body.send_data(Bytes::from_static(b"{}"), true).unwrap();
    assert_eq!(in_time("an answer", answer).await.unwrap().status(), 202);
}
