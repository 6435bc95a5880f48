//! Long operations, which run in the background of this process. Tests: below and `tests/serve/api/many.rs`.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use oncebox::store::OperationId;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Maximum ended operations that are remembered.
const REMEMBERED: usize = 1_000;

/// State of an operation in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// It runs.
    Active,
    /// It has ended, with the number of entries that it changed or added.
    Over(u64),
    /// It ended with an error, which was logged.
    Failed,
}

/// The operations of this process.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    active: HashMap<OperationId, (u64, AbortHandle)>,
    /// Number of operations started so far. A stopped operation may end after its restart.
    begun: u64,
    over: VecDeque<(OperationId, JobState)>,
    closed: bool,
}

impl Jobs {
    /// Starts an operation, unless it runs already.
    pub(super) fn start(
        &self,
        id: OperationId,
        work: impl Future<Output = oncebox::Result<u64>> + Send + 'static,
    ) {
        let mut inner = self.0.lock();
        if inner.closed || inner.active.contains_key(&id) {
            return;
        }
        inner.over.retain(|(known, _)| *known != id);
        inner.begun += 1;
        let (jobs, number) = (self.clone(), inner.begun);
        let task = tokio::spawn(async move {
            let ended = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Ok(count)) => JobState::Over(count),
                Ok(Err(error)) => {
                    tracing::error!(operation = %id, %error, "operation interrupted; repeat it");
                    JobState::Failed
                }
                Err(_) => {
                    tracing::error!(operation = %id, "operation panicked; repeat it");
                    JobState::Failed
                }
            };
            jobs.end(id, number, ended);
        });
        // If the task has ended already, it still waits for the lock to record that.
        inner.active.insert(id, (number, task.abort_handle()));
    }

    fn end(&self, id: OperationId, number: u64, ended: JobState) {
        let mut inner = self.0.lock();
        if inner.active.get(&id).is_some_and(|(active, _)| *active == number) {
            inner.active.remove(&id);
            inner.over.push_back((id, ended));
            if inner.over.len() > REMEMBERED {
                inner.over.pop_front();
            }
        }
    }

    /// Returns the state of an operation, if this process knows it.
    pub(super) fn get(&self, id: OperationId) -> Option<JobState> {
        let inner = self.0.lock();
        if inner.active.contains_key(&id) {
            return Some(JobState::Active);
        }
        inner.over.iter().find(|(known, _)| *known == id).map(|(_, job)| *job)
    }

    /// Stops an operation and returns true if it ran. Each step is a transaction, so none is done in part.
    pub(super) fn stop(&self, id: OperationId) -> bool {
        let stopped = self.0.lock().active.remove(&id);
        stopped.inspect(|(_, task)| task.abort()).is_some()
    }

    /// Stops all operations and refuses new ones, before the process ends.
    pub(super) fn close(&self) {
        let mut inner = self.0.lock();
        inner.closed = true;
        inner.active.drain().for_each(|(_, (_, task))| task.abort());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_operation_runs_once_and_can_be_stopped() {
        let jobs = Jobs::default();
        let id = OperationId::fresh();
        assert_eq!(jobs.get(id), None);
        jobs.start(id, std::future::pending());
        jobs.start(id, async { Ok(7) });
        assert_eq!(jobs.get(id), Some(JobState::Active));
        assert!(jobs.stop(id) && !jobs.stop(id));
        let (finish, finished) = tokio::sync::oneshot::channel();
        jobs.start(id, async {
            let _ = finished.await;
            Ok(3)
        });
        finish.send(()).unwrap();
        while jobs.get(id) == Some(JobState::Active) {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs.get(id), Some(JobState::Over(3)));
        jobs.start(id, async { panic!("on purpose") });
        while jobs.get(id) == Some(JobState::Active) {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs.get(id), Some(JobState::Failed));
        jobs.start(id, async { Ok(3) });
        while jobs.get(id) == Some(JobState::Active) {
            tokio::task::yield_now().await;
        }
        jobs.close();
        jobs.start(id, std::future::pending());
        assert_eq!(jobs.get(id), Some(JobState::Over(3)));
    }
}
