//! Runs the demo: starts workers, feeds them, kills them, and counts the rows. Tests: `tests/demo.rs`.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oncebox_sqlite::Sqlite;
use oncebox_sqlite::rusqlite::Connection;

use super::broker::DemoBroker;
use super::report::{DemoCounts, DemoReport};
use super::worker::WorkerMessage;
use super::{Args, shop};

/// Time without a new shipment after which missing orders count as lost.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two queries of the business table.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum workers that the demo kills.
const KILLS: u64 = 12;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let start = Instant::now();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let (dir, kept) = directory(args)?;
    shop::create(&dir)?;
    // Creates the tables once, before the workers start.
    Sqlite::open(shop::file(&dir))?;
    let mut demo = Demo::new(args, &dir, seed);
    demo.drive()?;
    let report = demo.report()?;
    let text = if args.json {
        serde_json::to_string(&report)?
    } else {
        report.table(demo.seen, start.elapsed().as_secs_f64())
    };
    // A closed pipe does not change the exit code.
    let _ = writeln!(std::io::stdout(), "{text}");
    let sound = report.is_sound();
    match kept {
        // After a failure the file is evidence.
        Some(temporary) if !sound => {
            eprintln!("File kept: {}", shop::file(&temporary.keep()).display());
        }
        Some(_) => {}
        None => eprintln!("File kept: {}", shop::file(&dir).display()),
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn directory(args: &Args) -> Result<(PathBuf, Option<tempfile::TempDir>)> {
    match &args.keep {
        None => {
            let temporary = tempfile::Builder::new()
                .prefix("oncebox-demo-")
                .tempdir()
                .context("cannot create a temporary directory for the demo")?;
            Ok((temporary.path().to_owned(), Some(temporary)))
        }
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            if shop::file(dir).exists() {
                bail!(
                    "{} exists, and the demo needs a new file; choose another directory",
                    shop::file(dir).display()
                );
            }
            Ok((dir.clone(), None))
        }
    }
}

/// One worker process.
struct WorkerProcess {
    child: Child,
    input: Option<ChildStdin>,
    /// Number of the process, to ignore messages of an earlier process in its slot.
    life: u64,
}

/// An event of a worker, with its slot.
#[derive(Clone, Copy)]
enum WorkerEvent {
    Message(usize, WorkerMessage),
    Gone(usize, u64),
}

struct Demo<'a> {
    args: &'a Args,
    dir: &'a Path,
    seed: u64,
    rng: fastrand::Rng,
    broker: DemoBroker,
    workers: Vec<WorkerProcess>,
    lives: u64,
    events: (Sender<WorkerEvent>, Receiver<WorkerEvent>),
    seen: DemoCounts,
}

impl<'a> Demo<'a> {
    fn new(args: &'a Args, dir: &'a Path, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let broker = DemoBroker::new(args, &mut rng);
        Self {
            args,
            dir,
            seed,
            rng,
            broker,
            workers: Vec::new(),
            lives: 0,
            events: channel(),
            seen: DemoCounts::default(),
        }
    }

    /// Delivers until all orders are acknowledged and shipped, or progress stalls.
    fn drive(&mut self) -> Result<()> {
        for place in 0..self.args.workers as usize {
            let worker = self.spawn(place)?;
            self.workers.push(worker);
        }
        let shop = Connection::open(shop::file(self.dir))?;
        let bar = self.bar();
        let (mut moved, mut looked, mut shipped) = (Instant::now(), Instant::now(), 0);
        let mut next_kill = 1;
        let interrupted = on_interrupt()?;
        loop {
            if interrupted.load(Ordering::Relaxed) {
                bar.finish_and_clear();
                bail!("interrupted; all workers were stopped");
            }
            for place in 0..self.workers.len() {
                self.feed(place, shipped);
            }
            match self.events.1.recv_timeout(POLL_INTERVAL) {
                Ok(event) => self.note(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("all workers have exited"),
            }
            if looked.elapsed() < POLL_INTERVAL {
                continue;
            }
            looked = Instant::now();
            let shipments = shop::count(&shop)?;
            bar.set_position(shipments.orders);
            if shipments.effects != shipped {
                (shipped, moved) = (shipments.effects, Instant::now());
            }
            // Kills are spread over the progress, so that a fast machine sees as many as a slow one.
            if shipments.orders >= next_kill * u64::from(self.args.messages) / (KILLS + 1)
                && next_kill <= KILLS
            {
                next_kill += 1;
                self.kill();
            }
            if self.broker.is_done() && shipments.orders >= u64::from(self.args.messages) {
                break;
            }
            if moved.elapsed() > STALL_TIMEOUT {
                bar.println(format!("no progress for {} s; stopping", STALL_TIMEOUT.as_secs()));
                break;
            }
        }
        bar.finish_and_clear();
        self.stop()
    }

    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new(u64::from(self.args.messages));
        if self.args.json || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} shipped, {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    }

    fn spawn(&mut self, place: usize) -> Result<WorkerProcess> {
        self.lives += 1;
        let life = self.lives;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("demo-worker")
            .arg("--dir")
            .arg(self.dir)
            .args(["--seed", &self.seed.to_string(), "--number", &life.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("a worker has no output")?);
        let events = self.events.0.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if let Ok(said) = serde_json::from_str(&line) {
                    let _ = events.send(WorkerEvent::Message(place, said));
                }
            }
            let _ = events.send(WorkerEvent::Gone(place, life));
        });
        Ok(WorkerProcess { child, input, life })
    }

    fn feed(&mut self, place: usize, shipped: u64) {
        let mut lines = Vec::new();
        while let Some(delivery) = self.broker.next(place, shipped) {
            // Serializing two numbers cannot fail.
            let _ = serde_json::to_writer(&mut lines, &delivery);
            lines.push(b'\n');
        }
        if let Some(input) = &mut self.workers[place].input {
            // The closed output reports a dead worker.
            let _ = input.write_all(&lines).and_then(|()| input.flush());
        }
    }

    fn note(&mut self, event: WorkerEvent) -> Result<()> {
        match event {
            WorkerEvent::Message(place, said) => match said {
                WorkerMessage::Acked { delivery, duplicate } => {
                    self.seen.duplicates += u64::from(duplicate);
                    self.broker.acked(place, delivery);
                }
                WorkerMessage::Failed { panicked: false } => self.seen.failed += 1,
                WorkerMessage::Failed { panicked: true } => self.seen.panicked += 1,
                WorkerMessage::Dying => {}
            },
            WorkerEvent::Gone(place, life) if self.workers[place].life == life => {
                // `kill` has counted the workers that it killed.
                let status = self.workers[place].child.wait()?;
                self.seen.aborted += u64::from(was_aborted(status));
                self.broker.lost_worker(place);
                self.workers[place] = self.spawn(place)?;
            }
            WorkerEvent::Gone(..) => {}
        }
        Ok(())
    }

    /// Kills a random worker.
    fn kill(&mut self) {
        let place = self.rng.usize(0..self.workers.len());
        if self.workers[place].child.kill().is_ok() {
            self.seen.killed += 1;
        }
    }

    /// Waits until the workers finish.
    fn stop(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            worker.input = None;
        }
        for worker in &mut self.workers {
            worker.child.wait()?;
        }
        Ok(())
    }

    fn report(&self) -> Result<DemoReport> {
        let shipments = shop::count(&Connection::open(shop::file(self.dir))?)?;
        Ok(DemoReport::new(self.args, self.broker.deliveries, shipments, self.seen, self.seed))
    }
}

impl Drop for Demo<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// Returns a flag for a stop signal, so that the demo can remove workers and files.
fn on_interrupt() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        if runtime.block_on(stop_signal()).is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    Ok(interrupted)
}

#[cfg(unix)]
async fn stop_signal() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt,
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn stop_signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

#[cfg(unix)]
fn was_aborted(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    const SIGABRT: i32 = 6;
    status.signal() == Some(SIGABRT)
}

#[cfg(not(unix))]
fn was_aborted(status: std::process::ExitStatus) -> bool {
    !status.success()
}
