//! Tells the dispatcher of work that this process itself knows of.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Dues closer together than this are one: looking once finds them all.
const GRAIN_MILLIS: u64 = 20;
/// The most dues that are remembered; later ones are found by the poll.
const MAX_DUES: usize = 1024;

/// What the process knows of work to come. A hint only: the poll finds what is forgotten here.
#[derive(Default)]
pub(crate) struct Nudge {
    notify: Notify,
    /// When retries and delayed messages of this process are due, on its monotonic clock.
    dues: Mutex<BTreeSet<Duration>>,
    turn: AtomicUsize,
}

impl Nudge {
    /// There may be work now.
    pub(crate) fn now(&self) {
        self.notify.notify_one();
    }

    /// There may be work at `due`.
    pub(crate) fn at(&self, due: Duration) {
        let millis = u64::try_from(due.as_millis()).unwrap_or(u64::MAX - GRAIN_MILLIS);
        let mut dues = self.dues.lock();
        dues.insert(Duration::from_millis(millis.next_multiple_of(GRAIN_MILLIS) + GRAIN_MILLIS));
        if dues.len() > MAX_DUES {
            dues.pop_last();
        }
        drop(dues);
        // Whoever sleeps until a later due must look at this one.
        self.notify.notify_one();
    }

    /// Completes at the next nudge; at once if there was one since the last wait.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }

    /// How long until the next known due, at most `poll`. Dues that have passed are forgotten.
    pub(super) fn due_within(&self, now: Duration, poll: Duration) -> Duration {
        let mut dues = self.dues.lock();
        while let Some(first) = dues.first().copied() {
            if first > now {
                return first.saturating_sub(now).min(poll);
            }
            dues.pop_first();
        }
        poll
    }

    /// A number that is another one at each call.
    pub(super) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_due_comes_first_and_the_past_is_forgotten() {
        let nudge = Nudge::default();
        let secs = Duration::from_secs;
        nudge.at(secs(9));
        nudge.at(secs(3));
        assert!(nudge.due_within(secs(1), secs(30)) <= secs(3));
        assert!(nudge.due_within(secs(5), secs(30)) <= secs(5));
        assert_eq!(nudge.due_within(secs(20), secs(30)), secs(30));
        assert_eq!(nudge.due_within(secs(0), secs(30)), secs(30));
    }
}
