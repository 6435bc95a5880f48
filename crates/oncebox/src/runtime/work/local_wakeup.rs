//! Wakes the dispatcher for work that this process itself has stored or scheduled. Tests: below, and `tests/wakeups.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Dues closer together than this are one: looking once finds them all.
const GRAIN_MILLIS: u64 = 20;
/// The most dues that are remembered; later ones are found by the poll.
const MAX_DUES: usize = 1024;

/// What the process knows of work to come. A hint only: the poll finds what is forgotten here.
#[derive(Default)]
pub(crate) struct LocalWakeup {
    notify: Notify,
    /// When retries and delayed messages of this process are due, on its monotonic clock.
    dues: Mutex<BTreeSet<Duration>>,
}

impl LocalWakeup {
    /// There may be work now.
    pub(crate) fn now(&self) {
        self.notify.notify_one();
    }

    /// There may be work at `due`.
    pub(crate) fn at(&self, due: Duration) {
        let millis = u64::try_from(due.as_millis()).unwrap_or(u64::MAX);
        let grains = millis.div_ceil(GRAIN_MILLIS).saturating_add(1);
        let mut dues = self.dues.lock();
        dues.insert(Duration::from_millis(grains.saturating_mul(GRAIN_MILLIS)));
        if dues.len() > MAX_DUES {
            dues.pop_last();
        }
        drop(dues);
        // Whoever sleeps until a later due must look at this one.
        self.notify.notify_one();
    }

    /// Completes at the next wakeup; at once if there was one since the last wait.
    pub(in crate::runtime) async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Whether there was a wakeup since the last wait.
    pub(in crate::runtime) fn take(&self) -> bool {
        self.wait().now_or_never().is_some()
    }

    /// The next known due, if there is one; it may have passed.
    pub(in crate::runtime) fn next_due(&self) -> Option<Duration> {
        self.dues.lock().first().copied()
    }

    /// Forgets the dues that have passed; says whether there were any.
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
