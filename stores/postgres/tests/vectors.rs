//! The frozen layout of keys in other languages: PostgreSQL, Python and Node.js compute the digests of
//! `docs/vectors/messages.json`. The library's own test of these vectors is `crates/oncebox/tests/vectors.rs`.

use std::process::Command;

use oncebox_postgres::sqlx::{self, AssertSqlSafe, Connection as _, PgConnection, Row as _};
use oncebox_servers::{PythonEnv, shared};
use serde::Deserialize;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/messages.json");

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<ExpectedDigests>,
}

#[derive(Deserialize)]
struct ExpectedDigests {
    name: String,
    inbox: HexField,
    tenant: Option<HexField>,
    source: HexField,
    id: HexField,
    r#type: HexField,
    payload: HexField,
    ordering_key: HexField,
    key: String,
    fingerprint: String,
    order_key: String,
}

#[derive(Deserialize)]
struct HexField {
    hex: String,
    times: Option<usize>,
}

impl HexField {
    fn bytes(&self) -> Vec<u8> {
        let digit = |pair: &str| u8::from_str_radix(pair, 16).expect("two hexadecimal digits");
        let bytes: Vec<u8> = (0..self.hex.len()).step_by(2).map(|at| digit(&self.hex[at..at + 2])).collect();
        bytes.repeat(self.times.unwrap_or(1))
    }
}

fn vectors() -> Vec<ExpectedDigests> {
    let text = std::fs::read_to_string(FILE).expect("the vectors are readable");
    serde_json::from_str::<Vectors>(&text).expect("the vectors are JSON").vectors
}

/// Returns the expected output of each program: one line per vector.
fn lines() -> String {
    vectors().iter().fold(String::new(), |lines, vector| {
        let ExpectedDigests { name, key, fingerprint, order_key, .. } = vector;
        lines + &format!("{name} {key} {fingerprint} {order_key}\n")
    })
}

fn printed(program: &mut Command) -> String {
    let output = program.arg(FILE).output().expect("the program starts; `cargo xtask servers` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn postgresql_computes_the_vectors() {
    let sql = include_str!("../../../docs/vectors/compute.sql");
    let mut connection = PgConnection::connect(&shared::debian_url()).await.expect("a connection");
    for vector in vectors() {
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(vector.inbox.bytes())
            .bind(vector.tenant.as_ref().map(HexField::bytes))
            .bind(vector.source.bytes())
            .bind(vector.id.bytes())
            .bind(vector.r#type.bytes())
            .bind(vector.payload.bytes())
            .bind(vector.ordering_key.bytes())
            .fetch_one(&mut connection)
            .await
            .expect("digests");
        let expected = [&vector.key, &vector.fingerprint, &vector.order_key];
        for (column, expected) in expected.into_iter().enumerate() {
            let hex = row
                .get::<Vec<u8>, _>(column)
                .iter()
                .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            assert_eq!(&hex, expected, "{}: column {column}", vector.name);
        }
    }
}

#[test]
fn python_computes_the_vectors() {
    let mut python = Command::new(PythonEnv::binary().expect("Python"));
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/compute.py"));
    assert_eq!(printed(&mut python), lines());
}

#[test]
fn node_computes_the_vectors() {
    let mut node = Command::new("node");
    node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/compute.mjs"));
    assert_eq!(printed(&mut node), lines());
}
