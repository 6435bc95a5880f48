//! Compares the runs of handlers: a fault must explain each repeat. Tests: tests/runs.rs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::operations::{self, Retries};
use super::round_ledger::RoundLedger;
use super::{RoundRules, RoundVerdict};
use crate::ledger::{
    DENIED, DENIED_FOR_LONG, FAILED_OVER, Fact, HandlerEnd, LOSES_FROM_NOW, LedgerLine, SettleResult,
};

/// The runs of one entry under one claim.
#[derive(Debug, Default)]
struct ClaimRun {
    life: u64,
    token: i64,
    claimed: u64,
    start: u64,
    end: Option<u64>,
    ended: Option<HandlerEnd>,
    /// Every response of the store to its completion, and whether it was one.
    settled: Vec<(u64, bool, SettleResult)>,
}

impl ClaimRun {
    /// Returns the time at which the completion was known.
    fn completed(&self) -> Option<u64> {
        self.settled
            .iter()
            .find(|(_, done, answer)| *done && *answer == SettleResult::Applied)
            .map(|(at, ..)| *at)
    }

    /// Returns true if the store refused its completion and got no further call. A commit in doubt elsewhere is no
    /// excuse.
    fn dropped(&self) -> bool {
        self.ended == Some(HandlerEnd::Ok)
            && !self.settled.is_empty()
            && self.settled.iter().all(|(_, done, answer)| *done && *answer == SettleResult::Error)
    }

    /// Returns true if it was released: by a retry, a snooze or a shutdown.
    fn given_back(&self) -> bool {
        self.settled.iter().any(|(_, done, answer)| !done && *answer != SettleResult::Lost)
    }
}

/// Time spans of faults, by process.
struct FaultSpans {
    by_life: HashMap<u64, Vec<(u64, u64)>>,
    /// Times at which the driver noticed an ended process.
    gone: HashMap<u64, u64>,
    /// Faults of all processes.
    global: Vec<(u64, u64)>,
    /// Spans in which a failover may have lost writes.
    lossy: Vec<(u64, u64)>,
    /// Times at which the server refused commands.
    denied: Vec<u64>,
    /// The same for refusals longer than a lease.
    denied_for_long: Vec<u64>,
    /// Spans in which a process was suspended or gone, which excuse it.
    disabled: HashMap<u64, Vec<(u64, u64)>>,
}

/// Maximum lag of a disconnected replica, in microseconds.
const LAG: u64 = 2_000_000;

/// Returns the spans in which a failover may have lost writes.
pub(super) fn lossy(lines: &[LedgerLine]) -> Vec<(u64, u64)> {
    let (mut spans, mut cut) = (Vec::new(), None);
    for line in lines {
        match &line.fact {
            Fact::Fault { life: 0, what } if what == LOSES_FROM_NOW => cut = Some(line.t),
            Fact::Fault { life: 0, what } if what == FAILED_OVER => {
                spans.extend(cut.take().map(|cut: u64| (cut.saturating_sub(LAG), line.t)));
            }
            _ => {}
        }
    }
    spans
}

impl FaultSpans {
    fn read(lines: &[LedgerLine], rules: &RoundRules) -> Self {
        let mut faults = Self {
            by_life: HashMap::new(),
            gone: HashMap::new(),
            global: Vec::new(),
            lossy: lossy(lines),
            denied: Vec::new(),
            denied_for_long: Vec::new(),
            disabled: HashMap::new(),
        };
        for line in lines {
            let before = |ms: &u64| line.t.saturating_sub(ms * 1_000);
            match &line.fact {
                Fact::Fault { life: 0, what } if what == LOSES_FROM_NOW => {}
                // It ends before a lease does, so it excuses no dropped settlement.
                Fact::Fault { life: 0, what } if what.starts_with(DENIED) => faults.denied.push(line.t),
                Fact::Fault { life: 0, what } if what.starts_with(DENIED_FOR_LONG) => {
                    faults.global.push((line.t, line.t));
                    faults.denied_for_long.push(line.t);
                }
                Fact::Fault { life: 0, what } if what != "quiescence" => faults.global.push((line.t, line.t)),
                Fact::Fault { life, what } => {
                    if what == "gone" {
                        faults.gone.insert(*life, line.t);
                    }
                    faults.by_life.entry(*life).or_default().push((line.t, line.t));
                    faults.disabled.entry(*life).or_default().push((line.t, line.t));
                    // A suspended worker may hold the one lock of the file.
                    if rules.one_writer && (what == "stop" || what == "continue") {
                        faults.global.push((line.t, line.t));
                    }
                }
                // A process without CPU time did not renew; it may also hold the lock.
                Fact::Stall { ms } if rules.one_writer => faults.global.push((before(ms), line.t)),
                Fact::Stall { ms } | Fact::Slow { ms, .. } => {
                    faults.by_life.entry(line.life).or_default().push((before(ms), line.t));
                    faults.disabled.entry(line.life).or_default().push((before(ms), line.t));
                }
                Fact::Unknown { .. } => faults.by_life.entry(line.life).or_default().push((line.t, line.t)),
                _ => {}
            }
        }
        faults
    }

    /// Returns true if a handler failed, and its process ended before the store's response was recorded.
    fn unwritten(&self, run: &ClaimRun) -> bool {
        let said_no = matches!(
            run.ended,
            Some(HandlerEnd::Fail | HandlerEnd::Panic | HandlerEnd::Snooze | HandlerEnd::Store)
        );
        said_no && run.settled.is_empty() && self.gone.contains_key(&run.life)
    }

    /// Returns true if a later reader may miss a write at `done`.
    fn undone(&self, done: u64, later: u64) -> bool {
        self.lossy.iter().any(|(from, until)| (*from..=*until + LAG).contains(&done) && *from <= later)
    }

    /// Returns true if a settlement was dropped because the server refused it: no fault hit its process.
    fn refused(&self, run: &ClaimRun, until: u64) -> bool {
        let within = |at: &u64| (run.claimed..=until).contains(at);
        let disabled = self
            .disabled
            .get(&run.life)
            .is_some_and(|spans| spans.iter().any(|(first, last)| *first <= until && *last >= run.claimed));
        let for_long = self.denied_for_long.iter().any(within);
        run.dropped() && self.denied.iter().any(within) && !disabled && !for_long
    }

    /// Returns true if a fault hit a process, or all processes, between two times.
    fn between(&self, life: u64, from: u64, to: u64) -> bool {
        let within = |spans: &[(u64, u64)]| spans.iter().any(|(first, last)| *first <= to && *last >= from);
        self.by_life.get(&life).is_some_and(|spans| within(spans)) || within(&self.global)
    }
}

/// Returns the entries that ran, with their runs in claim order.
fn runs(lines: &[LedgerLine]) -> BTreeMap<(u32, String), BTreeMap<i64, ClaimRun>> {
    let mut all: BTreeMap<(u32, String), BTreeMap<i64, ClaimRun>> = BTreeMap::new();
    for line in lines {
        match &line.fact {
            Fact::Claimed { m, h, tok } => {
                all.entry((*m, h.clone())).or_default().entry(*tok).or_default().claimed = line.t;
            }
            Fact::Start { m, h, tok, .. } if *tok > 0 => {
                let run = all.entry((*m, h.clone())).or_default().entry(*tok).or_default();
                if run.start == 0 {
                    (run.start, run.life, run.token) = (line.t, line.life, *tok);
                }
            }
            Fact::End { m, h, tok, end } if *tok > 0 => {
                let run = all.entry((*m, h.clone())).or_default().entry(*tok).or_default();
                (run.end, run.ended) = (Some(line.t), Some(*end));
            }
            Fact::Settled { m, h, tok, to, event, r } => {
                // A rescuer's settlements did not run under this claim.
                if let Some(run) = all.get_mut(&(*m, h.clone())).and_then(|runs| runs.get_mut(tok)) {
                    let done = to == "completed" || to == "poisoned";
                    debug_assert!(event != "done" || done);
                    run.settled.push((line.t, done, *r));
                }
            }
            _ => {}
        }
    }
    all
}

pub(super) fn check(
    lines: &[LedgerLine],
    round_ledger: &RoundLedger,
    rules: &RoundRules,
    verdict: &mut RoundVerdict,
) {
    let faults = FaultSpans::read(lines, rules);
    let all = runs(lines);
    let mut retries = operations::retries(lines);
    for ((m, h), runs) in &all {
        let runs: Vec<&ClaimRun> = runs.values().filter(|run| run.start > 0).collect();
        repeats(*m, h, &runs, &faults, &mut retries, verdict);
    }
    keys(lines, verdict);
    if rules.fails_over {
        growing(lines, &faults, verdict);
    }
    // A lost history may have given another claim that response.
    if !rules.loses {
        fences(lines, round_ledger, verdict);
    }
    overlaps(&all, rules, verdict);
}

/// I4 and I10: no run follows one known to be done, and a fault explains each repeat.
fn repeats(
    m: u32,
    h: &str,
    runs: &[&ClaimRun],
    faults: &FaultSpans,
    retries: &mut Retries,
    verdict: &mut RoundVerdict,
) {
    for pair in runs.windows(2) {
        let [before, after] = pair else { continue };
        if before.ended == Some(HandlerEnd::Reject) && was_requested(m, h, after.start, retries) {
            // An operator requested the retry.
        } else if before.completed().is_some_and(|at| at < after.start && faults.undone(at, after.start)) {
            verdict.explained += 1;
        } else if before.completed().is_some_and(|at| at < after.start) {
            verdict.unexplained += 1;
            let again = format!("message {m} ran at {h} again (process {}) after it was done", after.life);
            verdict.violations.push(format!("I4, I10: {again}"));
        } else if (before.given_back() || faults.unwritten(before))
            && before.end.is_some_and(|end| end < after.start)
        {
            // The handler failed or was cancelled: that is no repeat.
        } else if !faults.refused(before, after.start)
            && faults.between(before.life, before.claimed.min(before.start), after.start.max(before.start))
        {
            verdict.explained += 1;
        } else {
            verdict.unexplained += 1;
            verdict.violations.push(format!(
                "I4: message {m} ran at {h} again (process {}, token {}), and nothing had happened to process {} (token {}, {:?})",
                after.life, after.token, before.life, before.token, before.ended
            ));
        }
    }
}

/// I4: the idempotency key is stable, whatever key the process uses for the handler.
fn keys(lines: &[LedgerLine], verdict: &mut RoundVerdict) {
    let mut keys: BTreeMap<(u32, &str), BTreeSet<&str>> = BTreeMap::new();
    for line in lines {
        if let Fact::Keyed { m, h, k } = &line.fact {
            keys.entry((*m, h)).or_default().insert(k);
        }
    }
    for ((m, h), keys) in keys.iter().filter(|(_, keys)| keys.len() > 1) {
        verdict.violations.push(format!("I4: message {m} ran at {h} under {} idempotency keys", keys.len()));
    }
}

/// Returns true if an operator had requested another run by then. Each request counts once.
fn was_requested(m: u32, h: &str, by: u64, retries: &mut Retries) -> bool {
    let Some(times) = retries.get_mut(&(m, h.to_owned())) else { return false };
    let first = times.iter().position(|at| *at < by);
    first.map(|place| times.remove(place)).is_some()
}

/// I6: a handler that refuses lower fences loses no needed run, whichever server issued them.
fn growing(lines: &[LedgerLine], faults: &FaultSpans, verdict: &mut RoundVerdict) {
    let mut greatest: HashMap<(u32, &str), (i64, u64)> = HashMap::new();
    for line in lines {
        let Fact::Claimed { m, h, tok } = &line.fact else { continue };
        let (before, at) = *greatest.entry((*m, h)).or_insert((*tok, line.t));
        if *tok >= before {
            greatest.insert((*m, h), (*tok, line.t));
        } else if !faults.by_life.get(&line.life).is_some_and(|spans| {
            // A suspended process recorded it late.
            spans.iter().any(|(first, last)| *first <= line.t && *last >= at.saturating_sub(LAG))
        }) {
            verdict.violations.push(format!(
                "I6: the fence of message {m} at {h} went back from {before} to {tok} (process {})",
                line.life
            ));
        }
    }
}

/// I6: every write happened under a claim that the store accepted, and each entry completed once.
fn fences(lines: &[LedgerLine], round_ledger: &RoundLedger, verdict: &mut RoundVerdict) {
    let mut refused: BTreeSet<(u32, &str, i64)> = BTreeSet::new();
    let mut applied: HashMap<(u32, &str), BTreeSet<i64>> = HashMap::new();
    for line in lines {
        if let Fact::Settled { m, h, tok, to, r, .. } = &line.fact {
            match r {
                SettleResult::Lost => _ = refused.insert((*m, h, *tok)),
                SettleResult::Applied if to == "completed" => {
                    _ = applied.entry((*m, h)).or_default().insert(*tok);
                }
                _ => {}
            }
        }
    }
    for ended in &round_ledger.ended {
        let by_others =
            applied.get(&(ended.m, ended.h.as_str())).is_some_and(|tokens| !tokens.contains(&ended.token));
        let was_refused = refused.contains(&(ended.m, ended.h.as_str(), ended.token));
        let was_applied =
            applied.get(&(ended.m, ended.h.as_str())).is_some_and(|tokens| tokens.contains(&ended.token));
        if was_refused && !was_applied && !ended.poisoned {
            // After a commit in doubt, the store refuses a snooze because the commit succeeded.
            let in_doubt = lines.iter().any(|line| {
                matches!(&line.fact, Fact::Settled { m, h, tok, to, r, .. }
                    if *m == ended.m && *h == ended.h && *tok == ended.token && to == "completed"
                        && matches!(r, SettleResult::Unknown | SettleResult::Error))
            });
            if !in_doubt {
                verdict.violations.push(format!(
                    "I6: message {} at {} ended under token {}, which was refused",
                    ended.m, ended.h, ended.token
                ));
            }
        }
        if by_others {
            verdict.violations.push(format!(
                "I6: message {} at {} ended under token {}, and another claim was told that it completed it",
                ended.m, ended.h, ended.token
            ));
        }
    }
    for ((m, h), tokens) in applied.iter().filter(|(_, tokens)| tokens.len() > 1) {
        verdict.violations.push(format!("I5: message {m} at {h} was completed {} times", tokens.len()));
    }
}

/// I8: runs of one ordering key with valid claims do not overlap.
fn overlaps(
    all: &BTreeMap<(u32, String), BTreeMap<i64, ClaimRun>>,
    rules: &RoundRules,
    verdict: &mut RoundVerdict,
) {
    let mut lines: HashMap<u64, Vec<(u64, u64, u32)>> = HashMap::new();
    for ((m, h), runs) in all.iter().filter(|((_, h), _)| h == "ordered") {
        debug_assert_eq!(h, "ordered");
        let Some(line) = rules.plan.message(*m).line else { continue };
        for run in runs.values().filter(|run| run.completed().is_some()) {
            if let Some(end) = run.end {
                lines.entry(line).or_default().push((run.start, end, *m));
            }
        }
    }
    for (line, mut runs) in lines {
        runs.sort_unstable();
        for pair in runs.windows(2) {
            if pair[1].0 < pair[0].1 {
                verdict.violations.push(format!(
                    "I8: messages {} and {} of line {line} ran at the same time",
                    pair[0].2, pair[1].2
                ));
            }
        }
    }
}
