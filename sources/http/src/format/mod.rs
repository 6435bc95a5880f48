//! How a request becomes messages.

mod headers;
mod plain;
mod webhook;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use oncebox::Message;

use crate::cloudevents::{self, Event};
use crate::problem::{Cause, Problem};
pub(crate) use headers::kept;
use headers::{only, text};

/// Where id and type of a message stand.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Plain(Names),
    CloudEvents,
    Standard,
    GitHub,
    Stripe,
    Slack,
    Shopify,
}

/// The headers that say what a plain message is.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) id: HeaderName,
    pub(crate) kind: HeaderName,
    pub(crate) order: HeaderName,
}

/// What a request holds.
pub(crate) enum Content {
    /// One message.
    One(Message),
    /// A list; some of it may be none.
    Many(Vec<Result<Message, Problem>>),
    /// A question that is answered at once, with this text; nothing is stored.
    Question(String),
}

impl Format {
    /// Reads what was verified. `kind` is the type of every message, if the endpoint says so.
    pub(crate) fn read(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        kind: Option<&str>,
    ) -> Result<Content, Problem> {
        if encoded(headers) {
            let what = "the body is compressed; this address takes bodies as they are";
            return Err(Problem::new(Cause::MediaType, what));
        }
        match self {
            Self::Plain(names) => plain::read(names, headers, body, kind).map(Content::One),
            Self::CloudEvents => cloud_events(headers, body),
            Self::Standard => webhook::standard(headers, body, kind).map(Content::One),
            Self::GitHub => webhook::github(headers, body, kind).map(Content::One),
            Self::Stripe => webhook::stripe(headers, body, kind).map(Content::One),
            Self::Slack => webhook::slack(headers, body, kind),
            Self::Shopify => webhook::shopify(headers, body, kind).map(Content::One),
        }
    }
}

fn encoded(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::CONTENT_ENCODING);
    all.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn cloud_events(headers: &HeaderMap, body: Bytes) -> Result<Content, Problem> {
    let media_type = text(headers, header::CONTENT_TYPE.as_str())?.unwrap_or_default();
    let mut parts = media_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    if !essence.starts_with("application/cloudevents") {
        let event = Event::from_request(headers, body).map_err(malformed)?;
        return Ok(Content::One(with_transport(event, headers)));
    }
    let charset =
        parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("charset")));
    let utf8 = charset.is_none_or(|(_, value)| value.trim_matches('"').eq_ignore_ascii_case("utf-8"));
    match &*essence {
        cloudevents::STRUCTURED if utf8 => {
            let event = Event::from_json(&body).map_err(malformed)?;
            Ok(Content::One(with_transport(event, headers)))
        }
        cloudevents::BATCH if utf8 => {
            let events = Event::batch_from_json(&body).map_err(malformed)?;
            let message = |event: Result<Event, _>| Ok(with_transport(event.map_err(malformed)?, headers));
            Ok(Content::Many(events.into_iter().map(message).collect()))
        }
        _ => {
            let what = "events come in JSON and UTF-8: application/cloudevents+json or -batch+json";
            Err(Problem::new(Cause::MediaType, what))
        }
    }
}

/// The message of an event with the headers of the request that are not the event's own, as the trace context is not.
fn with_transport(event: Event, headers: &HeaderMap) -> Message {
    let message = event.into_message();
    let mut all = message.headers().clone();
    for (name, value) in kept(headers).iter() {
        if name != "content-type" && !name.starts_with("ce-") {
            all.push(name, value.clone());
        }
    }
    message.with_headers(all)
}

fn malformed(error: cloudevents::Malformed) -> Problem {
    Problem::new(Cause::Malformed, error.0)
}

#[cfg(test)]
mod tests;
