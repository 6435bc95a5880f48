//! Format: webhooks, with id, type and time per sender. Tests: format/tests.rs.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use oncebox::time::Timestamp;
use oncebox::{Headers, Message};
use percent_encoding::percent_decode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Content, ShopifyId, VerifiedRequest, only, text};
use crate::cloudevents::rfc3339;
use crate::problem::{ProblemType, RequestProblem};
use crate::verify::StandardHeaders;

/// Fields of a signed webhook that are read. Other fields pass unread.
#[derive(Deserialize)]
struct StandardBody<'a> {
    #[serde(borrow, default, rename = "type")]
    message_type: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct StripeBody<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "type")]
    message_type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    created: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SlackBody<'a> {
    #[serde(borrow, rename = "type")]
    message_type: Cow<'a, str>,
    #[serde(borrow, default)]
    challenge: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    event_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    event_time: Option<&'a RawValue>,
    #[serde(borrow, default)]
    event: Option<SlackEvent<'a>>,
}

#[derive(Deserialize)]
struct SlackEvent<'a> {
    #[serde(borrow, rename = "type")]
    message_type: Cow<'a, str>,
}

/// The signature covers the id (`webhook-id` or `svix-id`), so the key can rely on it.
pub(super) fn standard(sent: VerifiedRequest<'_>, body: Bytes) -> Result<Message, RequestProblem> {
    let VerifiedRequest { headers, kept, message_type, .. } = sent;
    let names = StandardHeaders::of(headers);
    let id = need(headers, names.id)?;
    let message_type = match message_type {
        Some(message_type) => message_type.to_owned(),
        None => named(json::<StandardBody<'_>>(&body)?.message_type, "type")?.into_owned(),
    };
    let time = text(headers, names.timestamp)?.and_then(|time| time.parse().ok()).map(seconds);
    Ok(timed(Message::new(id, message_type, body).with_headers(kept), time))
}

pub(super) fn github(sent: VerifiedRequest<'_>, body: Bytes) -> Result<Message, RequestProblem> {
    let VerifiedRequest { headers, kept, message_type, .. } = sent;
    let id = need(headers, "x-github-delivery")?;
    let message_type = message_type
        .map_or_else(|| needed_text(headers, "x-github-event"), |message_type| Ok(message_type.to_owned()))?;
    if is_form(headers)? {
        let body = form_payload(&body)?;
        return Ok(Message::new(id, message_type, body).with_headers(as_json(&kept)));
    }
    Ok(Message::new(id, message_type, body).with_headers(kept))
}

/// Returns true if the body is a form, as older GitHub webhooks send it.
fn is_form(headers: &HeaderMap) -> Result<bool, RequestProblem> {
    let media_type = text(headers, CONTENT_TYPE.as_str())?.unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    Ok(essence.eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

/// Returns the JSON in the only field of a form, `payload`.
fn form_payload(body: &[u8]) -> Result<Bytes, RequestProblem> {
    let wrong = |what: &str| {
        let advice = "set the content type of the webhook to application/json in its settings at GitHub";
        RequestProblem::new(ProblemType::Malformed, format!("the body is a form {what}; {advice}"))
    };
    let mut fields = body.split(|b| *b == b'&').filter_map(|field| field.strip_prefix(b"payload="));
    let (Some(payload), None) = (fields.next(), fields.next()) else {
        return Err(wrong("without one field `payload`"));
    };
    let spaced: Vec<u8> = payload.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    let json = percent_decode(&spaced).collect::<Vec<u8>>();
    match serde_json::from_slice::<&RawValue>(&json) {
        Ok(_) => Ok(json.into()),
        Err(_) => Err(wrong("whose field `payload` is not JSON")),
    }
}

/// Returns the headers of a message that was extracted from a form.
fn as_json(kept: &Headers) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in kept.iter() {
        let value = if name == CONTENT_TYPE.as_str() {
            Bytes::from_static(b"application/json")
        } else {
            value.clone()
        };
        headers.push(name, value);
    }
    headers
}

/// With [`ShopifyId::Event`] the topic is part of the id: Shopify sends one event under several topics, with different
/// bodies.
pub(super) fn shopify(
    by: ShopifyId,
    sent: VerifiedRequest<'_>,
    body: Bytes,
) -> Result<Message, RequestProblem> {
    let VerifiedRequest { headers, kept, message_type, .. } = sent;
    let event = match by {
        ShopifyId::Event => only(headers, "x-shopify-event-id")?.filter(|id| !id.is_empty()),
        ShopifyId::Webhook => None,
    };
    let id = match event {
        Some(event) => [event, b"/", needed_text(headers, "x-shopify-topic")?.as_bytes()].concat().into(),
        None => need(headers, "x-shopify-webhook-id")?,
    };
    let message_type = message_type.map_or_else(
        || needed_text(headers, "x-shopify-topic"),
        |message_type| Ok(message_type.to_owned()),
    )?;
    let time = text(headers, "x-shopify-triggered-at")?.and_then(rfc3339::parse);
    Ok(timed(Message::new(id, message_type, body).with_headers(kept), time))
}

/// Compares `data` alone. Stripe rewrites the rest of the event for each attempt, with the number of open deliveries.
pub(super) fn stripe(sent: VerifiedRequest<'_>, body: Bytes) -> Result<Message, RequestProblem> {
    let VerifiedRequest { kept, message_type, .. } = sent;
    let StripeBody { id, message_type: named_kind, created, data } = json(&body)?;
    let id = named(id, "id")?.into_owned();
    let message_type = message_type.map_or_else(
        || named(named_kind, "type").map(Cow::into_owned),
        |message_type| Ok(message_type.to_owned()),
    )?;
    let time = created.and_then(time);
    let compared = data.map(|data| Bytes::copy_from_slice(data.get().as_bytes()));
    let mut message = Message::new(id, message_type, body).with_headers(kept);
    if let Some(compared) = compared {
        message = message.compared_by(compared);
    }
    Ok(timed(message, time))
}

pub(super) fn slack(sent: VerifiedRequest<'_>, body: Bytes) -> Result<Content, RequestProblem> {
    let VerifiedRequest { kept, message_type, .. } = sent;
    let slack: SlackBody<'_> = json(&body)?;
    if slack.message_type == "url_verification" {
        return Ok(Content::Question(named(slack.challenge, "challenge")?.into_owned()));
    }
    let id = named(slack.event_id, "event_id")?.into_owned();
    let inner = slack.event.map(|event| event.message_type);
    let message_type =
        message_type.map_or_else(|| inner.unwrap_or(slack.message_type).into_owned(), ToOwned::to_owned);
    let time = slack.event_time.and_then(time);
    Ok(Content::One(timed(Message::new(id, message_type, body).with_headers(kept), time)))
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, RequestProblem> {
    serde_json::from_slice(body).map_err(|error| {
        let what =
            format!("the body is not the expected JSON (line {}, column {})", error.line(), error.column());
        RequestProblem::new(ProblemType::Malformed, what)
    })
}

/// Returns a required member, which must not be empty.
fn named<'a>(member: Option<Cow<'a, str>>, name: &str) -> Result<Cow<'a, str>, RequestProblem> {
    let cause = if name == "type" { ProblemType::Malformed } else { ProblemType::MissingKey };
    member
        .filter(|text| !text.is_empty())
        .ok_or_else(|| RequestProblem::new(cause, format!("the member {name:?} is missing")))
}

fn need(headers: &HeaderMap, name: &str) -> Result<Bytes, RequestProblem> {
    let value = only(headers, name)?.filter(|value| !value.is_empty());
    let missing = || RequestProblem::new(ProblemType::MissingKey, format!("the header {name:?} is missing"));
    value.map(Bytes::copy_from_slice).ok_or_else(missing)
}

fn needed_text(headers: &HeaderMap, name: &str) -> Result<String, RequestProblem> {
    let value = text(headers, name)?.filter(|value| !value.is_empty());
    let missing = || RequestProblem::new(ProblemType::Malformed, format!("the header {name:?} is missing"));
    value.map(str::to_owned).ok_or_else(missing)
}

/// Parses a time in seconds or in RFC 3339. Returns `None` for anything else: a bad time does not refuse a message.
fn time(value: &RawValue) -> Option<Timestamp> {
    let number = value.get().parse().ok().map(seconds);
    number.or_else(|| rfc3339::parse(&serde_json::from_str::<Cow<'_, str>>(value.get()).ok()?))
}

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1_000))
}

fn timed(message: Message, time: Option<Timestamp>) -> Message {
    match time {
        Some(time) => message.with_time(time),
        None => message,
    }
}
