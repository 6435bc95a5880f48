//! Long operations, which run in the background of this process. Tests: below and `tests/serve/api/many.rs`.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use oncebox::store::OperationId;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::operator::OperatorResult;

/// The operations of this process.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    active: HashMap<OperationId, (u64, AbortHandle)>,
    /// Number of operations started so far. A stopped operation may end after its restart.
    begun: u64,
    closed: bool,
}

impl Jobs {
    /// Starts an operation, unless it runs already.
    pub(super) fn start(
        &self,
        id: OperationId,
        work: impl Future<Output = OperatorResult<()>> + Send + 'static,
    ) {
        let mut inner = self.0.lock();
        if inner.closed || inner.active.contains_key(&id) {
            return;
        }
        inner.begun += 1;
        let (jobs, number) = (self.clone(), inner.begun);
        let task = tokio::spawn(async move {
            match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(operation = %id, %error, "operation interrupted; repeat it");
                }
                Err(_) => tracing::error!(operation = %id, "operation panicked; repeat it"),
            }
            jobs.end(id, number);
        });
        // If the task has ended already, it still waits for the lock to record that.
        inner.active.insert(id, (number, task.abort_handle()));
    }

    fn end(&self, id: OperationId, number: u64) {
        let mut inner = self.0.lock();
        if inner.active.get(&id).is_some_and(|(active, _)| *active == number) {
            inner.active.remove(&id);
        }
    }

    /// Returns true if the operation runs in this process.
    pub(super) fn is_active(&self, id: OperationId) -> bool {
        self.0.lock().active.contains_key(&id)
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
        assert!(!jobs.is_active(id));
        jobs.start(id, std::future::pending());
        jobs.start(id, async { panic!("it runs already") });
        assert!(jobs.is_active(id) && jobs.stop(id) && !jobs.stop(id));
        let (finish, finished) = tokio::sync::oneshot::channel();
        jobs.start(id, async {
            let _ = finished.await;
            Ok(())
        });
        assert!(jobs.is_active(id));
        finish.send(()).unwrap();
        ended(&jobs, id).await;
        jobs.start(id, async { panic!("on purpose") });
        ended(&jobs, id).await;
        jobs.start(id, std::future::pending());
        jobs.close();
        assert!(!jobs.is_active(id));
        jobs.start(id, std::future::pending());
        assert!(!jobs.is_active(id));
    }

    async fn ended(jobs: &Jobs, id: OperationId) {
        while jobs.is_active(id) {
            tokio::task::yield_now().await;
        }
    }
}
