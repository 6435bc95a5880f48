//! Operations that take their time: carried on beside the requests that ask for them.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use oncebox::store::OperationId;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// So many operations that are over are remembered.
const REMEMBERED: usize = 1_000;

/// How an operation of this process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// It is carried on.
    Active,
    /// It has come to its end; a backfill gave so many entries.
    Over(u64),
    /// It ended with an error, which is in the log.
    Failed,
}

/// The operations of this process.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    active: HashMap<OperationId, (u64, AbortHandle)>,
    /// How many were begun so far: one that was stopped may end after it was begun again.
    begun: u64,
    over: VecDeque<(OperationId, JobState)>,
    closed: bool,
}

impl Jobs {
    /// Carries an operation on, unless that is done already.
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
                    tracing::error!(operation = %id, "an operation was interrupted; ask for it again: {error}");
                    JobState::Failed
                }
                Err(_) => {
                    tracing::error!(operation = %id, "an operation panicked; ask for it again");
                    JobState::Failed
                }
            };
            jobs.end(id, number, ended);
        });
        // The task may be over by now; it cannot have said so, since it needs the lock for that.
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

    /// What this process knows of an operation.
    pub(super) fn get(&self, id: OperationId) -> Option<JobState> {
        let inner = self.0.lock();
        if inner.active.contains_key(&id) {
            return Some(JobState::Active);
        }
        inner.over.iter().find(|(known, _)| *known == id).map(|(_, job)| *job)
    }

    /// Stops an operation between two of its steps or within one: each step is done whole or not at all. Says whether it was
    /// active.
    pub(super) fn stop(&self, id: OperationId) -> bool {
        let stopped = self.0.lock().active.remove(&id);
        stopped.inspect(|(_, task)| task.abort()).is_some()
    }

    /// Stops all of them, and begins no more: the process is about to end.
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
    async fn an_operation_is_carried_on_once_and_can_be_stopped() {
        let jobs = Jobs::default();
        let id = OperationId::fresh();
        assert_eq!(jobs.get(id), None);
        jobs.start(id, std::future::pending());
        jobs.start(id, async { Ok(7) });
        assert_eq!(jobs.get(id), Some(JobState::Active));
        assert!(jobs.stop(id) && !jobs.stop(id));
        let (tell, told) = tokio::sync::oneshot::channel();
        jobs.start(id, async {
            let _ = told.await;
            Ok(3)
        });
        tell.send(()).unwrap();
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
