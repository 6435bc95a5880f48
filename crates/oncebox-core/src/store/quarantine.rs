//! Quarantined messages. Tests: `conformance/quarantine.rs` in `oncebox-testkit`.

use std::sync::Arc;

use super::MessageLabel;
use crate::key::Key;
use crate::message::Message;
use crate::name::InboxName;
use crate::time::Timestamp;

/// Reason for a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuarantineReason {
    /// Its key was known with another payload.
    Conflict,
    /// It is older than the watermark, so it may have run before.
    Stale,
}

impl QuarantineReason {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Conflict, Self::Stale];

    /// Returns the word for it in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Stale => "stale",
        }
    }
}

/// A quarantined message.
#[derive(Clone, Debug)]
pub struct Quarantined {
    /// Reason.
    pub reason: QuarantineReason,
    /// Time when it was received.
    pub received_at: Timestamp,
    /// The message.
    pub message: Arc<Message>,
}

/// Number of a quarantined message. Later messages have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuarantineId(pub i64);

/// Conditions for listing quarantined messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuarantineFilter {
    /// The inbox.
    pub inbox: InboxName,
    /// Only messages with this reason.
    pub reason: Option<QuarantineReason>,
    /// Only messages of this tenant.
    pub tenant: Option<Box<str>>,
    /// End of the previous page.
    pub after: Option<QuarantineId>,
    /// Maximum messages per page. Default: 100.
    pub limit: usize,
}

impl QuarantineFilter {
    /// Returns a filter for the first 100 messages with any reason.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, reason: None, tenant: None, after: None, limit: 100 }
    }
}

/// A quarantined message as lists show it: without payload and headers, because a page of large ones would use too much memory.
/// [`Inspect::show`](super::Inspect::show) returns those.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedView {
    /// Number of the quarantined message.
    pub id: QuarantineId,
    /// Reason.
    pub reason: QuarantineReason,
    /// Key. [`Inspect::show`](super::Inspect::show) returns what else is known of it.
    pub key: Key,
    /// Time when it was received.
    pub received_at: Timestamp,
    /// Tenant.
    pub tenant: Option<Box<str>>,
    /// Attributes.
    pub label: MessageLabel,
    /// Bytes of the stored payload. An encrypted one is a little longer than the original.
    pub payload_bytes: u64,
}

impl QuarantinedView {
    /// Returns a quarantined message without tenant and payload, for a store to fill in.
    pub const fn new(
        id: QuarantineId,
        reason: QuarantineReason,
        key: Key,
        received_at: Timestamp,
        label: MessageLabel,
    ) -> Self {
        Self { id, reason, key, received_at, tenant: None, label, payload_bytes: 0 }
    }
}

/// A page of quarantined messages.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QuarantinePage {
    /// The messages, the oldest first.
    pub quarantined: Vec<QuarantinedView>,
    /// Start of the next page, if there is one.
    pub next: Option<QuarantineId>,
}

impl QuarantinePage {
    /// Returns a page of messages, and the start of the next one.
    pub const fn new(quarantined: Vec<QuarantinedView>, next: Option<QuarantineId>) -> Self {
        Self { quarantined, next }
    }
}
