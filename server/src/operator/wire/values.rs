//! Values of requests, each with its own check. Tests: below.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncebox::Key;
use oncebox::state::Status;
use oncebox::store::{Action, OperationId};
use oncebox::time::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Implements a schema that is inlined and has no name.
macro_rules! inline_schema {
    ($name:ident, $($schema:tt)+) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($($schema)+)
            }
        }
    };
}

/// A text that every store can query: at most 1,000 characters and no NUL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BoundedText(pub(crate) String);

impl BoundedText {
    const MAX_CHARS: usize = 1_000;
}

impl Deref for BoundedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for BoundedText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for BoundedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\0') {
            return Err(D::Error::custom("a text must not contain the character U+0000"));
        }
        if text.chars().count() > Self::MAX_CHARS {
            return Err(D::Error::custom("a text must not exceed 1,000 characters"));
        }
        Ok(Self(text))
    }
}

inline_schema!(BoundedText, { "type": "string", "maxLength": 1000, "pattern": "^[^\\u0000]*$" });

/// Schema of a handler key.
pub(crate) struct HandlerName;

inline_schema!(HandlerName, {
    "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[A-Za-z0-9_.:/-]+$"
});

/// Schema of bytes in hexadecimal digits.
pub(crate) struct HexText;

inline_schema!(HexText, { "type": "string", "maxLength": 1000, "pattern": "^([0-9a-f]{2})*$" });

/// Reason of an action, for the audit log: 1 to 500 characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Reason(pub(crate) String);

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let BoundedText(text) = BoundedText::deserialize(deserializer)?;
        if text.is_empty() || text.chars().count() > Action::MAX_CHARS {
            return Err(D::Error::custom("a reason must have 1 to 500 characters"));
        }
        Ok(Self(text))
    }
}

inline_schema!(Reason, { "type": "string", "minLength": 1, "maxLength": 500, "pattern": "^[^\\u0000]*$" });

/// A time in RFC 3339 format, written in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeText(pub(crate) Timestamp);

/// End of the year 9999, the last that RFC 3339 can express, in milliseconds.
const LAST: u64 = 253_402_300_799_999;

impl TimeText {
    /// Converts a timestamp; `None` for an entry that waits for another one.
    pub(crate) fn of(at: Timestamp) -> Option<Self> {
        (at != Timestamp::MAX).then_some(Self(at))
    }

    fn read(text: &str) -> Option<Self> {
        // An offset is at the end, and `Z` is none.
        let (local, offset) = match text.len().checked_sub(6).and_then(|at| text.split_at_checked(at)) {
            Some((local, offset)) if offset.starts_with(['+', '-']) => {
                (format!("{local}Z"), offset_of(offset)?)
            }
            _ => (text.to_owned(), 0),
        };
        let time = match local.get(..4) {
            // Messages start in 1970, so an earlier time means the beginning.
            Some(year) if year < "1970" => {
                humantime::parse_rfc3339(&format!("1972{}", local.get(4..)?)).ok()?;
                UNIX_EPOCH
            }
            _ => humantime::parse_rfc3339(&local).ok()?,
        };
        let since = i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
        Some(Self(Timestamp::from_millis(since.checked_sub(offset)?)))
    }
}

/// Parses an offset like `+02:00` to milliseconds.
fn offset_of(text: &str) -> Option<i64> {
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let two = |digits: &str| -> Option<i64> {
        (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    };
    let (hours, minutes) = (two(hours).filter(|h| *h < 24)?, two(minutes).filter(|m| *m < 60)?);
    let offset = (hours * 60 + minutes) * 60_000;
    Some(if text.starts_with('-') { -offset } else { offset })
}

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(0).min(LAST);
        let time: SystemTime = UNIX_EPOCH + Duration::from_millis(millis);
        humantime::format_rfc3339_millis(time).fmt(f)
    }
}

impl Serialize for TimeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| D::Error::custom("write a time like 2026-01-31T12:00:00Z"))
    }
}

inline_schema!(TimeText, { "type": "string", "format": "date-time" });

/// A message key: 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyText(pub(crate) Key);

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Key::parse(&text).map(Self).ok_or_else(|| D::Error::custom("a key has 64 hexadecimal digits"))
    }
}

inline_schema!(KeyText, { "type": "string", "pattern": "^[0-9a-f]{64}$" });

/// An operation id: a UUID that the client creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationUuid(pub(crate) OperationId);

impl OperationUuid {
    /// Parses the hyphenated form.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let id: OperationId = text.parse().ok()?;
        text.eq_ignore_ascii_case(&id.to_string()).then_some(Self(id))
    }
}

impl Serialize for OperationUuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for OperationUuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| {
            D::Error::custom("an operation id is a UUID, like 5d0b9f5e-4f52-4b2e-9f2a-3f6f6c1f2b10")
        })
    }
}

inline_schema!(OperationUuid, { "type": "string", "format": "uuid" });

/// Status of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusWord(pub(crate) Status);

impl Serialize for StatusWord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for StatusWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = Status::ALL.into_iter().find(|status| status.as_str() == text);
        known.map(Self).ok_or_else(|| {
            let all = Status::ALL.map(Status::as_str).join(", ");
            D::Error::custom(format!("a status must be one of {all}"))
        })
    }
}

inline_schema!(StatusWord, {
    "type": "string", "enum": ["pending", "running", "completed", "poisoned", "discarded"]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_any_offset_are_parsed() {
        let read = |text: &str| TimeText::read(text).map(|time| time.to_string());
        assert_eq!(read("2026-01-31T12:00:00Z").as_deref(), Some("2026-01-31T12:00:00.000Z"));
        assert_eq!(read("2026-01-31T12:00:00.25+02:00").as_deref(), Some("2026-01-31T10:00:00.250Z"));
        assert_eq!(read("2026-01-31T12:00:00-01:30").as_deref(), Some("2026-01-31T13:30:00.000Z"));
        for wrong in
            ["", "now", "2026-01-31", "2026-01-31T12:00:00+2:00", "2026-01-31T12:00:00+02:60", "éééééé"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(read("0001-02-29T12:00:00Z").as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(TimeText::of(Timestamp::MAX), None);
        assert_eq!(TimeText(Timestamp::from_millis(i64::MAX - 1)).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn values_that_no_store_can_query_are_refused() {
        let text = |json: &str| serde_json::from_str::<BoundedText>(json);
        assert!(text(r#""50% _ "#).is_err() && text(r#""50% _""#).is_ok());
        assert!(text("\"a\\u0000b\"").is_err());
        assert!(text(&format!("{:?}", "x".repeat(1_001))).is_err());
        assert!(serde_json::from_str::<Reason>("\"\"").is_err());
        assert!(OperationUuid::read("5d0b9f5e4f524b2e9f2a3f6f6c1f2b10").is_none(), "one way to write it");
        assert!(OperationUuid::read("5D0B9F5E-4f52-4b2e-9f2a-3f6f6c1f2b10").is_some());
        assert!(serde_json::from_str::<StatusWord>("\"stuck\"").is_err());
    }
}
