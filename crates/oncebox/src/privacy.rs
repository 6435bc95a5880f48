//! Keeps private headers out of the store, and private parts of payloads from readers. Tests: below, and `tests/canaries.rs`.

use regex::Regex;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Headers, Message};

/// Text in place of hidden content.
const MASK: &str = "***";

/// Headers that are never stored: credentials and signatures of the sender. Add others with
/// [`Config::private_headers`](crate::Config::private_headers).
pub const PRIVATE_HEADERS: [&str; 20] = [
    "authorization",
    "proxy-authorization",
    "www-authenticate",
    "proxy-authenticate",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-amz-security-token",
    "x-goog-iam-authorization-token",
    "webhook-signature",
    "svix-signature",
    "stripe-signature",
    "x-hub-signature",
    "x-hub-signature-256",
    "x-slack-signature",
    "x-shopify-hmac-sha256",
];

/// Parts of header names that mark a credential. A transport whose senders may send any header, such as HTTP, stores no
/// header with such a [name](names_credential).
const CREDENTIALS: [&str; 15] = [
    "auth",
    "cookie",
    "token",
    "secret",
    "signature",
    "password",
    "apikey",
    "api-key",
    "access-key",
    "subscription-key",
    "hmac",
    "credential",
    "jwt",
    "session",
    "assertion",
];

/// Returns true if the name of a header marks a credential. All of [`PRIVATE_HEADERS`] do.
pub fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

/// Returns true if a header must not be stored.
pub(crate) fn is_private(name: &str, more: &[Box<str>]) -> bool {
    let is = |private: &str| private.eq_ignore_ascii_case(name);
    PRIVATE_HEADERS.into_iter().any(is) || more.iter().any(|private| is(private))
}

/// Returns the message without its private headers.
pub(crate) fn stripped(message: Message, more: &[Box<str>]) -> Message {
    if !message.headers().iter().any(|(name, _)| is_private(name, more)) {
        return message;
    }
    let mut headers = Headers::default();
    for (name, value) in message.headers().iter().filter(|(name, _)| !is_private(name, more)) {
        headers.push(name, value.clone());
    }
    message.with_headers(headers)
}

/// Rules that hide parts of payloads from readers. A hidden part becomes `***`.
///
/// ```
/// use oncebox::privacy::{Redacted, Redaction};
///
/// # fn main() -> oncebox::Result<()> {
/// let rules = Redaction::new().pointer("/card/number")?.pointer("/people/*/email")?.pattern(r"\b\d{3}-\d{2}-\d{4}\b")?;
/// let payload = br#"{"card":{"number":"4111"},"note":"ssn 078-05-1120","people":[{"email":"a@b.c"}]}"#;
/// let shown = rules.show(payload);
/// assert_eq!(shown, Redacted::Text(r#"{"card":{"number":"***"},"note":"ssn ***","people":[{"email":"***"}]}"#.into()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    pointers: Vec<Vec<Box<str>>>,
    patterns: Vec<Regex>,
}

/// A payload after redaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redacted {
    /// The redacted text.
    Text(String),
    /// Hidden as a whole: the reason, and the size in bytes.
    Hidden(&'static str, usize),
}

impl Redaction {
    /// Makes an empty set of rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hides the value at a JSON pointer (RFC 6901). A part `*` matches every name or index.
    pub fn pointer(mut self, pointer: &str) -> Result<Self> {
        let refuse =
            |why: &str| Error::new(ErrorKind::InvalidConfig, format!("the pointer {pointer:?} {why}"));
        let rest = pointer.strip_prefix('/').ok_or_else(|| refuse("does not begin with `/`"))?;
        let parts = rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~").into());
        self.pointers.push(parts.collect());
        Ok(self)
    }

    /// Hides every match of a regular expression in the texts, names and numbers of a payload.
    pub fn pattern(mut self, pattern: &str) -> Result<Self> {
        let pattern = Regex::new(pattern).map_err(|error| {
            Error::new(ErrorKind::InvalidConfig, "a pattern of the redaction is not a regular expression")
                .caused_by(error)
        })?;
        self.patterns.push(pattern);
        Ok(self)
    }

    /// Applies the rules to a payload. A payload that is not JSON is hidden if a rule has a pointer, and else shown as text. A
    /// payload that is not text is hidden.
    pub fn show(&self, payload: &[u8]) -> Redacted {
        if let Ok(mut value) = serde_json::from_slice::<Value>(payload) {
            for pointer in &self.pointers {
                hide(&mut value, pointer);
            }
            self.scrub(&mut value);
            return Redacted::Text(value.to_string());
        }
        match std::str::from_utf8(payload) {
            Ok(_) if !self.pointers.is_empty() => {
                Redacted::Hidden("it is not JSON, and some of it may be private", payload.len())
            }
            Ok(text) => Redacted::Text(self.text(text)),
            Err(_) => Redacted::Hidden("it is not text", payload.len()),
        }
    }

    /// Applies the patterns to a text that may quote a payload. Pointers do not apply.
    pub fn text(&self, text: &str) -> String {
        self.patterns.iter().fold(text.to_owned(), |text, pattern| {
            pattern.replace_all(&text, regex::NoExpand(MASK)).into_owned()
        })
    }

    fn scrub(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Number(number) => {
                let text = number.to_string();
                if self.patterns.iter().any(|pattern| pattern.is_match(&text)) {
                    *value = MASK.into();
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.scrub(value);
                }
            }
            Value::Object(fields) => {
                let all = std::mem::take(fields);
                for (name, mut value) in all {
                    self.scrub(&mut value);
                    fields.insert(self.text(&name), value);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

fn hide(value: &mut Value, pointer: &[Box<str>]) {
    let Some((part, rest)) = pointer.split_first() else {
        *value = MASK.into();
        return;
    };
    match value {
        Value::Object(fields) if **part == *"*" => {
            for field in fields.values_mut() {
                hide(field, rest);
            }
        }
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(&**part) {
                hide(field, rest);
            }
        }
        Value::Array(values) if **part == *"*" => {
            for value in values {
                hide(value, rest);
            }
        }
        Value::Array(values) => {
            if let Some(value) = part.parse().ok().and_then(|index: usize| values.get_mut(index)) {
                hide(value, rest);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_headers_are_found_whatever_their_case() {
        let message = Message::new("1", "t", "")
            .with_header("Authorization", "Bearer canary")
            .with_header("x-kept", "1")
            .with_header("COOKIE", "a=canary")
            .with_header("X-Internal", "canary");
        let kept = stripped(message, &["x-internal".into()]);
        let names: Vec<&str> = kept.headers().iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["x-kept"]);
    }

    #[test]
    fn what_cannot_be_redacted_is_hidden() {
        let rules = Redaction::new().pointer("/a").unwrap();
        assert!(matches!(rules.show(b"a=secret"), Redacted::Hidden(_, 8)));
        assert!(matches!(Redaction::new().show(b"\xff\xfe"), Redacted::Hidden(_, 2)));
        assert_eq!(Redaction::new().show(b"plain"), Redacted::Text("plain".into()));
        assert!(Redaction::new().pointer("a").is_err());
        assert!(Redaction::new().pattern("(").is_err());
    }

    #[test]
    fn names_numbers_and_doubled_fields_do_not_get_through() {
        let rules = Redaction::new().pointer("/a").unwrap().pattern(r"\b\d{16}\b").unwrap();
        let shown = rules
            .show(br#"{"a":"x","a":"y","4111111111111111":1,"n":4111111111111111,"deep":[[{"a":"seen"}]]}"#);
        let Redacted::Text(text) = shown else { panic!("{shown:?}") };
        assert!(!text.contains("4111") && !text.contains('x') && !text.contains('y'), "{text}");
        assert!(text.contains("seen"), "a pointer names one place: {text}");
    }

    #[test]
    fn names_of_credentials() {
        assert!(PRIVATE_HEADERS.into_iter().all(names_credential));
        for name in ["X-Goog-IAP-JWT-Assertion", "Ocp-Apim-Subscription-Key", "X-Session-Id", "x-access-key"]
        {
            assert!(names_credential(name), "{name}");
        }
        assert!(!["traceparent", "content-type", "x-request-id"].into_iter().any(names_credential));
    }

    #[test]
    fn a_pointer_with_a_slash_in_a_name_is_written_as_the_standard_says() {
        let rules = Redaction::new().pointer("/a~1b/0").unwrap();
        assert_eq!(rules.show(br#"{"a/b":["x",1]}"#), Redacted::Text(r#"{"a/b":["***",1]}"#.into()));
    }
}
