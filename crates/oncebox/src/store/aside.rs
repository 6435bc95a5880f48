//! Messages that were kept aside instead of run.

use std::sync::Arc;

use super::Label;
use crate::key::Key;
use crate::message::Message;
use crate::name::InboxName;
use crate::time::Timestamp;

/// Why a message was kept aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsideReason {
    /// Its key was known with another payload.
    Conflict,
    /// It is older than what the store remembers.
    Stale,
}

impl AsideReason {
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

/// A message that was kept aside instead of run.
#[derive(Clone, Debug)]
pub struct KeptAside {
    /// Why.
    pub reason: AsideReason,
    /// When it came.
    pub received_at: Timestamp,
    /// The message.
    pub message: Arc<Message>,
}

/// The number of a message that was kept aside; later ones have greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsideId(pub i64);

/// Which messages that were kept aside to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AsideFilter {
    /// The inbox.
    pub inbox: InboxName,
    /// Only those that are aside for this reason.
    pub reason: Option<AsideReason>,
    /// Only messages of this tenant.
    pub tenant: Option<Box<str>>,
    /// Only those after this one; where the previous page ended.
    pub after: Option<AsideId>,
    /// At most this many.
    pub limit: usize,
}

impl AsideFilter {
    /// The first hundred, for whatever reason.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, reason: None, tenant: None, after: None, limit: 100 }
    }
}

/// A message that was kept aside, as an operator sees it in a list: without its payload and headers, since a page of large ones
/// would fill the memory of whoever looks. [`Admin::show`](super::Admin::show) has those.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsideView {
    /// Its number among those kept aside.
    pub id: AsideId,
    /// Why.
    pub reason: AsideReason,
    /// The key it came under; what else is known of that is shown by [`Admin::show`](super::Admin::show).
    pub key: Key,
    /// When it came.
    pub received_at: Timestamp,
    /// Whose it is.
    pub tenant: Option<Box<str>>,
    /// What it says of itself.
    pub label: Label,
    /// How long its payload is, as it is stored: an encrypted one is a little longer than what was sent.
    pub payload_bytes: u64,
}

impl AsideView {
    /// A message that was kept aside, without a tenant and a payload, for a store to fill in.
    pub const fn new(
        id: AsideId,
        reason: AsideReason,
        key: Key,
        received_at: Timestamp,
        label: Label,
    ) -> Self {
        Self { id, reason, key, received_at, tenant: None, label, payload_bytes: 0 }
    }
}

/// A page of messages that were kept aside.
#[derive(Clone, Debug, Default)]
pub struct AsidePage {
    /// The messages, the first kept first.
    pub asides: Vec<AsideView>,
    /// Where the next page starts, if there is one.
    pub next: Option<AsideId>,
}
