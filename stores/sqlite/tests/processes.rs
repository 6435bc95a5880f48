//! Several processes on one file, killed at any moment: acknowledged messages are stored, and each takes effect once.
//!
//! The test runs its own program again as a worker. Workers print the store's results, line by line. When all workers
//! have ended, the test compares the printed ledger with the file. Each worker's clock is ahead of the earlier ones, so
//! that it finds their leases expired while some of them still run.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use oncebox::state::{ErrorText, Outcome, Policy};
use oncebox::store::{
    Accepted, Claimed, NewMessage, RescueParams, SettleIn as _, Settled, Store as _, Transactional as _,
};
use oncebox::time::{Clock, Sleep, SystemClock, Timestamp};
use oncebox::{Error, ErrorKind};
use oncebox_sqlite::{Sqlite, Synchronous};
use support::{LEASE, TestFile, claim_params, inbox, number, offer, route};

const LANES: u64 = 4;
/// Number of successive workers in each lane. The test kills all of them.
const LIVES: u64 = 30;
const MESSAGES: u32 = 600;
const ROLE: &str = "ONCEBOX_TEST_WORKER";

/// The system's clock, set ahead.
struct AheadClock(Duration);

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now()).after(self.0)
    }

    fn monotonic(&self) -> Duration {
        SystemClock::default().monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        SystemClock::default().sleep(duration)
    }
}

fn open(path: &std::path::Path, life: u64) -> Sqlite {
    let ahead = AheadClock(Duration::from_hours(life));
    let options =
        Sqlite::options(path).synchronous(Synchronous::Normal).busy_timeout(Duration::from_secs(30));
    options.clock(Arc::new(ahead)).open().expect("the file opens")
}

/// Returns a policy that counts crashes but poisons nothing, because the test causes the crashes.
fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.crashes = u32::MAX;
    policy
}

/// Worker process of another test.
#[tokio::test]
async fn worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut role = role.split(' ');
    let mut next = || role.next().expect("a path, a life and a seed");
    let (path, life, seed) = (next().to_owned(), next().parse().expect("a number"), next());
    let mut rng = fastrand::Rng::with_seed(seed.parse().expect("a number"));
    // The test holds the other end: if the test ends, so does this process.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let store = open(path.as_ref(), life);
    loop {
        let done = match rng.u8(..10) {
            0..5 => accept(&store, &mut rng).await,
            5..9 => work(&store, &mut rng).await,
            _ => rescue(&store).await,
        };
        if let Err(error) = done {
            // Other processes held the lock for too long: nothing happened, and a later call may succeed.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            println!("@ busy");
        }
    }
}

async fn accept(store: &Sqlite, rng: &mut fastrand::Rng) -> Result<(), Error> {
    let ids: Vec<String> = (0..rng.usize(1..6)).map(|_| rng.u32(..MESSAGES).to_string()).collect();
    let batch: Vec<NewMessage> = ids.iter().map(|id| offer(id)).collect();
    let accepted = store.accept(&batch).await?;
    for (id, accepted) in ids.iter().zip(accepted) {
        assert!(matches!(accepted, Accepted::First(_) | Accepted::Duplicate(_)), "{accepted:?}");
        println!("@ accepted {id}");
    }
    Ok(())
}

async fn work(store: &Sqlite, rng: &mut fastrand::Rng) -> Result<(), Error> {
    let params = claim_params(rng.usize(1..8));
    let params = if rng.u8(..3) == 0 { params.suspect() } else { params };
    for claimed in store.claim(&params).await? {
        match rng.u8(..10) {
            0 => {}
            1 => {
                store.settle(&[claimed.claim.settle(&policy(), Outcome::Released)]).await?;
            }
            2 => {
                let outcome = Outcome::Retry { error: ErrorText::new("no"), after: Some(Duration::ZERO) };
                store.settle(&[claimed.claim.settle(&policy(), outcome)]).await?;
            }
            _ => complete(store, &claimed).await?,
        }
    }
    Ok(())
}

/// Handles a message in a transaction, as the runtime does.
async fn complete(store: &Sqlite, claimed: &Claimed) -> Result<(), Error> {
    let id = std::str::from_utf8(claimed.message.id()).expect("a number");
    let mut tx = store.begin().await?;
    tx.execute("INSERT INTO effect VALUES (?1, ?2)", (id, claimed.claim.token.0)).expect("a business write");
    if store.complete(&mut tx, &claimed.claim).await? == Settled::Applied {
        store.commit(tx).await?;
        println!("@ done {id}");
    }
    Ok(())
}

async fn rescue(store: &Sqlite) -> Result<(), Error> {
    let params = RescueParams::new(inbox(), vec![route("h")], LEASE, 20);
    for rescued in store.rescue(&params).await? {
        store.settle(&[rescued.claim.settle(&policy(), Outcome::Crashed)]).await?;
    }
    Ok(())
}

/// A worker process, which ends with the test.
struct ChildProcess(Child);

impl ChildProcess {
    fn start(file: &TestFile, life: u64, seed: u64) -> Self {
        let program = std::env::current_exe().expect("this program");
        let role = format!("{} {life} {seed}", file.path().display());
        let command = Command::new(program)
            .args(["--exact", "worker", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        Self(command.expect("a process"))
    }

    /// Reads the worker's output, kills it after `words` lines, and returns its output.
    fn kill_after(mut self, words: usize) -> Vec<String> {
        let output = BufReader::new(self.0.stdout.take().expect("a pipe"));
        let mut lines = Vec::new();
        for line in output.lines() {
            let line = line.expect("text");
            if let Some(word) = line.strip_prefix("@ ") {
                lines.push(word.to_owned());
                if lines.len() == words {
                    self.0.kill().expect("it can be killed");
                }
            }
        }
        let status = self.0.wait().expect("its end");
        assert!(status.code().is_none(), "a worker ended by itself: {status}");
        lines
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints the seed if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run again with ONCEBOX_SEED={}", self.0);
        }
    }
}

// FAULTS A1, A2, A7, B1, B2, B4, C1, D1, E13
#[test]
fn killed_processes_lose_nothing_and_repeat_nothing() {
    let seed = std::env::var("ONCEBOX_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = Seed(seed.unwrap_or_else(|| fastrand::u64(..)));
    let file = TestFile::new();
    drop(open(&file.path(), 0));
    // The file itself records every claim, in order, and refuses a second claim of a running entry.
    file.connect()
        .execute_batch(
            "CREATE TABLE effect (id TEXT, token INTEGER);
             CREATE TABLE claimed (n INTEGER PRIMARY KEY, seq INTEGER, token INTEGER);
             CREATE TRIGGER claim_once BEFORE INSERT ON oncebox_running
             WHEN EXISTS (SELECT 1 FROM oncebox_running WHERE seq = new.seq AND handler = new.handler)
             BEGIN SELECT raise(ABORT, 'claimed twice'); END;
             CREATE TRIGGER claim AFTER INSERT ON oncebox_running
             BEGIN INSERT INTO claimed (seq, token) VALUES (new.seq, new.token); END;
             CREATE TRIGGER take_over AFTER UPDATE OF token ON oncebox_running
             BEGIN INSERT INTO claimed (seq, token) VALUES (new.seq, new.token); END;",
        )
        .expect("a ledger");
    let life = AtomicU64::new(1);
    let lines: Vec<String> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let (file, life) = (&file, &life);
                let mut rng = fastrand::Rng::with_seed(seed.0.wrapping_add(lane));
                scope.spawn(move || {
                    let mut lines = Vec::new();
                    for _ in 0..LIVES {
                        let worker =
                            ChildProcess::start(file, life.fetch_add(1, Ordering::Relaxed), rng.u64(..));
                        lines.extend(worker.kill_after(rng.usize(1..60)));
                    }
                    lines
                })
            })
            .collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane")).collect()
    });
    let life = life.into_inner();
    let heard =
        |word: &str| -> BTreeSet<&str> { lines.iter().filter_map(|line| line.strip_prefix(word)).collect() };
    let (accepted, done) = (heard("accepted "), heard("done "));
    assert!(
        accepted.len() > 100 && done.len() > 50,
        "too little happened: {} and {}",
        accepted.len(),
        done.len()
    );
    check(&file, &accepted, &done);
    finish(&file, life);
    check(&file, &accepted, &accepted);
    let connection = file.connect();
    let messages = number(&connection, "SELECT count(*) FROM oncebox_message");
    assert_eq!(number(&connection, "SELECT count(*) FROM effect"), messages, "every message was handled");
}

/// Handles the entries that the last workers left.
fn finish(file: &TestFile, life: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = open(&file.path(), life);
        rescue(&store).await.expect("rescue");
        while file.number("SELECT count(*) FROM oncebox_running") > 0 {
            rescue(&store).await.expect("rescue");
        }
        for params in [claim_params(usize::MAX), claim_params(1).suspect()] {
            loop {
                let mut params = params.clone();
                params.claim_id = oncebox::store::ClaimId::fresh();
                let claimed = store.claim(&params).await.expect("claim");
                if claimed.is_empty() {
                    break;
                }
                for claimed in claimed {
                    complete(&store, &claimed).await.expect("complete");
                }
            }
        }
    });
}

/// Compares the file with the workers' output.
fn check(file: &TestFile, accepted: &BTreeSet<&str>, done: &BTreeSet<&str>) {
    let connection = file.connect();
    support::check(&connection);
    let ids = |sql: &str| -> BTreeSet<String> {
        let mut statement = connection.prepare(sql).expect("a query");
        let ids = statement.query_map([], |row| row.get(0)).expect("rows");
        ids.map(|id| id.expect("an id")).collect()
    };
    let stored = ids("SELECT CAST(id AS TEXT) FROM oncebox_message");
    assert!(accepted.iter().all(|id| stored.contains(*id)), "an answered accept is gone");
    let effects = ids("SELECT id FROM effect");
    assert!(done.iter().all(|id| effects.contains(*id)), "an answered commit is gone");
    let none = [
        ("an effect happened twice", "SELECT count(*) - count(DISTINCT id) FROM effect"),
        (
            "an effect without its completion, or under another claim",
            "SELECT count(*) FROM effect e WHERE NOT EXISTS (SELECT 1 FROM oncebox_outcome o JOIN oncebox_message m
             ON m.seq = o.seq WHERE CAST(m.id AS TEXT) = e.id AND o.token = e.token)",
        ),
        (
            "a completion without its effect",
            "SELECT count(*) FROM oncebox_outcome o JOIN oncebox_message m ON m.seq = o.seq
             WHERE CAST(m.id AS TEXT) NOT IN (SELECT id FROM effect)",
        ),
        (
            "a token that did not grow",
            "SELECT count(*) FROM claimed a JOIN claimed b ON a.seq = b.seq AND a.n < b.n WHERE a.token >= b.token",
        ),
        (
            "an entry was completed under a token that is not its last",
            "SELECT count(*) FROM oncebox_outcome o WHERE o.token <> (SELECT max(token) FROM claimed WHERE seq = o.seq)",
        ),
    ];
    for (what, sql) in none {
        assert_eq!(number(&connection, sql), 0, "{what}");
    }
}
