//! `cargo xtask bench peers`: other queues, on one PostgreSQL server, with the same rows as ours. Tests: below.
//!
//! The programs in `bench/peers` run them; each measures one row and prints one line of JSON.

mod install;
mod server;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use oncebox_servers::{Cluster, PostgresVersion};
use serde::{Deserialize, Serialize};

use crate::servers;
use crate::workspace::Workspace;
use install::Installed;
use server::PeerServer;

/// Longer than any deadline of a runner, whose error says more than a kill.
const PATIENCE: Duration = Duration::from_mins(4);

/// Our own rows are measured in one run.
const OURS_PATIENCE: Duration = Duration::from_mins(10);

const ROUNDS: usize = 3;

/// Measure other queues on a PostgreSQL server, one fresh database for each row
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo xtask bench peers",
    after_help = "Example: cargo xtask bench peers --url postgres://bench@127.0.0.1:5432/postgres --only pg-boss"
)]
pub(crate) struct PeerOptions {
    /// PostgreSQL URL over TCP, as a user with CREATEDB (default: a temporary server)
    #[arg(long)]
    url: Option<String>,
    /// Measure only this peer
    #[arg(long)]
    only: Option<String>,
    /// Run one round instead of three
    #[arg(long)]
    quick: bool,
    /// Show these Oncebox rows, in JSON lines, instead of measuring them
    #[arg(long)]
    ours: Option<PathBuf>,
    /// Print the rows as JSON lines instead of a table
    #[arg(long)]
    json: bool,
}

/// One figure of one peer, as its runner prints it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerFigure {
    #[serde(rename = "row")]
    pub(crate) name: String,
    pub(crate) peer: String,
    pub(crate) version: String,
    /// Number of messages of the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages: Option<u64>,
    /// A rate; `unit` has its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
    /// Messages that the handler saw more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handled_again: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Runtime of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PeerRuntime {
    /// Name of the program.
    Rust(&'static str),
    Node,
    Python,
}

struct PeerQueue {
    name: &'static str,
    kind: PeerRuntime,
    /// Messages that wait when the worker starts. Fewer for peers that would take minutes.
    backlog: usize,
}

const PEERS: &[PeerQueue] = &[
    PeerQueue { name: "graphile-worker", kind: PeerRuntime::Node, backlog: 50_000 },
    PeerQueue { name: "graphile_worker", kind: PeerRuntime::Rust("peer-graphile"), backlog: 50_000 },
    PeerQueue { name: "pgqueuer", kind: PeerRuntime::Python, backlog: 50_000 },
    PeerQueue { name: "apalis-postgres", kind: PeerRuntime::Rust("peer-apalis"), backlog: 50_000 },
    PeerQueue { name: "pg-boss", kind: PeerRuntime::Node, backlog: 50_000 },
    PeerQueue { name: "sqlxmq", kind: PeerRuntime::Rust("peer-sqlxmq"), backlog: 20_000 },
    PeerQueue { name: "procrastinate", kind: PeerRuntime::Python, backlog: 5_000 },
    PeerQueue { name: "underway", kind: PeerRuntime::Rust("peer-underway"), backlog: 5_000 },
];

/// Returns the rows, with the number of messages of each.
fn rows(peer: &PeerQueue) -> [(&'static str, usize); 4] {
    [
        ("enqueue-single-8", 16_000),
        ("enqueue-batch-500", 100_000),
        ("drain", peer.backlog),
        ("latency-200", 1_000),
    ]
}

/// Measures, and prints the results.
pub(crate) fn bench(options: &PeerOptions) -> Result<()> {
    // Read first: an unreadable file must not be noticed after a quarter of an hour.
    let given = options.ours.as_deref().map(ours).transpose()?;
    let (url, _cluster) = if let Some(url) = &options.url {
        (url.clone(), None)
    } else {
        servers::install(&Workspace::load()?)?;
        let cluster = durable()?;
        (cluster.url("postgres"), Some(cluster))
    };
    let rows = run(&url, given, options.only.as_deref(), options.quick)?;
    if options.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        print!("\n{}", table::table(&rows));
    }
    Ok(())
}

/// Starts a server with default durability and existing log files: otherwise the first peer would pay for them.
fn durable() -> Result<Cluster> {
    let cluster = Cluster::builder(PostgresVersion::Debian)
        .durable(true)
        .set("shared_buffers", "512MB")
        .set("max_wal_size", "4GB")
        .set("max_connections", "200")
        .start()?;
    cluster.sql("postgres", include_str!("../../bench/postgres/sql/age.sql"))?;
    Ok(cluster)
}

/// Measures our own rows once, on the same server.
fn measure_ours(url: &str) -> Result<Vec<PeerFigure>> {
    let mut bench = crate::run::cargo(&crate::workspace::root());
    bench.args(["run", "--quiet", "--release", "--locked", "--package", "oncebox-bench-postgres", "--"]);
    bench.args(["--beside-peers", "--quick", "--url", url]);
    let text = output(&mut bench, OURS_PATIENCE)?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn build_ours() -> Result<()> {
    let mut build = crate::run::cargo(&crate::workspace::root());
    crate::run::check(build.args(["build", "--release", "--locked", "--package", "oncebox-bench-postgres"]))
}

/// Reads rows of Oncebox from a file of JSON lines; a row without a name is ours.
fn ours(path: &std::path::Path) -> Result<Vec<PeerFigure>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let mut row: PeerFigure =
                serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))?;
            if row.peer.is_empty() {
                row.peer = "oncebox".into();
            }
            Ok(row)
        })
        .collect()
}

/// Measures our rows, unless they are given, and the peers on the server at `url`, and returns the medians. A failed
/// installation or run becomes a row with an error, and the other figures remain.
fn run(
    url: &str,
    given: Option<Vec<PeerFigure>>,
    only: Option<&str>,
    quick: bool,
) -> Result<Vec<PeerFigure>> {
    let peers: Vec<&PeerQueue> =
        PEERS.iter().filter(|peer| only.is_none_or(|only| only == peer.name)).collect();
    if peers.is_empty() {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        bail!("there is no such peer; there are {}", names.join(", "));
    }
    let server = PeerServer::new(url)?;
    println!("{}", server.describe()?);
    let installed = Installed::new(&Workspace::load()?, peers.iter().map(|peer| peer.kind))?;
    if given.is_none() {
        build_ours()?;
    }

    let rounds = if quick { 1 } else { ROUNDS };
    let mut measured: BTreeMap<(usize, usize), Vec<PeerFigure>> = BTreeMap::new();
    let mut ours: BTreeMap<usize, Vec<PeerFigure>> = BTreeMap::new();
    for round in 1..=rounds {
        // All take turns, so that a slow period of the machine affects all of them.
        if given.is_none() {
            for (place, row) in measure_ours(url)?.into_iter().enumerate() {
                println!("{round}/{rounds}  {:<17} {:<18} {}", row.peer, row.name, table::figure(&row));
                ours.entry(place).or_default().push(row);
            }
        }
        for (number, peer) in peers.iter().enumerate() {
            for (place, (name, messages)) in rows(peer).into_iter().enumerate() {
                let row = measure(&server, &installed, peer, name, messages)?;
                println!("{round}/{rounds}  {:<17} {name:<18} {}", peer.name, table::figure(&row));
                measured.entry((number, place)).or_default().push(row);
            }
        }
    }
    let mut rows = given.unwrap_or_default();
    rows.extend(ours.into_values().chain(measured.into_values()).map(median));
    Ok(rows)
}

/// Measures one row of one peer, in a database of its own.
fn measure(
    server: &PeerServer,
    installed: &Installed,
    peer: &PeerQueue,
    name: &str,
    messages: usize,
) -> Result<PeerFigure> {
    let failed = |error: String| PeerFigure {
        name: name.into(),
        peer: peer.name.into(),
        messages: messages.try_into().ok(),
        error: Some(error),
        ..PeerFigure::default()
    };
    let mut command = match installed.command(peer.name, peer.kind) {
        Ok(command) => command,
        Err(error) => return Ok(failed(format!("{error:#}"))),
    };
    let database = format!("oncebox_peer_{}", peer.name.replace('-', "_"));
    server.create(&database)?;
    command.args([name, &server.url_of(&database), &messages.to_string()]);
    let output = output(&mut command, PATIENCE);
    server.drop(&database)?;
    // A runner may print more; the row is the JSON line.
    let row = output.and_then(|output| {
        let row = output
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str::<PeerFigure>(line).ok().filter(|row| row.name == name));
        row.context("it ended without printing a row")
    });
    Ok(row.unwrap_or_else(|error| failed(format!("{error:#}"))))
}

/// Returns the output of a command; kills it after `patience`.
fn output(command: &mut Command, patience: Duration) -> Result<String> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("it cannot be started")?;
    let mut stdout = child.stdout.take().context("it has no output")?;
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let result = stdout.read_to_string(&mut text).map(|_| text);
        // After the time limit, no receiver is left.
        let _ = send.send(result);
    });
    let Ok(text) = receive.recv_timeout(patience) else {
        child.kill()?;
        child.wait()?;
        bail!("killed after {} s", patience.as_secs());
    };
    child.wait()?;
    Ok(text?)
}

/// Merges several rounds: the medians of the successful ones, and a note about failures.
fn median(rounds: Vec<PeerFigure>) -> PeerFigure {
    let total = rounds.len();
    let (good, bad): (Vec<PeerFigure>, Vec<PeerFigure>) =
        rounds.into_iter().partition(|row| row.error.is_none());
    let Some(mut row) = good.first().cloned() else {
        return bad.into_iter().next_back().unwrap_or_default();
    };
    let middle = |field: fn(&PeerFigure) -> Option<f64>| {
        let mut values: Vec<f64> = good.iter().filter_map(field).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    row.value = middle(|row| row.value);
    row.p50_ms = middle(|row| row.p50_ms);
    row.p99_ms = middle(|row| row.p99_ms);
    row.handled_again = good.iter().filter_map(|row| row.handled_again).max();
    if let Some(error) = bad.first().and_then(|row| row.error.as_deref()) {
        let failed = format!("{} of {total} rounds failed: {error}", bad.len());
        row.note = Some(row.note.map_or(failed.clone(), |note| format!("{note}; {failed}")));
    }
    row
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn row(value: f64) -> PeerFigure {
        PeerFigure { name: "drain".into(), value: Some(value), ..PeerFigure::default() }
    }

    fn error(text: &str) -> PeerFigure {
        PeerFigure { name: "drain".into(), error: Some(text.into()), ..PeerFigure::default() }
    }

    #[test]
    fn the_command_line_is_consistent() {
        PeerOptions::command().debug_assert();
    }

    #[test]
    fn the_options_come_after_the_word() {
        let options = PeerOptions::try_parse_from(["peers", "--url", "postgres://h/x", "--quick"]).unwrap();
        assert!(options.quick && options.only.is_none() && options.url.as_deref() == Some("postgres://h/x"));
    }

    #[test]
    fn the_median_counts() {
        assert_eq!(median(vec![row(3.0), row(1.0), row(2.0)]), row(2.0));
    }

    #[test]
    fn a_round_that_failed_is_said_and_not_counted() {
        let median = median(vec![row(3.0), error("late"), row(3.0)]);
        assert_eq!(median.value, Some(3.0));
        assert_eq!(median.note.as_deref(), Some("1 of 3 rounds failed: late"));
    }

    #[test]
    fn a_row_without_a_good_round_is_an_error() {
        assert_eq!(median(vec![error("early"), error("late")]), error("late"));
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let hanging = output(Command::new("sleep").arg("60"), Duration::from_millis(20)).unwrap_err();
        assert_eq!(hanging.to_string(), "killed after 0 s");
        assert_eq!(output(Command::new("echo").arg("x"), PATIENCE).unwrap(), "x\n");
    }

    #[test]
    fn a_row_is_read_as_the_runners_print_it() {
        let line = r#"{"row": "latency-200", "peer": "a", "version": "1", "messages": 10, "p50_ms": 2, "p99_ms": 3.5}"#;
        let row: PeerFigure = serde_json::from_str(line).unwrap();
        assert_eq!((row.p50_ms, row.p99_ms, row.value), (Some(2.0), Some(3.5), None));
    }
}
