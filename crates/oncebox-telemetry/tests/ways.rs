//! The trace of a message on every transport and with every kind of handler.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::collections::BTreeSet;

use oncebox::{
    BatchContext, BoxError, Config, Context, Inbox, InboxBuilder, Memory, Message, batch_handler, handler,
    source,
};
use oncebox_telemetry::{OtelPropagator, OtlpSettings, Telemetry};
use opentelemetry_proto::tonic::trace::v1::Span;
use support::{Collector, SPAN, TRACE, ancestors, attribute, hex};
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

/// Returns a message with its own trace for each number.
fn trace(number: usize) -> String {
    format!("{number:x}{}", &TRACE[1..])
}

fn message(number: usize) -> Message {
    let parent = format!("00-{}-{SPAN}-01", trace(number));
    Message::new(number.to_string(), "t", "{}").with_header("traceparent", parent)
}

fn builder() -> InboxBuilder<Memory> {
    Inbox::builder("orders", Memory::new()).propagate(OtelPropagator)
}

async fn plain(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

async fn with_tx(_: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    cx.tx().await?;
    Ok(())
}

async fn many(_: Vec<Message>, _: &mut BatchContext<Memory>) -> Result<(), BoxError> {
    Ok(())
}

/// Returns the spans that a run of `act` exports at the level of the layer.
async fn exported(act: impl Future<Output = ()>) -> Vec<Span> {
    let (collector, url) = Collector::start().await;
    let telemetry = Telemetry::new(&OtlpSettings::to("shop", url)).unwrap();
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    {
        // The test and everything it starts run on one thread.
        let _spans = tracing::subscriber::set_default(subscriber);
        act.await;
    }
    telemetry.shutdown().await;
    collector.spans()
}

/// Returns every span of a trace as the path of names from it to the root. Checks that each trace starts with the producer's span.
fn paths(spans: &[Span], trace: &str, parent: &str) -> BTreeSet<String> {
    let of = spans.iter().filter(|span| hex(&span.trace_id) == trace);
    of.map(|span| {
        let (names, above) = ancestors(spans, span);
        assert_eq!(above, parent, "{names:?}");
        names.join(" < ")
    })
    .collect()
}

const DURABLE: [&str; 5] = [
    "receive orders",
    "accept orders < receive orders",
    "claim h < receive orders",
    "process h < claim h < receive orders",
    "settle h < claim h < receive orders",
];

fn whole() -> BTreeSet<String> {
    DURABLE.map(str::to_owned).into()
}

#[tokio::test]
async fn deliveries_that_are_stored_together_have_a_trace_each() {
    let spans = exported(async {
        let inbox = builder().on("t", handler("h", plain)).build().unwrap();
        let running = inbox.start();
        let (sender, source) = source::channel("queue", 10);
        let sent = (0..3).map(|number| sender.deliver(message(number)));
        let sent = futures_util::future::join_all(sent);
        running.receive(source).unwrap();
        assert!(sent.await.iter().all(|ack| matches!(ack, Ok(source::Ack::Done))));
        running.idle().await;
        running.shutdown().await;
    })
    .await;
    for number in 0..3 {
        assert_eq!(paths(&spans, &trace(number), SPAN), whole(), "{spans:#?}");
    }
    assert_eq!(spans.len(), 15, "no others");
    let received = spans.iter().find(|span| span.name == "receive orders").unwrap();
    assert_eq!(attribute(received, "oncebox.source").as_deref(), Some("queue"));
}

#[tokio::test]
async fn a_settlement_that_is_committed_with_the_effects_is_in_the_trace() {
    let spans = exported(async {
        let share = handler("h", with_tx).share_commit(3);
        for registration in [handler("h", with_tx), share] {
            let inbox = builder().on("t", registration).build().unwrap();
            for accepted in inbox.accept_batch((0..3).map(message)).await.unwrap() {
                accepted.unwrap();
            }
            let running = inbox.start();
            running.idle().await;
            running.shutdown().await;
        }
    })
    .await;
    for number in 0..3 {
        assert_eq!(paths(&spans, &trace(number), SPAN), whole(), "{spans:#?}");
    }
    assert_eq!(spans.len(), 2 * 15, "no others");
}

#[tokio::test]
async fn a_call_for_many_messages_is_linked_to_the_claim_of_each() {
    let spans = exported(async {
        let inbox = builder().on("t", batch_handler("h", many)).build().unwrap();
        for number in 0..3 {
            inbox.accept(message(number)).await.unwrap();
        }
        assert_eq!(inbox.drain().await.unwrap(), 3);
    })
    .await;
    let ran: Vec<&Span> = spans.iter().filter(|span| span.name == "process h").collect();
    assert_eq!(ran.len(), 1, "{spans:#?}");
    let linked: BTreeSet<_> =
        ran[0].links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    let claims = spans.iter().filter(|span| span.name == "claim h");
    assert_eq!(linked, claims.map(|span| (hex(&span.trace_id), hex(&span.span_id))).collect());
    for number in 0..3 {
        let mut expected = whole();
        expected.remove("process h < claim h < receive orders");
        assert_eq!(paths(&spans, &trace(number), SPAN), expected, "{spans:#?}");
    }
}

#[tokio::test]
async fn a_handler_that_runs_before_the_answer_is_in_the_trace() {
    let spans = exported(async {
        let inbox = builder().on("t", handler("h", plain).inline()).build().unwrap();
        inbox.process(message(1)).await.unwrap();
        inbox.receive(message(2)).await.unwrap();
        let direct = Inbox::direct("orders").propagate(OtelPropagator).on("t", handler("h", direct)).build();
        direct.unwrap().receive(message(3)).await.unwrap();
    })
    .await;
    for number in 1..=3 {
        let expected = ["receive orders", "process h < receive orders"].map(str::to_owned);
        assert_eq!(paths(&spans, &trace(number), SPAN), expected.into(), "{spans:#?}");
    }
}

async fn direct(_: Message, _: &mut Context<oncebox::Direct>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn a_message_without_a_trace_is_in_that_of_the_code_that_accepts_it() {
    let spans = exported(async {
        let inbox = builder().on("t", handler("h", plain)).build().unwrap();
        let accept = inbox.accept(Message::new("1", "t", "{}"));
        accept.instrument(tracing::info_span!("request")).await.unwrap();
        inbox.accept(Message::new("2", "t", "{}")).await.unwrap();
        assert_eq!(inbox.drain().await.unwrap(), 2);
    })
    .await;
    let request = spans.iter().find(|span| span.name == "request").unwrap();
    let in_request: BTreeSet<String> = whole().into_iter().map(|path| path + " < request").collect();
    let mut found = paths(&spans, &hex(&request.trace_id), "");
    assert!(found.remove("request"));
    assert_eq!(found, in_request);
    let alone = spans.iter().find(|span| span.name == "receive orders" && span.parent_span_id.is_empty());
    assert_eq!(paths(&spans, &hex(&alone.unwrap().trace_id), ""), whole());
}

// A full set of headers or a header that must not be stored is no reason to refuse a message.
#[tokio::test]
async fn the_trace_is_stored_only_where_there_is_room_and_it_is_allowed() {
    let kept = Kept::default();
    let spans = exported(async {
        let (mut full, mut private) = (Config::default(), Config::default());
        full.limits.headers = 3;
        private.private_headers = vec!["TraceParent".into()];
        for (config, number) in [(full, 1), (private, 2)] {
            let seen = Kept::clone(&kept);
            let inbox = builder().config(config).data(seen).on("t", handler("h", keep)).build().unwrap();
            let message = Message::new(number.to_string(), "t", "{}").with_header("a", "b");
            inbox.accept(message).await.unwrap();
            assert_eq!(inbox.drain().await.unwrap(), 1);
        }
    })
    .await;
    assert_eq!(*kept.lock(), [["a"], ["a"]]);
    assert_eq!(spans.iter().filter(|span| span.name == "process h").count(), 2, "handled all the same");
}

type Kept = std::sync::Arc<parking_lot::Mutex<Vec<Vec<String>>>>;

async fn keep(message: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let names = message.headers().iter().map(|(name, _)| name.to_owned()).collect();
    cx.data::<Kept>()?.lock().push(names);
    Ok(())
}
