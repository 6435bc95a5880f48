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

use activity::Activity;
use connection::ClientConnection;
pub(crate) use places::network;
use places::{ConnectionSlot, ConnectionSlots, NoPlace};
use refusals::Refusals;
pub use refusals::{Anonymous, TooManyRefusals, Unproven};

/// Pause when there are no more sockets, or no connection gives way.
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
    /// the [grace](ServerLimits::grace) to end. What is being stored is stored even if that does not suffice.
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
                accepted = accept(&listener) => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let Some(stream) = accepted else { continue };
            let Ok(peer) = stream.peer_addr() else { continue };
            let activity = Activity::new(limits.resets);
            let admitted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                admitted = admit(&places, &room, peer, &activity, &limits) => admitted,
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

/// Waits until there is room for a connection; `None` if there is none for its address.
async fn admit(
    places: &Arc<ConnectionSlots>,
    room: &Arc<Semaphore>,
    peer: SocketAddr,
    activity: &Arc<Activity>,
    limits: &ServerLimits,
) -> Option<(ConnectionSlot, OwnedSemaphorePermit)> {
    let place = loop {
        match places.take(peer.ip(), activity, limits) {
            Ok(place) => break place,
            Err(NoPlace::ForAddress) => return None,
            // Looked at again soon: one that becomes idle does not tell.
            Err(NoPlace::Now) => tokio::select! {
                () = places.freed() => {}
                () = SystemClock::default().sleep(BREATH) => {}
            },
        }
    };
    // One that gives way keeps its socket for a moment.
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    Some((place, permit))
}

/// The next connection.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
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
