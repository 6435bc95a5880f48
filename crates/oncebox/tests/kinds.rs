//! Retries by the kind of error, and what becomes of error text.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{PoisonReason, Status};
use oncebox::{
    BoxError, Context, ErrorKind, Inbox, Memory, Message, Registration, Retry, batch_handler, handler,
};
use support::{FaultyMemory, SECOND, Testbed};

#[derive(Debug, thiserror::Error)]
#[error("the card was declined")]
struct Declined;

#[derive(Debug, thiserror::Error)]
#[error("busy")]
struct BusyError;

/// Something that went wrong because of something else.
#[derive(Debug, thiserror::Error)]
#[error("cannot charge")]
struct Charge(#[source] BoxError);

fn wrapped(error: impl Into<BoxError>) -> BoxError {
    Charge(error.into()).into()
}

/// Fails as the payload says.
async fn charge(message: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    let play: &[u8] = message.payload();
    match play {
        b"declined" => Err(Declined.into()),
        b"inside" => Err(wrapped(wrapped(Declined))),
        b"busy" => Err(wrapped(BusyError)),
        b"both" => Err(wrapped(oncebox::RetryAfter(7 * SECOND, "both".into()))),
        b"snooze" => Err(wrapped(oncebox::Snooze(SECOND))),
        b"text" => Err("the service says: later".into()),
        b"once" if cx.attempt() == 1 => Err(BusyError.into()),
        b"once" => Ok(()),
        _ => Err("whatever".into()),
    }
}

fn by_kind() -> Registration<FaultyMemory> {
    handler("h", charge)
        .retry(Retry::fixed(9, Duration::from_hours(9)))
        .retry_for::<Declined>(Retry::never())
        .retry_for::<BusyError>(Retry::fixed(3, 10 * SECOND))
        .retry_when(|error| error.to_string().contains("later"), Retry::fixed(2, 20 * SECOND))
}

async fn setup(plays: &[&str]) -> Testbed {
    let setup = Testbed::new(|inbox, _| inbox.on("t", by_kind()));
    for play in plays {
        setup.accept(play, play).await;
    }
    setup.inbox.drain().await.expect("the store answers");
    setup
}

#[tokio::test]
async fn each_kind_of_error_has_its_own_retry() {
    let setup = setup(&["declined", "inside", "busy", "text", "other", "snooze", "both"]).await;
    for id in ["declined", "inside"] {
        let poisoned = setup.entry(id, "h").await;
        assert_eq!((poisoned.status, poisoned.attempts), (Status::Poisoned, 1), "{id}");
        assert_eq!(poisoned.reason, Some(PoisonReason::Exhausted));
    }
    for (id, attempts) in [("busy", 1), ("text", 1), ("other", 1), ("snooze", 0), ("both", 1)] {
        let entry = setup.entry(id, "h").await;
        assert_eq!((entry.status, entry.attempts), (Status::Pending, attempts), "{id}");
    }
    // To the millisecond, because these are fixed.
    for (until, id, attempts) in [(7, "both", 2), (10, "busy", 2), (20, "busy", 3), (20, "text", 2)] {
        setup.clock.advance((SECOND * until).saturating_sub(elapsed(&setup) + SECOND / 1_000));
        setup.inbox.drain().await.unwrap();
        let before = setup.entry(id, "h").await.attempts;
        setup.clock.advance((SECOND * until).saturating_sub(elapsed(&setup)));
        setup.inbox.drain().await.unwrap();
        let after = setup.entry(id, "h").await.attempts;
        assert_eq!(after, attempts, "{id} at {until} s");
        assert!(before < after || elapsed(&setup) == 20 * SECOND, "{id} before {until} s");
    }
    let busy = setup.entry("busy", "h").await;
    assert_eq!((busy.status, busy.attempts), (Status::Poisoned, 3), "three attempts, ten seconds apart");
    let text = setup.entry("text", "h").await;
    assert_eq!((text.status, text.attempts), (Status::Poisoned, 2));
    let other = setup.entry("other", "h").await;
    assert_eq!((other.status, other.attempts), (Status::Pending, 1), "the handler's own retry");
}

fn elapsed(setup: &Testbed) -> Duration {
    use oncebox::time::Clock as _;
    setup.clock.monotonic()
}

#[tokio::test]
async fn the_kind_that_was_named_first_wins() {
    for (first_never, status) in [(true, Status::Poisoned), (false, Status::Pending)] {
        let setup = Testbed::new(|inbox, _| {
            let h = handler("h", charge);
            inbox.on(
                "t",
                if first_never {
                    h.retry_for::<Charge>(Retry::never()).retry_for::<BusyError>(Retry::quick())
                } else {
                    h.retry_for::<BusyError>(Retry::quick()).retry_for::<Charge>(Retry::never())
                },
            )
        });
        setup.accept("1", "busy").await;
        setup.inbox.drain().await.unwrap();
        assert_eq!(setup.status("1", "h").await, status);
    }
}

// The same rules hold for an entry that is claimed by a running inbox.
#[tokio::test]
async fn kinds_count_in_the_background_too() {
    let setup = Testbed::new(|inbox, _| inbox.on("t", by_kind()));
    let running = setup.inbox.start();
    setup.accept("1", "once").await;
    setup.accept("2", "inside").await;
    running.idle().await;
    assert_eq!(setup.status("1", "h").await, Status::Pending);
    assert_eq!(setup.status("2", "h").await, Status::Poisoned);
    setup.pass(11 * SECOND).await;
    assert_eq!(setup.status("1", "h").await, Status::Completed);
}

async fn nothing(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

async fn many(_: Vec<Message>, _: &mut oncebox::BatchContext<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[test]
fn what_cannot_work_is_refused_by_name() {
    let second = SECOND;
    let build = |registration: Registration<Memory>| {
        let inbox = Inbox::builder("test", Memory::new()).on("t", registration);
        let error = inbox.build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        error.to_string()
    };
    let h = || handler("charge", nothing);
    for (registration, parts) in [
        (
            h().retry_for::<BusyError>(Retry::new(3, 2 * second, second)),
            vec!["\"charge\"", "retry_for::<", "BusyError>", "2s", "1s"],
        ),
        (
            h().retry_when(|_| true, Retry::fixed(3, Duration::ZERO)),
            vec!["\"charge\"", "`retry_when`", "0ns", "would spin"],
        ),
        (h().retry_for::<BusyError>(Retry::never()).inline(), vec!["\"charge\"", "`retry_for`", "inline"]),
        (h().max_batch(3), vec!["\"charge\"", "`max_batch(3)`", "batch_handler"]),
    ] {
        let error = build(registration);
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    for (registration, part) in [
        (batch_handler("b", many).max_batch(0), "takes 0 messages"),
        (batch_handler("b", many).max_batch(1_001), "takes 1001 messages in one call; use 1 to 1000"),
        (batch_handler("b", many).share_commit(2), "`share_commit(2)`"),
        (batch_handler("b", many).inline(), "inline"),
    ] {
        let error = build(registration);
        assert!(error.contains(part), "{error}");
    }
}

async fn leaky(message: Message, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    let text = String::from_utf8_lossy(message.payload()).into_owned();
    match text.split_once(' ') {
        Some(("panic", rest)) => panic!("{rest}"),
        Some(("reject", rest)) => Err(oncebox::Reject(rest.into()).into()),
        Some(("discard", rest)) => Err(oncebox::Discard(rest.into()).into()),
        Some(("after", rest)) => Err(oncebox::RetryAfter(SECOND, rest.into()).into()),
        _ => Err(Charge(text.into()).into()),
    }
}

// FAULTS C11: wherever the text comes from.
#[tokio::test]
async fn no_secret_is_stored() {
    let setup = Testbed::new(|inbox, _| {
        let cards = |text: &str| text.replace("4111", "card");
        inbox.redact(cards).on("t", handler("h", leaky))
    });
    let leak = "db://app:hunter2@db 4111";
    for word in ["say ", "panic ", "reject ", "discard ", "after "] {
        setup.accept(word, &format!("{word}{leak}")).await;
    }
    setup.inbox.drain().await.unwrap();
    for word in ["say ", "panic ", "reject ", "discard ", "after "] {
        let text = setup.entry(word, "h").await.error.unwrap();
        assert!(text.as_str().ends_with("db://***@db card"), "{word}: {text}");
    }
}

// FAULTS C11: the rule sees the whole text, and one that fails lets nothing through.
#[tokio::test]
async fn a_rule_of_ones_own_comes_before_everything_else() {
    let seen = Arc::new(parking_lot::Mutex::new(0));
    let counts = Arc::clone(&seen);
    let setup = Testbed::new(|inbox, _| {
        let rule = move |text: &str| {
            *counts.lock() = text.len();
            assert!(!text.contains("bad"), "a rule that panics");
            text.to_uppercase()
        };
        inbox.redact(rule).on("t", handler("h", leaky))
    });
    setup.accept("long", &"x".repeat(5_000)).await;
    setup.inbox.drain().await.unwrap();
    assert!(*seen.lock() > 5_000);
    let text = setup.entry("long", "h").await.error.unwrap();
    assert!(text.as_str().starts_with("CANNOT CHARGE: XXX") && text.as_str().len() == 2_000, "{text}");
    setup.accept("bad", "bad secret").await;
    setup.inbox.drain().await.unwrap();
    let text = setup.entry("bad", "h").await.error.unwrap();
    assert!(!text.as_str().contains("secret") && text.as_str().contains("removed:"), "{text}");
}
