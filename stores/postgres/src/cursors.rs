//! Scan positions of claims. Without them, every claim would scan over all deleted rows that vacuum has not removed.
//! Tests: below.

use std::collections::HashMap;
use std::mem;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A handler in a lane.
pub(crate) type LaneHandler = (i16, i16);

/// Maximum time for which full claims scan only behind the last claimed entry. Late entries before it wait no longer.
const LOOK_BACK: Duration = Duration::from_secs(1);
/// Share of the time for full scans, one part in this many, while vacuum cannot remove deleted rows.
const LOOK_BACK_SHARE: u32 = 20;
/// Share of the time for full scans of claims that would otherwise return empty, one part in this many.
const SHARE_OF_NOTHING: u32 = 4;
/// Maximum wait of late entries, also if a scan takes long.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// Below this count of claimed entries, a scan passes few deleted rows.
const MIN_CLAIMED: u64 = 5_000;
/// Scan time from which deleted rows count anyway, because other processes claimed there.
const SLOW: Duration = Duration::from_millis(250);
/// Age limit of most transactions that commit late, and of most entries passed because another was due earlier.
const RECENT: Duration = Duration::from_millis(250);

/// Per lane and handler: the sequence number from which work is untouched, as far as this process knows.
#[derive(Default)]
pub(crate) struct Cursors {
    known: Mutex<KnownCursors>,
}

#[derive(Default)]
struct KnownCursors {
    places: HashMap<LaneHandler, ClaimCursor>,
    /// Time of the last update of `recent` in all cursors.
    noted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClaimCursor {
    /// Position after the last claimed entry.
    next: i64,
    /// The last two recorded values of `next`.
    recent: [i64; 2],
    /// True if the last claim found less than its limit.
    short: bool,
    /// True if the last claim found almost nothing.
    few: bool,
    claimed: u64,
    /// Time and duration of the last scan from the start.
    looked_back: Option<(Instant, Duration)>,
    /// Number of times that work arrived before the cursor. A concurrent claim does not know of it.
    backs: u64,
}

/// Start of a claim's scan of one lane and handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanStart {
    pub(crate) least: i64,
    backs: u64,
}

/// Range that a claim scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanExtent {
    /// A claim of as many entries as there are.
    Many,
    /// A claim of the oldest entries. Some before the last claimed entry may have been left.
    Oldest,
    /// From the start.
    All,
}

/// Rule for a second scan after a claim that found less than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RescanRule {
    /// The claim has seen all entries.
    No,
    /// After this time: the claim may have passed entries, but a full scan now would exceed the share of time for such
    /// scans.
    After(Duration),
    /// Scan entries that the claim may have passed just now.
    Recent,
    /// Scan from the start.
    All,
}

/// Findings of a claim for one lane and handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneFindings {
    /// Count of entries that were never leased, and the greatest sequence number of them.
    pub(crate) untouched: u64,
    pub(crate) last: i64,
    /// True if the claim found almost nothing in any lane.
    pub(crate) few: bool,
    pub(crate) rest: Remainder,
}

/// Position of entries that a claim may have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remainder {
    /// More entries may follow: the claim reached its limit, here or elsewhere.
    Behind,
    /// Only entries that the claim passed.
    Passed,
    /// Only passed entries, and the claim found nothing in any place.
    PassedByAll,
}

impl ClaimCursor {
    /// Time until the next scan from the start, if such scans may take one part in `share` of the time.
    fn rest(&self, share: u32) -> Duration {
        match self.looked_back {
            Some((at, took)) if self.claimed >= MIN_CLAIMED || took >= SLOW => {
                (took * share).min(LONGEST_REST).saturating_sub(at.elapsed())
            }
            _ => Duration::ZERO,
        }
    }

    fn start(&self, extent: ScanExtent) -> i64 {
        let pause = |took: Duration| LOOK_BACK.max((took * LOOK_BACK_SHARE).min(LONGEST_REST));
        let must = self.looked_back.is_none_or(|(at, took)| at.elapsed() >= pause(took));
        match extent {
            _ if must || self.short && self.rest(LOOK_BACK_SHARE).is_zero() => 0,
            ScanExtent::All => 0,
            ScanExtent::Many if !self.short => self.next,
            ScanExtent::Many | ScanExtent::Oldest => self.recent[0],
        }
    }

    /// Sets the position after which claims continue.
    fn go_on(&mut self, next: i64) {
        self.next = next;
        self.recent = self.recent.map(|recent| recent.min(next));
    }
}

impl Cursors {
    /// Returns the position where the scan of each place starts.
    pub(crate) fn starts(&self, places: impl Iterator<Item = (LaneHandler, ScanExtent)>) -> Vec<ScanStart> {
        let mut known = self.known.lock();
        let now = Instant::now();
        if known.noted.is_none_or(|at| now >= at + RECENT) {
            known.noted = Some(now);
            for cursor in known.places.values_mut() {
                cursor.recent = [cursor.recent[1], cursor.next];
            }
        }
        let start = |(place, extent)| {
            let cursor = known.places.get(&place).copied().unwrap_or_default();
            ScanStart { least: cursor.start(extent), backs: cursor.backs }
        };
        places.map(start).collect()
    }

    /// Records a scan of a place from its start, and its duration.
    pub(crate) fn looked_back(&self, place: LaneHandler, took: Duration) {
        self.known.lock().places.entry(place).or_default().looked_back = Some((Instant::now(), took));
    }

    /// Returns true if the last claims found almost nothing in all of these places. Returns it once, until a claim updates
    /// it: a caller that relied on it and failed must not do so again.
    pub(crate) fn take_few(&self, mut places: impl Iterator<Item = LaneHandler>) -> bool {
        let mut known = self.known.lock();
        places.all(|place| known.places.get_mut(&place).is_some_and(|cursor| mem::take(&mut cursor.few)))
    }

    /// Resets all cursors: numbers may have gone back with the history of the database.
    pub(crate) fn forget(&self) {
        for cursor in self.known.lock().places.values_mut() {
            *cursor = ClaimCursor { backs: cursor.backs + 1, ..ClaimCursor::default() };
        }
    }

    /// Moves the cursor back: there is work from this number on.
    pub(crate) fn rewind(&self, place: LaneHandler, seq: i64) {
        let mut known = self.known.lock();
        let cursor = known.places.entry(place).or_default();
        cursor.backs += 1;
        cursor.go_on(cursor.next.min(seq));
    }

    /// Records the findings of a claim for a place. Returns the rule for a second scan.
    pub(crate) fn found(&self, place: LaneHandler, start: ScanStart, found: LaneFindings) -> RescanRule {
        let mut known = self.known.lock();
        let cursor = known.places.entry(place).or_default();
        cursor.claimed = cursor.claimed.saturating_add(found.untouched);
        if found.untouched > 0 && cursor.backs == start.backs {
            let next = found.last.saturating_add(1);
            // After a scan from the start, there may be more late entries before the last claimed one.
            cursor.go_on(if found.rest == Remainder::Behind { next } else { next.max(cursor.next) });
        }
        cursor.short = found.rest != Remainder::Behind;
        cursor.few = found.few;
        let rest = cursor.rest(LOOK_BACK_SHARE);
        if start.least == 0 || !cursor.short {
            RescanRule::No
        } else if rest.is_zero()
            || found.rest == Remainder::PassedByAll && cursor.rest(SHARE_OF_NOTHING).is_zero()
        {
            RescanRule::All
        } else if start.least > cursor.recent[0] {
            RescanRule::Recent
        } else {
            RescanRule::After(rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: LaneHandler = (1, 2);
    const HOUR: Duration = Duration::from_hours(1);

    fn start(cursors: &Cursors, extent: ScanExtent) -> ScanStart {
        cursors.starts([(PLACE, extent)].into_iter())[0]
    }

    fn least(cursors: &Cursors, extent: ScanExtent) -> i64 {
        start(cursors, extent).least
    }

    fn found(untouched: u64, last: i64, rest: Remainder) -> LaneFindings {
        LaneFindings { untouched, last, few: untouched < 9, rest }
    }

    const NOTHING: LaneFindings =
        LaneFindings { untouched: 0, last: 0, few: true, rest: Remainder::PassedByAll };
    const NO_MORE: LaneFindings = LaneFindings { untouched: 0, last: 0, few: true, rest: Remainder::Passed };

    /// Returns cursors that have passed many entries, up to 99. A full scan of the place takes an hour.
    fn after_many() -> Cursors {
        let cursors = Cursors::default();
        let first = start(&cursors, ScanExtent::Many);
        assert_eq!(first.least, 0);
        cursors.looked_back(PLACE, HOUR);
        cursors.found(PLACE, first, found(MIN_CLAIMED, 99, Remainder::Behind));
        cursors
    }

    /// Acts as if the time for which a cursor counts as recent had passed.
    fn pass_time(cursors: &Cursors) {
        for _ in 0..2 {
            cursors.known.lock().noted = None;
            start(cursors, ScanExtent::Many);
        }
    }

    fn looked_back_before(cursors: &Cursors, ago: Duration, took: Duration) {
        let at = Instant::now().checked_sub(ago).expect("the machine is up for longer");
        cursors.known.lock().places.entry(PLACE).or_default().looked_back = Some((at, took));
    }

    #[test]
    fn a_rewind_during_a_claim_is_not_lost() {
        for known in [false, true] {
            let cursors = Cursors::default();
            cursors.looked_back(PLACE, Duration::ZERO);
            if known {
                cursors.found(PLACE, start(&cursors, ScanExtent::Many), found(1, 5, Remainder::Behind));
            }
            let before = start(&cursors, ScanExtent::Many);
            cursors.rewind(PLACE, 3);
            cursors.found(PLACE, before, found(1, 9, Remainder::Behind));
            let after = start(&cursors, ScanExtent::Many);
            assert!(after.least <= 3, "{after:?}");
            cursors.found(PLACE, after, found(1, 9, Remainder::Behind));
            assert_eq!(least(&cursors, ScanExtent::Many), 10);
        }
    }

    // FAULTS E15: while a snapshot is held open, claims seldom scan over deleted rows.
    #[test]
    fn a_claim_that_finds_less_looks_at_what_it_may_have_passed() {
        let cursors = after_many();
        let from_cursor = start(&cursors, ScanExtent::Many);
        assert_eq!(from_cursor.least, 100);
        assert_eq!(cursors.found(PLACE, from_cursor, NO_MORE), RescanRule::Recent);
        assert_eq!(least(&cursors, ScanExtent::Many), 0, "nothing was noted yet");
        pass_time(&cursors);
        let recent = start(&cursors, ScanExtent::Many);
        assert_eq!(recent.least, 100);
        let RescanRule::After(rest) = cursors.found(PLACE, recent, found(1, 199, Remainder::Passed)) else {
            panic!("it has passed nothing of late")
        };
        assert!(!rest.is_zero() && rest <= LONGEST_REST, "{rest:?}");
        assert_eq!(least(&cursors, ScanExtent::Many), 100, "not past what may come late");
        assert_eq!(least(&cursors, ScanExtent::Oldest), 100);
        cursors.rewind(PLACE, 7);
        assert_eq!(least(&cursors, ScanExtent::Many), 7);
        cursors.found(PLACE, start(&cursors, ScanExtent::Many), found(1, 7, Remainder::Behind));
        assert_eq!(least(&cursors, ScanExtent::Many), 8);
        assert_eq!(least(&cursors, ScanExtent::Oldest), 7);
    }

    // FAULTS B13
    #[test]
    fn what_a_look_back_finds_is_gone_on_with() {
        let cursors = after_many();
        pass_time(&cursors);
        for extent in [ScanExtent::Many, ScanExtent::Oldest] {
            let all = start(&cursors, ScanExtent::All);
            assert_eq!(cursors.found(PLACE, all, found(3, 12, Remainder::Behind)), RescanRule::No);
            assert!(least(&cursors, extent) <= 13, "there may be more of them behind it");
        }
    }

    #[test]
    fn no_claim_returns_empty_without_a_full_scan() {
        let cursors = after_many();
        let from_cursor = start(&cursors, ScanExtent::Many);
        assert_ne!(cursors.found(PLACE, from_cursor, NOTHING), RescanRule::All, "that would take an hour");
        let took = Duration::from_millis(100);
        looked_back_before(&cursors, took * SHARE_OF_NOTHING, took);
        assert_ne!(cursors.found(PLACE, from_cursor, NO_MORE), RescanRule::All);
        assert_eq!(cursors.found(PLACE, from_cursor, NOTHING), RescanRule::All);
        let all = start(&cursors, ScanExtent::All);
        assert_eq!((all.least, cursors.found(PLACE, all, NOTHING)), (0, RescanRule::No));
    }

    #[test]
    fn where_little_was_claimed_everything_is_looked_at() {
        let cursors = Cursors::default();
        let first = start(&cursors, ScanExtent::Many);
        cursors.looked_back(PLACE, SLOW / 2);
        cursors.found(PLACE, first, found(MIN_CLAIMED - 1, 99, Remainder::Behind));
        let from_cursor = start(&cursors, ScanExtent::Many);
        assert_eq!(from_cursor.least, 100);
        assert_eq!(cursors.found(PLACE, from_cursor, NO_MORE), RescanRule::All);
        assert_eq!(least(&cursors, ScanExtent::Many), 0);
        cursors.looked_back(PLACE, SLOW);
        assert_ne!(cursors.found(PLACE, from_cursor, NO_MORE), RescanRule::All, "others have claimed there");
    }

    #[test]
    fn a_claim_that_expected_a_few_reports_what_it_found() {
        let (cursors, other) = (Cursors::default(), (2, 2));
        let claimed = |place, found| cursors.found(place, start(&cursors, ScanExtent::Many), found);
        let few = |places: &[LaneHandler]| cursors.take_few(places.iter().copied());
        assert!(!few(&[PLACE]), "nothing is known");
        claimed(PLACE, NOTHING);
        assert!(!few(&[PLACE, other]));
        claimed(PLACE, NOTHING);
        claimed(other, found(8, 9, Remainder::Passed));
        assert!(few(&[PLACE, other]));
        assert!(!few(&[PLACE, other]), "it did not say what it was");
        claimed(PLACE, NOTHING);
        claimed(other, found(9, 19, Remainder::Passed));
        assert!(!few(&[PLACE, other]));
    }

    #[test]
    fn claims_that_find_all_look_back_now_and_then() {
        let cursors = after_many();
        for (took, pause) in [(Duration::ZERO, LOOK_BACK), (HOUR, LONGEST_REST)] {
            looked_back_before(&cursors, pause / 2, took);
            assert_eq!(least(&cursors, ScanExtent::Many), 100);
            looked_back_before(&cursors, pause, took);
            assert_eq!(least(&cursors, ScanExtent::Many), 0);
        }
    }
}
