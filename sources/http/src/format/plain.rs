//! Format: any body, with id and type in headers. Tests: format/tests.rs.

use bytes::Bytes;
use oncebox::Message;

use super::{HeaderNames, VerifiedRequest, only, text};
use crate::problem::{ProblemType, RequestProblem};

pub(super) fn read(
    names: &HeaderNames,
    sent: VerifiedRequest<'_>,
    body: Bytes,
) -> Result<Message, RequestProblem> {
    let VerifiedRequest { headers, kept, message_type, .. } = sent;
    // A message without an id is the inbox's decision: the key may come from elsewhere.
    let id = only(headers, names.id.as_str())?.unwrap_or_default();
    let message_type = match message_type {
        Some(message_type) => message_type,
        None => text(headers, names.message_type.as_str())?
            .filter(|message_type| !message_type.is_empty())
            .ok_or_else(|| {
            RequestProblem::new(
                ProblemType::Malformed,
                format!("the header {:?} with the type is missing", names.message_type.as_str()),
            )
        })?,
    };
    let message = Message::new(Bytes::copy_from_slice(id), message_type, body).with_headers(kept);
    Ok(match only(headers, names.order.as_str())?.filter(|key| !oncebox::is_blank(key)) {
        Some(key) => message.with_ordering_key(Bytes::copy_from_slice(key)),
        None => message,
    })
}
