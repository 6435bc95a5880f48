//! Wake-ups from a counter of Tokio. Tests: `tests/wakeups.rs` of `oncebox` and of the stores.

use futures_util::stream;
use oncebox_core::store::Wakeup;
use tokio::sync::watch;

/// Returns a listener to a counter that changes when there may be work.
pub fn wakeup(counter: watch::Receiver<u64>) -> Wakeup {
    Wakeup::new(stream::unfold(counter, |mut counter| async move {
        counter.changed().await.ok()?;
        Some(((), counter))
    }))
}
