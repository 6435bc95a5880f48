//! Names, messages and outcomes for tests. Tests: the cases that use it.

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{ErrorText, Outcome};
use oncebox::store::{Accepted, Claim, Claimed, KnownMessage, NewMessage, Route, Seq};
use oncebox::{HandlerKey, InboxName, Key, KeyStrategy, Message, Policy, Retry};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_hours(1);
/// Lease of every claim.
pub(crate) const LEASE: Duration = Duration::from_mins(1);
/// Shortest time after the lease that a store can distinguish.
pub(crate) const PAST_LEASE: Duration = Duration::from_millis(60_001);
/// Retention of finished messages.
pub(crate) const RETENTION: Duration = Duration::from_hours(7 * 24);

/// Returns the inbox of every test.
pub(crate) fn inbox() -> InboxName {
    inbox_named("orders")
}

pub(crate) fn inbox_named(name: &str) -> InboxName {
    InboxName::new(name).expect("a test names its inboxes well")
}

pub(crate) fn handler(name: &str) -> HandlerKey {
    HandlerKey::new(name).expect("a test names its handlers well")
}

pub(crate) fn route(name: &str) -> Route {
    Route::new(handler(name))
}

/// Returns a handler with its former keys.
pub(crate) fn renamed(name: &str, legacy: &[&str]) -> Route {
    Route::renamed(handler(name), legacy.iter().copied().map(handler).collect())
}

pub(crate) fn message(id: impl AsRef<[u8]>) -> Message {
    let id = id.as_ref().to_vec();
    Message::new(id.clone(), "order.placed", id).with_source("shop")
}

/// Returns the key of the message that [`offer`] makes for an id.
pub(crate) fn key(id: impl AsRef<[u8]>) -> Key {
    key_in(&inbox(), &message(id))
}

pub(crate) fn key_in(inbox: &InboxName, message: &Message) -> Key {
    KeyStrategy::MessageId.key(inbox, message).expect("a test gives its messages ids")
}

/// Returns a message for the handler `h`.
pub(crate) fn offer(id: impl AsRef<[u8]>) -> NewMessage {
    offer_to(id, &["h"])
}

/// Returns a message for some handlers.
pub(crate) fn offer_to(id: impl AsRef<[u8]>, handlers: &[&str]) -> NewMessage {
    offer_routed(message(id), handlers.iter().copied().map(route))
}

/// Returns the given message, for the handler `h`.
pub(crate) fn offer_message(message: Message) -> NewMessage {
    offer_routed(message, [route("h")])
}

/// Returns a message with an ordering key, for the handler `h`.
pub(crate) fn offer_ordered(id: impl AsRef<[u8]>, order: &str) -> NewMessage {
    offer_message(message(id).with_ordering_key(order.to_owned()))
}

pub(crate) fn offer_routed(message: Message, routes: impl IntoIterator<Item = Route>) -> NewMessage {
    let key = key_in(&inbox(), &message);
    NewMessage::new(inbox(), key, Arc::new(message), routes.into_iter().collect())
}

/// Returns the result of a duplicate at the same time as the first.
pub(crate) fn again(seq: Seq) -> Accepted {
    Accepted::Duplicate(KnownMessage::new(seq, Duration::ZERO))
}

/// Returns the same message for another inbox.
pub(crate) fn moved_to(inbox: &InboxName, new: &NewMessage) -> NewMessage {
    NewMessage::new(
        inbox.clone(),
        key_in(inbox, &new.message),
        Arc::clone(&new.message),
        Arc::clone(&new.routes),
    )
}

/// Returns a policy with three attempts and three crashes.
pub(crate) fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.retry = Retry::new(3, SECOND, SECOND);
    policy
}

pub(crate) fn text(text: &str) -> ErrorText {
    ErrorText::new(text)
}

/// Returns a failed attempt with a wait of five seconds.
pub(crate) fn failed() -> Outcome {
    Outcome::Retry { error: text("failed"), after: Some(5 * SECOND) }
}

pub(crate) fn rejected() -> Outcome {
    Outcome::Reject { error: text("rejected") }
}

pub(crate) fn dismissed() -> Outcome {
    Outcome::Discard { reason: text("dismissed") }
}

/// Returns every outcome of a claimed entry.
pub(crate) fn outcomes() -> [Outcome; 8] {
    [
        Outcome::Done,
        failed(),
        Outcome::Snooze { delay: 7 * SECOND },
        rejected(),
        dismissed(),
        Outcome::Undecodable { error: text("undecodable") },
        Outcome::Released,
        Outcome::Crashed,
    ]
}

/// Returns one outcome for each status that a settlement can lead to.
pub(crate) fn one_outcome_per_status() -> [Outcome; 4] {
    [Outcome::Done, failed(), rejected(), dismissed()]
}

/// Returns the ids of claimed messages, as text.
pub(crate) fn ids(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(id).collect()
}

pub(crate) fn id(claimed: &Claimed) -> String {
    String::from_utf8_lossy(claimed.message.id()).into_owned()
}

pub(crate) fn claims(claimed: &[Claimed]) -> Vec<Claim> {
    claimed.iter().map(|claimed| claimed.claim.clone()).collect()
}
