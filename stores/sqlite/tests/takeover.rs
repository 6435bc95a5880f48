//! A store takes over the entries of a dead process of this machine at once, and never those of a live one.
//!
//! The test runs its own program again as a worker that claims everything and then waits to be killed. No test waits
//! for a lease: the clocks do not move, or leases last longer than any test.

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use oncebox::state::{Outcome, Policy};
use oncebox::store::{Claimed, RescueParams, Store as _};
use oncebox_sqlite::{Sqlite, Synchronous};
use support::{
    LEASE, PAST_LEASE, TestFile, claim, claim_params, first, inbox, message, offer_message, route,
};

const ROLE: &str = "ONCEBOX_TEST_OWNER";

fn open(path: &Path) -> Sqlite {
    Sqlite::options(path).synchronous(Synchronous::Normal).open().expect("the file opens")
}

/// Worker process of other tests: claims everything, reports it, and waits to be killed.
#[tokio::test]
async fn owner() {
    let Ok(path) = std::env::var(ROLE) else { return };
    let store = open(path.as_ref());
    let mut params = claim_params(10);
    params.lease = Duration::from_hours(1);
    println!("@ {}", store.claim(&params).await.expect("claim").len());
    // The test holds the other end: if the test ends, so does this process.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

struct TakeoverWorker(Child);

impl TakeoverWorker {
    /// Starts a process, and waits until it has claimed `claimed` entries.
    fn start(file: &TestFile, before: &[&str], claimed: usize) -> Self {
        let own = std::env::current_exe().expect("the path of this program").into_os_string();
        let mut words: Vec<_> = before.iter().map(Into::into).collect();
        words.extend([own, "--exact".into(), "owner".into(), "--nocapture".into()]);
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .env(ROLE, file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let reported =
            output.lines().map_while(Result::ok).find_map(|line| line.split("@ ").nth(1).map(str::to_owned));
        assert_eq!(reported, Some(claimed.to_string()));
        Self(child)
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// Kills the process with SIGKILL, and waits for its end.
    fn kill(mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("its end");
    }
}

impl Drop for TakeoverWorker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn rescue(store: &Sqlite) -> Vec<Claimed> {
    let params = RescueParams::new(inbox(), vec![route("h")], Duration::from_hours(1), 100);
    store.rescue(&params).await.expect("rescue")
}

/// Rescues until there are entries: a dropped store releases its lock only when its writer thread ends.
async fn rescued(store: &Sqlite) -> Vec<Claimed> {
    for _ in 0..100_000 {
        let rescued = rescue(store).await;
        if !rescued.is_empty() {
            return rescued;
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing was taken over");
}

fn lock_files(file: &TestFile) -> Vec<PathBuf> {
    let files =
        std::fs::read_dir(file.dir()).expect("the directory").map(|entry| entry.expect("a file").path());
    files.filter(|path| path.to_string_lossy().contains("-owner-")).collect()
}

async fn three_messages(file: &TestFile) -> Sqlite {
    let store = open(&file.path());
    for (id, order) in [("1", None), ("2", Some("k")), ("3", Some("k"))] {
        let message = message(id);
        let message = if let Some(order) = order { message.with_ordering_key(order) } else { message };
        store.accept(&[offer_message(message, &["h"])]).await.expect("accept");
    }
    store
}

// FAULTS C1: kill -9 and restart. An ordering key continues where it was.
#[tokio::test]
async fn what_a_killed_process_held_is_taken_over_at_once() {
    let file = TestFile::new();
    let store = three_messages(&file).await;
    let worker = TakeoverWorker::start(&file, &[], 2);
    assert!(rescue(&store).await.is_empty(), "it lives");
    worker.kill();
    let rescued = rescue(&store).await;
    assert_eq!(rescued.len(), 2);
    assert!(rescued.iter().all(|one| !one.claim.alone));
    assert!(rescue(&store).await.is_empty(), "what this process holds is its own");
    for Claimed { claim, .. } in &rescued {
        store.settle(&[claim.settle(&Policy::default(), Outcome::Crashed)]).await.expect("settle");
    }
    let again = store.claim(&claim_params(10).suspect()).await.expect("claim");
    assert_eq!(again.len(), 2, "all at once, and the first of its key");
    rescue(&store).await;
    assert_eq!((lock_files(&file).len(), file.number("SELECT count(*) FROM oncebox_owner")), (1, 1));
}

// FAULTS B8: a stopped process may continue. Its lock shows that it is alive, so its lease decides.
#[tokio::test]
async fn a_stopped_process_keeps_what_it_holds() {
    let file = TestFile::new();
    let store = three_messages(&file).await;
    let worker = TakeoverWorker::start(&file, &[], 2);
    worker.signal("-STOP");
    assert!(rescue(&store).await.is_empty());
    worker.signal("-CONT");
    worker.kill();
    assert_eq!(rescue(&store).await.len(), 2);
}

/// Name of the environment variable for a machine that refuses PID namespaces.
const NO_NAMESPACES: &str = "ONCEBOX_NO_PID_NAMESPACES";

// Containers on one kernel have their own process ids. The environment must declare a machine that refuses such
// namespaces.
#[tokio::test]
async fn a_process_in_another_pid_namespace_is_taken_over_unless_this_machine_refuses_namespaces() {
    // Without root privileges, in a user namespace.
    let ways: [&[&str]; 2] = [
        &["unshare", "--pid", "--fork", "--kill-child"],
        &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"],
    ];
    let may = |way: &&&[&str]| {
        let made = Command::new(way[0]).args(&way[1..]).arg("true").status();
        made.is_ok_and(|status| status.success())
    };
    let Some(apart) = ways.iter().find(may) else {
        assert!(
            std::env::var_os(NO_NAMESPACES).is_some(),
            "this machine refuses PID namespaces, so the takeover from containers is not tested; allow `unshare --pid`, or set \
             {NO_NAMESPACES}=1 to go on without"
        );
        return;
    };
    let file = TestFile::new();
    let store = three_messages(&file).await;
    let worker = TakeoverWorker::start(&file, apart, 2);
    assert!(rescue(&store).await.is_empty(), "it lives");
    // Both have process id 1 in their namespaces.
    first(&store, "4").await;
    let same_number = TakeoverWorker::start(&file, apart, 1);
    worker.kill();
    // Its child is killed with it, a moment later.
    assert_eq!(rescued(&store).await.len(), 2);
    assert!(rescue(&store).await.is_empty(), "the other one lives");
    same_number.kill();
    assert_eq!(rescued(&store).await.len(), 1);
}

// FAULTS B8, C1: systems reuse process ids. Neither the file nor the locks contain the process id of an owner, so no id
// can be mistaken for another process.
#[tokio::test]
async fn a_reused_process_number_decides_nothing() {
    let file = TestFile::new();
    let store = three_messages(&file).await;
    let worker = TakeoverWorker::start(&file, &[], 2);
    let number = worker.0.id().to_string();
    let lock = lock_files(&file).pop().expect("a lock file");
    let row =
        |row: &rusqlite::Row<'_>| Ok(format!("{}/{}", row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let kept = file.connect().query_row("SELECT name, boot FROM oncebox_owner", [], row).expect("one owner");
    let kept = format!("{kept}/{}", lock.file_name().expect("a name").display());
    assert!(
        kept.split(|c: char| !c.is_ascii_alphanumeric()).all(|word| word != number),
        "{number} is in {kept}"
    );
    assert_eq!(std::fs::read(&lock).expect("the lock file"), b"", "it holds no number");
    // Write the id of a live process: not the id protects an owner, but its lock.
    let taken = format!("{}", std::process::id());
    std::fs::write(&lock, &taken).expect("the number of a living process");
    assert!(rescue(&store).await.is_empty(), "it lives");
    worker.kill();
    assert_eq!(rescue(&store).await.len(), 2, "a living process with the number in its file saves nothing");
}

#[tokio::test]
async fn an_instance_that_is_dropped_is_dead_and_one_that_lives_is_not() {
    let file = TestFile::new();
    let (one, other) = (file.open(), file.open());
    first(&one, "1").await;
    assert_eq!(claim(&one, 1).await.len(), 1);
    let clone = one.clone();
    drop(one);
    assert!(rescue(&other).await.is_empty(), "a clone is the same store");
    drop(clone);
    assert_eq!(rescued(&other).await.len(), 1);
}

/// Returns a store beside a dead instance that held an entry, after its lock is free.
async fn left_behind(file: &TestFile) -> Sqlite {
    let (one, other) = (file.open(), file.open());
    first(&one, "1").await;
    assert_eq!(claim(&one, 1).await.len(), 1);
    drop(one);
    let path = lock_files(file).pop().expect("a lock file");
    let free = || std::fs::File::open(&path).is_ok_and(|lock| lock.try_lock().is_ok());
    while !free() {
        tokio::task::yield_now().await;
    }
    other
}

// Another machine on a network file system: a lock proves nothing about it.
#[tokio::test]
async fn another_boot_of_the_machine_is_left_to_its_lease() {
    let file = TestFile::new();
    let store = left_behind(&file).await;
    file.connect().execute("UPDATE oncebox_owner SET boot = 'another'", []).expect("another boot");
    assert!(rescue(&store).await.is_empty());
    file.clock.advance(PAST_LEASE);
    assert_eq!(rescue(&store).await.len(), 1);
    rescue(&store).await;
    assert_eq!(lock_files(&file).len(), 1, "a dead owner with nothing in hand is forgotten");
}

#[tokio::test]
async fn a_missing_lock_file_says_nothing() {
    let file = TestFile::new();
    let store = left_behind(&file).await;
    std::fs::remove_file(lock_files(&file).pop().expect("a lock file")).expect("it can be removed");
    assert!(rescue(&store).await.is_empty());
    file.clock.advance(LEASE);
    assert!(rescue(&store).await.is_empty());
    file.clock.advance(PAST_LEASE.saturating_sub(LEASE));
    assert_eq!(rescue(&store).await.len(), 1);
    rescue(&store).await;
    assert_eq!(file.number("SELECT count(*) FROM oncebox_owner"), 1);
}

#[tokio::test]
async fn only_those_who_claim_have_a_lock_file_and_it_is_private() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    rescue(&store).await;
    let reader = file.options().read_only().open().expect("the file opens");
    assert!(lock_files(&file).is_empty(), "a process that only accepts has none");
    assert_eq!(claim(&store, 1).await.len(), 1);
    assert!(claim(&store, 1).await.is_empty());
    let files = lock_files(&file);
    assert_eq!(files.len(), 1);
    let mode = std::fs::metadata(&files[0]).expect("its metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(reader);
}

#[tokio::test]
async fn the_number_of_lock_files_is_bounded() {
    let file = TestFile::new();
    let last = file.open();
    for number in 0..30 {
        let store = file.open();
        first(&store, &number.to_string()).await;
        let claimed = claim(&store, 1).await;
        if number % 2 == 0 {
            let done = claimed[0].claim.settle(&Policy::default(), Outcome::Done);
            store.settle(&[done]).await.expect("settle");
        }
    }
    let mut taken = 0;
    while taken < 15 {
        taken += rescued(&last).await.len();
    }
    while lock_files(&file).len() > 1 {
        rescue(&last).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(file.number("SELECT count(*) FROM oncebox_owner"), 1);
}

// A claim that was rolled back has stored no owner. The next one does.
#[tokio::test]
async fn an_owner_whose_first_claim_fails_is_written_down_by_the_next() {
    let file = TestFile::new();
    let store = file.open();
    first(&store, "1").await;
    let spoil =
        "CREATE TRIGGER spoil BEFORE UPDATE OF owner ON oncebox_running BEGIN SELECT raise(ABORT, 'no'); END";
    file.connect().execute_batch(spoil).expect("a trigger");
    assert!(store.claim(&claim_params(1)).await.is_err());
    file.connect().execute_batch("DROP TRIGGER spoil").expect("it goes");
    assert_eq!(claim(&store, 1).await.len(), 1);
    let owned = "SELECT count(*) FROM oncebox_running r JOIN oncebox_owner o ON o.id = r.owner";
    assert_eq!(file.number(owned), 1);
}
