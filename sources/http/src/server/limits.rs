//! Limits on connections. Tests: tests/limits.rs.

use std::time::Duration;

/// The limits of a [`Server`](super::Server). Each holds by itself, whatever the router does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Connections at once. For a further one, the address with most unproven connections closes one: the oldest, those without a
    /// request first. If all senders have proven who they are, the connection closes that is idle for longest; if none is idle, the
    /// new one waits. Default 4,096.
    pub connections: usize,
    /// Connections at once from one address; of IPv6 from one network of 64 bits. For a further one, another of the address closes in
    /// the same way; if none may close, the new one does. Behind a proxy all come from its address. Default 1,024.
    pub connections_per_address: usize,
    /// Connections, of all, that only this machine may have, beyond the limit of its address. Default 0.
    pub loopback: usize,
    /// Maximum time of the head of a request; of the first one from the beginning of the connection. A client gets at
    /// most twice that. Default: 10 seconds.
    pub head: Duration,
    /// Maximum wait of a connection for its next request. Default: 60 seconds.
    pub idle: Duration,
    /// Maximum time in which a client takes no more of an answer; then its connection is closed. Default: 30 seconds.
    pub write: Duration,
    /// Bytes of the head of a request, at least 8,192. Default 32 KiB.
    pub head_bytes: usize,
    /// Headers of a request in HTTP/1. Default 100.
    pub headers: usize,
    /// Requests at once on one connection of HTTP/2. Default 128.
    pub streams: u32,
    /// Requests that a connection may take back before they are answered; then it is closed. Default 200.
    pub resets: usize,
    /// Requests of one address that may fail to prove who sends them and are answered at once; ten more every second. Further
    /// ones wait for their answer, up to five seconds. If answers wait on a quarter of the connections that the address may have,
    /// further ones get 429 and their connections close; see [`TooManyRefusals`](super::TooManyRefusals). Default 100.
    pub refusals: u32,
    /// Maximum time for open requests after shutdown begins. Default: 20 seconds.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            connections_per_address: 1_024,
            loopback: 0,
            head: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            write: Duration::from_secs(30),
            head_bytes: 32 << 10,
            headers: 100,
            streams: 128,
            resets: 200,
            refusals: 100,
            grace: Duration::from_secs(20),
        }
    }
}
