//! Entries and filters for them. Tests: `tests/serve/api/`.

use oncebox::state::Status;
use oncebox::store::EntryFilter;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BoundedText, HandlerName, KeyText, StatusWord, TimeText};

/// Declares a filter for entries, with further fields.
macro_rules! filters {
    ($(#[$meta:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// Entries with one of these statuses.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(length(max = 5))]
            pub(crate) status: Vec<StatusWord>,
            /// Entries of this handler.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<HandlerName>")]
            pub(crate) handler: Option<BoundedText>,
            /// Messages of this type.
            #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
            pub(crate) message_type: Option<BoundedText>,
            /// Messages from this source.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) source: Option<BoundedText>,
            /// Messages of this tenant.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) tenant: Option<BoundedText>,
            /// Messages whose id contains this text.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) id_contains: Option<BoundedText>,
            /// Messages with this ordering key.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) ordering_key: Option<BoundedText>,
            /// Messages received at this time or later.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) since: Option<TimeText>,
            /// Messages received before this time.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) before: Option<TimeText>,
            /// Last error contains this text (literal match).
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) error: Option<BoundedText>,
            $($more)*
        }

        impl $name {
            /// Converts to a filter of the store.
            pub(crate) fn filter(&self, inbox: InboxName) -> oncebox::Result<EntryFilter> {
                if self.status.len() > Status::ALL.len() {
                    let what = "`status` lists more statuses than exist";
                    return Err(Error::new(ErrorKind::InvalidMessage, what));
                }
                let text = |text: &Option<BoundedText>| text.as_deref().map(Into::into);
                let bytes = |text: &Option<BoundedText>| text.as_deref().map(|text| text.as_bytes().into());
                let mut filter = EntryFilter::any(inbox);
                filter.statuses = self.status.iter().map(|status| status.0).collect();
                filter.handler = self.handler.as_deref().map(HandlerKey::new).transpose()?;
                (filter.message_type, filter.source) = (text(&self.message_type), text(&self.source));
                (filter.tenant, filter.error_contains) = (text(&self.tenant), text(&self.error));
                filter.id_contains = bytes(&self.id_contains);
                filter.ordering_key = bytes(&self.ordering_key);
                filter.received_from = self.since.map(|time| time.0);
                filter.received_before = self.before.map(|time| time.0);
                Ok(filter)
            }
        }
    };
}

filters! {
    /// Filter for entries. All conditions must hold.
    EntrySelection {}
}

filters! {
    /// Filter for a page of entries.
    EntriesQuery {
        /// `next` of the previous page.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) after: Option<BoundedText>,
        /// Maximum entries per page. Default: 100.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1000))]
        pub(crate) limit: Option<u64>,
    }
}

/// A page of entries. A short or empty page may still have a next one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EntryList {
    /// Entries, ordered by `seq` and handler.
    pub(crate) entries: Vec<EntryRecord>,
    /// Cursor of the next page, if any.
    pub(crate) next: Option<String>,
}

/// An entry: one message for one handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EntryRecord {
    /// Sequence number of the message.
    pub(crate) seq: i64,
    /// Key of the message.
    pub(crate) key: KeyText,
    /// Handler key of the entry.
    pub(crate) handler: String,
    pub(crate) status: StatusWord,
    /// Failed attempts.
    pub(crate) attempts: u32,
    /// Workers that crashed while running only this entry.
    pub(crate) crashes: u32,
    /// Number of replays.
    pub(crate) generation: u32,
    /// Due time (pending), end of the lease (running) or finish time. Null while it waits for an earlier entry with its ordering
    /// key.
    pub(crate) at: Option<TimeText>,
    /// Reason it was poisoned.
    pub(crate) reason: Option<String>,
    /// Last error of the handler, redacted.
    pub(crate) error: Option<String>,
    /// Effect of a poisoned entry on later ones with its ordering key: blocks, parks, skipped or parked.
    pub(crate) in_line: Option<String>,
    /// Time the message was received.
    pub(crate) received_at: TimeText,
    /// Tenant of the message.
    pub(crate) tenant: Option<String>,
    /// Attributes of the message; null after retention deleted it.
    pub(crate) message: Option<MessageIdentity>,
}

/// Attributes of a message, without its payload and headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageIdentity {
    pub(crate) source: String,
    /// Id as text.
    pub(crate) id: String,
    /// Bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id_hex: Option<String>,
    #[serde(rename = "type")]
    pub(crate) message_type: String,
    /// Ordering key as text.
    pub(crate) ordering_key: Option<String>,
    /// Bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ordering_key_hex: Option<String>,
}
