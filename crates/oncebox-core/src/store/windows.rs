//! Retention windows of an inbox, as all processes register them, and the cursors of sweeps.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Route, Seq, SweepParams, Tenancy};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Digest, Purpose};
use crate::name::{HandlerKey, InboxName};
use crate::time::Timestamp;

/// Parameters of a registration: the windows of one process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RegisterParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Window of the inbox: for messages without an entry, and for handlers that no process registered. [`Duration::MAX`]: for
    /// ever.
    pub retention: Duration,
    /// Window of each handler key that the process knows, former keys included.
    pub windows: Vec<(HandlerKey, Duration)>,
    /// Durable handlers. The store links the keys of each before the process stores anything.
    pub routes: Vec<Route>,
    /// Tenants setting of the process. `None`: do not check it. The store checks it before it changes anything.
    pub tenancy: Option<Tenancy>,
    /// Time for which this registration counts. Default: 24 hours.
    pub hold: Duration,
}

impl RegisterParams {
    /// Default of [`hold`](Self::hold): 24 hours. A process registers again whenever it sweeps.
    pub const HOLD: Duration = Duration::from_hours(24);

    /// Returns the windows of a process.
    pub fn new(inbox: InboxName, retention: Duration) -> Self {
        let (windows, routes) = (Vec::new(), Vec::new());
        Self { inbox, retention, windows, routes, tenancy: None, hold: Self::HOLD }
    }

    /// Refuses two handlers of a process that are one to the store: a renamed key stays a name of its handler. `ids` has the ids of
    /// each route, in the order of [`routes`](Self::routes).
    pub fn refuse_shared<I: PartialEq>(&self, ids: &[Vec<I>]) -> Result<()> {
        for (at, (route, own)) in self.routes.iter().zip(ids).enumerate() {
            let mut others = self.routes[..at].iter().zip(ids);
            if let Some((other, _)) = others.find(|(_, theirs)| own.iter().any(|id| theirs.contains(id))) {
                let what = format!(
                    "the handlers {:?} and {:?} are one handler in this store: one of the keys was renamed to the other before; \
                     a key that was used once cannot name another handler, so choose a new one",
                    other.key, route.key
                );
                return Err(Error::new(ErrorKind::InvalidHandler, what));
            }
        }
        Ok(())
    }

    /// Returns the setting that the store has to record, given the recorded one, or an error if the inbox may not change to it.
    pub fn new_tenancy(&self, recorded: Option<&str>) -> Result<Option<&str>> {
        let Some(tenancy) = &self.tenancy else { return Ok(None) };
        Ok(tenancy.is_new(&self.inbox, recorded)?.then(|| tenancy.setting()))
    }

    /// Returns all windows: that of the inbox, then those of handlers.
    pub fn all(&self) -> impl Iterator<Item = (Option<&HandlerKey>, Duration)> {
        let handlers = self.windows.iter().map(|(handler, window)| (Some(handler), *window));
        std::iter::once((None, self.retention)).chain(handlers)
    }
}

/// A registered window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredWindow {
    /// Handler key. `None` for the window of the inbox.
    pub handler: Option<HandlerKey>,
    /// The window.
    pub window: Duration,
    /// End of the registration.
    pub until: Timestamp,
}

impl RegisteredWindow {
    /// Returns a window that is registered until a time.
    pub const fn new(handler: Option<HandlerKey>, window: Duration, until: Timestamp) -> Self {
        Self { handler, window, until }
    }
}

/// Windows that a sweep uses. If processes register different ones, the longest wins, so that no process loses what it relies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionWindows {
    default: Duration,
    own: BTreeMap<HandlerKey, Duration>,
}

impl RetentionWindows {
    /// Minimum ratio of a window to the latest duplicate. A duplicate after the window would not have been recognised, so an even
    /// later one is possible.
    pub const MARGIN: u32 = 2;

    /// Returns the windows at `now` for a sweep with `params`. Registrations count until they end, and the sweeper's own windows
    /// always. For a handler without a valid one, the last registration counts.
    pub fn new(params: &SweepParams, registered: &[RegisteredWindow], now: Timestamp) -> Self {
        let mut said: BTreeMap<Option<&HandlerKey>, Vec<(bool, Timestamp, Duration)>> = BTreeMap::new();
        for one in registered {
            let counts = (one.until >= now, one.until, one.window);
            said.entry(one.handler.as_ref()).or_default().push(counts);
        }
        let given = params.windows.iter().map(|(handler, window)| (Some(handler), *window));
        for (handler, window) in given.chain([(None, params.retention)]) {
            said.entry(handler).or_default().push((true, Timestamp::MAX, window));
        }
        let mut windows = Self { default: params.retention, own: BTreeMap::new() };
        for (handler, said) in said {
            let live = said.iter().filter(|(live, ..)| *live).map(|(.., window)| *window).max();
            let last = said.iter().max_by_key(|(_, until, window)| (*until, *window));
            let Some(window) = live.or(last.map(|(.., window)| *window)) else { continue };
            let window = whole_millis(window);
            match handler {
                None => windows.default = window,
                Some(handler) => {
                    windows.own.insert(handler.clone(), window);
                }
            }
        }
        windows
    }

    /// Merges the keys of each handler: the longest window registered for one of them counts for all.
    #[must_use]
    pub fn over(mut self, handlers: impl IntoIterator<Item = Vec<HandlerKey>>) -> Self {
        for keys in handlers {
            let longest = keys.iter().filter_map(|key| self.own.get(key).copied()).max();
            if let Some(longest) = longest {
                self.own.extend(keys.into_iter().map(|key| (key, longest)));
            }
        }
        self
    }

    /// Returns the window of the inbox: for messages without an entry, and for handlers that no process registered.
    pub fn default_window(&self) -> Duration {
        self.default
    }

    /// Returns the window of a handler key.
    pub fn of(&self, handler: &HandlerKey) -> Duration {
        self.own.get(handler).copied().unwrap_or(self.default)
    }

    /// Returns the handler keys that have a registered window.
    pub fn own(&self) -> impl Iterator<Item = (&HandlerKey, Duration)> {
        self.own.iter().map(|(handler, window)| (handler, *window))
    }

    /// Returns each window that ends, the shortest first. A sweep has one cursor for each.
    pub fn lengths(&self) -> Vec<Duration> {
        let all = self.own.values().copied().chain([self.default]);
        let mut lengths: Vec<Duration> = all.filter(|window| *window < Duration::MAX).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Returns the longest window that ends.
    pub fn longest(&self) -> Duration {
        self.lengths().last().copied().unwrap_or(Duration::MAX)
    }

    /// Returns a digest that differs between sets of windows. A cursor is valid only for its own set.
    pub fn digest(&self) -> i64 {
        let mut digest = Digest::new(Purpose::Windows);
        digest.part(&self.default.as_millis().to_le_bytes());
        for (handler, window) in &self.own {
            digest.part(handler.as_str().as_bytes());
            digest.part(&window.as_millis().to_le_bytes());
        }
        i64::from_be_bytes(digest.truncated())
    }
}

/// Rounds down to milliseconds, the unit of stores.
fn whole_millis(window: Duration) -> Duration {
    u64::try_from(window.as_millis()).map_or(Duration::MAX, Duration::from_millis)
}

/// Position of a sweep: its window and its last message. Later positions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SweepPosition {
    /// Window of the cursor.
    pub window: Duration,
    /// Last message that was read.
    pub seq: Seq,
}

impl SweepPosition {
    /// Returns the position after a message.
    pub const fn new(window: Duration, seq: Seq) -> Self {
        Self { window, seq }
    }

    /// Before everything.
    pub const START: Self = Self { window: Duration::ZERO, seq: Seq(0) };
}

/// Cursor of all sweeps with one window. Sweeps do not read messages before it again, except the few that had not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepCursor {
    /// Last message that was read.
    pub upto: Seq,
    /// Earlier messages that must be read again.
    pub left: Vec<Seq>,
}

impl Default for SweepCursor {
    fn default() -> Self {
        Self { upto: Seq(0), left: Vec::new() }
    }
}

impl SweepCursor {
    /// Maximum messages left behind. With more, the cursor stays and the next sweep reads from there again.
    pub const MAX_LEFT: usize = 1_000;

    /// Minimum age of messages that the cursor passes: a long transaction may still add younger ones.
    pub const SETTLED: Duration = Duration::from_mins(10);

    /// Returns a cursor.
    pub const fn new(upto: Seq, left: Vec<Seq>) -> Self {
        Self { upto, left }
    }

    /// Returns messages left behind after `after`, at most `limit`.
    pub fn again(&self, after: Seq, limit: usize) -> Vec<Seq> {
        self.left.iter().copied().filter(|seq| *seq > after).take(limit).collect()
    }

    /// Returns the message after which the cursor continues.
    pub fn from(&self, after: Seq) -> Seq {
        self.upto.max(after)
    }

    /// Forgets messages left behind that are gone.
    pub fn gone(&mut self, gone: &[Seq]) {
        self.left.retain(|seq| !gone.contains(seq));
    }

    /// Records that all messages after `from` up to `to` were read. `stays` had not expired, in order.
    pub fn pass(&mut self, from: Seq, to: Seq, stays: &[Seq]) {
        if from == self.upto && to > from && self.left.len() + stays.len() <= Self::MAX_LEFT {
            self.upto = to;
            self.left.extend(stays);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const DAY: Duration = Duration::from_hours(24);

    fn key(name: &str) -> HandlerKey {
        HandlerKey::new(name).unwrap()
    }

    fn windows(
        retention: Duration,
        given: &[(&str, Duration)],
        registered: &[(Option<&str>, Duration, i64)],
    ) -> RetentionWindows {
        let mut params = SweepParams::new(InboxName::new("i").unwrap(), retention, 1);
        params.windows = given.iter().map(|(name, window)| (key(name), *window)).collect();
        let registered = registered.iter().map(|(name, window, until)| {
            RegisteredWindow::new(name.map(key), *window, Timestamp::from_millis(*until))
        });
        RetentionWindows::new(&params, &registered.collect::<Vec<_>>(), Timestamp::from_millis(100))
    }

    #[test]
    fn a_handler_without_a_window_has_that_of_the_inbox() {
        let windows = windows(DAY, &[("short", HOUR)], &[]);
        assert_eq!((windows.of(&key("short")), windows.of(&key("other"))), (HOUR, DAY));
        assert_eq!(windows.lengths(), [HOUR, DAY]);
    }

    // FAULTS H6
    #[test]
    fn the_longest_window_that_a_process_relies_on_wins() {
        let registered = [(Some("h"), DAY, 100), (Some("h"), HOUR, 200), (None, 2 * DAY, 100)];
        let longest = windows(HOUR, &[("h", HOUR)], &registered);
        assert_eq!((longest.of(&key("h")), longest.default_window()), (DAY, 2 * DAY));
        let registered = [(Some("h"), DAY, 99), (Some("h"), HOUR, 200), (None, 2 * DAY, 99)];
        let expired = windows(HOUR, &[], &registered);
        assert_eq!((expired.of(&key("h")), expired.default_window()), (HOUR, HOUR));
    }

    #[test]
    fn an_expired_registration_counts_as_it_was_registered_last() {
        let registered = [(Some("h"), 2 * DAY, 50), (Some("h"), DAY, 99), (Some("h"), 3 * DAY, 10)];
        assert_eq!(windows(HOUR, &[], &registered).of(&key("h")), DAY);
        assert_eq!(windows(HOUR, &[("h", HOUR)], &registered).of(&key("h")), HOUR, "the sweeper knows it");
    }

    #[test]
    fn the_longest_of_all_keys_of_a_handler_counts() {
        let windows = windows(DAY, &[("new", HOUR)], &[(Some("old"), 2 * DAY, 100)]);
        let windows = windows.over([vec![key("old"), key("new"), key("older")], vec![key("x"), key("y")]]);
        assert_eq!(
            ["old", "new", "older", "x"].map(|name| windows.of(&key(name))),
            [2 * DAY, 2 * DAY, 2 * DAY, DAY]
        );
    }

    #[test]
    fn for_ever_is_not_a_window_that_ends() {
        assert_eq!(windows(Duration::MAX, &[("h", HOUR)], &[]).longest(), HOUR);
        assert_eq!(windows(Duration::MAX, &[], &[]).longest(), Duration::MAX);
        assert_eq!(windows(HOUR, &[("h", Duration::MAX)], &[]).lengths(), [HOUR]);
    }

    #[test]
    fn other_windows_have_another_digest() {
        let base = windows(DAY, &[("a", HOUR), ("b", DAY)], &[]).digest();
        assert_eq!(base, windows(DAY, &[("b", DAY), ("a", HOUR)], &[]).digest());
        for other in [
            windows(HOUR, &[("a", HOUR), ("b", DAY)], &[]),
            windows(DAY, &[("a", DAY), ("b", HOUR)], &[]),
            windows(DAY, &[("a", HOUR)], &[]),
            windows(DAY, &[("a", HOUR), ("c", DAY)], &[]),
        ] {
            assert_ne!(base, other.digest(), "{other:?}");
        }
    }

    #[test]
    fn a_sweep_cursor_leaves_few_behind() {
        let mut cursor = SweepCursor::default();
        cursor.pass(Seq(0), Seq(10), &[Seq(3), Seq(7)]);
        assert_eq!((cursor.upto, cursor.again(Seq(3), 9)), (Seq(10), vec![Seq(7)]));
        cursor.pass(Seq(12), Seq(20), &[]);
        assert_eq!(cursor.upto, Seq(10), "what lies between was not looked at");
        cursor.gone(&[Seq(3)]);
        let many: Vec<Seq> = (11..=1_010).map(Seq).collect();
        cursor.pass(Seq(10), Seq(1_010), &many);
        assert_eq!((cursor.upto, cursor.left.len()), (Seq(10), 1), "too many stay");
        cursor.gone(&[Seq(7)]);
        cursor.pass(Seq(10), Seq(1_010), &many);
        assert_eq!((cursor.upto, cursor.left.len()), (Seq(1_010), SweepCursor::MAX_LEFT));
    }
}
