//! Suspicion that an entry crashes its worker: one stored number, and the rules that read it.

/// The level from which an entry runs alone.
const ALONE: u32 = 3;

/// Suspicion that an entry crashes its worker.
///
/// | number | meaning | claimed together |
/// |---|---|---|
/// | 0 | no worker died while it held this entry | as healthy work |
/// | 1 | a worker died while it held this entry and others | as many as fit |
/// | 2 | the same, a second time | at most 16 |
/// | 3 | the same, a third time | 1 |
/// | 3 + n | n workers died while they ran this entry alone | 1 |
///
/// Only the last kind counts towards poisoning: a process that is killed from outside blames no entry that ran beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suspicion(u32);

impl Suspicion {
    /// A healthy entry.
    pub const NONE: Self = Self(0);

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

    /// Returns the level, 0 to 3. Suspects of one level are claimed together.
    pub const fn level(self) -> u32 {
        if self.0 < ALONE { self.0 } else { ALONE }
    }

    /// Returns the maximum number of suspects of this level that one claim takes.
    pub const fn company(self) -> usize {
        match self.level() {
            0 | 1 => usize::MAX,
            2 => 16,
            _ => 1,
        }
    }

    /// Returns true if it may run beside other work. If not, a worker finishes everything else first.
    pub const fn runs_beside_others(self) -> bool {
        self.0 < 2
    }

    /// Returns the number of workers that died while they ran this entry alone.
    pub const fn own_crashes(self) -> u32 {
        self.0.saturating_sub(ALONE)
    }

    /// Explains the effect on the next run to an operator, as a sentence. `None` for a healthy entry.
    pub fn explained(self) -> Option<String> {
        let died = match self.0 {
            0 => return None,
            1 => "a worker died while it held this entry and others".to_owned(),
            ALONE.. if self.own_crashes() == 1 => {
                "a worker died while it ran this entry alone, and that counts".to_owned()
            }
            ALONE.. if self.own_crashes() > 1 => {
                format!(
                    "{} workers died while they ran this entry alone, and each counts",
                    self.own_crashes()
                )
            }
            times => format!("workers died {times} times or more while they held this entry and others"),
        };
        let next = match self.company() {
            1 => "the next worker finishes everything else first and then runs it alone".to_owned(),
            usize::MAX => "the next worker runs it with all others that were held with it".to_owned(),
            max => {
                format!("the next worker finishes everything else first and then runs at most {max} of them")
            }
        };
        let counts = if self.own_crashes() == 0 { "no crash counts against it so far; " } else { "" };
        Some(format!("it is a suspect: {died}; {counts}{next}"))
    }

    /// Returns the suspicion after a worker died. `alone`: the worker held nothing else.
    #[must_use]
    pub const fn after_crash(self, alone: bool) -> Self {
        match (alone, self.0 < ALONE) {
            (true, true) => Self(ALONE + 1),
            (false, true) => Self(self.0 + 1),
            (true, false) => Self(self.0.saturating_add(1)),
            // This crash does not count, and crashes alone stay counted.
            (false, false) => self,
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

    #[test]
    fn deaths_in_company_lead_to_a_run_alone_and_never_further() {
        let mut suspicion = Suspicion::NONE;
        for (level, company) in [(1, usize::MAX), (2, 16), (3, 1), (3, 1), (3, 1)] {
            suspicion = suspicion.after_crash(false);
            assert_eq!((suspicion.level(), suspicion.company()), (level, company));
            assert_eq!(suspicion.own_crashes(), 0);
            assert!(suspicion.is_suspect());
        }
    }

    #[test]
    fn deaths_alone_are_counted_and_kept() {
        for before in [0, 1, 2, 3] {
            let once = Suspicion::from_stored(before).after_crash(true);
            assert_eq!((once.own_crashes(), once.company()), (1, 1));
            assert_eq!(once.after_crash(false), once, "company is not blamed, nor does it clear");
            assert_eq!(once.after_crash(true).own_crashes(), 2);
        }
        let max = Suspicion::from_stored(u32::MAX);
        assert_eq!(max.after_crash(true), max);
    }

    #[test]
    fn a_survived_run_clears_deaths_in_company_alone() {
        for (before, after) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 4), (5, 5)] {
            assert_eq!(Suspicion::from_stored(before).after_survival().stored(), after);
        }
    }

    #[test]
    fn each_level_says_how_it_goes_on() {
        let text = |number| Suspicion::from_stored(number).explained();
        assert_eq!(text(0), None);
        for (number, parts) in [
            (1, ["a worker died", "no crash counts", "with all others"]),
            (2, ["died 2 times", "no crash counts", "at most 16"]),
            (3, ["died 3 times", "no crash counts", "runs it alone"]),
            (4, ["a worker died", "that counts", "runs it alone"]),
            (5, ["2 workers died", "each counts", "runs it alone"]),
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
        assert!(!beside(2) && !beside(3) && !beside(4));
    }
}
