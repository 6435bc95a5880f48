//! The source passes the suite for sources, over real sockets.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use oncebox::{Inbox, Message};
use oncebox_http::{Endpoint, Ingress, ServerLimits, Verify};
use oncebox_testkit::source::{DeliveryLedger, TestStore, Transport};
use parking_lot::Mutex;
use support::{RawHttpClient, RunningServer};
use tokio::net::TcpStream;

/// A sender that keeps its messages until they are stored or refused.
#[derive(Clone, Default)]
struct Sender(Arc<Mutex<SenderState>>);

#[derive(Default)]
struct SenderState {
    waiting: Vec<Message>,
    in_flight: usize,
    ledger: DeliveryLedger,
    servers: Vec<SocketAddr>,
    turn: usize,
}

struct Instance {
    server: RunningServer,
    running: oncebox::Running<TestStore>,
}

impl Sender {
    /// Sends every waiting message, to one server after the other.
    fn deliver(&self) {
        let mut state = self.0.lock();
        if state.servers.is_empty() {
            return;
        }
        for message in std::mem::take(&mut state.waiting) {
            state.in_flight += 1;
            state.turn += 1;
            let server = state.servers[state.turn % state.servers.len()];
            let this = self.clone();
            tokio::spawn(async move {
                let status = post(server, &message).await;
                this.note(message, status);
            });
        }
    }

    fn note(&self, message: Message, status: Option<u16>) {
        let mut state = self.0.lock();
        state.in_flight -= 1;
        match status {
            Some(200 | 202) => state.ledger.done += 1,
            Some(409 | 503) => {
                state.ledger.again += 1;
                state.waiting.push(message);
            }
            Some(400 | 422) => state.ledger.rejected += 1,
            None => state.waiting.push(message),
            Some(other) => panic!("the server said {other}"),
        }
    }
}

async fn post(server: SocketAddr, message: &Message) -> Option<u16> {
    let mut client = RawHttpClient::new(TcpStream::connect(server).await.ok()?);
    let id = String::from_utf8_lossy(message.id()).into_owned();
    let mut headers = vec![("authorization", "Bearer token"), ("message-type", message.message_type())];
    if !id.is_empty() {
        headers.push(("message-id", &id));
    }
    Some(client.try_post("/in/suite", &headers, message.payload()).await?.status)
}

#[async_trait]
impl Transport for Sender {
    type Running = Instance;

    fn holds(&self) -> bool {
        false
    }

    async fn start(&self, inbox: &Inbox<TestStore>) -> Instance {
        let tokens = Verify::tokens(["token"]).expect("a token");
        let ingress = Ingress::new().endpoint(Endpoint::plain("suite").verify(tokens), inbox);
        let router = ingress.into_router().expect("a valid endpoint");
        let server = RunningServer::start(router, ServerLimits::default()).await;
        self.0.lock().servers.push(server.address);
        self.deliver();
        Instance { server, running: inbox.start() }
    }

    async fn stop(&self, instance: Instance) {
        self.0.lock().servers.retain(|server| *server != instance.server.address);
        instance.server.stopped().await;
        instance.running.shutdown().await;
    }

    async fn crash(&self, instance: Instance) {
        self.0.lock().servers.retain(|server| *server != instance.server.address);
        instance.server.abort().await;
        drop(instance.running);
    }

    async fn send(&self, message: Message) {
        self.0.lock().waiting.push(message);
        self.deliver();
    }

    async fn bring_again(&self) {
        self.deliver();
    }

    async fn ledger(&self) -> DeliveryLedger {
        let state = self.0.lock();
        DeliveryLedger { waiting: state.waiting.len() + state.in_flight, ..state.ledger }
    }
}

oncebox_testkit::source_conformance!(conformance, async || Sender::default());
