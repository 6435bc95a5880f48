//! Handlers that return `anyhow::Error`, `eyre::Report` or text keep the error policy.

mod support;

use std::io;

use oncebox::state::{PoisonReason, Status};
use oncebox::{
    BatchContext, BoxError, Context, Discard, ErrorKind, Failure, Message, Reject, Retry, RetryAfter, Snooze,
    batch_handler, handler,
};
use support::{FaultyMemory, SECOND, Testbed};

#[derive(Debug, thiserror::Error)]
#[error("the card was declined")]
struct CardDeclined;

/// Returns the error that the payload names, as an `E`.
fn failure<E>(payload: &[u8]) -> E
where
    E: From<Reject> + From<RetryAfter> + From<Snooze> + From<Discard> + From<CardDeclined> + From<io::Error>,
{
    match payload {
        b"reject" => Reject("no such card".into()).into(),
        b"later" => RetryAfter(7 * SECOND, "busy".into()).into(),
        b"snooze" => Snooze(SECOND).into(),
        b"discard" => Discard("paid before".into()).into(),
        b"declined" => CardDeclined.into(),
        _ => io::Error::other("broken pipe").into(),
    }
}

async fn with_anyhow(message: Message, _: &mut Context<FaultyMemory>) -> anyhow::Result<()> {
    let failed: anyhow::Result<()> = Err(failure(message.payload()));
    // Any handler adds context to its errors.
    if message.message_type() == "context" {
        return anyhow::Context::context(anyhow::Context::context(failed, "charging"), "the whole order");
    }
    failed
}

async fn with_eyre(message: Message, _: &mut Context<FaultyMemory>) -> eyre::Result<()> {
    let failed: eyre::Result<()> = Err(failure(message.payload()));
    if message.message_type() == "context" {
        return eyre::WrapErr::wrap_err(eyre::WrapErr::wrap_err(failed, "charging"), "the whole order");
    }
    failed
}

async fn with_box(message: Message, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    Err(failure(message.payload()))
}

async fn a_batch(messages: Vec<Message>, _: &mut BatchContext<FaultyMemory>) -> anyhow::Result<()> {
    Err(failure(messages[0].payload()))
}

async fn each_of_a_batch(
    messages: Vec<Message>,
    _: &mut BatchContext<FaultyMemory>,
) -> anyhow::Result<Vec<eyre::Result<()>>> {
    Ok(messages.iter().map(|message| Err(failure(message.payload()))).collect())
}

#[tokio::test]
async fn reports_keep_the_error_policy() {
    let types = ["plain", "context"];
    let setup = Testbed::new(|inbox, _| {
        let retries = |registration: oncebox::Registration<FaultyMemory>| {
            registration.retry(Retry::fixed(9, 60 * SECOND)).retry_for::<CardDeclined>(Retry::never())
        };
        inbox
            .on(types, retries(handler("anyhow", with_anyhow)))
            .on(types, retries(handler("eyre", with_eyre)))
            .on(types, retries(handler("boxed", with_box)))
            .on(types, retries(batch_handler("batch", a_batch)))
            .on(types, retries(batch_handler("each", each_of_a_batch)))
    });
    let plays = ["reject", "later", "snooze", "discard", "declined", "other"];
    for message_type in types {
        for play in plays {
            let id = format!("{play} in {message_type}");
            setup.inbox.accept(Message::new(id, message_type, play)).await.unwrap();
        }
    }
    setup.inbox.drain().await.unwrap();
    for message_type in types {
        for key in ["anyhow", "eyre", "boxed", "batch", "each"] {
            let mut found = Vec::new();
            for play in plays {
                let entry = setup.entry(&format!("{play} in {message_type}"), key).await;
                found.push((entry.status, entry.reason, entry.attempts));
            }
            let expected = [
                (Status::Poisoned, Some(PoisonReason::Rejected), 0),
                (Status::Pending, None, 1),
                (Status::Pending, None, 0),
                (Status::Discarded, None, 0),
                (Status::Poisoned, Some(PoisonReason::Exhausted), 1),
                (Status::Pending, None, 1),
            ];
            assert_eq!(found, expected, "{key} of {message_type}");
        }
    }
    // The delay of the report, not that of the rule, which is longer.
    setup.clock.advance(7 * SECOND);
    setup.inbox.drain().await.unwrap();
    for key in ["anyhow", "eyre", "boxed", "each"] {
        assert_eq!(setup.entry("later in plain", key).await.attempts, 2, "{key}");
        assert_eq!(setup.entry("other in plain", key).await.attempts, 1, "{key}");
    }
}

#[tokio::test]
async fn a_report_of_the_library_keeps_its_kind() {
    let kind = |failure: Failure| failure.into_inner().to_string();
    let error = || oncebox::Error::new(ErrorKind::Unavailable, "the store is away");
    assert_eq!(kind(Failure::new(anyhow::Error::from(error()))), error().to_string());
    assert_eq!(kind(Failure::new(eyre::Report::from(error()))), error().to_string());
    assert_eq!(kind(Failure::new(String::from("text"))), "text");
    assert_eq!(Failure::new(anyhow::anyhow!("no type")).to_string(), "no type");
}
