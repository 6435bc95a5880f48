//! From payload bytes to the type a handler takes.

use serde::de::DeserializeOwned;

use super::Message;
use crate::error::BoxError;
use crate::privacy::decode_error;

/// The payload is not what the handler expects.
#[derive(Debug, thiserror::Error)]
#[error("the payload of type {message_type:?} does not decode: {source}")]
pub struct DecodeError {
    message_type: Box<str>,
    source: BoxError,
}

impl DecodeError {
    /// A decode error for `message`.
    pub fn new(message: &Message, source: impl Into<BoxError>) -> Self {
        Self { message_type: message.message_type().into(), source: source.into() }
    }
}

/// What a handler can take as its first argument: any type that deserializes from JSON, or the [`Message`] itself.
pub trait FromMessage: Sized {
    /// Decodes the message. A failure is the message's fault, not the handler's: no attempt is counted.
    fn from_message(message: &Message) -> Result<Self, DecodeError>;
}

impl<T: DeserializeOwned> FromMessage for T {
    fn from_message(message: &Message) -> Result<Self, DecodeError> {
        serde_json::from_slice(message.payload())
            .map_err(|error| DecodeError::new(message, decode_error(&error)))
    }
}

impl FromMessage for Message {
    fn from_message(message: &Message) -> Result<Self, DecodeError> {
        Ok(message.clone())
    }
}
