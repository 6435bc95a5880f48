//! A scripted handler that records its requests.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use super::watched::WatchedList;

/// A request to a handler.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the id of its message.
    pub(crate) fn id(&self) -> &str {
        self.header("ce-id")
    }
}

/// The response of a handler.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status, further headers and body.
    Status(u16, &'static str, String),
    /// Raw bytes, then the end.
    Raw(Vec<u8>),
    /// No response while the client waits.
    Silence,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status, "", String::new())
    }
}

/// TLS settings of a handler.
pub(crate) type ReceiverTls = Arc<rustls::ServerConfig>;

type Script = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// A scripted handler.
pub(crate) struct Receiver {
    pub(crate) port: u16,
    requests: WatchedList<Request>,
}

impl Receiver {
    /// Starts a handler that responds with `script`.
    pub(crate) fn new(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::at(0, script)
    }

    /// Starts a handler that responds with 200.
    pub(crate) fn good() -> Self {
        Self::new(|_| Reply::status(200))
    }

    pub(crate) fn at(port: u16, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind(("127.0.0.1", port)).expect("a port"), None, script)
    }

    /// Starts a handler with TLS.
    pub(crate) fn tls(
        config: ReceiverTls,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a port"), Some(config), script)
    }

    /// Starts a handler on all addresses of this machine.
    pub(crate) fn at_all(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(
            TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).expect("a port"),
            None,
            script,
        )
    }

    fn on(
        listener: TcpListener,
        tls: Option<ReceiverTls>,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let (requests, script): (_, Script) = (WatchedList::default(), Arc::new(script));
        let receiver = Self { port, requests: WatchedList::clone(&requests) };
        // Ends with the process: after the test, no client connects.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (requests, script) = (WatchedList::clone(&requests), Arc::clone(&script));
                let tls = tls.clone();
                std::thread::spawn(move || match tls.map(rustls::ServerConnection::new) {
                    None => serve(stream, &requests, &script),
                    Some(connection) => {
                        serve(rustls::StreamOwned::new(connection.expect("TLS"), stream), &requests, &script);
                    }
                });
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.all()
    }

    /// Waits for `count` requests, and returns all of them.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Request> {
        self.requests.wait(&format!("{count} requests"), |all| (all.len() >= count).then(|| all.to_vec()))
    }

    /// Waits until `done` returns true for the requests.
    pub(crate) fn wait_until(&self, what: &str, mut done: impl FnMut(&[Request]) -> bool) {
        self.requests.wait(what, |all| done(all).then_some(()));
    }
}

fn serve(stream: impl Read + Write, requests: &WatchedList<Request>, script: &Script) {
    let mut lines = BufReader::new(stream);
    while let Some(request) = read(&mut lines) {
        requests.push(request.clone());
        match script(&request) {
            Reply::Status(status, headers, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\n\r\n{body}");
                if lines.get_mut().write_all(head.as_bytes()).is_err() {
                    return;
                }
            }
            Reply::Raw(bytes) => {
                let _ = lines.get_mut().write_all(&bytes);
                return;
            }
            Reply::Silence => {
                // Until the client closes the connection.
                let _ = lines.read(&mut [0]);
                return;
            }
        }
    }
}

fn read(lines: &mut BufReader<impl Read>) -> Option<Request> {
    let mut line = String::new();
    lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(Request { path, headers, body })
}
