//! Any body, with its id and type in headers.

use bytes::Bytes;
use oncebox::Message;

use super::{Names, Sent, only, text};
use crate::problem::{Cause, Problem};

pub(super) fn read(names: &Names, sent: Sent<'_>, body: Bytes) -> Result<Message, Problem> {
    let Sent { headers, kept, kind, .. } = sent;
    // Without an id the inbox decides: it may go by something else.
    let id = only(headers, names.id.as_str())?.unwrap_or_default();
    let kind = match kind {
        Some(kind) => kind,
        None => text(headers, names.kind.as_str())?.filter(|kind| !kind.is_empty()).ok_or_else(|| {
            Problem::new(
                Cause::Malformed,
                format!("the header {:?} with the type is missing", names.kind.as_str()),
            )
        })?,
    };
    let message = Message::new(Bytes::copy_from_slice(id), kind, body).with_headers(kept);
    Ok(match only(headers, names.order.as_str())?.filter(|key| !oncebox::is_blank(key)) {
        Some(key) => message.with_ordering_key(Bytes::copy_from_slice(key)),
        None => message,
    })
}
