//! Suspicion that an entry crashes its worker: one stored number, and the rules that read it.

use std::time::Duration;

/// Deaths in company from which an entry runs alone, until other suspects survive.
const ALONE: u32 = 3;
/// Maximum number of deaths in company that is stored.
const MAX_COMPANY: u32 = 10;
/// Seconds from a death in company until the next run, by the number of such deaths. The last one also stands for all above.
const WAITS: [u64; 9] = [0, 0, 0, 1, 2, 5, 10, 20, 30];

/// Suspicion that an entry crashes its worker.
///
/// | number | meaning | claimed together | wait |
/// |---|---|---|---|
/// | 0 | no worker died while it held this entry | as healthy work | |
/// | 1 | a worker died while it held this entry and others | as many as fit | |
/// | 2 | the same, a second time | 16 | |
/// | 3 to 10 | the same, so many times | 1 | 1, 2, 5, 10, 20, then 30 s |
/// | 10 + n | n workers died while they ran this entry alone | always 1 | [`crash_wait`](super::Policy::crash_wait) |
///
/// Only the last kind counts towards poisoning: a process that is killed from outside blames no entry that ran beside others.
/// After each group that its worker survived, that worker runs twice as many suspects together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suspicion(u32);

impl Suspicion {
    /// A healthy entry.
    pub const NONE: Self = Self(0);
    /// The first number that counts a death alone. No later one allows more company.
    pub const FIRST_OWN_CRASH: Self = Self(MAX_COMPANY + 1);

    /// Reads the number that a store kept.
    pub const fn from_stored(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number for a store to keep.
    pub const fn stored(self) -> u32 {
        self.0
    }

    /// Returns true if a worker died while it held the entry.
    pub const fn is_suspect(self) -> bool {
        self.0 > 0
    }

    /// Returns the maximum number of suspects with this suspicion that one claim takes. `factor` is
    /// [`ClaimParams::company_factor`](crate::store::ClaimParams::company_factor).
    pub const fn company(self, factor: usize) -> usize {
        match self.0 {
            0 | 1 => usize::MAX,
            2 => factor.saturating_mul(16),
            ALONE..=MAX_COMPANY => factor,
            _ => 1,
        }
    }

    /// Returns true if it may run beside other work. If not, a worker finishes everything else first.
    pub const fn runs_beside_others(self) -> bool {
        self.0 < 2
    }

    /// Returns the number of workers that died while they ran this entry alone.
    pub const fn own_crashes(self) -> u32 {
        self.0.saturating_sub(MAX_COMPANY)
    }

    /// Returns the wait after a death in company. The first two are free, so that work returns at once after a deploy.
    pub fn company_wait(self) -> Duration {
        let deaths = usize::try_from(self.0).unwrap_or(usize::MAX);
        Duration::from_secs(WAITS[deaths.min(WAITS.len() - 1)])
    }

    /// Returns the factor on the time that a worker runs this entry apart from healthy work. It doubles with each death in
    /// company from the third, so that an entry that kills its worker late is alone at last when it does.
    pub const fn patience(self) -> u32 {
        let deaths = if self.0 < MAX_COMPANY { self.0 } else { MAX_COMPANY };
        1 << deaths.saturating_sub(ALONE)
    }

    /// Explains the effect on the next run to an operator, as a sentence. `None` for a healthy entry.
    pub fn explained(self) -> Option<String> {
        let died = match self.0 {
            0 => return None,
            1 => "a worker died while it held this entry and others".to_owned(),
            _ if self.own_crashes() == 1 => {
                "a worker died while it ran this entry alone, and that counts".to_owned()
            }
            _ if self.own_crashes() > 1 => {
                format!(
                    "{} workers died while they ran this entry alone, and each counts",
                    self.own_crashes()
                )
            }
            times => format!("workers died {times} times or more while they held this entry and others"),
        };
        let next = match self.company(1) {
            1 if self.own_crashes() == 0 => {
                "the next worker finishes everything else first and then runs it alone, or with other suspects after some of them survived"
                    .to_owned()
            }
            1 => "the next worker finishes everything else first and then runs it alone".to_owned(),
            usize::MAX => "the next worker runs it with all others that were held with it".to_owned(),
            max => {
                format!(
                    "the next worker finishes everything else first and then runs {max} of them, and twice as many after each group that survived"
                )
            }
        };
        let counts = if self.own_crashes() == 0 { "no crash counts against it so far; " } else { "" };
        Some(format!("it is a suspect: {died}; {counts}{next}"))
    }

    /// Returns the suspicion after a worker died. `alone`: the worker held nothing else.
    #[must_use]
    pub const fn after_crash(self, alone: bool) -> Self {
        let counted = self.0 > MAX_COMPANY;
        match (alone, counted) {
            (true, false) => Self::FIRST_OWN_CRASH,
            (true, true) => Self(self.0.saturating_add(1)),
            (false, false) if self.0 < MAX_COMPANY => Self(self.0 + 1),
            // This crash does not count, and crashes alone stay counted.
            (false, _) => self,
        }
    }

    /// The suspicion after a run that its worker survived. Deaths in company were not its own; deaths alone are kept.
    #[must_use]
    pub const fn after_survival(self) -> Self {
        if self.own_crashes() == 0 { Self::NONE } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS C3: the wait grows and stays bounded, and none of it counts.
    #[test]
    fn deaths_in_company_lead_to_a_run_alone_and_to_growing_waits() {
        let mut suspicion = Suspicion::NONE;
        let waits = [0, 0, 1, 2, 5, 10, 20, 30, 30, 30, 30, 30];
        for (death, wait) in (1..).zip(waits) {
            suspicion = suspicion.after_crash(false);
            let company = [usize::MAX, 16, 1][2.min(death - 1)];
            assert_eq!((suspicion.company(1), suspicion.own_crashes()), (company, 0), "death {death}");
            assert_eq!(suspicion.company_wait(), Duration::from_secs(wait), "death {death}");
            assert!(suspicion.is_suspect());
        }
    }

    #[test]
    fn company_grows_except_for_those_that_were_alone_when_their_worker_died() {
        let company = |number| Suspicion::from_stored(number).company(8);
        assert_eq!([2, 3, 10, 11, 12, u32::MAX].map(company), [128, 8, 8, 1, 1, 1]);
        assert_eq!(company(1), usize::MAX);
        assert_eq!(Suspicion::from_stored(2).company(usize::MAX), usize::MAX);
    }

    #[test]
    fn patience_doubles_with_each_death_in_company() {
        let patience = |number| Suspicion::from_stored(number).patience();
        assert_eq!([0, 2, 3, 4, 5, 10, 11, u32::MAX].map(patience), [1, 1, 1, 2, 4, 128, 128, 128]);
    }

    #[test]
    fn deaths_alone_are_counted_and_kept() {
        for before in [0, 1, 2, 3, 10] {
            let once = Suspicion::from_stored(before).after_crash(true);
            assert_eq!((once.own_crashes(), once.company(1)), (1, 1));
            assert_eq!(once.after_crash(false), once, "company is not blamed, nor does it clear");
            assert_eq!(once.company_wait(), Duration::from_secs(30));
            assert_eq!(once.after_crash(true).own_crashes(), 2);
        }
        let max = Suspicion::from_stored(u32::MAX);
        assert_eq!(max.after_crash(true), max);
    }

    #[test]
    fn a_survived_run_clears_deaths_in_company_alone() {
        for (before, after) in [(0, 0), (1, 0), (2, 0), (3, 0), (10, 0), (11, 11), (12, 12)] {
            assert_eq!(Suspicion::from_stored(before).after_survival().stored(), after);
        }
    }

    #[test]
    fn each_level_says_how_it_goes_on() {
        let text = |number| Suspicion::from_stored(number).explained();
        assert_eq!(text(0), None);
        for (number, parts) in [
            (1, ["a worker died", "no crash counts", "with all others"]),
            (2, ["died 2 times", "no crash counts", "runs 16 of them, and twice as many"]),
            (3, ["died 3 times", "no crash counts", "runs it alone, or with other suspects"]),
            (10, ["died 10 times", "no crash counts", "runs it alone, or with other suspects"]),
            (11, ["a worker died", "that counts", "runs it alone"]),
            (12, ["2 workers died", "each counts", "runs it alone"]),
        ] {
            let text = text(number).unwrap();
            assert!(
                text.starts_with("it is a suspect: ") && parts.iter().all(|part| text.contains(part)),
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_first_level_runs_beside_others() {
        let beside = |number| Suspicion::from_stored(number).runs_beside_others();
        assert!(beside(0) && beside(1));
        assert!(!beside(2) && !beside(3) && !beside(11));
    }
}
