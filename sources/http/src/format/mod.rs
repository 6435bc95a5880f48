//! Formats: turn a request into messages. Tests: format/tests.rs.

mod headers;
mod plain;
mod webhook;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use oncebox::{Headers, Message};
use serde_json::value::RawValue;

use crate::cloudevents::{self, Event, Split};
use crate::problem::{ProblemType, RequestProblem};
pub(crate) use headers::kept;
use headers::{only, text};

/// Location of a message's id and type.
#[derive(Clone, Debug)]
pub(crate) enum BodyFormat {
    Plain(HeaderNames),
    CloudEvents,
    Standard,
    GitHub,
    Stripe,
    Slack,
    Shopify(ShopifyId),
}

/// The Shopify id that identifies a repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShopifyId {
    /// `X-Shopify-Event-Id` with the topic, as Shopify advises: several subscriptions to one topic are one message. A
    /// webhook without that header uses [`Webhook`](Self::Webhook).
    #[default]
    Event,
    /// `X-Shopify-Webhook-Id`: each subscription has its own message. Use it if subscriptions to one topic send
    /// different fields.
    Webhook,
}

/// Headers with the id, type and ordering key of a plain message.
#[derive(Clone, Debug)]
pub(crate) struct HeaderNames {
    pub(crate) id: HeaderName,
    pub(crate) message_type: HeaderName,
    pub(crate) order: HeaderName,
}

/// A verified request, without its body.
pub(crate) struct VerifiedRequest<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// The headers to store.
    pub(crate) kept: Headers,
    /// Type of every message, if the endpoint sets one.
    pub(crate) message_type: Option<&'a str>,
    /// Maximum messages of one request.
    pub(crate) max_batch: usize,
}

/// Content of a request.
pub(crate) enum Content {
    /// One message.
    One(Message),
    /// A list; any of its items may be refused.
    Many(Vec<Result<Message, RequestProblem>>),
    /// A challenge. The response has this text, and nothing is stored.
    Question(String),
}

impl BodyFormat {
    /// Reads the messages of a verified request.
    pub(crate) fn read(&self, sent: VerifiedRequest<'_>, body: Bytes) -> Result<Content, RequestProblem> {
        if encoded(sent.headers) {
            let what = "the body is compressed; this address takes bodies as they are";
            return Err(RequestProblem::new(ProblemType::MediaType, what));
        }
        match self {
            Self::Plain(names) => plain::read(names, sent, body).map(Content::One),
            Self::CloudEvents => cloud_events(&sent, body),
            Self::Standard => webhook::standard(sent, body).map(Content::One),
            Self::GitHub => webhook::github(sent, body).map(Content::One),
            Self::Stripe => webhook::stripe(sent, body).map(Content::One),
            Self::Slack => webhook::slack(sent, body),
            Self::Shopify(by) => webhook::shopify(*by, sent, body).map(Content::One),
        }
    }
}

fn encoded(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::CONTENT_ENCODING);
    all.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn cloud_events(sent: &VerifiedRequest<'_>, body: Bytes) -> Result<Content, RequestProblem> {
    let headers = sent.headers;
    let media_type = text(headers, header::CONTENT_TYPE.as_str())?.unwrap_or_default();
    let mut parts = media_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    if !essence.starts_with("application/cloudevents") {
        let event = Event::from_request(headers, body).map_err(|error| malformed(&error))?;
        return Ok(Content::One(with_transport(event, &sent.kept)));
    }
    let charset =
        parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("charset")));
    let utf8 = charset.is_none_or(|(_, value)| value.trim_matches('"').eq_ignore_ascii_case("utf-8"));
    match &*essence {
        cloudevents::STRUCTURED if utf8 => {
            let event = Event::from_json(&body).map_err(|error| malformed(&error))?;
            Ok(Content::One(with_transport(event, &sent.kept)))
        }
        cloudevents::BATCH if utf8 => {
            let events = match Event::split_json(&body, sent.max_batch).map_err(|error| malformed(&error))? {
                Split::Items(events) => events,
                Split::TooMany(count) => return Err(too_many(count, sent.max_batch)),
            };
            let message = |event: &RawValue| {
                let event = Event::from_json(event.get().as_bytes()).map_err(|error| malformed(&error))?;
                Ok(with_transport(event, &sent.kept))
            };
            Ok(Content::Many(events.into_iter().map(message).collect()))
        }
        _ => {
            let what = "events come in JSON and UTF-8: application/cloudevents+json or -batch+json";
            Err(RequestProblem::new(ProblemType::MediaType, what))
        }
    }
}

/// Returns the message of an event. Adds the request headers that are not part of the event, such as the trace context.
fn with_transport(event: Event, kept: &Headers) -> Message {
    let message = event.into_message();
    let mut all = message.headers().clone();
    for (name, value) in kept.iter() {
        if name != "content-type" && !name.starts_with("ce-") {
            all.push(name, value.clone());
        }
    }
    message.with_headers(all)
}

fn too_many(count: usize, max: usize) -> RequestProblem {
    let what = format!("there are {count} messages in the request, the limit is {max}");
    RequestProblem::new(ProblemType::TooLarge, what)
}

fn malformed(error: &cloudevents::Malformed) -> RequestProblem {
    RequestProblem::new(ProblemType::Malformed, error.to_string())
}

#[cfg(test)]
mod tests;
