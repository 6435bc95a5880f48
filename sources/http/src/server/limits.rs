//! Limits on connections. Tests: tests/limits.rs.

use std::time::Duration;

/// Limits of a [`Server`](super::Server). Each holds by itself, whatever the router does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Maximum connections. For another one, the address with most unproven connections closes one: the oldest, those
    /// without a request first. If all senders are proven, the server closes the connection that has been idle longest.
    /// If none is idle, the new one waits. Default: 4,096.
    pub connections: usize,
    /// Maximum connections from one address; for IPv6, from one network of 64 bits. For another one, the address closes
    /// one in the same way. If none may close, the server closes the new one. Behind a proxy, all come from its
    /// address. Default: 1,024.
    pub connections_per_address: usize,
    /// Connections reserved for this machine, out of all, beyond the limit of its address. Default: 0.
    pub loopback: usize,
    /// Maximum time of a request head; for the first one, from the start of the connection. A client gets at most twice
    /// that. Default: 10 seconds.
    pub head: Duration,
    /// Maximum wait of a connection for its next request. Default: 60 seconds.
    pub idle: Duration,
    /// Maximum time in which a client reads nothing of a response; then the server closes its connection. Default: 30
    /// seconds.
    pub write: Duration,
    /// Maximum bytes of a request head, at least 8,192. Default: 32 KiB.
    pub head_bytes: usize,
    /// Maximum headers of a request in HTTP/1. Default: 100.
    pub headers: usize,
    /// Maximum concurrent requests on one connection of HTTP/2. Default: 128.
    pub streams: u32,
    /// Maximum requests that a connection may cancel before their response; then the server closes it. Default: 200.
    pub resets: usize,
    /// Failed proofs of one address without delay; ten more are allowed every second. Further responses wait up to five
    /// seconds. If responses wait on a quarter of the connections that the address may have, further ones get 429 and their
    /// connections close; see [`TooManyRefusals`](super::TooManyRefusals). Default: 100.
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
