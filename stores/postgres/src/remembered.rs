//! Commits that the database acknowledged to this process, to find the lost ones after a failover. Tests: below, `tests/failover.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::{HandlerKey, Key};

/// Maximum number of commits with their names: about 10 MB. Older ones are only counted.
const REMEMBERED: usize = 65_536;
/// Maximum age of a remembered commit. Retention may have deleted older ones, and an operator should not promote a
/// replica that lags further behind.
const RECENTLY: Duration = Duration::from_mins(5);
/// Precision of the times of commits that are only counted.
const PRECISION: Duration = Duration::from_secs(1);

/// A commit that the database acknowledged.
#[derive(Clone)]
pub(crate) struct Acknowledged {
    /// Inbox of a message.
    pub(crate) inbox: Option<i16>,
    pub(crate) lane: i16,
    pub(crate) key: Key,
    pub(crate) what: Acknowledgement,
    pub(crate) at: Instant,
}

/// Kind of an acknowledged commit.
#[derive(Clone)]
pub(crate) enum Acknowledgement {
    /// A message, with the source and id that an operator and the sender know it by.
    Message(Arc<(Box<str>, Box<[u8]>)>),
    /// Mark of an inline handler.
    Mark(HandlerKey),
}

impl Acknowledged {
    pub(crate) fn handler(&self) -> Option<String> {
        match &self.what {
            Acknowledgement::Message(_) => None,
            Acknowledgement::Mark(handler) => Some(handler.as_str().to_owned()),
        }
    }

    /// Returns the source and id of a message.
    pub(crate) fn name(&self) -> Option<(&str, &[u8])> {
        match &self.what {
            Acknowledgement::Message(name) => Some((&name.0, &name.1)),
            Acknowledgement::Mark(_) => None,
        }
    }
}

/// Recent acknowledged commits, the oldest first.
#[derive(Default)]
pub(crate) struct Remembered {
    named: VecDeque<Acknowledged>,
    /// Recent commits beyond the limit, by second: the time of the first, and their number.
    unnamed: VecDeque<(Instant, u64)>,
}

impl Remembered {
    /// Adds commits.
    pub(crate) fn add(&mut self, commits: impl Iterator<Item = Acknowledged>, now: Instant) {
        self.named.extend(commits);
        self.drop_old(now);
        while self.named.len() > REMEMBERED {
            let Some(Acknowledged { at, .. }) = self.named.pop_front() else { return };
            match self.unnamed.back_mut() {
                Some((first, count)) if at.saturating_duration_since(*first) < PRECISION => *count += 1,
                _ => self.unnamed.push_back((at, 1)),
            }
        }
    }

    /// Returns the recent commits, and the number of older ones that are only counted, with the time of the first.
    pub(crate) fn recent(&mut self, now: Instant) -> (Vec<Acknowledged>, Option<(u64, Instant)>) {
        self.drop_old(now);
        let unnamed = self
            .unnamed
            .front()
            .map(|(first, _)| (self.unnamed.iter().map(|(_, count)| count).sum(), *first));
        (self.named.iter().cloned().collect(), unnamed)
    }

    /// Removes the commits acknowledged until `time`, inclusive.
    pub(crate) fn forget_until(&mut self, time: Instant) {
        self.named.retain(|one| one.at > time);
        self.unnamed.retain(|(first, _)| *first > time);
    }

    fn drop_old(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= RECENTLY;
        while self.named.front().is_some_and(|one| is_old(one.at)) {
            self.named.pop_front();
        }
        while self.unnamed.front().is_some_and(|(first, _)| is_old(*first)) {
            self.unnamed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits(count: usize, at: Instant) -> impl Iterator<Item = Acknowledged> {
        let key = Key::from_bytes([7; 32]);
        let what = Acknowledgement::Message(Arc::new(("".into(), Box::default())));
        (0..count).map(move |_| Acknowledged { inbox: Some(1), lane: 0, key, what: what.clone(), at })
    }

    #[test]
    fn what_does_not_fit_is_counted_and_what_is_old_is_not() {
        let (mut memory, start) = (Remembered::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        memory.add(commits(REMEMBERED, start), start);
        assert_eq!((memory.recent(start).0.len(), memory.recent(start).1), (REMEMBERED, None));
        memory.add(commits(100, after(10)), after(10));
        memory.add(commits(REMEMBERED, after(20)), after(20));
        let (named, unnamed) = memory.recent(after(20));
        assert_eq!((named.len(), unnamed), (REMEMBERED, Some((REMEMBERED as u64 + 100, start))));
        assert_eq!(
            memory.recent(after(300)).1,
            Some((100, after(10))),
            "the first ones are five minutes old"
        );
        assert_eq!((memory.recent(after(320)).0.len(), memory.recent(after(320)).1), (0, None));
    }

    #[test]
    fn a_failover_leaves_what_came_after_it() {
        let (mut memory, start) = (Remembered::default(), Instant::now());
        let later = start + Duration::from_secs(2);
        memory.add(commits(REMEMBERED + 5, start), start);
        memory.add(commits(3, later), later);
        memory.forget_until(start);
        assert_eq!((memory.recent(later).0.len(), memory.recent(later).1), (3, None));
    }
}
