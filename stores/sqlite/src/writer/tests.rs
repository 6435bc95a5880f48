//! Groups of calls whose transaction fails at a chosen point.

use std::time::{Duration, Instant};

use oncebox_core::{HandlerKey, InboxName};
use oncebox_tokio::SystemClock;
use rusqlite::ffi;
use tempfile::TempDir;

use super::*;
use crate::connect::Synchronous;
use crate::sections::section;

/// Statements of these tests.
const STATEMENTS: &str = include_str!("tests.sql");
/// Maximum time to wait for a lock.
const PATIENCE: Duration = Duration::from_millis(200);

/// Returns a writer without its thread. The test serves groups itself.
fn writer() -> (TempDir, WriterState) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let opener = FileOpener {
        path: dir.path().join("inbox.db"),
        synchronous: Synchronous::Normal,
        busy_timeout: PATIENCE,
        max_bytes: None,
        read_only: false,
        create: true,
    };
    let mut connection = opener.open().expect("the file opens");
    crate::migrate::apply(&mut connection, Timestamp::ZERO).expect("a schema");
    let state = WriterState {
        write_turn: WriteTurn::new(PATIENCE),
        owner: Owner::new(opener.path.clone()),
        opener,
        connection: Some(connection),
        known: SharedState::default(),
        clock: SystemClock::shared(),
        wake: watch::Sender::new(0),
        pace: Pace::default(),
        courtesy: Courtesy::new(),
        turns: 0,
        wrote: false,
    };
    (dir, state)
}

type WriterReply<T> = oneshot::Receiver<Result<T>>;

fn job<T: Send + 'static>(
    work: impl FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
) -> (Box<dyn WriterJob>, WriterReply<T>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(QueuedCall { work, answer: None, reply, abandoned: Abandoned::Done }), answer)
}

/// Returns a call that creates an inbox and a handler, and returns the handler's id.
fn name(key: &'static str) -> (Box<dyn WriterJob>, WriterReply<i64>) {
    job(move |work| {
        let inbox = work.names.inbox(work.connection, &InboxName::new("i")?)?;
        work.names.handler(work.connection, inbox.id, &HandlerKey::new(key)?)
    })
}

fn fail(error: fn() -> Error) -> (Box<dyn WriterJob>, WriterReply<()>) {
    job(move |_| Err(error()))
}

fn no() -> Error {
    Error::new(ErrorKind::Refused, "no")
}

fn answer<T>(answer: &mut WriterReply<T>) -> Result<T> {
    answer.try_recv().expect("every call is answered")
}

fn kind<T: std::fmt::Debug>(result: &mut WriterReply<T>) -> ErrorKind {
    answer(result).expect_err("it failed").kind()
}

fn handlers(state: &WriterState) -> i64 {
    let connection = state.opener.open().expect("another connection");
    connection.query_row(section(STATEMENTS, "handlers"), [], |row| row.get(0)).expect("a number")
}

// FAULTS A4
#[test]
fn a_commit_without_an_answer_is_unknown_to_every_caller() {
    let (_dir, mut state) = writer();
    // Every commit fails with an error of SQLite.
    let connection = state.connection.as_mut().expect("open");
    connection.commit_hook(Some(|| true)).expect("a hook");
    let mut answers = Vec::new();
    let mut group = Vec::new();
    for key in ["a", "b", "c"] {
        let (job, answer) = name(key);
        group.push(job);
        answers.push(answer);
    }
    state.serve(&mut group);
    for mut unknown in answers {
        assert_eq!(kind(&mut unknown), ErrorKind::CommitUnknown);
    }
    assert!(state.connection.is_none() && state.known.lock().is_none(), "neither is trusted again");
    // Repeat the calls. A stored call would be recognized, and a lost one is stored now.
    let (job, mut again) = name("a");
    state.serve(&mut vec![job]);
    assert_eq!(answer(&mut again).expect("the next call works"), 1);
    assert_eq!(handlers(&state), 1);
}

// FAULTS A17, D4
#[test]
fn a_call_that_fails_does_not_fail_the_others() {
    let (_dir, mut state) = writer();
    let ((first, mut one), (bad, mut bad_answer), (last, mut two)) = (name("a"), fail(no), name("b"));
    state.serve(&mut vec![first, bad, last]);
    assert_eq!(kind(&mut bad_answer), ErrorKind::Refused);
    assert_ne!(answer(&mut one).expect("a"), answer(&mut two).expect("b"));
    assert_eq!(handlers(&state), 2);
}

#[test]
fn names_that_were_rolled_back_are_made_again() {
    let (_dir, mut state) = writer();
    let (bad, mut bad_answer) = job(|work| -> Result<()> {
        let inbox = work.names.inbox(work.connection, &InboxName::new("i")?)?;
        work.names.handler(work.connection, inbox.id, &HandlerKey::new("a")?)?;
        work.next_seq();
        Err(no())
    });
    state.serve(&mut vec![bad]);
    assert_eq!(kind(&mut bad_answer), ErrorKind::Refused);
    let (good, mut good_answer) = name("a");
    state.serve(&mut vec![good]);
    answer(&mut good_answer).expect("a");
    assert_eq!(handlers(&state), 1);
    let (look, mut seq) = job(|work| Ok(work.counters.seq));
    state.serve(&mut vec![look]);
    assert_eq!(answer(&mut seq).expect("a look"), 0, "a number that was rolled back is not used up");
}

#[test]
fn a_panic_ends_the_transaction_and_not_the_writer() {
    let (_dir, mut state) = writer();
    let ((first, mut one), (bad, mut bad_answer)) =
        (name("a"), job(|_| -> Result<()> { panic!("a call that panics") }));
    state.serve(&mut vec![first, bad]);
    assert_eq!(kind(&mut bad_answer), ErrorKind::CommitUnknown);
    assert_eq!(kind(&mut one), ErrorKind::CommitUnknown);
    assert_eq!(handlers(&state), 0, "and holds no lock");
    let (good, mut good_answer) = name("a");
    state.serve(&mut vec![good]);
    answer(&mut good_answer).expect("the next call works");
}

// FAULTS E11
#[test]
fn a_connection_whose_disk_failed_is_not_used_again() {
    let (_dir, mut state) = writer();
    let temporary = section(STATEMENTS, "mine");
    state.connection.as_ref().expect("open").execute_batch(temporary).expect("a table of the connection");
    let (bad, mut bad_answer) =
        fail(|| store_error(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None)));
    state.serve(&mut vec![bad]);
    assert_eq!(kind(&mut bad_answer), ErrorKind::Unavailable);
    let (look, mut fresh) = job(move |work| Ok(work.connection.execute_batch(temporary).is_ok()));
    state.serve(&mut vec![look]);
    assert!(answer(&mut fresh).expect("the next call works"), "it is another connection");
}

#[test]
fn a_lock_is_waited_for_once_and_not_by_each_call_in_turn() {
    let (_dir, mut state) = writer();
    let (write_turn, mut taken) = (state.write_turn.clone(), None);
    let (bad, mut bad_answer) = job(move |_| -> Result<()> {
        // Take the next turn and keep it.
        taken.get_or_insert_with(|| write_turn.queue_for_ever());
        Err(no())
    });
    let mut group = vec![bad];
    let mut others = Vec::new();
    for _ in 0..50 {
        let (job, answer) = name("a");
        group.push(job);
        others.push(answer);
    }
    let start = Instant::now();
    state.serve(&mut group);
    assert!(start.elapsed() < 10 * PATIENCE, "each waited: {:?}", start.elapsed());
    assert_eq!(kind(&mut bad_answer), ErrorKind::Unavailable);
    for mut other in others {
        assert_eq!(kind(&mut other), ErrorKind::Unavailable);
    }
}
