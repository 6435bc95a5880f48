//! Reads AMQP messages as messages of the inbox. Tests: below.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use oncebox_core::time::Timestamp;
use oncebox_core::{Headers, Message};

use crate::builder::FieldMapping;
use crate::cloud_event;
use crate::field::Field;

/// Headers of a message that the source published again, with its original values.
pub(crate) const ROUTING_KEY: &str = "oncebox-routing-key";
pub(crate) const EXCHANGE: &str = "oncebox-exchange";
pub(crate) const FAILURES: &str = "oncebox-failures";
pub(crate) const REASON: &str = "oncebox-reason";
pub(crate) const USER_ID: &str = "oncebox-user-id";

/// A delivery of the broker, with the parts that settle it.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) data: Bytes,
    /// True if it came straight into `queue`, as from a retry queue. Only then do headers replace original values: a
    /// producer that publishes to an exchange, under its own routing keys, cannot forge them.
    pub(crate) direct: bool,
}

impl Raw {
    pub(crate) fn new(queue: &str, delivery: Delivery) -> Self {
        let Delivery { exchange, routing_key, properties, data, .. } = delivery;
        let direct = exchange.as_str().is_empty() && routing_key.as_str() == queue;
        Self { exchange, routing_key, properties, data: data.into(), direct }
    }

    /// Returns a header that the source added when it published the message again.
    fn ours(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.header(name).filter(|_| self.direct).map(bytes_of)
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &AMQPValue)> {
        let table = self.properties.headers().as_ref().map(FieldTable::inner);
        table.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&AMQPValue> {
        self.headers().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the first routing key, also after a retry queue.
    pub(crate) fn routing_key(&self) -> Cow<'_, [u8]> {
        self.ours(ROUTING_KEY).unwrap_or(Cow::Borrowed(self.routing_key.as_str().as_bytes()))
    }

    pub(crate) fn exchange(&self) -> Cow<'_, [u8]> {
        self.ours(EXCHANGE).unwrap_or(Cow::Borrowed(self.exchange.as_str().as_bytes()))
    }

    /// Returns the number of failures before it was in a retry queue.
    pub(crate) fn failures(&self) -> u32 {
        self.ours(FAILURES).and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse().ok()).unwrap_or(0)
    }

    fn field<'a>(&'a self, field: &'a Field) -> Option<Cow<'a, [u8]>> {
        let property = |value: &'a Option<ShortString>| {
            value.as_ref().map(|text| Cow::Borrowed(text.as_str().as_bytes()))
        };
        let properties = &self.properties;
        let found = match field {
            Field::MessageId => property(properties.message_id()),
            Field::CorrelationId => property(properties.correlation_id()),
            Field::Type => property(properties.kind()),
            Field::AppId => property(properties.app_id()),
            Field::UserId => property(properties.user_id()),
            Field::RoutingKey => Some(self.routing_key()),
            Field::Exchange => Some(self.exchange()),
            Field::Header(name) => self.header(name).map(bytes_of),
            Field::Fixed(text) => Some(Cow::Borrowed(text.as_bytes())),
        };
        found.filter(|bytes| !oncebox_core::is_blank(bytes))
    }

    fn text<'a>(&'a self, what: &str, field: &'a Field) -> Result<Option<Cow<'a, str>>, String> {
        match self.field(field) {
            None => Ok(None),
            Some(Cow::Borrowed(bytes)) => std::str::from_utf8(bytes).map(Cow::Borrowed).map(Some),
            Some(Cow::Owned(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(Cow::Owned(text))),
                Err(error) => Err(error.utf8_error()),
            },
        }
        .map_err(|_| format!("the {what} ({field:?}) is not UTF-8"))
    }
}

/// Reads the message in `raw`, or returns the reason why it is invalid.
pub(crate) fn read(fields: &FieldMapping, raw: &Raw) -> Result<Message, String> {
    let event = if fields.cloud_events { cloud_event::read(raw)? } else { None };
    let mut message = match event {
        Some(event) => event,
        None => plain(fields, raw)?,
    };
    if let Some(field) = &fields.producer
        && let Some(producer) = raw.text("producer", field)?
    {
        message = message.with_source(producer);
    }
    if let Some(field) = &fields.ordering_key
        && let Some(key) = raw.field(field)
    {
        message = message.with_ordering_key(Bytes::copy_from_slice(&key));
    }
    if let Some(field) = &fields.tenant
        && let Some(tenant) = raw.text("tenant", field)?
    {
        message = message.with_tenant(tenant);
    }
    Ok(message)
}

fn plain(fields: &FieldMapping, raw: &Raw) -> Result<Message, String> {
    let id = raw.field(&fields.id).map_or_else(Bytes::new, |id| Bytes::copy_from_slice(&id));
    let Some(message_type) = raw.text("type", &fields.message_type)? else {
        return Err(format!(
            "it has no type: {:?} is missing or empty; `message_type` says where the type is",
            fields.message_type
        ));
    };
    let mut message = Message::new(id, message_type, raw.data.clone()).with_headers(headers(raw));
    if let Some(seconds) = raw.properties.timestamp() {
        let millis = i64::try_from(*seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
        message = message.with_time(Timestamp::from_millis(millis));
    }
    Ok(message)
}

/// Returns the properties under their AMQP names, then the headers. Omits headers with the name of a property, which
/// would look like the property.
pub(crate) fn headers(raw: &Raw) -> Headers {
    let properties = &raw.properties;
    let known = [
        ("content-type", properties.content_type()),
        ("content-encoding", properties.content_encoding()),
        ("message-id", properties.message_id()),
        ("correlation-id", properties.correlation_id()),
        ("reply-to", properties.reply_to()),
        ("app-id", properties.app_id()),
        ("user-id", properties.user_id()),
    ];
    let mut headers = Headers::default();
    for (name, value) in &known {
        if let Some(value) = value {
            headers.push(*name, Bytes::copy_from_slice(value.as_str().as_bytes()));
        }
    }
    for (name, value) in raw.headers() {
        let ours = [ROUTING_KEY, EXCHANGE, FAILURES].contains(&name);
        if !ours && !known.iter().any(|(property, _)| property.eq_ignore_ascii_case(name)) {
            headers.push(name, bytes_of(value).into_owned());
        }
    }
    headers
}

/// Returns a value as text or as its bytes; lists and tables as JSON.
pub(crate) fn bytes_of(value: &AMQPValue) -> Cow<'_, [u8]> {
    match value {
        AMQPValue::LongString(text) => Cow::Borrowed(text.as_bytes()),
        AMQPValue::ShortString(text) => Cow::Borrowed(text.as_str().as_bytes()),
        AMQPValue::ByteArray(bytes) => Cow::Borrowed(bytes.as_slice()),
        AMQPValue::Void => Cow::Borrowed(b""),
        other => Cow::Owned(json(other).into_bytes()),
    }
}

fn json(value: &AMQPValue) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match value {
        AMQPValue::Boolean(flag) => flag.to_string(),
        AMQPValue::ShortShortInt(number) => number.to_string(),
        AMQPValue::ShortShortUInt(number) => number.to_string(),
        AMQPValue::ShortInt(number) => number.to_string(),
        AMQPValue::ShortUInt(number) => number.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongUInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        AMQPValue::Timestamp(number) => number.to_string(),
        AMQPValue::Float(number) => number.to_string(),
        AMQPValue::Double(number) => number.to_string(),
        AMQPValue::DecimalValue(number) => format!("{}e-{}", number.value, number.scale),
        AMQPValue::ShortString(text) => quoted(text.as_str()),
        AMQPValue::LongString(text) => quoted(&String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => quoted(&String::from_utf8_lossy(bytes.as_slice())),
        AMQPValue::Void => "null".into(),
        AMQPValue::FieldArray(values) => {
            let values: Vec<String> = values.as_slice().iter().map(json).collect();
            format!("[{}]", values.join(","))
        }
        AMQPValue::FieldTable(table) => {
            let mut out = String::from("{");
            for (name, value) in table.inner() {
                let comma = if out.len() > 1 { "," } else { "" };
                // Writing to a string cannot fail.
                let _ = write!(out, "{comma}{}:{}", quoted(name.as_str()), json(value));
            }
            out + "}"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(cloud_events: bool) -> FieldMapping {
        FieldMapping {
            id: Field::MessageId,
            message_type: Field::RoutingKey,
            producer: Some(Field::fixed("stock")),
            ordering_key: None,
            tenant: None,
            cloud_events,
        }
    }

    fn raw(exchange: &str, routing_key: &str, headers: &[(&str, &str)]) -> Raw {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        let properties = BasicProperties::default().with_message_id("1".into()).with_headers(table);
        let delivery = Delivery::mock(1, exchange.into(), routing_key.into(), false, Vec::new());
        Raw::new("q", Delivery { properties, ..delivery })
    }

    #[test]
    fn the_producer_is_the_source_of_events_too() {
        assert_eq!(read(&fields(false), &raw("", "q", &[])).unwrap().source(), "stock");
        let event = [
            ("cloudEvents:specversion", "1.0"),
            ("cloudEvents:source", "/shop"),
            ("cloudEvents:id", "1"),
            ("cloudEvents:type", "placed"),
        ];
        let event = read(&fields(true), &raw("", "q", &event)).unwrap();
        assert_eq!((event.source(), event.id()), ("stock", &b"/shop 1"[..]));
    }

    #[test]
    fn a_producer_cannot_claim_another_routing_key_or_exchange() {
        let claimed = [(ROUTING_KEY, "paid"), (EXCHANGE, "bank"), (FAILURES, "19")];
        let forged = raw("shop", "placed", &claimed);
        assert_eq!(
            (&*forged.routing_key(), &*forged.exchange(), forged.failures()),
            (&b"placed"[..], &b"shop"[..], 0)
        );
        // From a retry queue they come straight into the queue.
        let again = raw("", "q", &claimed);
        assert_eq!(
            (&*again.routing_key(), &*again.exchange(), again.failures()),
            (&b"paid"[..], &b"bank"[..], 19)
        );
    }
}
