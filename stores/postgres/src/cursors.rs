//! Where claims look from. Without it every claim would pass all rows that are gone but not yet removed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A handler in a lane.
pub(crate) type Place = (i16, i16);

/// How long claims that find all they ask for look only behind what was claimed last. What came in late before it waits no longer.
const LOOK_BACK: Duration = Duration::from_secs(1);
/// Looking at everything may take this part of the time, when rows that are gone cannot be removed yet.
const LOOK_BACK_SHARE: u32 = 20;
/// Whoever finds nothing looks at everything before it says so, unless that has taken longer.
const BEFORE_NOTHING: Duration = Duration::from_millis(250);
/// As long as fewer were claimed in a place there is little to pass, and it may always be looked at from its start.
const FEW: u64 = 5_000;
/// What is committed late, or was passed because another one was due before it, was mostly begun less than this ago.
const RECENT: Duration = Duration::from_millis(250);

/// From which number on each place has untouched work, as far as this process knows.
#[derive(Default)]
pub(crate) struct Cursors {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    places: HashMap<Place, Cursor>,
    /// When the cursors were last noted as recent.
    noted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Behind what was claimed last.
    next: i64,
    /// Where that was, the last two times that it was noted.
    recent: [i64; 2],
    /// Whether the last claim found less than it asked for.
    short: bool,
    claimed: u64,
    /// When it was last looked at from its start, and how long that took.
    looked_back: Option<(Instant, Duration)>,
    /// How often work came in before what was claimed: a claim that was on its way meanwhile knows nothing of it.
    backs: u64,
}

/// Where a claim looks from in a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) least: i64,
    backs: u64,
}

/// What a claim looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// For as many as there are.
    Many,
    /// For the oldest: some that lie before what was claimed may have been left.
    Oldest,
    /// From the start.
    All,
}

/// Whether a claim that found less than it asked for looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It has seen what there is.
    No,
    /// After this time: it may have passed something, but to look at everything now would take too much of the time.
    After(Duration),
    /// At what it may have passed just now.
    Recent,
    /// At everything.
    All,
}

impl Cursor {
    /// How long it is until it may be looked at from its start.
    fn rest(&self) -> Duration {
        match self.looked_back {
            Some((at, took)) if self.claimed >= FEW => (took * LOOK_BACK_SHARE).saturating_sub(at.elapsed()),
            _ => Duration::ZERO,
        }
    }

    fn start(&self, extent: Extent) -> i64 {
        let must =
            self.looked_back.is_none_or(|(at, took)| at.elapsed() >= LOOK_BACK.max(took * LOOK_BACK_SHARE));
        match extent {
            _ if must || self.short && self.rest().is_zero() => 0,
            Extent::All => 0,
            Extent::Many if !self.short => self.next,
            Extent::Many | Extent::Oldest => self.recent[0],
        }
    }
}

impl Cursors {
    /// Where to look from in each place.
    pub(crate) fn starts(&self, places: impl Iterator<Item = Place>, extent: Extent) -> Vec<Start> {
        let mut known = self.known.lock();
        let now = Instant::now();
        if known.noted.is_none_or(|at| now >= at + RECENT) {
            known.noted = Some(now);
            for cursor in known.places.values_mut() {
                cursor.recent = [cursor.recent[1], cursor.next];
            }
        }
        let start = |place| {
            let cursor = known.places.get(&place).copied().unwrap_or_default();
            Start { least: cursor.start(extent), backs: cursor.backs }
        };
        places.map(start).collect()
    }

    /// It was looked at a place from its start, which took so long.
    pub(crate) fn looked_back(&self, place: Place, took: Duration) {
        self.known.lock().places.entry(place).or_default().looked_back = Some((Instant::now(), took));
    }

    /// Of so many that a claim found in a place, this was the last.
    pub(crate) fn advance(&self, place: Place, start: Start, count: u64, last: i64) {
        if count == 0 {
            return;
        }
        let mut known = self.known.lock();
        let cursor = known.places.entry(place).or_default();
        cursor.claimed = cursor.claimed.saturating_add(count);
        if cursor.backs == start.backs {
            cursor.next = cursor.next.max(last.saturating_add(1));
        }
    }

    /// There is work from this number on.
    pub(crate) fn step_back(&self, place: Place, seq: i64) {
        let mut known = self.known.lock();
        let cursor = known.places.entry(place).or_default();
        cursor.backs += 1;
        cursor.next = cursor.next.min(seq);
        cursor.recent = cursor.recent.map(|recent| recent.min(seq));
    }

    /// A claim has found all that it asked for.
    pub(crate) fn found_all(&self, place: Place) {
        self.known.lock().places.entry(place).or_default().short = false;
    }

    /// A claim has found less than it asked for in a place, or `nothing` at all in any place.
    pub(crate) fn found_less(&self, place: Place, start: Start, nothing: bool) -> Again {
        let mut known = self.known.lock();
        let cursor = known.places.entry(place).or_default();
        cursor.short = true;
        let rest = cursor.rest();
        let quick = cursor.looked_back.is_none_or(|(_, took)| took < BEFORE_NOTHING);
        if start.least == 0 {
            Again::No
        } else if rest.is_zero() || nothing && quick {
            Again::All
        } else if start.least > cursor.recent[0] {
            Again::Recent
        } else {
            Again::After(rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = (1, 2);
    const SLOW: Duration = Duration::from_hours(1);

    fn start(cursors: &Cursors, extent: Extent) -> Start {
        cursors.starts([PLACE].into_iter(), extent)[0]
    }

    /// One that has passed many, and where it takes an hour to look at everything.
    fn after_many() -> Cursors {
        let cursors = Cursors::default();
        let first = start(&cursors, Extent::Many);
        assert_eq!(first.least, 0);
        cursors.looked_back(PLACE, SLOW);
        cursors.advance(PLACE, first, FEW, 99);
        cursors.found_all(PLACE);
        cursors
    }

    /// As if the time for which a cursor counts as recent had passed.
    fn pass_time(cursors: &Cursors) {
        cursors.known.lock().noted = None;
        start(cursors, Extent::Many);
    }

    #[test]
    fn a_step_back_during_a_claim_is_not_lost() {
        for known in [false, true] {
            let cursors = Cursors::default();
            cursors.looked_back(PLACE, Duration::ZERO);
            if known {
                let before = start(&cursors, Extent::Many);
                cursors.advance(PLACE, before, 1, 5);
            }
            let before = start(&cursors, Extent::Many);
            cursors.step_back(PLACE, 3);
            cursors.advance(PLACE, before, 1, 9);
            let after = start(&cursors, Extent::Many);
            assert!(after.least <= 3, "{after:?}");
            cursors.advance(PLACE, after, 1, 9);
            assert_eq!(start(&cursors, Extent::Many).least, 10);
        }
    }

    #[test]
    fn a_claim_that_finds_less_looks_at_what_it_may_have_passed() {
        let cursors = after_many();
        let from_cursor = start(&cursors, Extent::Many);
        assert_eq!(from_cursor.least, 100);
        assert_eq!(cursors.found_less(PLACE, from_cursor, false), Again::Recent);
        assert_eq!(start(&cursors, Extent::Many).least, 0, "nothing was noted yet");
        for _ in 0..2 {
            pass_time(&cursors);
        }
        let recent = start(&cursors, Extent::Many);
        assert_eq!(recent.least, 100);
        cursors.advance(PLACE, recent, 1, 199);
        assert_eq!(start(&cursors, Extent::Many).least, 100, "not past what may come late");
        assert_eq!(start(&cursors, Extent::Oldest).least, 100);
        let Again::After(rest) = cursors.found_less(PLACE, recent, false) else {
            panic!("it has passed nothing of late")
        };
        assert!(rest > SLOW, "{rest:?}");
        cursors.step_back(PLACE, 7);
        assert_eq!(start(&cursors, Extent::Many).least, 7);
        cursors.found_all(PLACE);
        assert_eq!(start(&cursors, Extent::Oldest).least, 7);
    }

    #[test]
    fn nobody_says_nothing_without_having_looked_at_everything() {
        let cursors = after_many();
        let from_cursor = start(&cursors, Extent::Many);
        assert_ne!(cursors.found_less(PLACE, from_cursor, true), Again::All, "that would take an hour");
        cursors.looked_back(PLACE, BEFORE_NOTHING / 2);
        assert_eq!(cursors.found_less(PLACE, from_cursor, true), Again::All);
        let all = start(&cursors, Extent::All);
        assert_eq!((all.least, cursors.found_less(PLACE, all, true)), (0, Again::No));
    }

    #[test]
    fn where_little_was_claimed_everything_is_looked_at() {
        let cursors = Cursors::default();
        let first = start(&cursors, Extent::Many);
        cursors.looked_back(PLACE, SLOW);
        cursors.advance(PLACE, first, FEW - 1, 99);
        cursors.found_all(PLACE);
        let from_cursor = start(&cursors, Extent::Many);
        assert_eq!(from_cursor.least, 100);
        assert_eq!(cursors.found_less(PLACE, from_cursor, false), Again::All);
        assert_eq!(start(&cursors, Extent::Many).least, 0);
    }

    #[test]
    fn claims_that_find_all_look_back_now_and_then() {
        let cursors = after_many();
        cursors.looked_back(PLACE, Duration::ZERO);
        assert_eq!(start(&cursors, Extent::Many).least, 100);
        let long_ago = Instant::now().checked_sub(LOOK_BACK).expect("the machine is up for longer");
        cursors.known.lock().places.entry(PLACE).or_default().looked_back = Some((long_ago, Duration::ZERO));
        assert_eq!(start(&cursors, Extent::Many).least, 0);
    }
}
