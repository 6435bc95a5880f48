//! Names, messages and outcomes that tests are made of.

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{ErrorText, Outcome};
use oncebox::store::{Accepted, Claim, Claimed, KnownMessage, NewMessage, Route, Seq};
use oncebox::{HandlerKey, InboxName, Key, KeyStrategy, Message, Policy, Retry};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_hours(1);
/// The lease of every claim.
pub(crate) const LEASE: Duration = Duration::from_mins(1);
/// Longer than the lease by the least a store can tell.
pub(crate) const PAST_LEASE: Duration = Duration::from_millis(60_001);
/// How long finished messages are remembered.
pub(crate) const RETENTION: Duration = Duration::from_hours(7 * 24);

/// The inbox of every test.
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

/// A handler with its former keys.
pub(crate) fn renamed(name: &str, legacy: &[&str]) -> Route {
    Route { key: handler(name), legacy: legacy.iter().copied().map(handler).collect() }
}

pub(crate) fn message(id: impl AsRef<[u8]>) -> Message {
    let id = id.as_ref().to_vec();
    Message::new(id.clone(), "order.placed", id).with_source("shop")
}

/// The key of the message with an id, as [`offer`] gives it.
pub(crate) fn key(id: impl AsRef<[u8]>) -> Key {
    key_in(&inbox(), &message(id))
}

pub(crate) fn key_in(inbox: &InboxName, message: &Message) -> Key {
    KeyStrategy::MessageId.key(inbox, message).expect("a test gives its messages ids")
}

/// A message for the handler `h`.
pub(crate) fn offer(id: impl AsRef<[u8]>) -> NewMessage {
    offer_to(id, &["h"])
}

/// A message for some handlers.
pub(crate) fn offer_to(id: impl AsRef<[u8]>, handlers: &[&str]) -> NewMessage {
    offer_routed(message(id), handlers.iter().copied().map(route))
}

/// This very message, for the handler `h`.
pub(crate) fn offer_message(message: Message) -> NewMessage {
    offer_routed(message, [route("h")])
}

/// A message of an ordering key, for the handler `h`.
pub(crate) fn offer_ordered(id: impl AsRef<[u8]>, order: &str) -> NewMessage {
    offer_message(message(id).with_ordering_key(order.to_owned()))
}

pub(crate) fn offer_routed(message: Message, routes: impl IntoIterator<Item = Route>) -> NewMessage {
    let key = key_in(&inbox(), &message);
    NewMessage::new(inbox(), key, Arc::new(message), routes.into_iter().collect())
}

/// What a duplicate is told that comes in the same moment as the first.
pub(crate) fn again(seq: Seq) -> Accepted {
    Accepted::Duplicate(KnownMessage::new(seq, Duration::ZERO))
}

/// The same message for another inbox.
pub(crate) fn moved_to(inbox: &InboxName, new: &NewMessage) -> NewMessage {
    NewMessage::new(
        inbox.clone(),
        key_in(inbox, &new.message),
        Arc::clone(&new.message),
        Arc::clone(&new.routes),
    )
}

/// Three attempts, three crashes.
pub(crate) fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.retry = Retry::new(3, SECOND, SECOND);
    policy
}

pub(crate) fn text(text: &str) -> ErrorText {
    ErrorText::new(text)
}

/// A failed attempt that waits five seconds.
pub(crate) fn failed() -> Outcome {
    Outcome::Retry { error: text("failed"), after: Some(5 * SECOND) }
}

pub(crate) fn rejected() -> Outcome {
    Outcome::Reject { error: text("rejected") }
}

pub(crate) fn dismissed() -> Outcome {
    Outcome::Discard { reason: text("dismissed") }
}

/// Everything that can become of a claimed entry.
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

/// One outcome for each status a settlement can lead to.
pub(crate) fn one_outcome_per_status() -> [Outcome; 4] {
    [Outcome::Done, failed(), rejected(), dismissed()]
}

/// The ids of claimed messages, as text.
pub(crate) fn ids(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(id).collect()
}

pub(crate) fn id(claimed: &Claimed) -> String {
    String::from_utf8_lossy(claimed.message.id()).into_owned()
}

pub(crate) fn claims(claimed: &[Claimed]) -> Vec<Claim> {
    claimed.iter().map(|claimed| claimed.claim.clone()).collect()
}
