//! What senders are told, and what is stored then.

mod support;

use std::time::Duration;

use oncebox::config::{OnConflict, Unrouted};
use oncebox::store::Admin as _;
use oncebox::{Config, Context, ErrorKind, Inbox, Memory, handler};
use oncebox_http::{BodyLimits, Endpoint, Ingress, Limits, Quota, Verify};
use oncebox_testkit::{Fault, FaultyStore, TestClock, Verb};
use support::{Answer, Running};

type Store = FaultyStore<Memory>;

struct World {
    server: Running,
    inbox: Inbox<Store>,
    clock: TestClock,
}

fn plain(name: &str) -> Endpoint {
    Endpoint::plain(name).verify(Verify::tokens(["token"]).unwrap())
}

async fn world(endpoints: Vec<Endpoint>) -> World {
    world_of(Config::default(), BodyLimits::default(), endpoints).await
}

async fn world_of(config: Config, bodies: BodyLimits, endpoints: Vec<Endpoint>) -> World {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let nothing = |_: oncebox::Message, _: &mut Context<Store>| async { Ok::<(), oncebox::Error>(()) };
    let inbox = Inbox::builder("in", store).config(config).on("t", handler("h", nothing)).build().unwrap();
    let mut ingress = Ingress::new().clock(clock.shared()).bodies(bodies);
    for endpoint in endpoints {
        ingress = ingress.endpoint(endpoint, &inbox);
    }
    let server = Running::start(ingress.into_router().unwrap(), Limits::default()).await;
    World { server, inbox, clock }
}

impl World {
    async fn send(&self, id: &str, body: &str) -> Answer {
        let headers = [("authorization", "Bearer token"), ("message-id", id), ("message-type", "t")];
        self.server.post("/in/shop", &headers, body).await
    }

    async fn stored(&self) -> u64 {
        self.inbox.store().inner().count(self.inbox.name()).await.unwrap().messages
    }
}

#[tokio::test]
async fn a_message_is_accepted_once() {
    let world = world(vec![plain("shop")]).await;
    let first = world.send("1", "{}").await;
    assert_eq!((first.status, &*first.body), (202, r#"{"outcome":"accepted"}"#));
    let second = world.send("1", "{}").await;
    assert_eq!((second.status, &*second.body), (200, r#"{"outcome":"duplicate"}"#));
    assert_eq!(world.stored().await, 1);
}
