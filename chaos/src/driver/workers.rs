//! Worker processes: starts, feeds, kills, suspends and continues them. Tests: below.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::worker::{WorkerJob, WorkerReport};

/// An event of a worker, with its place.
pub(super) enum ProcessEvent {
    Reported(usize, u64, WorkerReport),
    Gone(usize, u64),
    /// True if a broker has confirmed a delivery.
    Published(u64, bool),
}

/// One worker process.
pub(super) struct RigWorker {
    child: Child,
    input: Option<ChildStdin>,
    /// Distinguishes its reports from those of earlier processes in its place.
    pub(super) life: u64,
    pub(super) front: bool,
    /// Suspended until then.
    pub(super) stopped: Option<Instant>,
    /// Not killed before then: a continued zombie has to show its actions.
    pub(super) spared: Instant,
    pub(super) leaving: bool,
    /// True after its first sign of work.
    pub(super) worked: bool,
    /// Time of its kill.
    pub(super) doom: Option<Instant>,
    /// Port for requests.
    pub(super) port: Option<u16>,
}

impl RigWorker {
    pub(super) fn spawn(place: usize, job: &WorkerJob, events: &Sender<ProcessEvent>) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log(&job.dir, place))?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start a worker")?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("a worker without output")?);
        let (events, life) = (events.clone(), job.life);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if let Ok(report) = serde_json::from_str(&line) {
                    let _ = events.send(ProcessEvent::Reported(place, life, report));
                }
            }
            let _ = events.send(ProcessEvent::Gone(place, life));
        });
        let now = Instant::now();
        let front = job.front;
        Ok(Self {
            child,
            input,
            life,
            front,
            stopped: None,
            spared: now,
            leaving: false,
            worked: false,
            doom: None,
            port: None,
        })
    }

    /// Writes to its input. Other checks notice an ended or stalled worker.
    pub(super) fn feed(&mut self, lines: &[u8]) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(lines).and_then(|()| input.flush());
        }
    }

    pub(super) fn hang_up(&mut self) {
        self.input = None;
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kill(&mut self) -> bool {
        self.child.kill().is_ok()
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An ended process is no error.
            let _ = kill_process(pid, signal);
        }
    }

    pub(super) fn wait(&mut self) -> Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// Waits for its end, and kills it after `patience`. Returns whether it ended by itself.
    pub(super) fn leave(&mut self, patience: Duration) -> Result<bool> {
        self.hang_up();
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < patience {
            if self.child.try_wait()?.is_some() {
                return Ok(true);
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        self.kill();
        self.child.wait()?;
        Ok(false)
    }
}

impl Drop for RigWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the standard error of the workers in a place.
pub(super) fn log(dir: &Path, place: usize) -> std::path::PathBuf {
    dir.join(format!("worker-{place}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a worker that is a shell with these commands, once it reports that it is ready.
    fn shell(commands: &str) -> RigWorker {
        let mut child = Command::new("sh")
            .args(["-c", commands])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("its first line");
        assert_eq!(line, "ready\n");
        let input = child.stdin.take();
        RigWorker {
            child,
            input,
            life: 1,
            front: false,
            stopped: None,
            spared: Instant::now(),
            leaving: false,
            worked: false,
            doom: None,
            port: None,
        }
    }

    #[test]
    fn i13_one_that_does_not_end_when_it_is_asked_to_is_noticed() {
        let mut willing = shell("echo ready; exec tail -f /dev/null >/dev/null");
        assert!(willing.leave(Duration::from_mins(1)).unwrap());
        let mut stubborn = shell("trap '' TERM; echo ready; exec tail -f /dev/null >/dev/null");
        assert!(!stubborn.leave(Duration::from_millis(300)).unwrap(), "it was killed");
    }
}
