//! Decoding of payload bytes into the type of a handler.

use serde::de::DeserializeOwned;

use super::Message;
use crate::error::BoxError;
use crate::privacy::decode_error;

/// The payload does not decode into the handler's type.
#[derive(Debug, thiserror::Error)]
#[error("the payload of type {message_type:?} does not decode: {source}")]
pub struct DecodeError {
    message_type: Box<str>,
    source: BoxError,
}

impl DecodeError {
    /// Returns a decode error for `message`.
    pub fn new(message: &Message, source: impl Into<BoxError>) -> Self {
        Self { message_type: message.message_type().into(), source: source.into() }
    }
}

/// First argument of a handler: any type that deserializes from JSON, or the [`Message`] itself.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}` as its message: the first parameter is a type with `#[derive(serde::Deserialize)]` or `oncebox::Message`, by value",
    label = "write `async fn(M, &mut Context<S>) -> Result<(), E>`"
)]
pub trait FromMessage: Sized {
    /// Decodes the message. A failure counts no attempt, because the message caused it.
    fn from_message(message: &Message) -> Result<Self, DecodeError>;
}

#[diagnostic::do_not_recommend]
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
