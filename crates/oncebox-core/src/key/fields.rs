//! Values of a message's headers and JSON payload.

use super::is_blank;
use crate::message::Message;

/// Returns the headers for an attribute in the bindings of `CloudEvents`: HTTP and NATS, Kafka, AMQP in its two spellings.
const CLOUD_EVENTS: [&str; 4] = ["ce-", "ce_", "cloudEvents:", "cloudEvents_"];

/// Returns scalars only: objects have no canonical bytes.
pub(super) fn json_field(message: &Message, pointer: &str) -> Option<Vec<u8>> {
    scalar(serde_json::from_slice::<serde_json::Value>(message.payload()).ok()?.pointer(pointer)?)
}

fn scalar(json: &serde_json::Value) -> Option<Vec<u8>> {
    match json {
        serde_json::Value::String(text) => Some(text.clone().into_bytes()),
        // Parsing rounds other numbers, so two of them could become equal.
        serde_json::Value::Number(number) if number.is_i64() || number.is_u64() => {
            Some(number.to_string().into_bytes())
        }
        serde_json::Value::Bool(flag) => Some(flag.to_string().into_bytes()),
        _ => None,
    }
}

/// Returns source and id of a `CloudEvent`. Neither may be blank.
pub(super) fn cloud_event(message: &Message) -> Option<(Vec<u8>, Vec<u8>)> {
    let header = |name: &str| {
        let found = CLOUD_EVENTS.iter().find_map(|prefix| message.headers().get(&format!("{prefix}{name}")));
        found.map(|value| value.to_vec())
    };
    let (source, id) = if let (Some(source), Some(id)) = (header("source"), header("id")) {
        (source, id)
    } else {
        let json: serde_json::Value = serde_json::from_slice(message.payload()).ok()?;
        // Any JSON may have a source and an id. An event also has its version.
        json.get("specversion")?;
        (scalar(json.get("source")?)?, scalar(json.get("id")?)?)
    };
    (!is_blank(&source) && !is_blank(&id)).then_some((source, id))
}
