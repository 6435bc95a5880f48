//! Lists of entries for operators: filters, cursors and pages.

use std::fmt;
use std::str::FromStr;

use super::{EntryView, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{ErrorText, Status};
use crate::time::Timestamp;

/// Conditions for listing entries. An entry must meet all of them. `None` and empty values are no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryFilter {
    /// The inbox.
    pub inbox: InboxName,
    /// Statuses, any of them. Empty: every status.
    pub statuses: Vec<Status>,
    /// Only the handler with this key. Any of its keys matches.
    pub handler: Option<HandlerKey>,
    /// Only messages of this type.
    pub message_type: Option<Box<str>>,
    /// Only messages from this source.
    pub source: Option<Box<str>>,
    /// Only messages whose id contains these bytes.
    pub id_contains: Option<Box<[u8]>>,
    /// Only messages with this ordering key.
    pub ordering_key: Option<Box<[u8]>>,
    /// Only messages of this tenant.
    pub tenant: Option<Box<str>>,
    /// Only messages received at this time or later.
    pub received_from: Option<Timestamp>,
    /// Only messages received before this time.
    pub received_before: Option<Timestamp>,
    /// Only entries whose last error contains this text, literally.
    pub error_contains: Option<Box<str>>,
    /// End of the previous page.
    pub after: Option<EntryCursor>,
    /// Maximum entries per page. Default: 100.
    pub limit: usize,
}

impl EntryFilter {
    /// Maximum entries that a store reads for one page, matching or not. A filter that matches little gives short pages, and no
    /// page keeps a database busy for long.
    pub const EXAMINED: usize = 2_000;

    /// Returns a filter for the first 100 entries with a status.
    pub fn new(inbox: InboxName, status: Status) -> Self {
        Self { statuses: vec![status], ..Self::any(inbox) }
    }

    /// Returns a filter for the first 100 entries of any status.
    pub fn any(inbox: InboxName) -> Self {
        Self {
            inbox,
            statuses: Vec::new(),
            handler: None,
            message_type: None,
            source: None,
            id_contains: None,
            ordering_key: None,
            tenant: None,
            received_from: None,
            received_before: None,
            error_contains: None,
            after: None,
            limit: 100,
        }
    }

    /// Returns true if the filter accepts entries with a status.
    pub fn wants(&self, status: Status) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }

    /// Returns true if it has a condition beyond inbox and statuses. Operations on many entries refuse a filter without one. An
    /// empty part of an id or of an error is no condition: every entry contains it.
    pub fn is_narrow(&self) -> bool {
        self.handler.is_some()
            || self.message_type.is_some()
            || self.source.is_some()
            || self.id_contains.as_ref().is_some_and(|part| !part.is_empty())
            || self.ordering_key.is_some()
            || self.tenant.is_some()
            || self.received_from.is_some()
            || self.received_before.is_some()
            || self.error_contains.as_ref().is_some_and(|part| !part.is_empty())
    }

    /// Returns the filter for a store that calls a handler by `name`. Any key of the handler may be given.
    #[must_use]
    pub fn named(&self, name: impl FnOnce(&HandlerKey) -> HandlerKey) -> Self {
        Self { handler: self.handler.as_ref().map(name), ..self.clone() }
    }

    /// Returns true if an entry of the inbox matches. A condition on the message does not match after the message was removed.
    pub fn takes(&self, entry: &EntryView) -> bool {
        let label = |asked: bool, holds: &dyn Fn(&MessageLabel) -> bool| {
            !asked || entry.label.as_ref().is_some_and(holds)
        };
        let error = entry.error.as_ref().map_or("", ErrorText::as_str);
        self.wants(entry.status)
            && self.handler.as_ref().is_none_or(|handler| *handler == entry.handler)
            && self.tenant.as_ref().is_none_or(|tenant| entry.tenant.as_ref() == Some(tenant))
            && self.received_from.is_none_or(|from| entry.received_at >= from)
            && self.received_before.is_none_or(|before| entry.received_at < before)
            && self.error_contains.as_ref().is_none_or(|text| error.contains(&**text))
            && label(self.message_type.is_some(), &|label| {
                self.message_type.as_ref() == Some(&label.message_type)
            })
            && label(self.source.is_some(), &|label| self.source.as_ref() == Some(&label.source))
            && label(self.ordering_key.is_some(), &|label| self.ordering_key == label.ordering_key)
            && label(self.id_contains.is_some(), &|label| {
                self.id_contains.as_ref().is_some_and(|part| contains(&label.id, part))
            })
    }

    /// Builds a page from the entries that a store found. Lists are ordered by number, then handler. `found` holds all entries
    /// after the cursor, at most [`Self::EXAMINED`], each with its cursor. `None` stands for an entry that is not shown. `more` is
    /// true if others follow.
    pub fn page(
        &self,
        found: impl IntoIterator<Item = Result<(EntryCursor, Option<EntryView>)>>,
        more: bool,
    ) -> Result<EntryPage> {
        let mut page = EntryPage::default();
        let mut last = self.after.clone();
        for found in found {
            let (cursor, entry) = found?;
            if let Some(entry) = entry.filter(|entry| self.takes(entry)) {
                if page.entries.len() == self.limit {
                    page.next = last;
                    return Ok(page);
                }
                page.entries.push(entry);
            }
            last = Some(cursor);
        }
        page.next = last.filter(|_| more);
        Ok(page)
    }
}

/// Returns true if `bytes` contain `part`.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

/// Opaque position in a list, valid as long as the list exists. Later changes neither move it nor repeat an entry. Its text form
/// can be given to clients and parsed again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryCursor {
    seq: Seq,
    handler: HandlerKey,
}

impl EntryCursor {
    /// Returns the position of an entry.
    pub const fn new(seq: Seq, handler: HandlerKey) -> Self {
        Self { seq, handler }
    }

    /// Returns the number of the message.
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the handler key of the entry.
    pub const fn handler(&self) -> &HandlerKey {
        &self.handler
    }
}

impl fmt::Display for EntryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.", self.seq.0)?;
        // Digits only, so that it needs no quoting in a URL or a shell.
        self.handler.as_str().bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for EntryCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || -> Option<Self> {
            let (seq, handler) = text.split_once('.')?;
            let digits = |at: usize| u8::from_str_radix(handler.get(at..at + 2)?, 16).ok();
            let bytes: Option<Vec<u8>> = (0..handler.len()).step_by(2).map(digits).collect();
            let handler = HandlerKey::new(String::from_utf8(bytes?).ok()?).ok()?;
            // Lists give no number below zero.
            let seq = i64::from_str_radix(seq, 16).ok().filter(|seq| *seq >= 0)?;
            Some(Self::new(Seq(seq), handler))
        };
        read().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("{text:?} is no place in a list: it was not given out by one"),
            )
        })
    }
}

/// A page of entries.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EntryPage {
    /// The entries, by number and handler. A page reads at most [`EntryFilter::EXAMINED`] entries, so it may be short or empty
    /// although more pages follow.
    pub entries: Vec<EntryView>,
    /// Start of the next page, if there is one.
    pub next: Option<EntryCursor>,
}

/// Attributes of a message, without payload and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageLabel {
    /// Its source.
    pub source: Box<str>,
    /// Its id.
    pub id: Box<[u8]>,
    /// Its type.
    pub message_type: Box<str>,
    /// Its ordering key.
    pub ordering_key: Option<Box<[u8]>>,
}

impl MessageLabel {
    /// Returns the attributes, as a store read them.
    pub fn new(
        source: impl Into<Box<str>>,
        id: impl Into<Box<[u8]>>,
        message_type: impl Into<Box<str>>,
        ordering_key: Option<Box<[u8]>>,
    ) -> Self {
        Self { source: source.into(), id: id.into(), message_type: message_type.into(), ordering_key }
    }

    /// Returns the attributes of a message.
    pub fn of(message: &Message) -> Self {
        Self::new(
            message.source(),
            message.id(),
            message.message_type(),
            message.ordering_key().map(Into::into),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_from_its_text() {
        for name in ["h", "paket.senden", "a-b_c:1/2"] {
            let cursor = EntryCursor::new(Seq(1 << 40), HandlerKey::new(name).unwrap());
            assert_eq!(cursor.to_string().parse::<EntryCursor>().unwrap(), cursor);
        }
        for text in ["", ".", "1", "x.68", "1.6", "1.zz", "1.ff", "1.é"] {
            assert_eq!(text.parse::<EntryCursor>().unwrap_err().kind(), ErrorKind::NotFound, "{text}");
        }
    }
}
