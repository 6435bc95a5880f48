//! Serves a router on a socket, under limits. Tests: tests/limits.rs, tests/flood.rs and tests/clients.rs.

mod activity;
mod connection;
mod io;
mod limits;
mod refusals;
mod slots;
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

use activity::Activity;
use connection::ClientConnection;
use refusals::Refusals;
pub use refusals::{Anonymous, TooManyRefusals, Unproven};
pub(crate) use slots::network;
use slots::{ConnectionSlot, ConnectionSlots, NoSlot};

/// Pause if sockets are exhausted, or no connection can be closed.
const BREATH: Duration = Duration::from_millis(100);

/// Maximum connections that wait to be accepted, unless the system allows less. The usual 128 are too few: a refused
/// client retries after a second, and then after three.
const BACKLOG: u32 = 4_096;

/// Listens on an address, with a backlog for many clients at the same moment, as after a restart. Call it within a
/// Tokio runtime.
///
/// # Errors
///
/// Fails if the address is in use or not local.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Without this, a restarted server could not listen here for a minute. The option has another meaning on Windows.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves any [`axum::Router`] on a socket, in HTTP/1 and HTTP/2. [`ServerLimits`] bound the cost of clients.
///
/// Handlers can use axum's `ConnectInfo<SocketAddr>`.
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

    /// Serves TLS only.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves until `shutdown` is ready. Then it accepts nothing new, closes idle connections, and gives open requests
    /// the [grace](ServerLimits::grace). A write to the store completes even after that.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let Self { listener, router, limits, tls } = self;
        let limits = Arc::new(limits);
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let slots = Arc::new(ConnectionSlots::default());
        let room = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        let builder = Arc::new(connection::builder(&limits));
        let refusals = Refusals::new(limits.refusals, limits.connections_per_address / 4);
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = accept(&listener) => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let Some(stream) = accepted else { continue };
            let Ok(peer) = stream.peer_addr() else { continue };
            let activity = Activity::new(limits.resets);
            let admitted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                admitted = admit(&slots, &room, peer, &activity, &limits) => admitted,
            };
            let Some(held) = admitted else {
                tracing::debug!(%peer, "connection closed, address limit reached");
                continue;
            };
            let connection = ClientConnection {
                stream,
                tls: tls.as_ref().map(Tls::acceptor),
                peer,
                activity,
                router: router.clone(),
                limits: Arc::clone(&limits),
                builder: Arc::clone(&builder),
                refusals: Arc::clone(&refusals),
                stopped: stopped.clone(),
            };
            connections.spawn(async move {
                let _held = held;
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

/// Waits for room for a connection; `None` if its address has none.
async fn admit(
    slots: &Arc<ConnectionSlots>,
    room: &Arc<Semaphore>,
    peer: SocketAddr,
    activity: &Arc<Activity>,
    limits: &ServerLimits,
) -> Option<(ConnectionSlot, OwnedSemaphorePermit)> {
    let slot = loop {
        match slots.take(peer.ip(), activity, limits) {
            Ok(slot) => break slot,
            Err(NoSlot::ForAddress) => return None,
            // Check again soon: a connection that becomes idle sends no signal.
            Err(NoSlot::Now) => tokio::select! {
                () = slots.freed() => {}
                () = SystemClock::default().sleep(BREATH) => {}
            },
        }
    };
    // An evicted connection keeps its socket for a moment.
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    Some((slot, permit))
}

/// Returns the next connection.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
            // The client closed it. For other errors, pause: they may repeat at once.
            if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
                tracing::warn!(%error, "cannot accept a connection");
                SystemClock::default().sleep(BREATH).await;
            }
            None
        }
    }
}
