//! Starts components and restarts those that fail. Tests: `tests/lifecycle.rs`, `tests/health.rs`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::error::Result;
use crate::observe::{emit, names};
use crate::runtime::Core;
use crate::state::ErrorText;
use crate::store::Store;

/// The component of a source, which reports its state through the source.
pub(in crate::runtime) const RECEIVER: &str = "receiver";

/// A request to stop that any number of tasks can wait for. The wait is free until it blocks, because every handler run
/// waits for it.
#[derive(Default)]
pub(crate) struct Stop {
    requested: AtomicBool,
    changed: Notify,
}

impl Stop {
    pub(in crate::runtime) fn request(&self) {
        self.requested.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(in crate::runtime) fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// Completes when the stop is requested, or at once if it was requested before.
    pub(in crate::runtime) async fn wait(&self) {
        // Made before the check: a request between the two wakes it.
        let changed = self.changed.notified();
        if !self.requested() {
            changed.await;
        }
    }
}

/// Runs a component until it returns `Ok`. An error or a panic is logged, and after a pause the component restarts. With
/// `ends_on_stop`, a request to stop ends the pause and the component.
pub(in crate::runtime) fn supervise<S, F, Fut>(
    core: &Arc<Core<S>>,
    component: &'static str,
    ends_on_stop: bool,
    start: F,
) -> AbortOnDrop<()>
where
    S: Store,
    F: Fn(Arc<Core<S>>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let core = Arc::clone(core);
    AbortOnDrop(tokio::spawn(async move {
        loop {
            if component != RECEIVER {
                core.heartbeats.turn(component, Duration::ZERO);
            }
            // A task of its own, so that a panic ends the component and not its supervisor.
            let task = AbortOnDrop(tokio::spawn(start(Arc::clone(&core))));
            let why = match task.join().await {
                Ok(Ok(())) => {
                    // A source may end; every other component runs as long as the inbox.
                    if component != RECEIVER {
                        core.heartbeats.ended(component);
                    }
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(join) => join.to_string(),
            };
            let inbox = &core.inbox;
            core.heartbeats.failed(component);
            if let Some(suppressed) = inbox.store.watch().log_throttle.allow("component", component) {
                let error = ErrorText::new(why);
                tracing::error!(inbox = %inbox.name, component, %error, suppressed, "component failed; starting it again");
            }
            let labels = [emit::inbox(&inbox.name), emit::word("component", component)];
            emit::count(names::RESTARTS, 1, labels);
            tokio::select! {
                () = inbox.clock.sleep(inbox.config.restart) => {}
                () = core.stop.wait(), if ends_on_stop => return,
            }
        }
    }))
}

/// A task that is aborted when its owner drops this.
pub(in crate::runtime) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    /// Completes when the task has ended, or at once if it ended before.
    pub(in crate::runtime) async fn ended(&mut self) {
        if !self.0.is_finished() {
            // One that panicked was reported by its supervisor.
            let _ = (&mut self.0).await;
        }
    }

    pub(in crate::runtime) async fn join(mut self) -> std::result::Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
