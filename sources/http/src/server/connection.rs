//! One connection, from its first byte to its end. Tests: tests/limits.rs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::ServerLimits;
use super::activity::{Activity, OpenRequest};
use super::io::WatchedStream;
use super::refusals::{Anonymous, RefusalVerdict, Refusals, TooManyRefusals, Unproven};

/// Maximum time to close a connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// Unread bytes that HTTP/2 may bring, outside every budget.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

pub(super) struct ClientConnection {
    pub(super) stream: TcpStream,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) peer: SocketAddr,
    pub(super) activity: Arc<Activity>,
    pub(super) router: Router,
    pub(super) limits: Arc<ServerLimits>,
    pub(super) builder: Arc<Builder<TokioExecutor>>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) stopped: watch::Receiver<bool>,
}

pub(super) fn builder(limits: &ServerLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Our own limits are stricter; this one is a safety net.
        .header_read_timeout(limits.idle.max(limits.head) + FAREWELL)
        .max_buf_size(limits.head_bytes.max(8 << 10))
        .max_headers(limits.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(limits.resets)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(256 << 10)
        .keep_alive_interval(limits.idle)
        .keep_alive_timeout(limits.head);
    builder
}

impl ClientConnection {
    pub(super) async fn run(self) {
        let Self { stream, tls, peer, activity, router, limits, builder, refusals, stopped } = self;
        // Responses are small; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let socket = WatchedStream::new(stream, Arc::clone(&activity), limits.write);
        let spoken = HttpConnection { peer, router, limits, builder, refusals, stopped, activity };
        let Some(tls) = tls else { return spoken.run(socket).await };
        // A handshake precedes the head, and may take as long.
        let handshake = tokio::time::timeout(spoken.limits.head, tls.accept(socket));
        let handshake = tokio::select! {
            handshake = handshake => handshake,
            () = spoken.activity.evicted.notified() => return,
        };
        match handshake {
            Ok(Ok(socket)) => spoken.run(socket).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "connection closed, TLS handshake too slow"),
        }
    }
}

/// A connection that speaks HTTP, over TCP or TLS.
struct HttpConnection {
    peer: SocketAddr,
    router: Router,
    limits: Arc<ServerLimits>,
    builder: Arc<Builder<TokioExecutor>>,
    refusals: Arc<Refusals>,
    stopped: watch::Receiver<bool>,
    activity: Arc<Activity>,
}

impl HttpConnection {
    async fn run(self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { peer, router, limits, builder, refusals, mut stopped, activity } = self;
        let service = {
            let (activity, streams) = (Arc::clone(&activity), limits.streams);
            hyper::service::service_fn(move |request| {
                let open = OpenRequest::new(&activity, request.version());
                answer(router.clone(), peer, open, Arc::clone(&refusals), streams, request)
            })
        };
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(socket), service));
        // Often enough that the next check notices what began after the last one.
        let beat = limits.head.min(limits.idle);
        let mut timer = std::pin::pin!(sleep_until(Instant::now() + beat));
        let (mut leaving, mut stopping) = (false, false);
        loop {
            tokio::select! {
                // Read first, then check the time: a slow server must not blame its clients.
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "a connection ended");
                    }
                    return;
                }
                () = timer.as_mut() => {
                    let now = Instant::now();
                    let next = match activity.deadline(&limits) {
                        Some(deadline) if deadline <= now => {
                            if leaving {
                                return;
                            }
                            leaving = true;
                            connection.as_mut().graceful_shutdown();
                            now + FAREWELL.min(beat)
                        }
                        deadline => deadline.unwrap_or(now + beat).min(now + beat),
                    };
                    timer.as_mut().reset(next);
                }
                () = activity.evicted.notified() => {
                    tracing::debug!(%peer, "connection closed, slot needed");
                    return;
                }
                () = activity.too_many_resets.notified() => {
                    tracing::debug!(%peer, "connection closed, too many stream resets");
                    return;
                }
                _ = stopped.wait_for(|stopped| *stopped), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Calls the router.
async fn answer(
    router: Router,
    peer: SocketAddr,
    mut open: OpenRequest,
    refusals: Arc<Refusals>,
    streams: u32,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    let mut too_many = !open.is_proven() && refusals.used_up(peer.ip(), Instant::now());
    if too_many {
        request.extensions_mut().insert(TooManyRefusals);
    }
    let mut response = router.oneshot(request).await?;
    if response.status() == StatusCode::UNAUTHORIZED || response.extensions().get::<Unproven>().is_some() {
        if slow_down(&refusals, peer, &open, streams).await.is_none() {
            (response, too_many) = (too_many_refusals(), true);
        }
    } else if response.status().is_success() && response.extensions().get::<Anonymous>().is_none() {
        open.proven();
    }
    // Clients of HTTP/1 pay for each further try with a connection.
    if too_many && response.status() == StatusCode::TOO_MANY_REQUESTS && !open.is_http2() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    open.answered();
    Ok(response.map(|body| ResponseBody { body, open }))
}

/// Delays the response for an unverified sender after many failures from its address. Returns `None` if too many responses
/// are delayed.
async fn slow_down(
    refusals: &Arc<Refusals>,
    peer: SocketAddr,
    open: &OpenRequest,
    streams: u32,
) -> Option<()> {
    let wait = match refusals.refuse(peer.ip(), Instant::now(), !open.is_http2()) {
        RefusalVerdict::Now => return Some(()),
        RefusalVerdict::Later(wait) => wait,
        RefusalVerdict::TooMany => return None,
    };
    let _waiting = open.wait(streams)?;
    sleep_until(Instant::now() + wait.wait).await;
    Some(())
}

/// Returns the response to a client whose refusals cannot be delayed.
fn too_many_refusals() -> Response<Body> {
    let document = r#"{"type":"about:blank","title":"Too many refused requests","status":429}"#;
    let mut response = Response::new(Body::from(document));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Body of a response. Its request stays open until it is sent.
struct ResponseBody {
    body: Body,
    open: OpenRequest,
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // Hyper polls it only when there is room. While it is pending, the router is slow, not the client.
        self.open.waits_for_client(frame.is_ready());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
