//! The frozen layout of keys: the library computes the digests of `docs/vectors/messages.json`. The PostgreSQL store has the
//! tests of the same vectors in SQL, Python and Node.js.

use oncebox::{Fingerprint, InboxName, KeyStrategy, Message, OrderKey};

#[derive(serde::Deserialize)]
struct VectorFile {
    vectors: Vec<Vector>,
}

#[derive(serde::Deserialize)]
struct Vector {
    name: String,
    inbox: VectorBytes,
    tenant: Option<VectorBytes>,
    source: VectorBytes,
    id: VectorBytes,
    r#type: VectorBytes,
    payload: VectorBytes,
    ordering_key: VectorBytes,
    key: String,
    fingerprint: String,
    order_key: String,
}

#[derive(serde::Deserialize)]
struct VectorBytes {
    hex: String,
    #[serde(default = "once")]
    times: usize,
}

fn once() -> usize {
    1
}

impl VectorBytes {
    fn bytes(&self) -> Vec<u8> {
        let digit = |pair: &str| u8::from_str_radix(pair, 16).expect("two hexadecimal digits");
        let bytes: Vec<u8> = (0..self.hex.len()).step_by(2).map(|at| digit(&self.hex[at..at + 2])).collect();
        bytes.repeat(self.times)
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("text")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

// FAULTS A12, G6: stored keys outlive every build, so the layout may not change without a new version.
#[test]
fn the_library_computes_the_vectors() {
    let file: VectorFile = serde_json::from_str(include_str!("../../../docs/vectors/messages.json")).unwrap();
    assert!(file.vectors.len() >= 14);
    for vector in file.vectors {
        let inbox = InboxName::new(vector.inbox.text()).unwrap();
        let mut message = Message::new(vector.id.bytes(), vector.r#type.text(), vector.payload.bytes())
            .with_source(vector.source.text())
            .with_ordering_key(vector.ordering_key.bytes());
        if let Some(tenant) = &vector.tenant {
            message = message.with_tenant(tenant.text());
        }
        let key = KeyStrategy::MessageId.key(&inbox, &message).unwrap();
        assert_eq!(key.to_string(), vector.key, "{}: key", vector.name);
        assert_eq!(
            hex(Fingerprint::of(&message).as_bytes()),
            vector.fingerprint,
            "{}: fingerprint",
            vector.name
        );
        let order = OrderKey::of(&inbox, &message).unwrap();
        assert_eq!(hex(order.as_bytes()), vector.order_key, "{}: ordering key", vector.name);
    }
}
