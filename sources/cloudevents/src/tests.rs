//! Tests with events that the specification allows, and others.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

const MINIMAL: &str = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t"}"#;

fn json(members: &str) -> Result<Event, Malformed> {
    let start = MINIMAL.trim_end_matches('}');
    Event::from_json(format!("{start},{members}}}").as_bytes())
}

fn binary(headers: &[(&str, &str)], body: &str) -> Result<Event, Malformed> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).expect("a name");
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    Event::from_request(&map, Bytes::copy_from_slice(body.as_bytes()))
}

#[test]
fn four_attributes_make_an_event() {
    let event = Event::from_json(MINIMAL.as_bytes()).unwrap();
    assert_eq!((event.id(), event.source(), event.event_type(), event.data()), ("1", "/s", "t", None));
    for missing in ["specversion", "id", "source", "type"] {
        let json = MINIMAL.replace(&format!("\"{missing}\""), "\"other\"");
        let error = Event::from_json(json.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(&format!("{missing:?} is missing")), "{error}");
    }
    for empty in [r#""id":"1""#, r#""source":"/s""#, r#""type":"t""#] {
        let name = empty.split(':').next().unwrap();
        assert!(Event::from_json(MINIMAL.replace(empty, &format!("{name}:\"\"")).as_bytes()).is_err());
    }
    assert!(Event::from_json(MINIMAL.replace("1.0", "0.3").as_bytes()).is_err());
}

#[test]
fn data_is_what_was_written() {
    for (members, data) in [
        (r#""data":{"a" :  1}"#, r#"{"a" :  1}"#),
        (r#""data":null"#, "null"),
        (r#""data":"text""#, r#""text""#),
        (r#""datacontenttype":"text/plain","data":"say \"hi\"""#, "say \"hi\""),
        (r#""datacontenttype":"application/vnd.x+json","data":[1.00]"#, "[1.00]"),
        (r#""datacontenttype":"text/xml","data":{"a":1}"#, r#"{"a":1}"#),
        (r#""data_base64":"AQID/w==""#, "\u{1}\u{2}\u{3}\u{ff}"),
    ] {
        let event = json(members).unwrap();
        let expected: Vec<u8> = if members.contains("base64") {
            data.chars().map(|c| u8::try_from(c).unwrap()).collect()
        } else {
            data.into()
        };
        assert_eq!(event.data().unwrap(), &expected, "{members}");
    }
    assert!(json(r#""data":1,"data_base64":"AA==""#).is_err());
    assert!(json(r#""data_base64":"?""#).is_err());
}

// FAULTS G2: nothing recurses into data.
#[test]
fn data_may_be_deep() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(json(&format!(r#""data":{deep}"#)).unwrap().data().unwrap().len(), deep.len());
}

#[test]
fn attributes_have_their_rules() {
    let event =
        json(r#""flag":true,"count":-7,"text":"x","none":null,"time":"2018-04-05T17:31:00Z""#).unwrap();
    let attributes: Vec<_> = event.attributes().collect();
    assert_eq!(
        attributes,
        [("flag", "true"), ("count", "-7"), ("text", "x"), ("time", "2018-04-05T17:31:00Z")]
    );
    for members in [
        r#""Upper":"x""#,
        r#""under_score":"x""#,
        r#""":"x""#,
        r#""long":2147483648"#,
        r#""float":1.5"#,
        r#""object":{}"#,
        r#""id":"2""#,
        r#""x":"1","x":"2""#,
        r#""data":1,"data":2"#,
        r#""time":"yesterday""#,
        r#""subject":"""#,
        r#""dataschema":"a b""#,
        r#""datacontenttype":"json""#,
        r#""control":"\u0007""#,
        r#""nothing":"\uffff""#,
    ] {
        assert!(json(members).is_err(), "{members}");
    }
    assert!(
        Event::new("a b", "1", "t").is_err(),
        "a source has no blanks, so that source and id can be told apart"
    );
}

#[test]
fn headers_are_decoded_once() {
    for (header, text) in [
        ("plain", "plain"),
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("%25%32%30", "%20"),
        ("\"quoted \\\"text\\\"\"", "quoted \"text\""),
        ("\"%41\"", "A"),
        ("50%", "50%"),
        ("%zz", "%zz"),
    ] {
        assert_eq!(decode_header(header.as_bytes()).as_deref(), Some(text), "{header}");
    }
    assert_eq!(decode_header(b"%FF"), None);
    assert_eq!(decode_header(b"\xff"), None);
}

#[test]
fn attributes_come_in_headers() {
    let required = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")];
    let with = |more: &[(&'static str, &'static str)]| binary(&[&required[..], more].concat(), "data");
    let event =
        with(&[("Ce-Subject", "caf%C3%A9"), ("content-type", "text/plain"), ("x-other", "y")]).unwrap();
    let attributes: Vec<_> = event.attributes().collect();
    assert_eq!(attributes, [("subject", "café"), ("datacontenttype", "text/plain")]);
    assert_eq!(event.data().unwrap(), "data");
    assert!(binary(&required, "").unwrap().data().is_none());
    assert!(with(&[("ce-id", "2")]).is_err(), "twice");
    assert!(with(&[("ce-data", "x")]).is_err());
    assert!(with(&[("ce-a-b", "x")]).is_err());
    assert!(binary(&required[1..], "").is_err());
}

#[test]
fn a_batch_names_what_is_wrong_with_each() {
    let batch = format!("[{MINIMAL},{{}},7,{MINIMAL}]");
    let events = Event::batch_from_json(batch.as_bytes()).unwrap();
    assert_eq!(events.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
    assert_eq!(Event::batch_from_json(b"[]"), Ok(vec![]));
    assert!(Event::batch_from_json(MINIMAL.as_bytes()).is_err());
    assert!(Event::batch_from_json(b"[").is_err());
}

/// Text that is not blank: a blank attribute is refused.
fn text() -> impl Strategy<Value = String> {
    "[ -~äöß€😀]{0,6}[!-~äöß€😀][ -~äöß€😀]{0,6}"
}

fn events() -> impl Strategy<Value = Event> {
    let data = proptest::option::of(proptest::collection::vec(any::<u8>(), 1..40));
    let media_type =
        proptest::option::of(prop_oneof![Just("application/json"), Just("text/plain"), Just("x/y")]);
    let extensions = proptest::collection::btree_map("x[a-z0-9]{1,10}", text(), 0..4);
    ("/[!-~]{0,12}", text(), text(), media_type, extensions, data).prop_map(
        |(source, id, kind, media_type, extensions, data)| {
            let mut event = Event::new(source, id, kind).expect("an event");
            if let Some(media_type) = media_type {
                event = event.with("datacontenttype", media_type).expect("a media type");
            }
            for (name, value) in extensions {
                event = event.with(&name, value).expect("an extension");
            }
            match data {
                Some(data) => event.with_data(data),
                None => event,
            }
        },
    )
}

fn sorted(mut event: Event) -> Event {
    event.others.sort();
    event
}

proptest! {
    #[test]
    fn json_round_trip(event in events()) {
        let back = Event::from_json(&event.to_json());
        prop_assert_eq!(back.map(sorted), Ok(sorted(event)));
    }

    #[test]
    fn header_round_trip(event in events()) {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str| {
            let value = if name == "content-type" { value.to_owned() } else { encode_header(value) };
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
        };
        add("ce-specversion", "1.0");
        add("ce-id", event.id());
        add("ce-source", event.source());
        add("ce-type", event.event_type());
        for (name, value) in event.attributes() {
            let name = if name == "datacontenttype" { "content-type".to_owned() } else { format!("ce-{name}") };
            add(&name, value);
        }
        let back = Event::from_request(&headers, event.data().cloned().unwrap_or_default());
        prop_assert_eq!(back.map(sorted), Ok(sorted(event)));
    }

    // FAULTS F11
    #[test]
    fn untrusted_input_cannot_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[{}\\]\",:a-z0-9.\\\\]{0,80}") {
        for input in [&bytes[..], text.as_bytes()] {
            let _ = Event::from_json(input);
            let _ = Event::batch_from_json(input);
            let _ = decode_header(input);
            let mut headers = HeaderMap::new();
            for name in ["ce-id", "ce-source", "ce-time", "content-type"] {
                if let Ok(value) = HeaderValue::from_bytes(input) {
                    headers.append(name, value);
                }
            }
            let _ = Event::from_request(&headers, Bytes::copy_from_slice(input));
        }
    }

    #[test]
    fn any_text_survives_a_header(text in "\\PC{0,40}") {
        prop_assert_eq!(decode_header(encode_header(&text).as_bytes()), Some(text));
    }

    // FAULTS G6: distinct pairs of source and id stay distinct.
    #[test]
    fn distinct_events_have_distinct_ids(a in events(), b in events()) {
        let same = (a.source(), a.id()) == (b.source(), b.id());
        prop_assert_eq!(a.into_message().id() == b.into_message().id(), same);
    }
}

// FAULTS S5: each name is compared with those before it, so their number is limited.
#[test]
fn an_event_with_too_many_attributes_is_refused_before_they_are_compared() {
    let with = |count: usize| {
        let attributes: Vec<String> = (0..count).map(|number| format!("\"a{number}\":\"\"")).collect();
        json(&attributes.join(","))
    };
    assert_eq!(with(MAX_ATTRIBUTES).unwrap().attributes().count(), MAX_ATTRIBUTES);
    for count in [MAX_ATTRIBUTES + 1, MAX_ATTRIBUTES + 2, 400_000] {
        assert_eq!(with(count).unwrap_err(), too_many_attributes());
    }
    let mut headers = HeaderMap::new();
    for number in 0..=MAX_ATTRIBUTES {
        let name = HeaderName::try_from(format!("ce-a{number}")).unwrap();
        headers.insert(name, HeaderValue::from_static("v"));
    }
    assert_eq!(Event::from_request(&headers, Bytes::new()).unwrap_err(), too_many_attributes());
}

// FAULTS S5: nothing is kept to build events from.
#[test]
fn a_list_that_is_too_long_is_counted_and_not_kept() {
    let list = |count: usize| format!("[{}]", vec![MINIMAL; count].join(","));
    let long = list(100_000);
    assert!(matches!(Event::split_json(long.as_bytes(), 1_000), Ok(Split::TooMany(100_000))));
    let fits = list(3);
    let Ok(Split::Items(items)) = Event::split_json(fits.as_bytes(), 3) else { panic!("three fit") };
    assert_eq!(items.iter().map(|item| item.get()).collect::<Vec<_>>(), [MINIMAL; 3]);
    assert!(matches!(Event::split_json(fits.as_bytes(), 2), Ok(Split::TooMany(3))));
    assert!(Event::split_json(b"[1] 2", 5).is_err() && Event::split_json(b"[1", 0).is_err());
}
