//! Hints that there may be work. They may be lost: workers poll as well.

use std::fmt;
use std::pin::Pin;

use futures_util::stream::{Stream, StreamExt as _};

/// Store that reports when there may be work.
pub trait Wakeups: Send + Sync {
    /// Starts listening. Earlier events are not reported.
    fn subscribe(&self) -> Wakeup;
}

/// Listener for wake-ups. Events between two calls count as one.
pub struct Wakeup(Pin<Box<dyn Stream<Item = ()> + Send + Sync>>);

impl Wakeup {
    /// Listens to a stream that yields when there may be work. It yields once for all events since the last one.
    pub fn new(events: impl Stream<Item = ()> + Send + Sync + 'static) -> Self {
        Self(Box::pin(events.fuse()))
    }

    /// Completes at the next event. Never completes if the store is gone.
    pub async fn woken(&mut self) {
        if self.0.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeup").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, stream};

    use super::*;

    #[test]
    fn a_store_that_is_gone_never_wakes() {
        let mut wakeup =
            Wakeup::new(stream::unfold(1, |left| async move { (left > 0).then(|| ((), left - 1)) }));
        assert_eq!(wakeup.woken().now_or_never(), Some(()));
        for _ in 0..2 {
            assert_eq!(wakeup.woken().now_or_never(), None);
        }
    }
}
