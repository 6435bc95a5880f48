//! Settings that are a word or a table: retries, rates, keys and allowed networks. Tests: `tests/serve/config.rs`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use oncebox::{Dedupe, KeyStrategy};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::model;
use super::value::TimeSpan;
use crate::delivery::Network;

/// A setting that is a word or a table.
trait WordOrTable: Sized {
    /// Expected values, for errors.
    const WHAT: &'static str;
    type Table: DeserializeOwned;

    fn from_word<E: Error>(word: &str) -> Result<Self, E>;
    fn from_table<E: Error>(table: Self::Table) -> Result<Self, E>;
}

struct Either<T>(PhantomData<T>);

impl<'de, T: WordOrTable> Visitor<'de> for Either<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        T::from_word(word)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_table(T::Table::deserialize(MapAccessDeserializer::new(map))?)
    }
}

/// The retry policy of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetrySetting(pub(crate) oncebox::Retry);

/// A retry policy in numbers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryTable {
    /// Maximum attempts, including the first.
    attempts: u32,
    /// Delay after the first failure. Each further failure doubles it.
    first: TimeSpan,
    /// Longest delay. Default: 12 hours, or `first` if that is longer.
    max: Option<TimeSpan>,
    /// Add jitter: spread each delay over its upper half. Default: `true`.
    #[serde(default = "yes")]
    spread: bool,
}

fn yes() -> bool {
    true
}

const RETRIES: [&str; 4] = ["never", "quick", "default", "patient"];

impl WordOrTable for RetrySetting {
    const WHAT: &'static str = "a retry: \"never\", \"quick\", \"default\", \"patient\", or a table";
    type Table = RetryTable;

    fn from_word<E: Error>(word: &str) -> Result<Self, E> {
        Ok(Self(match word {
            "never" => oncebox::Retry::never(),
            "quick" => oncebox::Retry::quick(),
            "default" => oncebox::Retry::default(),
            "patient" => oncebox::Retry::patient(),
            _ => return Err(E::unknown_variant(word, &RETRIES)),
        }))
    }

    fn from_table<E: Error>(table: RetryTable) -> Result<Self, E> {
        if table.attempts == 0 {
            return Err(E::custom(
                "`attempts` is 0, but the first attempt counts; use at least 1, or \"never\" for no retry",
            ));
        }
        let first = table.first.0;
        let max = table.max.map_or(first.max(oncebox::Retry::default().max), |max| max.0);
        let mut retry = oncebox::Retry::new(table.attempts, first, max);
        retry.spread = table.spread;
        Ok(Self(retry))
    }
}

impl<'de> Deserialize<'de> for RetrySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl JsonSchema for RetrySetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "retry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<RetryTable>();
        json_schema!({ "anyOf": [{ "enum": RETRIES }, table] })
    }
}

/// A rate limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateSetting(pub(crate) oncebox::Rate);

/// A rate limit in numbers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateTable {
    /// Number of messages.
    count: u32,
    /// Period.
    per: TimeSpan,
    /// Maximum burst after a pause. Default: `count`.
    burst: Option<u32>,
}

impl WordOrTable for RateSetting {
    const WHAT: &'static str = "a rate: like \"100/s\" or \"30/min\", or a table";
    type Table = RateTable;

    fn from_word<E: Error>(word: &str) -> Result<Self, E> {
        let parts =
            word.split_once('/').and_then(|(count, unit)| Some((count.trim().parse().ok()?, unit.trim())));
        let per = |unit: &str| match unit {
            "s" => Some(Duration::from_secs(1)),
            "min" => Some(Duration::from_mins(1)),
            "h" => Some(Duration::from_hours(1)),
            _ => None,
        };
        let rate = parts.and_then(|(count, unit)| Some(oncebox::Rate::new(count, per(unit)?)));
        rate.map(Self).ok_or_else(|| {
            E::custom(format!("{word:?} is not a rate; write it like \"100/s\", \"30/min\" or \"10/h\""))
        })
    }

    fn from_table<E: Error>(table: RateTable) -> Result<Self, E> {
        let rate = oncebox::Rate::new(table.count, table.per.0);
        Ok(Self(table.burst.map_or(rate.clone(), |burst| rate.burst(burst))))
    }
}

impl<'de> Deserialize<'de> for RateSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl JsonSchema for RateSetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "rate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<RateTable>();
        json_schema!({ "anyOf": [{ "type": "string", "pattern": "^[0-9]+ */ *(s|min|h)$" }, table] })
    }
}

/// A deduplication key.
#[derive(Clone, Debug)]
pub(crate) struct KeySetting(pub(crate) Dedupe);

/// Location of a key in a message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum KeyLocation {
    /// Value of a header.
    Header(String),
    /// Field of a JSON payload, as a JSON pointer: `/order/id`.
    Pointer(String),
}

impl KeyLocation {
    pub(crate) fn strategy(&self) -> KeyStrategy {
        match self {
            Self::Header(name) => KeyStrategy::header(name.as_str()),
            Self::Pointer(pointer) => KeyStrategy::json_pointer(pointer.as_str()),
        }
    }

    /// Returns a problem of the location, if any.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::Header(name) if name.is_empty() => Some("the name of the header is empty; set it"),
            Self::Pointer(pointer) if !pointer.starts_with('/') => {
                Some("a JSON pointer starts with `/`; write it like \"/order/id\"")
            }
            _ => None,
        }
    }
}

/// Location of a key in a message, and the policy for another payload.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyTable {
    /// Name of a header.
    header: Option<String>,
    /// Field of a JSON payload, as a JSON pointer: `/order/id`.
    pointer: Option<String>,
    /// Policy for a known key with another payload. Default: the policy of the inbox.
    on_conflict: Option<model::OnConflictSetting>,
}

const KEYS: [&str; 4] = ["id", "cloudevents", "content", "off"];

impl WordOrTable for KeySetting {
    const WHAT: &'static str =
        "a key: \"id\", \"cloudevents\", \"content\", \"off\", { header = \"..\" } or { pointer = \"/..\" }";
    type Table = KeyTable;

    fn from_word<E: Error>(word: &str) -> Result<Self, E> {
        Ok(Self(match word {
            "id" => Dedupe::By(KeyStrategy::MessageId),
            "cloudevents" => Dedupe::By(KeyStrategy::CloudEvents),
            "content" => Dedupe::By(KeyStrategy::Content),
            "off" => Dedupe::Off,
            _ => return Err(E::unknown_variant(word, &KEYS)),
        }))
    }

    fn from_table<E: Error>(KeyTable { header, pointer, on_conflict }: KeyTable) -> Result<Self, E> {
        let place = match (header, pointer) {
            (Some(header), None) => KeyLocation::Header(header),
            (None, Some(pointer)) => KeyLocation::Pointer(pointer),
            _ => return Err(E::custom("a key needs a `header` or a `pointer`, not both; name one of them")),
        };
        if let Some(flaw) = place.flaw() {
            return Err(E::custom(flaw));
        }
        let strategy = place.strategy();
        Ok(Self(Dedupe::By(match on_conflict {
            Some(policy) => strategy.on_conflict(policy.into()),
            None => strategy,
        })))
    }
}

impl<'de> Deserialize<'de> for KeySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl JsonSchema for KeySetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "key".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<KeyTable>();
        json_schema!({ "anyOf": [{ "enum": KEYS }, table] })
    }
}

/// Non-public addresses that deliveries may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Private {
    #[default]
    Refused,
    /// Loopback and private networks.
    Allowed,
    /// These networks.
    Networks(Vec<Network>),
}

struct PrivateVisitor;

impl<'de> Visitor<'de> for PrivateVisitor {
    type Value = Private;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a list of networks like \"10.0.0.0/8\"")
    }

    fn visit_bool<E>(self, allowed: bool) -> Result<Private, E> {
        Ok(if allowed { Private::Allowed } else { Private::Refused })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Private, A::Error> {
        let mut networks = Vec::new();
        while let Some(text) = seq.next_element::<String>()? {
            networks.push(
                text.parse().map_err(|why| A::Error::custom(format!("{text:?}is not a network: {why}")))?,
            );
        }
        Ok(Private::Networks(networks))
    }
}

impl<'de> Deserialize<'de> for Private {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PrivateVisitor)
    }
}

impl JsonSchema for Private {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "private".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "type": "array", "items": { "type": "string" } }] })
    }
}
