//! Which entries an operator wants to see, page by page.

use std::fmt;
use std::str::FromStr;

use super::{EntryView, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{ErrorText, Status};
use crate::time::Timestamp;

/// Which entries to list. All that is given must hold; what is `None` or empty asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryFilter {
    /// The inbox.
    pub inbox: InboxName,
    /// One of these statuses; any if there is none.
    pub statuses: Vec<Status>,
    /// Only the handler with this key, which may be any of its keys.
    pub handler: Option<HandlerKey>,
    /// Only messages of this type.
    pub message_type: Option<Box<str>>,
    /// Only messages from this source.
    pub source: Option<Box<str>>,
    /// Only messages whose id holds these bytes somewhere.
    pub id_contains: Option<Box<[u8]>>,
    /// Only messages with this ordering key.
    pub ordering_key: Option<Box<[u8]>>,
    /// Only messages of this tenant.
    pub tenant: Option<Box<str>>,
    /// Only messages that came at this time or later.
    pub received_from: Option<Timestamp>,
    /// Only messages that came before this time.
    pub received_before: Option<Timestamp>,
    /// Only entries whose last error holds this text somewhere. No character of it means anything else.
    pub error_contains: Option<Box<str>>,
    /// Where the previous page ended.
    pub after: Option<EntryCursor>,
    /// At most this many.
    pub limit: usize,
}

impl EntryFilter {
    /// A page is made of no more entries than this, whether they match or not: a list that matches little comes in short
    /// pages, and never keeps a database busy for long.
    pub const EXAMINED: usize = 2_000;

    /// The first hundred entries with a status.
    pub fn new(inbox: InboxName, status: Status) -> Self {
        Self { statuses: vec![status], ..Self::any(inbox) }
    }

    /// The first hundred entries, whatever their status is.
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

    /// Whether entries with a status are wanted.
    pub fn wants(&self, status: Status) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }

    /// Whether it asks for anything beyond the inbox and statuses: what acts on many entries refuses a filter that does not. An
    /// empty part of an id or of an error is in every one: it asks for nothing.
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

    /// The same filter for a store that calls a handler by `name`, whichever of its keys is asked for.
    #[must_use]
    pub fn named(&self, name: impl FnOnce(&HandlerKey) -> HandlerKey) -> Self {
        Self { handler: self.handler.as_ref().map(name), ..self.clone() }
    }

    /// Whether an entry of the inbox is wanted. What is asked of a message is not true of one whose message has left.
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

    /// Makes a page of entries that a store found, in the order of lists: by number, then handler. `found` are all there are
    /// after the cursor, up to [`Self::EXAMINED`] of them, each with its place; `None` stands for one that is not to be
    /// shown. `more` says that there are others behind them.
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

/// Whether some bytes hold others somewhere.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

/// A place in a list: opaque, and good for as long as the list is; what changes meanwhile neither moves it nor makes an
/// entry come twice. As text it can be handed out and taken back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryCursor {
    seq: Seq,
    handler: HandlerKey,
}

impl EntryCursor {
    /// The place of an entry.
    pub const fn new(seq: Seq, handler: HandlerKey) -> Self {
        Self { seq, handler }
    }

    /// The number of the message.
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The handler key of the entry.
    pub const fn handler(&self) -> &HandlerKey {
        &self.handler
    }
}

impl fmt::Display for EntryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.", self.seq.0)?;
        // Digits only, so that it fits into an address and a shell as it is.
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
            // No list gives out a number below zero.
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
pub struct EntryPage {
    /// The entries, by number and handler. May be fewer than asked for, or none, though there are more pages: a page looks
    /// at [`EntryFilter::EXAMINED`] entries at most.
    pub entries: Vec<EntryView>,
    /// Where the next page starts, if there is one.
    pub next: Option<EntryCursor>,
}

/// What a message says of itself, without its payload and headers.
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
    /// A label, as a store read it.
    pub fn new(
        source: impl Into<Box<str>>,
        id: impl Into<Box<[u8]>>,
        message_type: impl Into<Box<str>>,
        ordering_key: Option<Box<[u8]>>,
    ) -> Self {
        Self { source: source.into(), id: id.into(), message_type: message_type.into(), ordering_key }
    }

    /// The label of a message.
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
