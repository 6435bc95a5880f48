//! Recovery time of the messages of a killed process. A child process takes messages and holds them. After SIGKILL and
//! a restart, the bench times each message's next delivery from the kill.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use oncebox::{BoxError, Context, Inbox, Message, Store, handler};
use serde::Serialize;

/// Variable that makes this program a worker, with the worker's role.
const ROLE: &str = "ONCEBOX_BENCH_RECOVERY";
/// Variable with the store of the worker: a path or a URL.
const PLACE: &str = "ONCEBOX_BENCH_RECOVERY_STORE";
const HOLD: &str = "hold";
const FINISH: &str = "finish";
/// Prefix of the line with the id of a delivered message.
const BEGUN: &str = "begun ";

/// Messages without an ordering key.
const PLAIN: usize = 50;
/// Ordering keys, and messages of each: the first is running when the worker dies, and the others wait behind it.
const KEYS: usize = 25;
const OF_A_KEY: usize = 2;

/// One row of the result, in milliseconds.
#[derive(Serialize)]
struct RecoveryRow<'a> {
    #[serde(rename = "row")]
    name: &'a str,
    p50: u128,
    max: u128,
    aim: u128,
    unit: &'a str,
}

/// Returns the role and the store of this process, if it is a worker.
pub(crate) fn role() -> Option<(String, String)> {
    Some((std::env::var(ROLE).ok()?, std::env::var(PLACE).ok()?))
}

/// Runs the worker with the default settings: prints each message it receives, and holds or finishes it.
pub(crate) async fn work<S: Store>(store: S, role: &str) -> Result<()> {
    let _running = inbox(store, HoldsMessages(role == HOLD))?.start();
    std::future::pending().await
}

/// True if the worker holds its messages.
struct HoldsMessages(bool);

fn inbox<S: Store>(store: S, holds: HoldsMessages) -> Result<Inbox<S>> {
    let registration = handler("work", begin::<S>).concurrency(PLAIN + KEYS);
    Ok(Inbox::builder("recovery", store).data(holds).on("t", registration).build()?)
}

/// The handler of the worker.
async fn begin<S: Store>(message: Message, cx: &mut Context<S>) -> Result<(), BoxError> {
    let line = format!("{BEGUN}{}\n", String::from_utf8_lossy(message.id()));
    std::io::stdout().write_all(line.as_bytes())?;
    std::io::stdout().flush()?;
    if cx.data::<HoldsMessages>()?.0 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Stores the messages, lets a worker take them, kills it and starts another; prints the delays of the messages.
pub(crate) async fn measure<S: Store>(store: S, place: &str, aim: Duration, json: bool) -> Result<()> {
    let sender = inbox(store, HoldsMessages(false))?;
    let plain = (0..PLAIN).map(|n| Message::new(format!("plain {n}"), "t", "{}"));
    let ordered = (0..KEYS * OF_A_KEY).map(|n| {
        let key = format!("{}", n % KEYS);
        Message::new(format!("ordered {n}"), "t", "{}").with_ordering_key(key)
    });
    for accepted in sender.accept_batch(plain.chain(ordered)).await? {
        accepted?;
    }
    let place = place.to_owned();
    let waits = tokio::task::spawn_blocking(move || killed(&place)).await??;
    for (name, prefix) in [("recovery-plain", "plain"), ("recovery-ordered", "ordered")] {
        let of = waits.iter().filter(|(id, _)| id.starts_with(prefix)).map(|(_, wait)| wait.as_millis());
        let mut of: Vec<u128> = of.collect();
        of.sort_unstable();
        let (Some(p50), Some(max)) = (of.get(of.len() / 2), of.last()) else {
            bail!("nothing was delivered")
        };
        let row = RecoveryRow { name, p50: *p50, max: *max, aim: aim.as_millis(), unit: "ms" };
        if json {
            println!("{}", serde_json::to_string(&row)?);
        } else {
            println!("{name:<20} p50 {p50:>7} ms   max {max:>7} ms   aim {:>7} ms", row.aim);
        }
    }
    Ok(())
}

/// Kills a worker that holds its maximum, starts another one, and returns the delay of each message.
fn killed(place: &str) -> Result<Vec<(String, Duration)>> {
    let (mut child, mut lines) = start(place, HOLD)?;
    for _ in 0..PLAIN + KEYS {
        next(&mut lines)?;
    }
    let start_of_outage = Instant::now();
    child.0.kill()?;
    child.0.wait()?;
    let (_child, mut lines) = start(place, FINISH)?;
    let mut waits = Vec::new();
    for _ in 0..PLAIN + KEYS * OF_A_KEY {
        let id = next(&mut lines)?;
        ensure!(waits.iter().all(|(known, _)| *known != id), "the message {id:?} was delivered twice");
        waits.push((id, start_of_outage.elapsed()));
    }
    Ok(waits)
}

type OutputLines = std::io::Lines<BufReader<ChildStdout>>;

/// A worker process that is killed when this value is dropped.
struct ChildWorker(Child);

impl Drop for ChildWorker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &str, role: &str) -> Result<(ChildWorker, OutputLines)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ROLE, role).env(PLACE, place).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = ChildWorker(command.spawn()?);
    let output = child.0.stdout.take().context("the worker has no output")?;
    Ok((child, BufReader::new(output).lines()))
}

/// Returns the id of the next message that a worker received.
fn next(lines: &mut OutputLines) -> Result<String> {
    for line in lines {
        if let Some(id) = line?.strip_prefix(BEGUN) {
            return Ok(id.to_owned());
        }
    }
    bail!("the worker ended")
}
