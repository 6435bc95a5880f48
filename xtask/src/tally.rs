//! Counts the test results of `cargo test` while streaming its output. Tests: below.

use std::fmt;

use crate::stores::{TIERS, TierCounts};

/// The sum of all `test result:` lines seen so far.
#[derive(Debug, Default)]
pub(crate) struct TestTotals {
    pub(crate) suites: u64,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Passed cases of the suites of stores.
    pub(crate) cases: TierCounts,
    /// Package of the running test program.
    package: String,
    /// The incomplete last line.
    line: Vec<u8>,
}

impl TestTotals {
    /// Reads the next piece of output; lines may be split anywhere.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.line(&String::from_utf8_lossy(&line));
            } else {
                self.line.push(byte);
            }
        }
    }

    /// Adds another count.
    pub(crate) fn add(&mut self, other: &Self) {
        self.suites += other.suites;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        for (suite, cases) in &other.cases {
            *self.cases.entry(suite.clone()).or_default() += cases;
        }
    }

    /// Counts a passed test such as `conformance::store::accept::sequences_grow`.
    fn case(&mut self, test: &str) {
        let [module, tier, group, _] = test.split("::").collect::<Vec<_>>()[..] else { return };
        if TIERS.contains(&tier) && group != "tests" {
            *self.cases.entry((self.package.clone(), module.into(), tier.into())).or_default() += 1;
        }
    }

    /// Parses a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in
    /// 0.00s`.
    fn line(&mut self, line: &str) {
        if let Some(package) = line.strip_prefix("package ") {
            package.clone_into(&mut self.package);
        }
        let passed = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ok"));
        // The second form is that of `--list`.
        if let Some(test) = passed.or_else(|| line.strip_suffix(": test")) {
            self.case(test);
        }
        let Some(result) = line.trim().strip_prefix("test result: ") else { return };
        self.suites += 1;
        let counts = result.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            let Some((count, what)) = part.split_once(' ') else { continue };
            let count = count.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

impl fmt::Display for TestTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 2 tests
test a ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

test result: FAILED. 3 passed; 1 failed; 4 ignored; 0 measured; 5 filtered out; finished in 1.20s
";

    #[test]
    fn adds_up_wherever_the_output_is_cut() {
        for size in [1, 7, OUTPUT.len()] {
            let mut tally = TestTotals::default();
            for piece in OUTPUT.as_bytes().chunks(size) {
                tally.feed(piece);
            }
            assert_eq!(tally.to_string(), "5 passed, 1 failed");
            assert_eq!((tally.suites, tally.ignored), (2, 4));
        }
    }

    #[test]
    fn two_runs_are_added() {
        let mut total = TestTotals::default();
        for _ in 0..2 {
            let mut tally = TestTotals::default();
            tally.feed(OUTPUT.as_bytes());
            total.add(&tally);
        }
        assert_eq!((total.suites, total.passed, total.failed, total.ignored), (4, 10, 2, 8));
    }

    #[test]
    fn passed_cases_are_counted_by_package_suite_and_tier() {
        let mut total = TestTotals::default();
        let mut tally = TestTotals::default();
        tally.feed(b"package a\ntest m::store::accept::x ... ok\ntest m::store::accept::y ... FAILED\n");
        tally.feed(b"test cli::operate::tests::z ... ok\npackage b\ntest m::store::claim::x ... ok\n");
        total.add(&tally);
        let of = |package: &str| total.cases.get(&(package.into(), "m".into(), "store".into()));
        assert_eq!((of("a"), of("b"), total.cases.len()), (Some(&1), Some(&1), 2));
    }

    #[test]
    fn text_that_only_mentions_a_result_is_not_one() {
        let mut tally = TestTotals::default();
        tally.feed(b"the line `test result: ok. 9 passed; 0 failed` is parsed\n");
        assert_eq!(tally.suites, 0);
    }
}
