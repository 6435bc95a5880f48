//! Ledgers: each process appends its facts, one line and one write each, so that no `kill -9` loses them. Tests:
//! tests/short.rs.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Returns microseconds of the machine's clock, which all processes share.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Faults that the checker knows by name: the replica is disconnected, it took over, a command is refused.
pub(crate) const LOSES_FROM_NOW: &str = "server: replica cut off";
pub(crate) const FAILED_OVER: &str = "server: failed over";
pub(crate) const DENIED: &str = "denied: ";
/// The same for refusals that outlast leases.
pub(crate) const DENIED_FOR_LONG: &str = "denied for long: ";

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fact {
    /// The generator handed a message to the transport.
    Offered { m: u32, v: u8 },
    /// The transport received an acknowledgement.
    Acked { m: u32, v: u8 },
    /// The transport received a rejection.
    Refused { m: u32, v: u8, why: String },
    /// A worker claimed an entry to run it.
    Claimed { m: u32, h: String, tok: i64 },
    /// A handler started.
    Start { m: u32, h: String, tok: i64, v: u8 },
    /// The idempotency key that a run would send to another system.
    Keyed { m: u32, h: String, k: String },
    /// A handler ended; `dropped` if it was cancelled.
    End { m: u32, h: String, tok: i64, end: HandlerEnd },
    /// Response of the store to a settlement or completion.
    Settled { m: u32, h: String, tok: i64, to: String, event: String, r: SettleResult },
    /// Request of an operator, possibly for one entry.
    Requested { op: String, m: Option<u32>, h: String },
    /// Response to an operator.
    Acted { op: String, r: SettleResult },
    /// The driver or a failpoint hit the process `life`, or all processes (0).
    Fault { life: u64, what: String },
    /// A process got no CPU time for this many milliseconds.
    Stall { ms: u64 },
    /// A store call took this many milliseconds: longer than a renewal may.
    Slow { verb: String, ms: u64 },
    /// The store itself reported an unknown commit.
    Unknown { verb: String },
}

/// End of a run of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HandlerEnd {
    Ok,
    Fail,
    Panic,
    Snooze,
    Reject,
    Dropped,
    /// The store failed the handler.
    Store,
}

/// Response of the store to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SettleResult {
    Applied,
    Lost,
    Unknown,
    Error,
}

/// A fact with its time and its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LedgerLine {
    pub(crate) t: u64,
    /// The process; 0 is the driver.
    pub(crate) life: u64,
    pub(crate) fact: Fact,
}

/// The ledger of one process.
#[derive(Debug)]
pub(crate) struct ProcessLedger {
    life: u64,
    file: Mutex<File>,
}

impl ProcessLedger {
    pub(crate) fn open(dir: &Path, life: u64) -> Result<Self> {
        let path = path(dir, life);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot open the ledger {}", path.display()))?;
        Ok(Self { life, file: Mutex::new(file) })
    }

    /// Writes a fact. Ends the rig if it cannot.
    pub(crate) fn note(&self, fact: Fact) {
        let line = LedgerLine { t: now(), life: self.life, fact };
        let written = serde_json::to_vec(&line).map_err(anyhow::Error::from).and_then(|mut text| {
            text.push(b'\n');
            // One call: the write persists, whatever happens to this process next.
            Ok(self.file.lock().write_all(&text)?)
        });
        if let Err(error) = written {
            eprintln!("chaos: the ledger cannot be written: {error:#}");
            std::process::exit(70);
        }
    }
}

fn path(dir: &Path, life: u64) -> PathBuf {
    dir.join(format!("ledger-{life}.jsonl"))
}

/// Reads every line of every ledger, by time. The torn last line of a killed process is no fact.
pub(crate) fn read(dir: &Path) -> Result<Vec<LedgerLine>> {
    let mut lines: Vec<LedgerLine> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("ledger-") {
            let text = std::fs::read_to_string(&path)?;
            lines.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
    }
    lines.sort_by_key(|line| line.t);
    Ok(lines)
}
