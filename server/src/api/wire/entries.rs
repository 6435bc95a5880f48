//! Entries, and which of them.

use oncebox::state::Status;
use oncebox::store::EntryFilter;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BoundedText, HandlerName, KeyText, StatusWord, TimeText};

/// Declares a filter for entries, with what is particular to its use.
macro_rules! filters {
    ($(#[$meta:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// With one of these statuses.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(length(max = 5))]
            pub(crate) status: Vec<StatusWord>,
            /// Of this handler.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<HandlerName>")]
            pub(crate) handler: Option<BoundedText>,
            /// Of messages of this type.
            #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
            pub(crate) message_type: Option<BoundedText>,
            /// Of messages from this source.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) source: Option<BoundedText>,
            /// Of messages of this tenant.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) tenant: Option<BoundedText>,
            /// Of messages whose id holds this.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) id_contains: Option<BoundedText>,
            /// Of messages with this ordering key.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) ordering_key: Option<BoundedText>,
            /// Of messages that came at this time or later.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) since: Option<TimeText>,
            /// Of messages that came before this time.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) before: Option<TimeText>,
            /// Whose last error holds this. No character of it means anything else: `%` is a percent sign.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) error: Option<BoundedText>,
            $($more)*
        }

        impl $name {
            /// As the stores are asked.
            pub(crate) fn filter(&self, inbox: InboxName) -> oncebox::Result<EntryFilter> {
                if self.status.len() > Status::ALL.len() {
                    let what = "`status` names more statuses than there are";
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
    /// Which entries. All that is given must hold.
    EntrySelection {}
}

filters! {
    /// Which entries, and which page of them.
    EntriesQuery {
        /// Where the previous page ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) after: Option<BoundedText>,
        /// At most this many. Default 100.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1000))]
        pub(crate) limit: Option<u64>,
    }
}

/// A page of entries. It may be short, or empty, and still have a next one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EntryList {
    /// By number and handler.
    pub(crate) entries: Vec<EntryRecord>,
    /// Where the next page starts, if there is one.
    pub(crate) next: Option<String>,
}

/// An entry: one message for one handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EntryRecord {
    /// The number of the message.
    pub(crate) seq: i64,
    /// The key of the message.
    pub(crate) key: KeyText,
    /// The handler key it is stored under.
    pub(crate) handler: String,
    pub(crate) status: StatusWord,
    /// Failed attempts.
    pub(crate) attempts: u32,
    /// Workers that died while they ran it alone.
    pub(crate) crashes: u32,
    /// How often it was replayed.
    pub(crate) generation: u32,
    /// When it is due (pending), when its lease ends (running), or when it was finished. Nothing while it waits for an
    /// earlier one with its ordering key.
    pub(crate) at: Option<TimeText>,
    /// Why it was poisoned.
    pub(crate) reason: Option<String>,
    /// What the handler said last, as the rules of redaction show it.
    pub(crate) error: Option<String>,
    /// What it is to those behind it with its ordering key, if it is poisoned: blocks, parks, skipped or parked.
    pub(crate) in_line: Option<String>,
    /// When its message came.
    pub(crate) received_at: TimeText,
    /// Whose message it is.
    pub(crate) tenant: Option<String>,
    /// What its message says of itself; nothing once it has left.
    pub(crate) message: Option<MessageLabel>,
}

/// What a message says of itself, without its payload and headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageLabel {
    pub(crate) source: String,
    /// The id as text.
    pub(crate) id: String,
    /// Its bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id_hex: Option<String>,
    #[serde(rename = "type")]
    pub(crate) message_type: String,
    /// The ordering key as text.
    pub(crate) ordering_key: Option<String>,
    /// Its bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ordering_key_hex: Option<String>,
}
