//! A proxy to the broker that tests can cut.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections until they are cut.
pub(crate) struct BrokerProxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

struct ProxyState {
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
    /// Connections made so far.
    made: watch::Sender<usize>,
}

impl BrokerProxy {
    /// Starts in front of this port.
    pub(crate) async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ProxyState { cuts: watch::Sender::new(0), made: watch::Sender::new(0) });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let mut cut = state.cuts.subscribe();
                state.made.send_modify(|made| *made += 1);
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut from, &mut to) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, state }
    }

    /// Returns the address through this proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once('@').unwrap();
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        format!("{scheme}@{}/{path}", self.address)
    }

    /// Ends all open connections.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn made(&self) -> usize {
        *self.state.made.borrow()
    }

    /// Completes after `made` connections.
    pub(crate) async fn wait_for(&self, made: usize) {
        self.state.made.subscribe().wait_for(|count| *count >= made).await.unwrap();
    }
}
