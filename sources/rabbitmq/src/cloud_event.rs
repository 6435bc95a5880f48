//! CloudEvents in their AMQP binding: attributes in headers and the data as body, or all of it in JSON. Tests: below.

use oncebox_cloudevents::{Event, STRUCTURED, essence};
use oncebox_core::Message;

use crate::message::{Raw, bytes_of};

/// Prefixes of attributes in headers.
const PREFIXES: [&str; 2] = ["cloudEvents:", "cloudEvents_"];
/// Prefix of the media types of events.
const FAMILY: &str = "application/cloudevents";

/// Reads the event in `raw`. Returns `None` for other messages, and an error for a malformed event.
pub(crate) fn read(raw: &Raw) -> Result<Option<Message>, String> {
    let content_type = raw.properties.content_type().as_ref().map_or("", |text| text.as_str());
    let essence = essence(content_type);
    if essence == STRUCTURED {
        let event = Event::from_json(&raw.data).map_err(|error| error.to_string())?;
        return Ok(Some(event.into_message()));
    }
    if essence.starts_with(FAMILY) {
        return Err(format!("events as {essence:?} are not read; {STRUCTURED:?} is, one event a message"));
    }
    let mut attributes = Vec::new();
    for (name, value) in raw.headers() {
        match PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
            // The property carries this one.
            Some("datacontenttype") | None => {}
            Some(attribute) => {
                let text = std::str::from_utf8(&bytes_of(value)).map(str::to_owned);
                let text = text.map_err(|_| format!("the attribute {attribute:?} is not UTF-8"))?;
                attributes.push((attribute.to_owned(), text));
            }
        }
    }
    if attributes.is_empty() {
        return Ok(None);
    }
    if !content_type.is_empty() {
        attributes.push(("datacontenttype".to_owned(), content_type.to_owned()));
    }
    let data = Some(raw.data.clone()).filter(|data| !data.is_empty());
    let event = Event::from_attributes(attributes.into_iter(), data).map_err(|error| error.to_string())?;
    Ok(Some(event.into_message()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
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
        assert_eq!((structured.id(), structured.message_type()), (&b"/shop e 1"[..], "placed"));
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
            (STRUCTURED, r#"{"specversion":"1.0"}"#, "\"id\" is missing"),
            (STRUCTURED, r#"{"specversion":"0.3","source":"s","id":"1","type":"t"}"#, "\"0.3\" is not known"),
            (STRUCTURED, r#"{"specversion":"1.0","source":"a b","id":"1","type":"t"}"#, "holds blanks"),
            (
                STRUCTURED,
                r#"{"specversion":"1.0","source":"s","id":"1","type":"t","x":{}}"#,
                "\"x\" is neither text",
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
}
