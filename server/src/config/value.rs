//! Values of the configuration: time spans, secrets, lists, and their location in the file. Tests: `tests/serve/config.rs`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value and its location in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub(crate) struct Located<T>(toml::Spanned<T>);

impl<T> Located<T> {
    /// Returns the offset of its start, in bytes.
    pub(crate) fn at(&self) -> usize {
        self.0.span().start
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<T: fmt::Display> fmt::Display for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: JsonSchema> JsonSchema for Located<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// A time span: `30s`, `5m`, `1h 30m`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSpan(pub(crate) Duration);

const SPAN: &str = "^[0-9]+ *[a-z]+( *[0-9]+ *[a-z]+)*$";

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let span = humantime::parse_duration(&text);
        span.map(Self).map_err(|_| {
            D::Error::custom(format!(
                "{text:?}is not a time span; write it like \"30s\", \"5m\", \"12h\" or \"7d\""
            ))
        })
    }
}

impl JsonSchema for TimeSpan {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": SPAN, "title": "time span" })
    }
}

/// A time span, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) Option<Duration>);

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "forever" {
            return Ok(Self(None));
        }
        let span = humantime::parse_duration(&text);
        span.map(|span| Self(Some(span))).map_err(|_| {
            D::Error::custom(format!(
                "{text:?}is not a time span; write it like \"12h\" or \"7d\", or \"forever\""
            ))
        })
    }
}

impl JsonSchema for Window {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "window".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": format!("^forever$|{SPAN}"), "title": "time span or \"forever\"" })
    }
}

/// A reference to a secret in the environment or in a file. Never holds or shows the value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SecretRef {
    Env(String),
    File(String),
}

impl SecretRef {
    fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            return (!name.is_empty()).then(|| Self::Env(name.into()));
        }
        let path = text.strip_prefix("file:")?;
        (!path.is_empty()).then(|| Self::File(path.into()))
    }

    /// Reads the secret. The error names the reference, never the value.
    pub(crate) fn read(&self) -> Result<String, String> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => {
                    format!("the environment variable {name} is not set")
                }
                std::env::VarError::NotUnicode(_) => format!("the environment variable {name} is not text"),
            })?,
            Self::File(path) => std::fs::read_to_string(path).map_err(|error| {
                format!("the file {path} cannot be read ({error}); check its path and permissions")
            })?,
        };
        let text = text.trim_end_matches(['\r', '\n']);
        if text.trim().is_empty() {
            return Err(format!("{self} is empty; store the secret there"));
        }
        Ok(text.to_owned())
    }
}

/// Reads a secret that the command line names.
pub(crate) fn secret(named: &str) -> Result<String, String> {
    // Not quoted: it may be the secret itself.
    let secret = SecretRef::parse(named);
    secret.ok_or("never write a secret down; name it with env:NAME or file:PATH")?.read()
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not quoted: it may be the secret itself.
        let no_secret =
            || D::Error::custom("never write a secret down; name it with \"env:NAME\" or \"file:/path\"");
        let text = deserializer.deserialize_any(AnyText).map_err(|_: D::Error| no_secret())?;
        Self::parse(&text).ok_or_else(no_secret)
    }
}

impl JsonSchema for SecretRef {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(env|file):.+$", "title": "\"env:NAME\" or \"file:/path\"" })
    }
}

/// A text that may contain a secret, such as a URL: the text itself, or a [`SecretRef`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Guarded {
    Plain(String),
    Named(SecretRef),
}

impl Guarded {
    pub(crate) fn read(&self) -> Result<String, String> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Named(secret) => secret.read(),
        }
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("***"),
            Self::Named(secret) => fmt::Debug::fmt(secret, f),
        }
    }
}

impl<'de> Deserialize<'de> for Guarded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(AnyText)?;
        Ok(SecretRef::parse(&text).map_or(Self::Plain(text), Self::Named))
    }
}

impl JsonSchema for Guarded {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "guarded".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "text, or \"env:NAME\" or \"file:/path\"" })
    }
}

/// Parses a text. The error does not quote another value.
struct AnyText;

impl Visitor<'_> for AnyText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// One value, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Many<T>(pub(crate) Vec<T>);

/// Returns the values of a setting and its offset; none, at `otherwise`, if it is not set.
pub(crate) fn many<T>(set: Option<&Located<Many<T>>>, otherwise: usize) -> (&[T], usize) {
    set.map_or((&[], otherwise), |set| (&(**set).0, set.at()))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ManyVisitor(PhantomData))
    }
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ManyVisitor<T> {
    type Value = Many<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value or a list")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Many<T>, E> {
        T::deserialize(serde::de::value::StrDeserializer::new(text)).map(|one| Many(vec![one]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Many<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|one| Many(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Many<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Many)
    }
}

impl<T: JsonSchema> JsonSchema for Many<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}
