//! CloudEvents, as the binding for AMQP carries them: attributes in headers and the data as body, or all of it in JSON.
//!
//! The same event makes the same message as one that comes over HTTP does: a producer may change its way.

use std::collections::BTreeMap;

use base64::Engine as _;
use bytes::Bytes;
use oncebox::time::Timestamp;
use oncebox::{Headers, Message};
use serde_json::value::RawValue;

use crate::message::{Raw, bytes_of};

/// What attributes in headers start with.
const PREFIXES: [&str; 2] = ["cloudEvents:", "cloudEvents_"];
/// The media type of an event in JSON.
const STRUCTURED: &str = "application/cloudevents+json";
/// What media types of events start with.
const FAMILY: &str = "application/cloudevents";

type Attributes = BTreeMap<String, String>;

/// The event in `raw`; `None` if it is none, and an error if it is a broken one.
pub(crate) fn read(raw: &Raw) -> Result<Option<Message>, String> {
    let content_type = raw.properties.content_type().as_ref().map_or("", |text| text.as_str());
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == STRUCTURED {
        return structured(&raw.data).map(Some);
    }
    if essence.starts_with(FAMILY) {
        return Err(format!("events as {essence:?} are not read; {STRUCTURED:?} is, one event a message"));
    }
    let mut attributes = Attributes::new();
    for (name, value) in raw.headers() {
        if let Some(attribute) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
            let text = std::str::from_utf8(&bytes_of(value)).map(str::to_owned);
            let text = text.map_err(|_| format!("the attribute {attribute:?} is not UTF-8"))?;
            attributes.insert(attribute.to_owned(), text);
        }
    }
    if attributes.is_empty() {
        return Ok(None);
    }
    if !content_type.is_empty() {
        attributes.insert("datacontenttype".into(), content_type.into());
    }
    message(&attributes, raw.data.clone()).map(Some)
}

/// Reads an event in JSON. Its data stays as it was written.
fn structured(json: &[u8]) -> Result<Message, String> {
    let not_json = |error: serde_json::Error| {
        format!("the body is not an event in JSON (line {}, column {})", error.line(), error.column())
    };
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(json).map_err(not_json)?;
    let (mut attributes, mut data, mut base64) = (Attributes::new(), None, None);
    for (name, value) in members {
        let text = || {
            serde_json::from_str::<String>(value.get())
                .map_err(|_| format!("the member {name:?} is not text"))
        };
        match name.as_str() {
            "data" => data = Some(value.get()),
            "data_base64" => base64 = Some(text()?),
            // What is null is not set.
            _ if value.get() == "null" => {}
            _ if value.get().starts_with('"') => drop(attributes.insert(name.clone(), text()?)),
            _ if value.get().starts_with(['{', '[']) => {
                return Err(format!("the attribute {name:?} is not text"));
            }
            _ => drop(attributes.insert(name.clone(), value.get().to_owned())),
        }
    }
    let data = match (data, base64) {
        (Some(_), Some(_)) => return Err("`data` and `data_base64` are both there".into()),
        // A string is the data itself if the data is said to be something else than JSON.
        (Some(data), None) if data.starts_with('"') && !has_json(&attributes) => {
            serde_json::from_str::<String>(data).map_err(|_| "`data` is not text")?.into()
        }
        (Some(data), None) => Bytes::copy_from_slice(data.as_bytes()),
        (None, Some(text)) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            decoded.map_err(|_| "`data_base64` is not base64")?.into()
        }
        (None, None) => Bytes::new(),
    };
    message(&attributes, data)
}

fn has_json(attributes: &Attributes) -> bool {
    attributes.get("datacontenttype").is_none_or(|media| {
        let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        essence.ends_with("/json") || essence.ends_with("+json")
    })
}

/// The message of an event. Only source and id together are unique; a source has no blank.
fn message(attributes: &Attributes, data: Bytes) -> Result<Message, String> {
    let need = |name: &str| {
        let found = attributes.get(name).filter(|value| !value.is_empty());
        found.ok_or_else(|| format!("the required attribute {name:?} is missing"))
    };
    let (version, source, id, kind) = (need("specversion")?, need("source")?, need("id")?, need("type")?);
    if version != "1.0" {
        return Err(format!(
            "specversion {:?} is not known; 1.0 is",
            version.chars().take(20).collect::<String>()
        ));
    }
    if source.contains(char::is_whitespace) {
        return Err("the attribute \"source\" is not a URI reference: it holds blanks".into());
    }
    let mut headers = Headers::default();
    for (name, value) in attributes {
        let name = if name == "datacontenttype" { "content-type".into() } else { format!("ce-{name}") };
        headers.push(name, value.clone());
    }
    let mut message = Message::new(format!("{source} {id}"), kind.as_str(), data).with_headers(headers);
    if let Some(key) = attributes.get("partitionkey").filter(|key| !key.is_empty()) {
        message = message.with_ordering_key(key.clone());
    }
    if let Some(time) = attributes.get("time") {
        let parsed = timestamp(time).ok_or("the attribute \"time\" is not a time of RFC 3339")?;
        message = message.with_time(parsed);
    }
    Ok(message)
}

/// The time of RFC 3339, to the millisecond.
fn timestamp(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let at = |index: usize, allowed: &str| {
        text.as_bytes().get(index).is_some_and(|b| allowed.contains(char::from(*b)))
    };
    let separated = at(4, "-") && at(7, "-") && at(10, "Tt ") && at(13, ":") && at(16, ":");
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !separated
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut millis = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
        millis = format!("{:0<3}", &fraction[..len]).get(..3)?.parse().ok().filter(|_| len > 0)?;
        rest = &fraction[len..];
    }
    let offset = match rest.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = rest[1..3].parse::<i64>().ok()? * 60 + rest[4..6].parse::<i64>().ok()?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    // Years that begin with March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let days =
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = (days * 1_440 + hour * 60 + minute - offset) * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000 + millis))
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;

    fn raw(content_type: &str, headers: &[(&str, &str)], body: &str) -> Raw {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        let properties =
            BasicProperties::default().with_content_type(content_type.into()).with_headers(table);
        Raw {
            exchange: "".into(),
            routing_key: "q".into(),
            properties,
            data: Bytes::copy_from_slice(body.as_bytes()),
            direct: true,
        }
    }

    fn binary(prefix: &str) -> Raw {
        let attributes = [("specversion", "1.0"), ("source", "/shop"), ("id", "e 1"), ("type", "placed")];
        let more = [("time", "2026-01-01T00:00:00.25+01:00"), ("partitionkey", "c-1")];
        let names: Vec<(String, &str)> =
            attributes.iter().chain(&more).map(|(name, value)| (format!("{prefix}{name}"), *value)).collect();
        let headers: Vec<(&str, &str)> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        raw("application/json", &headers, r#"{ "order":7}"#)
    }

    #[test]
    fn an_event_is_the_same_in_either_mode() {
        let json = r#"{"specversion":"1.0","source":"/shop","id":"e 1","type":"placed","datacontenttype":"application/json",
            "time":"2026-01-01T00:00:00.25+01:00","partitionkey":"c-1","data":{ "order":7}}"#;
        let structured =
            read(&raw("Application/CloudEvents+JSON; charset=utf-8", &[], json)).unwrap().unwrap();
        for prefix in PREFIXES {
            assert_eq!(read(&binary(prefix)).unwrap().unwrap(), structured, "{prefix}");
        }
        assert_eq!((structured.id(), structured.kind()), (&b"/shop e 1"[..], "placed"));
        assert_eq!(
            (&structured.payload()[..], structured.ordering_key()),
            (&br#"{ "order":7}"#[..], Some(&b"c-1"[..]))
        );
        assert_eq!(structured.time().unwrap().as_millis(), 1_767_222_000_250);
        assert_eq!(read(&raw("application/json", &[("other", "x")], "{}")), Ok(None));
    }

    #[test]
    fn data_is_text_json_or_bytes() {
        let event = |rest: &str| {
            let json = format!(r#"{{"specversion":"1.0","source":"s","id":"1","type":"t",{rest}}}"#);
            read(&raw(STRUCTURED, &[], &json)).map(|event| event.unwrap().payload().to_vec())
        };
        assert_eq!(event(r#""data":"a\n""#).unwrap(), br#""a\n""#);
        assert_eq!(event(r#""datacontenttype":"text/plain","data":"a\n""#).unwrap(), b"a\n");
        assert_eq!(event(r#""data_base64":"AP8=""#).unwrap(), [0, 255]);
        assert_eq!(event(r#""x":null"#).unwrap(), b"");
    }

    #[test]
    fn a_broken_event_is_refused_with_a_reason() {
        let bad = [
            (STRUCTURED, "{", "not an event in JSON"),
            (STRUCTURED, "[]", "not an event in JSON"),
            (STRUCTURED, r#"{"specversion":"1.0"}"#, "\"source\" is missing"),
            (STRUCTURED, r#"{"specversion":"0.3","source":"s","id":"1","type":"t"}"#, "\"0.3\" is not known"),
            (STRUCTURED, r#"{"specversion":"1.0","source":"a b","id":"1","type":"t"}"#, "holds blanks"),
            (
                STRUCTURED,
                r#"{"specversion":"1.0","source":"s","id":"1","type":"t","x":{}}"#,
                "\"x\" is not text",
            ),
            (
                STRUCTURED,
                r#"{"specversion":"1.0","source":"s","id":"1","type":"t","time":"now"}"#,
                "RFC 3339",
            ),
            (
                STRUCTURED,
                r#"{"specversion":"1.0","source":"s","id":"1","type":"t","data_base64":"?"}"#,
                "not base64",
            ),
            ("application/cloudevents-batch+json", "[]", "one event a message"),
        ];
        for (content_type, body, why) in bad {
            let error = read(&raw(content_type, &[], body)).unwrap_err();
            assert!(error.contains(why), "{body}: {error}");
        }
    }

    #[test]
    fn times_are_read() {
        let millis = |text: &str| timestamp(text).map(Timestamp::as_millis);
        assert_eq!(millis("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(millis("2024-02-29t23:59:60.1239z"), Some(1_709_251_200_123));
        assert_eq!(millis("2000-03-01 00:00:00-00:30"), Some(951_870_600_000));
        for bad in [
            "",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T24:00:00Z",
        ] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }
}
