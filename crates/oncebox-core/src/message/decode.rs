//! Decoding of payload bytes into the type of a handler.

use serde::de::DeserializeOwned;

use super::Message;
use crate::error::BoxError;

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

/// Returns the message of a decoder without content of the payload, because the message is stored and logged.
fn decode_error(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let (line, column) = (error.line(), error.column());
    let at = format!("line {line} column {column}");
    let text = error.to_string();
    let said = text.rsplit_once(" at line ").map_or(&*text, |(said, _)| said);
    match error.classify() {
        // These speak of JSON, not of what is in it.
        Category::Syntax | Category::Eof | Category::Io => format!("{said} at {at}"),
        // What is missing is named by the type, not by the payload.
        Category::Data if said.starts_with("missing field") => format!("{said} at {at}"),
        Category::Data => {
            let kind = [
                "invalid type",
                "invalid value",
                "invalid length",
                "unknown variant",
                "unknown field",
                "duplicate field",
            ]
            .into_iter()
            .find(|kind| said.starts_with(kind));
            // The expectation comes last, and is the text of the type's author.
            let expected = said.rsplit_once(", expected ").map(|(_, expected)| expected);
            let expected = expected.filter(|_| !said.contains(", there are no "));
            match (kind, expected) {
                (Some(kind), Some(expected)) => format!("{kind}, expected {expected} at {at}"),
                (Some(kind), None) => format!("{kind} at {at}"),
                (None, _) => format!("a value cannot be what it is at {at}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS S12: a decoder tells what it expected, not what it found.
    #[test]
    fn a_decoder_does_not_repeat_the_payload() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only decoded")]
        struct DecodedOrder {
            id: u8,
            kind: OrderSize,
            who: std::net::IpAddr,
        }
        #[derive(Debug, serde::Deserialize)]
        enum OrderSize {
            Big,
        }
        let payloads = [
            r#"{"id":"canary"}"#,
            r#"{"canary":1}"#,
            r#"{"id":1,"kind":"canary"}"#,
            r#"{"id":1,"kind":"Big","who":"canary, expected canary"}"#,
            r#"{"id":1,"id":"canary, expected canary"}"#,
            r#""canary, expected canary""#,
            r#"{"id":canary}"#,
            r#"{"id":1,"#,
        ];
        for payload in payloads {
            let text = decode_error(&serde_json::from_str::<DecodedOrder>(payload).unwrap_err());
            assert!(!text.contains("canary"), "{payload}: {text}");
            assert!(text.contains("line 1"), "{text}");
        }
        let missing = decode_error(&serde_json::from_str::<DecodedOrder>("{}").unwrap_err());
        assert_eq!(missing, "missing field `id` at line 1 column 2");
    }
}
