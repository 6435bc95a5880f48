//! Serves a router on a socket, under limits.

mod activity;
mod connection;
mod io;
mod limits;
mod places;
mod refusals;
mod tls;

pub use limits::ServerLimits;
pub use tls::Tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use oncebox::time::{Clock as _, SystemClock};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use connection::ClientConnection;
use places::ConnectionSlots;
pub(crate) use places::network;
use refusals::Refusals;
pub(crate) use refusals::Unproven;

/// Pause after the system has run out of sockets.
const BREATH: Duration = Duration::from_millis(100);

/// Maximum connections that wait to be accepted, unless the system allows less. The usual 128 are too few: a client
/// that finds no place retries after a second, and then after three.
const BACKLOG: u32 = 4_096;

/// Listens on an address, with room for many clients that come at the same moment, as they do after a restart. To be called within a
/// Tokio runtime.
///
/// # Errors
///
/// If the address is taken or not ours.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Without this, a restarted server could not listen here for a minute. On Windows the option means something else.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves any [`axum::Router`] on a socket, in HTTP/1 and HTTP/2, under [`ServerLimits`] on what clients can cost.
///
/// It gives handlers axum's `ConnectInfo<SocketAddr>`.
#[derive(Debug)]
#[must_use]
pub struct Server {
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    tls: Option<Tls>,
}

impl Server {
    /// Creates a server with the default limits on a listening socket, such as that of [`listen`].
    pub fn new(listener: TcpListener, router: Router) -> Self {
        Self { listener, router, limits: ServerLimits::default(), tls: None }
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Speaks TLS, and nothing else.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves until `shutdown` is ready. Then nothing new is accepted, idle connections are closed, and open requests have
    /// the [grace](Limits::grace) to end. What is being stored is stored even if that does not suffice.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let Self { listener, router, limits, tls } = self;
        let limits = Arc::new(limits);
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let places = Arc::new(ConnectionSlots::default());
        let room = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        let builder = Arc::new(connection::builder(&limits));
        let refusals = Refusals::new(limits.refusals, limits.connections_per_address / 4);
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = accept(&listener, &room) => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let Some((stream, permit)) = accepted else { continue };
            let Ok(peer) = stream.peer_addr() else { continue };
            let Some(place) = places.take(peer.ip(), limits.connections_per_address) else {
                tracing::debug!(%peer, "connection closed, address limit reached");
                continue;
            };
            let connection = ClientConnection {
                stream,
                tls: tls.as_ref().map(Tls::acceptor),
                peer,
                router: router.clone(),
                limits: Arc::clone(&limits),
                builder: Arc::clone(&builder),
                refusals: Arc::clone(&refusals),
                stopped: stopped.clone(),
            };
            connections.spawn(async move {
                let _held = (permit, place);
                connection.run().await;
            });
        }
        drop(listener);
        stop.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.grace, all).await.is_err() {
            tracing::warn!(open = connections.len(), "grace over, closing open requests");
            connections.shutdown().await;
        }
    }
}

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
            // That was the client's end of it; anything else may be there again at once.
            if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
                tracing::warn!(%error, "cannot accept a connection");
                SystemClock::default().sleep(BREATH).await;
            }
            None
        }
    }
}
