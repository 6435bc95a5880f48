//! Wakes the dispatcher for work that this process itself has stored or scheduled. Tests: below, and `tests/wakeups.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Due times closer together than this are merged: one claim finds all of them.
const GRAIN_MILLIS: u64 = 20;
/// Maximum due times; the poll finds later ones.
const MAX_DUES: usize = 1024;

/// Due times that this process knows. A hint only: the poll finds the rest.
#[derive(Default)]
pub(crate) struct LocalWakeup {
    notify: Notify,
    /// Due times of retries and delayed messages of this process, on its monotonic clock.
    dues: Mutex<BTreeSet<Duration>>,
}

impl LocalWakeup {
    /// Reports that entries may be due now.
    pub(crate) fn now(&self) {
        self.notify.notify_one();
    }

    /// Reports that entries may be due at `due`.
    pub(crate) fn at(&self, due: Duration) {
        let millis = u64::try_from(due.as_millis()).unwrap_or(u64::MAX);
        let grains = millis.div_ceil(GRAIN_MILLIS).saturating_add(1);
        let mut dues = self.dues.lock();
        dues.insert(Duration::from_millis(grains.saturating_mul(GRAIN_MILLIS)));
        if dues.len() > MAX_DUES {
            dues.pop_last();
        }
        drop(dues);
        // Wake a dispatcher that sleeps until a later time.
        self.notify.notify_one();
    }

    /// Completes at the next wakeup, or at once if there was one since the last wait.
    pub(in crate::runtime) async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Returns true if there was a wakeup since the last wait.
    pub(in crate::runtime) fn take(&self) -> bool {
        self.wait().now_or_never().is_some()
    }

    /// Returns the next known due time, which may have passed.
    pub(in crate::runtime) fn next_due(&self) -> Option<Duration> {
        self.dues.lock().first().copied()
    }

    /// Removes the due times that have passed. Returns true if there were any.
    pub(in crate::runtime) fn take_passed(&self, now: Duration) -> bool {
        let mut dues = self.dues.lock();
        let mut passed = false;
        while dues.first().is_some_and(|first| *first <= now) {
            dues.pop_first();
            passed = true;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_due_comes_first_and_the_past_is_forgotten() {
        let wakeup = LocalWakeup::default();
        let secs = Duration::from_secs;
        wakeup.at(secs(9));
        wakeup.at(secs(3));
        assert!(wakeup.next_due().is_some_and(|due| due >= secs(3) && due < secs(4)));
        assert!(!wakeup.take_passed(secs(3)));
        assert!(wakeup.take_passed(secs(5)));
        assert!(wakeup.next_due().is_some_and(|due| due >= secs(9) && due < secs(10)));
        assert!(wakeup.take_passed(secs(20)));
        assert!(!wakeup.take_passed(secs(20)));
        assert_eq!(wakeup.next_due(), None);
    }

    #[test]
    fn a_due_beyond_all_time_is_remembered_like_any_other() {
        let wakeup = LocalWakeup::default();
        wakeup.at(Duration::MAX);
        assert!(wakeup.next_due().is_some());
        assert!(wakeup.take());
        assert!(!wakeup.take());
    }
}
