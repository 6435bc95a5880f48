//! Independent clients: the Python packages of CloudEvents and Standard Webhooks, and curl.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use oncebox::{Context, Inbox, Memory, Message, handler};
use oncebox_http::{Endpoint, Ingress, ServerLimits, Verify};
use oncebox_servers::PythonEnv;
use parking_lot::Mutex;
use support::RunningServer;

struct ClientsFixture {
    server: RunningServer,
    inbox: Inbox<Memory>,
    seen: Arc<Mutex<Vec<Message>>>,
}

async fn fixture(endpoint: Endpoint) -> ClientsFixture {
    let seen = Arc::<Mutex<Vec<Message>>>::default();
    let note = {
        let seen = Arc::clone(&seen);
        move |message: Message, _: &mut Context<Memory>| {
            seen.lock().push(message);
            async { Ok::<(), oncebox::Error>(()) }
        }
    };
    let types = ["order.placed", "contact.created", "t"];
    let inbox =
        Inbox::builder("in", Memory::new()).on(types, handler("h", note)).build().expect("a valid inbox");
    let ingress = Ingress::new().endpoint(endpoint, &inbox);
    let server =
        RunningServer::start(ingress.into_router().expect("a valid endpoint"), ServerLimits::default()).await;
    ClientsFixture { server, inbox, seen }
}

/// Runs a program to its end and returns its output.
async fn output(mut command: Command) -> String {
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run.await.expect("the program ran").expect("the program is there");
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    said.into_owned()
}

fn python(script: &str) -> Command {
    let mut command = Command::new(PythonEnv::binary().expect("the clients are installed"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python").join(script));
    command
}

#[tokio::test]
async fn the_python_package_of_cloudevents() {
    let fixture = fixture(Endpoint::cloud_events("shop").verify(Verify::tokens(["token"]).unwrap())).await;
    let mut script = python("send_cloudevents.py");
    script.args([fixture.server.url("/in/shop"), "token".into()]);
    let said = output(script).await;
    assert_eq!(said, "binary 202 200\nstructured 202 200\nbatch 202 200\nagain 200\n");
    fixture.inbox.drain().await.unwrap();
    let mut seen = fixture.seen.lock().clone();
    seen.sort_by(|a, b| a.id().cmp(b.id()));
    let ids: Vec<&[u8]> = seen.iter().map(Message::id).collect();
    let expected: Vec<String> = (1..=5).map(|number| format!("/shop/python order-{number}")).collect();
    assert_eq!(ids, expected.iter().map(String::as_bytes).collect::<Vec<_>>());
    for message in &seen {
        assert_eq!((message.source(), message.ordering_key()), ("shop", Some(&b"customer 42"[..])));
        assert_eq!(message.time().map(oncebox::time::Timestamp::as_millis), Some(1_709_209_800_000));
        let data: serde_json::Value = serde_json::from_slice(message.payload()).unwrap();
        assert_eq!(data["note"], "grüß €5");
    }
    assert_eq!(seen[0].headers().get("ce-subject").unwrap(), "100% grün");
}

#[tokio::test]
async fn the_python_package_of_standard_webhooks() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let fixture = fixture(Endpoint::standard_webhooks("partner", [secret]).unwrap()).await;
    let mut script = python("send_webhook.py");
    script.args([fixture.server.url("/in/partner"), secret.into()]);
    assert_eq!(output(script).await, "signed 202 200\nforged 401\n");
    fixture.inbox.drain().await.unwrap();
    let seen = fixture.seen.lock();
    assert_eq!((seen.len(), seen[0].id(), seen[0].message_type()), (1, &b"msg_1"[..], "contact.created"));
}

#[tokio::test]
async fn curl_in_both_versions_of_http() {
    let fixture = fixture(Endpoint::plain("shop").verify(Verify::tokens(["token"]).unwrap())).await;
    let large = "x".repeat(1 << 20);
    let file = std::env::temp_dir().join(format!("oncebox-http-curl-{}", std::process::id()));
    std::fs::write(&file, &large).unwrap();
    let curl = |more: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--write-out", " %{http_code} %{http_version}"]);
        curl.args(["--header", "authorization: Bearer token", "--header", "message-type: t"]).args(more);
        // Waits for `100 Continue` before it sends the body.
        curl.args(["--header", "expect: 100-continue", "--data-binary"]).arg(format!("@{}", file.display()));
        curl.arg(fixture.server.url("/in/shop"));
        curl
    };
    let said = output(curl(&["--http1.1", "--header", "message-id: 1"])).await;
    assert_eq!(said, r#"{"outcome":"accepted"} 202 1.1"#);
    let said = output(curl(&["--http2-prior-knowledge", "--header", "message-id: 1"])).await;
    assert_eq!(said, r#"{"outcome":"duplicate"} 200 2"#);
    let said =
        output(curl(&["--http1.1", "--header", "transfer-encoding: chunked", "--header", "message-id: 2"]))
            .await;
    assert_eq!(said, r#"{"outcome":"accepted"} 202 1.1"#);
    std::fs::remove_file(&file).unwrap();
    fixture.inbox.drain().await.unwrap();
    assert!(fixture.seen.lock().iter().all(|message| message.payload() == large.as_bytes()));
}
