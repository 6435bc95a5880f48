//! Workers that die again and again: the guilty entry is found beside work that lasts, and innocent ones are not held up for long.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{PoisonReason, Status};
use oncebox::time::Clock as _;
use oncebox::{BoxError, Config, Context, Memory, Message, handler};
use oncebox_testkit::{FaultyStore, TestClock};
use parking_lot::Mutex;
use support::{FaultyMemory, SECOND, Testbed, quiet};

const LEASE: Duration = Duration::from_secs(30);
/// Run of an entry that kills no process, if it says nothing else.
const MINUTE: Duration = Duration::from_mins(1);

/// Counts of the runs of one worker.
#[derive(Default)]
struct LoopCounts {
    running: usize,
    peak: usize,
    /// True if the run of the killer has come to the point where its process dies.
    killed: bool,
}

/// A store, its clock, and the workers that die on it. The entry `killer` kills its worker after `fuse`, all others end.
struct CrashLoop {
    store: FaultyMemory,
    clock: TestClock,
    concurrency: usize,
    fuse: Duration,
    deaths: usize,
}

impl CrashLoop {
    fn new(concurrency: usize, fuse: Duration) -> Self {
        let clock = TestClock::new();
        let store = FaultyStore::new(Memory::with_clock(clock.shared()));
        Self { store, clock, concurrency, fuse, deaths: 0 }
    }

    /// A worker with its counts. Entries take the seconds in their payload.
    fn worker(&self) -> (Testbed, Arc<Mutex<LoopCounts>>) {
        let counts = Arc::new(Mutex::new(LoopCounts::default()));
        let (clock, fuse, of_handler) = (self.clock.clone(), self.fuse, Arc::clone(&counts));
        let run = move |message: Message, _: &mut Context<FaultyMemory>| {
            let (clock, counts) = (clock.clone(), Arc::clone(&of_handler));
            async move {
                {
                    let mut counts = counts.lock();
                    counts.running += 1;
                    counts.peak = counts.peak.max(counts.running);
                }
                if message.id() == b"killer" {
                    clock.sleep(fuse).await;
                    counts.lock().killed = true;
                    std::future::pending::<()>().await;
                }
                let seconds = String::from_utf8_lossy(message.payload()).parse()?;
                clock.sleep(Duration::from_secs(seconds)).await;
                counts.lock().running -= 1;
                Ok::<_, BoxError>(())
            }
        };
        let config = Config { batch: 300, in_flight: 400, ..Config::default() };
        let testbed = Testbed::over(self.store.clone(), self.clock.clone(), |inbox, _| {
            inbox.config(config).on("t", handler("h", run).concurrency(self.concurrency))
        });
        (testbed, counts)
    }

    /// Runs workers, each until the killer ends it or `done` holds. Panics after so many deaths.
    async fn run_until(&mut self, most: usize, done: impl AsyncFn(&Testbed) -> bool) {
        loop {
            let (worker, counts) = self.worker();
            let running = worker.inbox.start();
            worker.pass_until(async || counts.lock().killed || done(&worker).await).await;
            if !counts.lock().killed {
                return;
            }
            self.deaths += 1;
            assert!(self.deaths <= most, "{} workers died", self.deaths);
            worker.die(running, LEASE).await;
        }
    }

    /// Kills a worker from outside, after it has worked for a while.
    async fn kill(&mut self, after: Duration) {
        let (worker, _) = self.worker();
        let running = worker.inbox.start();
        worker.pass(after).await;
        worker.die(running, LEASE).await;
        quiet().await;
    }
}

async fn is_poisoned(worker: &Testbed) -> bool {
    worker.status("killer", "h").await == Status::Poisoned
}

// FAULTS C3: an entry that kills its process is found, though the process always has long runs in hand.
#[tokio::test]
async fn a_process_killer_beside_long_runs_is_found() {
    let mut rig = CrashLoop::new(8, SECOND);
    let (first, _) = rig.worker();
    first.accept("killer", "1").await;
    for number in 0..200 {
        first.accept(&number.to_string(), &(41 + number % 20).to_string()).await;
    }
    rig.run_until(8, is_poisoned).await;
    let killer = first.entry("killer", "h").await;
    assert_eq!((killer.reason, killer.suspicion.own_crashes()), (Some(PoisonReason::Crashed), 3));
    rig.run_until(8, async |worker| worker.count(Status::Completed).await == 200).await;
    assert_eq!(first.count(Status::Poisoned).await, 1);
}

// FAULTS C3: a run that kills its process late is alone for long enough, though healthy work waits.
#[tokio::test]
async fn an_entry_that_kills_its_process_late_is_found() {
    let mut rig = CrashLoop::new(8, 50 * SECOND);
    let (first, _) = rig.worker();
    first.accept("killer", "1").await;
    for number in 0..600 {
        first.accept(&number.to_string(), &(21 + number % 20).to_string()).await;
    }
    rig.run_until(12, is_poisoned).await;
    rig.run_until(12, async |worker| worker.count(Status::Completed).await == 600).await;
    assert_eq!(first.count(Status::Poisoned).await, 1);
}

// FAULTS C3: a pod that is killed five times does not serialise what it had in hand: each survived group doubles the next.
#[tokio::test]
async fn hundreds_of_suspects_return_to_full_concurrency() {
    const COUNT: u64 = 300;
    let mut rig = CrashLoop::new(300, SECOND);
    let (first, _) = rig.worker();
    for number in 0..COUNT {
        first.accept(&number.to_string(), "60").await;
    }
    for _ in 0..5 {
        rig.kill(MINUTE / 2).await;
    }
    assert_eq!(first.count(Status::Completed).await, 0);
    let (worker, counts) = rig.worker();
    let running = worker.inbox.start();
    let mut rounds = 0;
    while worker.count(Status::Completed).await < COUNT {
        rounds += 1;
        assert!(rounds <= 10, "{} are finished", worker.count(Status::Completed).await);
        worker.pass(MINUTE + SECOND).await;
    }
    assert!(counts.lock().peak >= 100, "{} ran together at most", counts.lock().peak);
    for number in 0..COUNT {
        worker.accept(&format!("healthy {number}"), "60").await;
    }
    worker.pass(30 * SECOND).await;
    assert_eq!(counts.lock().running, 300, "healthy work has all of the room");
    worker.pass(MINUTE).await;
    assert_eq!((worker.count(Status::Completed).await, worker.count(Status::Poisoned).await), (2 * COUNT, 0));
    drop(running);
}

// FAULTS C3: the guilty one among hundreds is found by halves, and takes no innocent one with it.
#[tokio::test]
async fn the_guilty_one_of_hundreds_is_found_by_halves() {
    for place in [0, 150, 299] {
        let mut rig = CrashLoop::new(300, SECOND);
        let (first, _) = rig.worker();
        for number in 0..300 {
            let id = if number == place { "killer".to_owned() } else { number.to_string() };
            first.accept(&id, "20").await;
        }
        // Two deaths of all, then halves of what one group held, then three alone.
        rig.run_until(14, is_poisoned).await;
        rig.run_until(14, async |worker| worker.count(Status::Completed).await == 299).await;
        assert_eq!(first.count(Status::Poisoned).await, 1, "nothing else is to blame");
    }
}
