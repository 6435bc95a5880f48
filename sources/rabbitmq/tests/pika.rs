//! Messages of an independent publisher, pika.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::path::Path;
use std::process::Command;

use oncebox::Memory;
use oncebox_servers::{PythonEnv, RabbitMqServer as Broker};
use oncebox_testkit::FaultyStore;
use support::{Effects, QueueClient, in_time, inbox, text, until};

/// Runs a publishing script.
async fn publish(script: &str, client: &QueueClient) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let (port, queue) = (Broker::shared().port().to_string(), client.queue.clone());
    let published = tokio::task::spawn_blocking(move || {
        Command::new(PythonEnv::binary().unwrap()).arg(script).args([port, queue]).output().unwrap()
    });
    let published = published.await.unwrap();
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
}

// FAULTS F11: one message ends the connection of each consumer that gets it. Its neighbours are unaffected.
#[tokio::test]
async fn a_message_that_cannot_be_taken_apart_takes_no_others_with_it() {
    let client = QueueClient::new("broken").await;
    let source = client.source(client.quorum().delivery_limit(4)).build().unwrap();
    source.check().await.unwrap();
    publish("publish_broken.py", &client).await;
    let effects = Effects::default();
    let running = inbox(FaultyStore::new(Memory::new()), &effects).start();
    running.receive(source).unwrap();
    effects.wait_for(39).await;
    until("the broken one is dead", || async { client.ready(&client.dead).await == 1 }).await;
    in_time(running.shutdown()).await;
    effects.assert_once((0..40).filter(|number| *number != 20));
    client.assert_left(0, 1).await;
}

#[tokio::test]
async fn messages_of_pika_are_understood() {
    let client = QueueClient::new("pika").await;
    let source = client.source(client.quorum()).cloud_events().build().unwrap();
    source.check().await.unwrap();
    let effects = Effects::default();
    let running = inbox(FaultyStore::new(Memory::new()), &effects).start();
    running.receive(source).unwrap();
    publish("publish.py", &client).await;
    effects.wait_for(102).await;
    let mut dead: Vec<Vec<u8>> =
        client.take(&client.dead, 2).await.into_iter().map(|(_, body)| body).collect();
    dead.sort();
    assert_eq!(dead, [b"no id".to_vec(), b"no type".to_vec()]);
    in_time(running.shutdown()).await;
    let ids = (0..100).map(|number| format!("p-{number}")).chain(["headers".into(), "/shop event".into()]);
    effects.assert_once(ids);
    client.assert_left(0, 0).await;

    let messages = effects.messages();
    let find = |id: &[u8]| messages.iter().find(|message| message.id() == id).unwrap();
    assert_eq!(find(b"/shop event").payload(), &br#"{"order":1}"#[..]);
    let odd = find(b"headers");
    assert_eq!(odd.payload()[..], [0, 255]);
    assert_eq!(odd.time().unwrap().as_millis(), 1_700_000_000_000);
    let expected = [
        ("text", "tëxt"),
        ("number", "7"),
        ("long", "1099511627776"),
        ("flag", "true"),
        ("nothing", ""),
        ("list", r#"[1,"a"]"#),
        ("table", r#"{"a":1}"#),
    ];
    for (name, value) in expected {
        assert_eq!(text(odd.headers(), name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(odd.headers().get("bytes").unwrap()[..], [0, 255]);
    assert_eq!(text(find(b"p-7").headers(), "app-id").as_deref(), Some("shop"));
}
