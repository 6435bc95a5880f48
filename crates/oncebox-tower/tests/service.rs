//! Idempotent services without HTTP.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::store::{MarkIn, Transactional};
use oncebox::{ErrorKind, Inbox, Memory, Recent};
use oncebox_sqlite::{Sqlite, Synchronous};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb};
use oncebox_tower::{CarryTx, IdempotentLayer, NotRunReason, RequestTx};
use tokio::sync::{Notify, Semaphore};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

/// Request of a queue consumer.
struct TestJob<S: Transactional> {
    id: &'static str,
    work: &'static str,
    tx: Option<RequestTx<S>>,
}

impl<S: Transactional> CarryTx<S> for TestJob<S> {
    fn carry(&mut self, tx: RequestTx<S>) {
        self.tx = Some(tx);
    }
}

fn job<S: Transactional>(id: &'static str, work: &'static str) -> TestJob<S> {
    TestJob { id, work, tx: None }
}

#[expect(clippy::unnecessary_wraps, reason = "the layer asks for a key that may be missing")]
fn id<S: Transactional>(job: &TestJob<S>) -> Option<Vec<u8>> {
    Some(job.id.into())
}

/// Response of a queue consumer.
#[derive(Debug, PartialEq)]
enum JobResult {
    Done,
    Duplicate(Option<String>),
    Busy,
    NoKey,
    Failed(ErrorKind),
}

fn respond(instead: NotRunReason) -> JobResult {
    match instead {
        NotRunReason::Duplicate(result) => {
            JobResult::Duplicate(result.map(|result| String::from_utf8_lossy(&result).into_owned()))
        }
        NotRunReason::Busy => JobResult::Busy,
        NotRunReason::NoKey => JobResult::NoKey,
        NotRunReason::Failed(error) => JobResult::Failed(error.kind()),
        other => panic!("{other:?}"),
    }
}

/// Counts its runs, and does the work of the job.
#[derive(Clone)]
struct CountingWorker {
    runs: Arc<AtomicUsize>,
    begun: Arc<Notify>,
    go: Arc<Semaphore>,
}

impl CountingWorker {
    fn new() -> Self {
        Self { runs: Arc::default(), begun: Arc::default(), go: Arc::new(Semaphore::new(0)) }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    async fn run<S: Transactional>(self, job: TestJob<S>) -> Result<JobResult, &'static str> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(tx) = &job.tx {
            tx.lock().await.unwrap().set_result(format!("run {run}")).unwrap();
        }
        match job.work {
            "fail" => Err("no"),
            "wait" => {
                self.begun.notify_one();
                self.go.acquire().await.unwrap().forget();
                Ok(JobResult::Done)
            }
            _ => Ok(JobResult::Done),
        }
    }

    fn service<S: Transactional>(
        &self,
    ) -> impl Service<TestJob<S>, Response = JobResult, Error = &'static str, Future: Send> + Clone + Send + 'static
    {
        let worker = self.clone();
        service_fn(move |job: TestJob<S>| worker.clone().run(job))
    }
}

// FAULTS A9, C1: once with concurrent requests, and again after a failure.
async fn takes_effect_once<S>(inbox: Inbox<S>)
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    let worker = CountingWorker::new();
    let layer =
        IdempotentLayer::transactional(inbox, "work", id::<S>).unwrap().answer_with(respond, |_| true);
    let service = layer.layer(worker.service::<S>());
    let run = |job: TestJob<S>| service.clone().oneshot(job);

    assert_eq!(run(job("1", "fail")).await, Err("no"));
    assert_eq!(run(job("1", "ok")).await, Ok(JobResult::Done));
    assert_eq!(run(job("1", "ok")).await, Ok(JobResult::Duplicate(Some("run 2".into()))));
    for blank in ["", " ", " \t\n"] {
        assert_eq!(run(job(blank, "ok")).await, Ok(JobResult::NoKey), "{blank:?}");
    }

    // A cancelled request releases the key.
    let gone = tokio::spawn(run(job("2", "wait")));
    worker.begun.notified().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(run(job("2", "ok")).await, Ok(JobResult::Done));

    let first = tokio::spawn(run(job("3", "wait")));
    worker.begun.notified().await;
    let rival = tokio::spawn(run(job("3", "ok")));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    worker.go.add_permits(1);
    assert_eq!(first.await.unwrap(), Ok(JobResult::Done));
    let rival = rival.await.unwrap().unwrap();
    assert!(
        matches!(
            rival,
            JobResult::Busy | JobResult::Duplicate(_) | JobResult::Failed(ErrorKind::Unavailable)
        ),
        "{rival:?}"
    );
    assert_eq!(worker.runs(), 5);
}

#[tokio::test]
async fn work_takes_effect_once_on_memory() {
    takes_effect_once(Inbox::builder("jobs", Memory::new()).build().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_takes_effect_once_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::options(dir.path().join("jobs.db")).synchronous(Synchronous::Normal).open().unwrap();
    takes_effect_once(Inbox::builder("jobs", store).build().unwrap()).await;
}

// FAULTS A4: the layer reports an unknown commit as such, and the same job again resolves it.
#[tokio::test]
async fn trouble_of_the_store_is_told_and_the_next_try_resolves_it() {
    type UnreliableMemory = FaultyStore<Memory>;
    let store = FaultyStore::new(Memory::new());
    let inbox = Inbox::builder("jobs", store.clone()).build().unwrap();
    let worker = CountingWorker::new();
    let layer = IdempotentLayer::transactional(inbox, "work", id::<UnreliableMemory>)
        .unwrap()
        .answer_with(respond, |_| true);
    let service = layer.layer(worker.service::<UnreliableMemory>());
    let away = StoreFault::ErrBefore(ErrorKind::Unavailable);
    for (number, verb, fault, told, then) in [
        ("1", StoreVerb::Begin, away, ErrorKind::Unavailable, JobResult::Done),
        ("2", StoreVerb::Mark, away, ErrorKind::Unavailable, JobResult::Done),
        ("3", StoreVerb::Commit, away, ErrorKind::Unavailable, JobResult::Done),
        (
            "4",
            StoreVerb::Commit,
            StoreFault::ErrAfter,
            ErrorKind::CommitUnknown,
            JobResult::Duplicate(Some("run 5".into())),
        ),
    ] {
        store.faults().next(verb, fault);
        assert_eq!(service.clone().oneshot(job(number, "ok")).await, Ok(JobResult::Failed(told)), "{verb:?}");
        assert_eq!(service.clone().oneshot(job(number, "ok")).await, Ok(then), "{verb:?}");
    }
}

#[tokio::test]
async fn a_service_with_a_short_memory_runs_once() {
    let worker = CountingWorker::new();
    let recent = Recent::builder().capacity(2).build().unwrap();
    let layer = IdempotentLayer::recent(recent, id::<Memory>).answer_with(respond, |_| true);
    let service = layer.layer(worker.service::<Memory>());
    let run = |job: TestJob<Memory>| service.clone().oneshot(job);
    assert_eq!(run(job("1", "fail")).await, Err("no"));
    assert_eq!(run(job("1", "ok")).await, Ok(JobResult::Done));
    assert_eq!(run(job("1", "ok")).await, Ok(JobResult::Duplicate(None)));
    for blank in ["", " ", " \t\n"] {
        assert_eq!(run(job(blank, "ok")).await, Ok(JobResult::NoKey), "{blank:?}");
    }
    let waiting = tokio::spawn(run(job("2", "wait")));
    worker.begun.notified().await;
    assert_eq!(run(job("2", "ok")).await, Ok(JobResult::Busy));
    // Full is not duplicate.
    assert_eq!(run(job("3", "ok")).await, Ok(JobResult::Failed(ErrorKind::Full)));
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(run(job("3", "ok")).await, Ok(JobResult::Done));
    assert_eq!(worker.runs(), 4);
}

#[test]
fn a_bad_handler_key_is_refused_at_start() {
    let inbox = Inbox::builder("jobs", Memory::new()).build().unwrap();
    let error = IdempotentLayer::transactional(inbox, "no blanks", id::<Memory>).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidHandler);
}
