//! Measures the same four rows for every peer. Tests: below.

mod rows;

use std::future::Future;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Callback of the handler, with the number of its message.
pub type Started = Arc<dyn Fn(usize) + Send + Sync>;

/// A queue on `PostgreSQL`.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Name of its package.
    const NAME: &'static str;
    /// SQL that counts the unfinished messages in its tables.
    const UNFINISHED: &'static str;
    /// Manifest that pins its version.
    const MANIFEST: &'static str;
    /// True if it can enqueue several messages in one call; without that, `enqueue_batch` only fills the backlog.
    const BATCHES: bool = true;
    /// Note for readers of its figures.
    const NOTE: Option<&'static str> = None;

    /// Creates the tables and the connections.
    fn open(url: &str) -> impl Future<Output = Result<Self>>;

    /// Enqueues one message, which is durable when this returns.
    fn enqueue(&self, n: usize) -> impl Future<Output = Result<()>> + Send;

    /// Enqueues several messages in one call.
    fn enqueue_batch(&self, numbers: Range<usize>) -> impl Future<Output = Result<()>> + Send;

    /// Runs the worker; its handler only calls `started`.
    fn work(&self, started: Started) -> impl Future<Output = Result<()>> + Send;
}

/// 256 bytes of JSON with the message's number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Payload {
    pub n: usize,
    pub note: String,
}

impl Payload {
    #[must_use]
    pub fn new(n: usize) -> Self {
        let frame = r#"{"n":,"note":""}"#.len() + n.to_string().len();
        Self { n, note: "x".repeat(256 - frame) }
    }
}

/// Returns the deduplication key, for peers that have one.
#[must_use]
pub fn key(n: usize) -> String {
    format!("0192f7a0-0000-7000-8000-{n:012}")
}

/// `<program> <row> <postgres url> <messages>`: measures one row and prints it; a failure is a row, too.
#[must_use]
pub fn main<P: Peer>() -> ExitCode {
    match measure::<P>() {
        Ok(row) => {
            println!("{row}");
            // Exit at once: workers would keep the runtime alive, some for seconds.
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn measure<P: Peer>() -> Result<Value> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, url, count] = args.as_slice() else {
        anyhow::bail!("usage: <program> <row> <postgres url> <messages>");
    };
    let count: usize = count.parse().context("the number of messages")?;
    let version = pinned(P::MANIFEST, P::NAME).context("the manifest does not pin the peer")?;
    let mut row = json!({ "row": name, "peer": P::NAME, "version": version, "messages": count });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(rows::measure::<P>(name, url, count));
    // Its worker may still run; do not wait for it.
    runtime.shutdown_background();
    let fields = result.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
    for (field, value) in fields.as_object().into_iter().flatten() {
        row[field] = value.clone();
    }
    if let (Some(note), None) = (P::NOTE, row.get("note")) {
        row["note"] = note.into();
    }
    Ok(row)
}

/// Returns the version of `name` in a manifest with `name = "=1.2.3"` or `name = { version = "=1.2.3", … }`.
fn pinned<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    let value = manifest.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
    value.split_once("\"=")?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_256_bytes() {
        for n in [0, 9, 10, 99_999] {
            assert_eq!(serde_json::to_string(&Payload::new(n)).unwrap().len(), 256);
        }
    }

    #[test]
    fn the_version_is_the_pinned_one() {
        let manifest =
            "a-b = \"=3.0\"\na = \"=1.2.3\"\nb = { version = \"=0.6.0\", features = [\"x\"] }\nc = \"1\"\n";
        assert_eq!(pinned(manifest, "a"), Some("1.2.3"));
        assert_eq!(pinned(manifest, "b"), Some("0.6.0"));
        assert_eq!(pinned(manifest, "c"), None);
    }
}
