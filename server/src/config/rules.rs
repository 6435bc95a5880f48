//! Settings that are a word or a table: retries, rates, keys, and where deliveries may go.

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

/// A value that is written as a word or as a table.
trait WordOrTable: Sized {
    /// What it is called in errors.
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

/// When a failed delivery is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetrySetting(pub(crate) oncebox::Retry);

/// A retry in numbers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryTable {
    /// Attempts in all, the first one included.
    attempts: u32,
    /// The wait after the first failure; it doubles each time.
    first: TimeSpan,
    /// The longest wait.
    max: Option<TimeSpan>,
    /// Whether waits are spread over their upper half, so that what failed together does not come back together. Default `true`.
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
                "`attempts` is 0, and the first attempt counts; use at least 1, or \"never\" for no retry",
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

/// How many deliveries are begun in a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateSetting(pub(crate) oncebox::Rate);

/// A rate in numbers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateTable {
    /// How many.
    count: u32,
    /// In which time.
    per: TimeSpan,
    /// How many at once after a pause; as many as `count`, if not said.
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
            E::custom(format!("{word:?} is no rate; write it like \"100/s\", \"30/min\" or \"10/h\""))
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

/// What makes two messages the same.
#[derive(Clone, Debug)]
pub(crate) struct KeySetting(pub(crate) Dedupe);

/// Where in a message a key is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum KeyLocation {
    /// The value of a header.
    Header(String),
    /// A field of a JSON payload, by JSON pointer: `/order/id`.
    Pointer(String),
}

impl KeyLocation {
    pub(crate) fn strategy(&self) -> KeyStrategy {
        match self {
            Self::Header(name) => KeyStrategy::header(name.as_str()),
            Self::Pointer(pointer) => KeyStrategy::json_pointer(pointer.as_str()),
        }
    }

    /// What is wrong with it.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::Header(name) if name.is_empty() => Some("no header has an empty name; name one"),
            Self::Pointer(pointer) if !pointer.starts_with('/') => {
                Some("a JSON pointer to a field starts with `/`; write it like \"/order/id\"")
            }
            _ => None,
        }
    }
}

/// Where in a message a key is, and what happens when it comes back with another payload.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyTable {
    /// The name of a header.
    header: Option<String>,
    /// A field of a JSON payload, by JSON pointer: `/order/id`.
    pointer: Option<String>,
    /// The policy for this key, whatever the inbox says.
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
            _ => return Err(E::custom("a key is either in a `header` or at a `pointer`; name one of them")),
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

/// Which addresses that are not public deliveries may go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Private {
    #[default]
    Refused,
    /// Loopback and private networks.
    Allowed,
    /// These networks, whatever they are.
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
                text.parse().map_err(|why| A::Error::custom(format!("{text:?} is no network: {why}")))?,
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
