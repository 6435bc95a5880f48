//! A server on a free port, and a client that writes HTTP by hand: the tests control every byte.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::net::SocketAddr;

use axum::Router;
use oncebox_http::{Server, ServerLimits, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server. It stops on request, or when dropped.
pub struct RunningServer {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RunningServer {
    pub async fn start(router: Router, limits: ServerLimits) -> Self {
        Self::serve(router, |server| server.limits(limits)).await
    }

    pub async fn start_tls(router: Router, tls: Tls) -> Self {
        Self::serve(router, |server| server.tls(tls)).await
    }

    async fn serve(router: Router, set: impl FnOnce(Server) -> Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = set(Server::new(listener, router));
        let task = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), task }
    }

    /// Asks the server to stop.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Ends it as a crash would.
    pub async fn abort(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Waits until it has stopped.
    pub async fn stopped(self) {
        let Self { stop, task, .. } = self;
        drop(stop);
        task.await.unwrap();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn connect(&self) -> RawHttpClient {
        RawHttpClient::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends one request on a new connection.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> HttpResponse {
        self.connect().await.post(path, headers, body).await
    }
}

pub struct RawHttpClient {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        line.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The last part of the problem's type.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        json["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
    }
}

impl RawHttpClient {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends one request to a server that may be gone.
    pub async fn try_post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Option<HttpResponse> {
        self.stream.write_all(&request(path, headers, body)).await.ok()?;
        self.answer().await
    }

    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> HttpResponse {
        self.send(request(path, headers, body)).await;
        self.answer().await.expect("an answer")
    }

    /// Returns the next response; `None` if the server closed the connection.
    pub async fn answer(&mut self) -> Option<HttpResponse> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if !self.fill().await {
                return None;
            }
        };
        let head = String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut answer = HttpResponse { status, head, body: String::new() };
        if status == 100 {
            return Box::pin(self.answer()).await;
        }
        let len = answer.header("content-length").map_or(0, |len| len.parse().unwrap());
        while self.buffer.len() < len {
            assert!(self.fill().await, "the answer was cut: {answer:?}");
        }
        answer.body = String::from_utf8(self.buffer.drain(..len).collect()).unwrap();
        Some(answer)
    }

    async fn fill(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes).await {
            Ok(0) | Err(_) => false,
            Ok(len) => {
                self.buffer.extend_from_slice(&bytes[..len]);
                true
            }
        }
    }

    /// Waits until the server closes the connection; returns the text before that.
    pub async fn closed(&mut self) -> String {
        while self.fill().await {}
        String::from_utf8_lossy(&self.buffer).into_owned()
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Turns a hang into a failure.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(std::time::Duration::from_mins(3), future).await;
    ended.unwrap_or_else(|_| panic!("waited too long for this: {what}"))
}

/// Returns a request as its bytes.
pub fn request(path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        for part in [name, ": ", value, "\r\n"] {
            head.push_str(part);
        }
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}
