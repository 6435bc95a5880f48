//! Messages that were quarantined instead of run.

use std::sync::Arc;

use super::MessageLabel;
use crate::key::Key;
use crate::message::Message;
use crate::name::InboxName;
use crate::time::Timestamp;

/// Why a message was quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuarantineReason {
    /// Its key was known with another payload.
    Conflict,
    /// It is older than what the store remembers.
    Stale,
}

impl QuarantineReason {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Conflict, Self::Stale];

    /// The word for it in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Stale => "stale",
        }
    }
}

/// A message that was quarantined instead of run.
#[derive(Clone, Debug)]
pub struct Quarantined {
    /// Why.
    pub reason: QuarantineReason,
    /// When it came.
    pub received_at: Timestamp,
    /// The message.
    pub message: Arc<Message>,
}

/// The number of a message that was quarantined; later ones have greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuarantineId(pub i64);

/// Which messages that were quarantined to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuarantineFilter {
    /// The inbox.
    pub inbox: InboxName,
    /// Only those that are quarantined for this reason.
    pub reason: Option<QuarantineReason>,
    /// Only messages of this tenant.
    pub tenant: Option<Box<str>>,
    /// Only those after this one; where the previous page ended.
    pub after: Option<QuarantineId>,
    /// At most this many.
    pub limit: usize,
}

impl QuarantineFilter {
    /// The first hundred, for whatever reason.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, reason: None, tenant: None, after: None, limit: 100 }
    }
}

/// A message that was quarantined, as an operator sees it in a list: without its payload and headers, since a page of large ones
/// would fill the memory of whoever looks. [`Admin::show`](super::Admin::show) has those.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedView {
    /// Its number among those quarantined.
    pub id: QuarantineId,
    /// Why.
    pub reason: QuarantineReason,
    /// The key it came under; what else is known of that is shown by [`Admin::show`](super::Admin::show).
    pub key: Key,
    /// When it came.
    pub received_at: Timestamp,
    /// Whose it is.
    pub tenant: Option<Box<str>>,
    /// What it says of itself.
    pub label: MessageLabel,
    /// How long its payload is, as it is stored: an encrypted one is a little longer than what was sent.
    pub payload_bytes: u64,
}

impl QuarantinedView {
    /// A message that was quarantined, without a tenant and a payload, for a store to fill in.
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

/// A page of messages that were quarantined.
#[derive(Clone, Debug, Default)]
pub struct QuarantinePage {
    /// The messages, the first kept first.
    pub quarantined: Vec<QuarantinedView>,
    /// Where the next page starts, if there is one.
    pub next: Option<QuarantineId>,
}
