//! The server process: its start, memory and processor time.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Clock ticks of processor time per second, as Linux reports them.
const TICKS: u64 = 100;

/// A server that stops with this process.
pub(crate) struct ServerProcess {
    pub(crate) address: SocketAddr,
    child: Child,
    id: u32,
}

impl ServerProcess {
    /// Starts the server with a store.
    pub(crate) async fn start(store: &str) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["--serve", store]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start the server")?;
        let output = child.stdout.take().context("the server has no output")?;
        let line = BufReader::new(output).lines().next_line().await?.context("the server ended at once")?;
        let id = child.id().context("the server ended at once")?;
        Ok(Self { address: line.parse()?, child, id })
    }

    /// Returns its memory, in MiB.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib / 1024)
    }

    /// Returns its processor time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu(&self.id.to_string())
    }

    /// Stops the server.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.wait().await?;
        Ok(())
    }
}

/// Returns the processor time of this process.
pub(crate) fn own_cpu() -> Result<Duration> {
    cpu("self")
}

fn cpu(process: &str) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(')').context("not a stat line")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().context("a short stat line")?.parse::<u64>().context("not a number");
    Ok(Duration::from_millis((next()? + next()?) * 1_000 / TICKS))
}
