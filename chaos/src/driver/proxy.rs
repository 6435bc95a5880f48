//! A proxy between a worker and a server: delays, drops or cuts bytes on request. Tests: below.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::seam::pause;

/// A fault of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkFault {
    /// All bytes are delayed from now on.
    Delay,
    /// Nothing arrives for a while.
    BlackHole,
    /// One side sees the end of the stream.
    HalfClose,
    /// Both sides get a connection reset.
    Reset,
    /// Forwards this many bytes, then resets.
    Cut,
}

impl LinkFault {
    pub(super) const ALL: [Self; 5] = [Self::Delay, Self::BlackHole, Self::HalfClose, Self::Reset, Self::Cut];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::BlackHole => "black hole",
            Self::HalfClose => "half-close",
            Self::Reset => "reset",
            Self::Cut => "cut",
        }
    }
}

/// Direction of bytes.
#[derive(Clone, Copy)]
enum ByteDirection {
    There,
    Back,
}

/// One connection and its faults.
#[derive(Default)]
struct Link {
    /// Added delay of everything, in milliseconds.
    delay: AtomicU64,
    /// Delay of the next bytes, in milliseconds.
    hold: AtomicU64,
    /// Bytes that may still pass each way, plus one; 0 for no limit.
    room: [AtomicU64; 2],
    reset: Notify,
    closed: [Notify; 2],
}

/// A proxied port of a server.
pub(super) struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    /// Ends the tasks when dropped.
    _runtime: Runtime,
}

struct Shared {
    target: Mutex<SocketAddr>,
    links: Mutex<Vec<std::sync::Weak<Link>>>,
}

impl FaultProxy {
    /// Starts a proxy to a local port.
    pub(super) fn start(target: u16) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { target: Mutex::new(local(target)), links: Mutex::default() });
        let serving = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, Arc::clone(&serving)));
            }
        });
        Ok(Self { port, shared, _runtime: runtime })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Targets another server, and resets every connection to the old one.
    pub(super) fn lead_to(&self, target: u16) {
        *self.shared.target.lock() = local(target);
        for link in self.shared.alive() {
            link.reset.notify_one();
        }
    }

    /// Disturbs one of the connections, if there is one.
    pub(super) fn disturb(&self, trouble: LinkFault, rng: &mut fastrand::Rng) -> bool {
        let links = self.shared.alive();
        if links.is_empty() {
            return false;
        }
        let link = &links[rng.usize(0..links.len())];
        let way = rng.usize(0..2);
        match trouble {
            LinkFault::Delay => link.delay.store(rng.u64(2..60), Ordering::Relaxed),
            LinkFault::BlackHole => link.hold.store(rng.u64(100..2_500), Ordering::Relaxed),
            LinkFault::HalfClose => link.closed[way].notify_one(),
            LinkFault::Reset => link.reset.notify_one(),
            LinkFault::Cut => link.room[way].store(rng.u64(1..3_000), Ordering::Relaxed),
        }
        true
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Shared {
    fn alive(&self) -> Vec<Arc<Link>> {
        let mut links = self.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(std::sync::Weak::upgrade).collect()
    }
}

/// Forwards both ways until one side or the rig ends it.
async fn pass(mut client: TcpStream, shared: Arc<Shared>) {
    let target = *shared.target.lock();
    // A server that is down: reset the client, as the kernel would.
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let link = Arc::new(Link::default());
    shared.links.lock().push(Arc::downgrade(&link));
    let ended = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let there = pump(from_client, to_server, &link, ByteDirection::There);
        let back = pump(from_server, to_client, &link, ByteDirection::Back);
        tokio::select! {
            _ = async { tokio::join!(there, back) } => true,
            () = link.reset.notified() => false,
        }
    };
    if !ended {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, link: &Link, way: ByteDirection) {
    let mut buffer = vec![0; 1 << 14];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            () = link.closed[way as usize].notified() => 0,
        };
        if read == 0 {
            let _ = to.shutdown().await;
            return;
        }
        let wait = link.delay.load(Ordering::Relaxed) + link.hold.swap(0, Ordering::Relaxed);
        if wait > 0 {
            pause(Duration::from_millis(wait)).await;
        }
        let room = &link.room[way as usize];
        let left = room.load(Ordering::Relaxed);
        let many = u64::try_from(read).unwrap_or(u64::MAX);
        if left > 0 && left <= many {
            // Forward the remaining bytes, then nothing.
            let some = usize::try_from(left - 1).unwrap_or(0);
            let _ = to.write_all(&buffer[..some]).await;
            link.reset.notify_one();
            return std::future::pending().await;
        }
        if left > 0 {
            room.store(left - many, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            link.reset.notify_one();
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net;

    /// Returns a server that echoes everything twice, and a connection to it through the proxy.
    fn echo() -> (FaultProxy, net::TcpStream) {
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let proxy = FaultProxy::start(port).unwrap();
        let mut client = net::TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        client.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
        (proxy, client)
    }

    #[test]
    fn a_connection_is_reset() {
        let (proxy, mut client) = echo();
        assert!(proxy.disturb(LinkFault::Reset, &mut fastrand::Rng::with_seed(1)));
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_connection_is_cut_after_some_bytes() {
        let (proxy, mut client) = echo();
        for link in proxy.shared.alive() {
            link.room[ByteDirection::Back as usize].store(3, Ordering::Relaxed);
        }
        client.write_all(b"world").unwrap();
        let mut answer = Vec::new();
        let error = client.read_to_end(&mut answer).unwrap_err();
        assert_eq!((error.kind(), answer.as_slice()), (std::io::ErrorKind::ConnectionReset, &b"wo"[..]));
    }

    #[test]
    fn one_half_of_a_connection_is_closed() {
        let (proxy, mut client) = echo();
        for link in proxy.shared.alive() {
            link.closed[ByteDirection::Back as usize].notify_one();
        }
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn what_falls_into_a_hole_arrives_late_and_whole() {
        let (proxy, mut client) = echo();
        for link in proxy.shared.alive() {
            link.hold.store(60, Ordering::Relaxed);
            link.delay.store(5, Ordering::Relaxed);
        }
        let start = std::time::Instant::now();
        client.write_all(b"world").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
        assert_eq!(&answer, b"world");
    }

    #[test]
    fn another_server_takes_over_and_old_connections_end() {
        let (first, mut client) = echo();
        let (second, _) = echo();
        first.lead_to(second.port());
        assert!(client.read(&mut [0; 1]).is_err());
        let mut again = net::TcpStream::connect((Ipv4Addr::LOCALHOST, first.port())).unwrap();
        again.write_all(b"x").unwrap();
        assert_eq!(again.read(&mut [0; 1]).unwrap(), 1);
    }
}
