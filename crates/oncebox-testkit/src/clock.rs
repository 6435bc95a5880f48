//! A clock that only tests move. Tests: below.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use oncebox::time::{Clock, SharedClock, Sleep, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Clock that stands still until [`advance`](Self::advance) moves it. Clones are the same clock.
///
/// A test waits for sleeping components with [`wait_for_sleepers`](Self::wait_for_sleepers), and then moves time. No test ever
/// waits for real time.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use oncebox::time::Clock;
/// use oncebox_testkit::TestClock;
///
/// let clock = TestClock::new();
/// let alarm = tokio::spawn(clock.sleep(Duration::from_secs(3600)));
/// clock.wait_for_sleepers(1).await;
/// clock.advance(Duration::from_secs(3600));
/// alarm.await.unwrap();
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct TestClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<ClockState>,
    /// Number of sleepers, for tests that wait for it.
    sleepers: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct ClockState {
    elapsed: Duration,
    /// Total time by which the time of day was set back.
    back: Duration,
    next: u64,
    sleepers: BTreeMap<u64, (Duration, Waker)>,
}

impl Shared {
    /// Publishes the number of sleepers. Callers hold the lock, so receivers never see an older number after a newer one.
    fn publish(&self, state: &ClockState) {
        self.sleepers.send_replace(state.sleepers.len());
    }
}

/// Start time: a day in 2026, so that dates in failures look like dates.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl TestClock {
    /// Returns a clock that starts at the same time in every test.
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), sleepers: watch::Sender::new(0) }) }
    }

    /// Returns the clock in the form that stores and inboxes use.
    pub fn shared(&self) -> SharedClock {
        Arc::new(self.clone())
    }

    /// Moves the time of day and the monotonic time, and wakes due sleepers.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.state.lock();
        state.elapsed += by;
        let elapsed = state.elapsed;
        let all = std::mem::take(&mut state.sleepers);
        let (due, asleep): (BTreeMap<_, _>, _) = all.into_iter().partition(|(_, (at, _))| *at <= elapsed);
        state.sleepers = asleep;
        self.shared.publish(&state);
        drop(state);
        for (_, waker) in due.into_values() {
            waker.wake();
        }
    }

    /// Sets the time of day back, as an administrator or a time server does. The monotonic time does not move.
    pub fn turn_back(&self, by: Duration) {
        self.shared.state.lock().back += by;
    }

    /// Returns the number of sleepers.
    pub fn sleepers(&self) -> usize {
        self.shared.state.lock().sleepers.len()
    }

    /// Completes when there are at least `count` sleepers.
    pub async fn wait_for_sleepers(&self, count: usize) {
        let mut sleepers = self.shared.sleepers.subscribe();
        // The sender lives in `self`, so the channel cannot close.
        let _ = sleepers.wait_for(|asleep| *asleep >= count).await;
    }

    /// Returns the time until the next sleeper is due. `None` without sleepers.
    pub fn next_due(&self) -> Option<Duration> {
        let state = self.shared.state.lock();
        state.sleepers.values().map(|(at, _)| at.saturating_sub(state.elapsed)).min()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let state = self.shared.state.lock();
        START.after(state.elapsed).before(state.back)
    }

    fn monotonic(&self) -> Duration {
        self.shared.state.lock().elapsed
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let at = self.monotonic().saturating_add(duration);
        Box::pin(Sleeper { clock: Arc::clone(&self.shared), at, id: None })
    }
}

struct Sleeper {
    clock: Arc<Shared>,
    at: Duration,
    id: Option<u64>,
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = Arc::clone(&self.clock);
        let mut state = clock.state.lock();
        if state.elapsed >= self.at {
            self.id = None;
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.sleepers.insert(id, (self.at, cx.waker().clone()));
        clock.publish(&state);
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut state = self.clock.state.lock();
            if state.sleepers.remove(&id).is_some() {
                self.clock.publish(&state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn stands_still_until_it_is_moved() {
        let clock = TestClock::new();
        let (now, monotonic) = (clock.now(), clock.monotonic());
        tokio::task::yield_now().await;
        assert_eq!((clock.now(), clock.monotonic()), (now, monotonic));
        clock.advance(SECOND);
        assert_eq!((clock.now(), clock.monotonic()), (now.after(SECOND), monotonic + SECOND));
    }

    #[tokio::test]
    async fn the_time_of_day_can_be_set_back() {
        let clock = TestClock::new();
        let (now, monotonic) = (clock.now(), clock.monotonic());
        clock.turn_back(SECOND);
        assert_eq!((clock.now(), clock.monotonic()), (now.before(SECOND), monotonic));
        clock.advance(SECOND);
        assert_eq!((clock.now(), clock.monotonic()), (now, monotonic + SECOND));
    }

    #[tokio::test]
    async fn wakes_only_due_sleepers() {
        let clock = TestClock::new();
        let short = tokio::spawn(clock.sleep(SECOND));
        let long = tokio::spawn(clock.sleep(2 * SECOND));
        clock.wait_for_sleepers(2).await;
        assert_eq!(clock.next_due(), Some(SECOND));
        clock.advance(SECOND);
        short.await.unwrap();
        assert_eq!(clock.sleepers(), 1);
        assert!(!long.is_finished());
        clock.advance(SECOND);
        long.await.unwrap();
        assert_eq!((clock.sleepers(), clock.next_due()), (0, None));
    }

    #[tokio::test]
    async fn a_sleep_that_is_given_up_is_forgotten() {
        let clock = TestClock::new();
        let sleep = tokio::spawn(clock.sleep(SECOND));
        clock.wait_for_sleepers(1).await;
        sleep.abort();
        assert!(sleep.await.unwrap_err().is_cancelled());
        assert_eq!(clock.sleepers(), 0);
        clock.sleep(Duration::ZERO).await;
    }
}
