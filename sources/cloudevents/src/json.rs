//! CloudEvents in JSON. Tests: src/tests.rs.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use bytes::Bytes;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Event, MAX_ATTRIBUTES, Malformed, base64, shown, too_many_attributes};

/// Maximum members of an event: all attributes, the four required ones, and its data.
const MAX_MEMBERS: usize = MAX_ATTRIBUTES + 5;

/// Members of an object with their values as written, few more than an event may have. Data is kept byte for byte.
/// Nothing recurses into it, however deep it is.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<MemberName<'de>, &'de RawValue>()? {
                    // Count the rest without keeping it, for an error about all of it.
                    if members.len() <= MAX_MEMBERS {
                        members.push((member.0.0, member.1));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

#[derive(serde::Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

pub(super) fn event(json: &[u8]) -> Result<Event, Malformed> {
    let Members(members) = serde_json::from_slice(json).map_err(|error| not_json("an event", &error))?;
    if members.len() > MAX_MEMBERS {
        return Err(too_many_attributes());
    }
    let (mut data, mut base64_data, mut attributes) = (None, None, Vec::new());
    for (name, value) in members {
        let twice = || Malformed::new(format!("the member {:?} comes twice", shown(&name)));
        // A null member is not set.
        if value.get() == "null" && name != "data" {
            continue;
        }
        match &*name {
            "data" => {
                if data.replace(value).is_some() {
                    return Err(twice());
                }
            }
            "data_base64" => {
                if base64_data.replace(base64(&string(&name, value)?)?).is_some() {
                    return Err(twice());
                }
            }
            _ => attributes.push((name.to_string(), attribute(&name, value)?)),
        }
    }
    if data.is_some() && base64_data.is_some() {
        return Err(Malformed::new("`data` and `data_base64` are both there; only one of them may be"));
    }
    let mut event = Event::from_attributes(attributes.into_iter(), base64_data)?;
    if let Some(data) = data {
        event.data = Some(bytes_of(&event, data)?);
    }
    Ok(event)
}

/// Items of a list as written.
#[derive(Debug)]
pub enum Split<'a> {
    /// All of them.
    Items(Vec<&'a RawValue>),
    /// Number of items, over the limit; none is kept.
    TooMany(usize),
}

/// Splits a list of limited length.
struct ListSplitter(usize);

impl<'de> DeserializeSeed<'de> for ListSplitter {
    type Value = Split<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListSplitter {
    type Value = Split<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.0 {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(Split::Items(items)),
            }
        }
        let mut count = items.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(if count > items.len() { Split::TooMany(count) } else { Split::Items(items) })
    }
}

pub(super) fn split(json: &[u8], max: usize) -> Result<Split<'_>, Malformed> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let split = ListSplitter(max).deserialize(&mut deserializer);
    let split = split.and_then(|split| deserializer.end().map(|()| split));
    split.map_err(|error| not_json("a list", &error))
}

/// Returns the data. JSON stays as written. A string is the data itself if the media type is not JSON.
fn bytes_of(event: &Event, data: &RawValue) -> Result<Bytes, Malformed> {
    if !event.has_json_data() && data.get().starts_with('"') {
        return string("data", data).map(Bytes::from);
    }
    Ok(Bytes::copy_from_slice(data.get().as_bytes()))
}

/// Returns the text of an attribute: strings as they are, booleans and integers as written.
fn attribute(name: &str, value: &RawValue) -> Result<String, Malformed> {
    let text = value.get();
    match text {
        "true" | "false" => Ok(text.to_owned()),
        _ if text.starts_with('"') => string(name, value),
        _ if text.parse::<i32>().is_ok() => Ok(text.to_owned()),
        _ => Err(Malformed::new(format!(
            "the attribute {:?} is neither text, nor true or false, nor a number of 32 bits",
            shown(name)
        ))),
    }
}

fn string(name: &str, value: &RawValue) -> Result<String, Malformed> {
    let text = serde_json::from_str(value.get());
    text.map_err(|_| Malformed::new(format!("the member {:?} is not text", shown(name))))
}

/// Returns an error with the position of the fault, without the input.
fn not_json(what: &str, error: &serde_json::Error) -> Malformed {
    Malformed::new(format!(
        "the body is not {what} in JSON (line {}, column {})",
        error.line(),
        error.column()
    ))
}

pub(super) fn render(event: &Event) -> Vec<u8> {
    let mut out = serde_json::Map::new();
    let required =
        [("specversion", "1.0"), ("id", &event.id), ("source", &event.source), ("type", &event.type_name)];
    for (name, value) in required.into_iter().chain(event.attributes()) {
        out.insert(name.to_owned(), value.into());
    }
    let mut raw = None;
    if let Some(data) = &event.data {
        let text = std::str::from_utf8(data).ok();
        let json = text.filter(|_| event.has_json_data());
        let json =
            json.filter(|text| serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get() == *text));
        if let Some(json) = json {
            raw = Some(json);
        } else if let Some(text) = text.filter(|_| !event.has_json_data()) {
            out.insert("data".to_owned(), text.into());
        } else {
            let encoded = base64::engine::general_purpose::STANDARD.encode(data);
            out.insert("data_base64".to_owned(), encoded.into());
        }
    }
    let mut bytes = serde_json::Value::Object(out).to_string().into_bytes();
    if let Some(json) = raw {
        bytes.pop();
        bytes.extend_from_slice(b",\"data\":");
        bytes.extend_from_slice(json.as_bytes());
        bytes.push(b'}');
    }
    bytes
}
