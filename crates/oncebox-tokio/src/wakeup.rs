//! Wake-ups from a counter of Tokio. Tests: below, and `tests/wakeups.rs` of `oncebox` and of the stores.

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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn events_between_two_calls_count_as_one_and_none_is_lost() {
        let (counter, listening) = watch::channel(0);
        let mut wakeup = wakeup(listening);
        assert_eq!(wakeup.woken().now_or_never(), None, "nothing has happened");
        for _ in 0..2 {
            // The wait before was given up, and these come while none runs.
            counter.send_modify(|count| *count += 1);
            counter.send_modify(|count| *count += 1);
            assert_eq!(wakeup.woken().now_or_never(), Some(()));
            assert_eq!(wakeup.woken().now_or_never(), None);
        }
        drop(counter);
        for _ in 0..2 {
            assert_eq!(wakeup.woken().now_or_never(), None, "the store is gone");
        }
    }
}
