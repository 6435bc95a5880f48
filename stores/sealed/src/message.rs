//! Seals and opens messages: payload and headers become one sealed value. Tests: `tests/at_rest.rs`.

use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::store::NewMessage;
use oncebox_core::{Fingerprint, Headers, InboxName, Key, Message, Result};
use ring::hmac;

use crate::Sealed;
use crate::keyring::Keyring;
use crate::seal::{SealedField, Unreadable, open, seal};

/// The only header of a sealed message. A sender's header of this name is sealed with the rest.
const MARK: &str = "oncebox-sealed";
/// Header with the reason that a message is not shown to an operator.
const WHY: &str = "oncebox-unreadable";

fn place<'a>(inbox: &'a InboxName, key: &'a Key, message: &'a Message) -> SealedField<'a> {
    SealedField { inbox, key, field: "message", handler: "", message: Some(message) }
}

impl<S> Sealed<S> {
    /// Returns the offer with sealed payload and headers.
    pub(crate) fn seal_new(keys: &Keyring, new: &NewMessage) -> Result<NewMessage> {
        let (headers, payload) = (new.message.headers().encode(), new.message.payload());
        let mut plain = Vec::with_capacity(8 + headers.len() + payload.len());
        plain.extend_from_slice(&(headers.len() as u64).to_le_bytes());
        plain.extend_from_slice(&headers);
        plain.extend_from_slice(payload);
        let sealed = seal(keys, place(&new.inbox, &new.key, &new.message), &plain)?;
        let mut marked = Headers::default();
        marked.push(MARK, Bytes::from_static(b"1"));
        let mut new = new.clone();
        new.message = Arc::new(with(&new.message, sealed.into(), marked));
        new.fingerprint = Self::fingerprint(keys, &new.inbox, &new.key, new.fingerprint);
        Ok(new)
    }

    /// Returns a digest of payload, inbox and key. Without the secret, it reveals nothing, not even that two messages
    /// are equal. The type stays readable in it, as in the message.
    pub(crate) fn fingerprint(
        keys: &Keyring,
        inbox: &InboxName,
        key: &Key,
        fingerprint: Fingerprint,
    ) -> Fingerprint {
        let mut context = hmac::Context::with_key(keys.fingerprints());
        context.update(b"oncebox sealed fingerprint 1");
        context.update(&(inbox.as_str().len() as u64).to_le_bytes());
        context.update(inbox.as_str().as_bytes());
        context.update(key.as_bytes());
        context.update(fingerprint.as_bytes());
        let tag = context.sign();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&tag.as_ref()[..16]);
        fingerprint.with_secret(&bytes)
    }

    /// Returns the original message.
    pub(crate) fn open_message(
        &self,
        inbox: &InboxName,
        key: &Key,
        message: &Arc<Message>,
    ) -> std::result::Result<Arc<Message>, Unreadable> {
        if !is_sealed(message) {
            return if self.plaintext { Ok(Arc::clone(message)) } else { Err(Unreadable::Plain) };
        }
        let plain = open(&self.keys.keys(), self.oldest, place(inbox, key, message), message.payload())?;
        let (length, rest) = plain.split_first_chunk::<8>().ok_or(Unreadable::Forged)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| Unreadable::Forged)?;
        let (headers, payload) = rest.split_at_checked(length).ok_or(Unreadable::Forged)?;
        let headers = Headers::decode(headers).map_err(|_| Unreadable::Forged)?;
        Ok(Arc::new(with(message, Bytes::copy_from_slice(payload), headers)))
    }

    /// Returns the message for an operator. An unreadable message has no payload, and a header with the reason.
    pub(crate) fn show_message(&self, inbox: &InboxName, key: &Key, message: &Arc<Message>) -> Arc<Message> {
        self.open_message(inbox, key, message).unwrap_or_else(|why| {
            let mut headers = Headers::default();
            headers.push(WHY, why.to_string());
            Arc::new(with(message, Bytes::new(), headers))
        })
    }
}

fn is_sealed(message: &Message) -> bool {
    let mut headers = message.headers().iter();
    headers.next().is_some_and(|(name, _)| name == MARK) && headers.next().is_none()
}

/// Returns the message with another payload and other headers.
fn with(message: &Message, payload: Bytes, headers: Headers) -> Message {
    let id = Bytes::copy_from_slice(message.id());
    let mut made =
        Message::new(id, message.message_type(), payload).with_source(message.source()).with_headers(headers);
    if let Some(tenant) = message.tenant() {
        made = made.with_tenant(tenant);
    }
    if let Some(key) = message.ordering_key() {
        made = made.with_ordering_key(Bytes::copy_from_slice(key));
    }
    if let Some(time) = message.time() {
        made = made.with_time(time);
    }
    made
}
