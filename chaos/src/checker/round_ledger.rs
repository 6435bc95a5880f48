//! Compares the ledgers with the tables. Tests: `tests/round_ledger.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context as _, Result, ensure};

use super::runs::lossy;
use super::tables::{RoundTables, TableQuery, TableRow};
use super::{RoundRules, RoundVerdict};
use crate::ledger::{Fact, HandlerEnd, LedgerLine};
use crate::plan::{PlannedKind, PlannedOutcome, handler_of, is_transactional};

/// Stores keep crashes as one number: up to ten for crashes in company, and higher for each crash alone.
const BEFORE_ALONE: u32 = 10;

/// A row of the business table.
pub(super) struct EffectRow {
    pub(super) id: i64,
    pub(super) m: u32,
    pub(super) v: u8,
    pub(super) h: String,
}

/// A finished entry.
#[derive(Clone, Debug)]
pub(super) struct EndedEntry {
    pub(super) m: u32,
    pub(super) h: String,
    pub(super) generation: u32,
    /// Its status, or its poison reason.
    pub(super) word: String,
    pub(super) poisoned: bool,
    pub(super) token: i64,
    pub(super) attempts: u32,
    pub(super) crashes: u32,
}

/// All data to compare.
pub(super) struct RoundLedger {
    pub(super) offered: BTreeMap<u32, BTreeSet<u8>>,
    pub(super) acked: BTreeMap<u32, BTreeSet<u8>>,
    refused: Vec<(u32, String)>,
    pub(super) effects: Vec<EffectRow>,
    /// Sequence numbers of each message.
    seqs: BTreeMap<u32, Vec<i64>>,
    unknown: Vec<String>,
    pub(super) ended: Vec<EndedEntry>,
    unfinished: u64,
    quarantined: BTreeMap<u32, BTreeSet<String>>,
    marks: u64,
    /// Losses that the store reports: messages, and the number of marks.
    reported: BTreeSet<u32>,
    reported_marks: u64,
    /// Failed runs, by message and handler.
    failures: HashMap<(u32, String), u32>,
    /// Runs that were cancelled by a timeout, a shutdown or a lost lease.
    dropped: HashMap<(u32, String), u32>,
    /// Finished runs, by message and handler, with their payload.
    done: HashMap<(u32, String), u32>,
    seen: BTreeMap<u32, BTreeSet<u8>>,
    /// Payloads of finished runs that no failover can have lost.
    kept: BTreeMap<u32, BTreeSet<u8>>,
}

fn cell<T: std::str::FromStr>(row: &TableRow, index: usize) -> Result<T> {
    let text = row.get(index).context("a row is too short")?;
    text.parse().ok().with_context(|| format!("{text:?} is not what it should be"))
}

impl RoundLedger {
    pub(super) fn read(lines: &[LedgerLine], tables: &dyn RoundTables) -> Result<Self> {
        let mut round_ledger = Self {
            offered: BTreeMap::new(),
            acked: BTreeMap::new(),
            refused: Vec::new(),
            effects: Vec::new(),
            seqs: BTreeMap::new(),
            unknown: Vec::new(),
            ended: Vec::new(),
            unfinished: tables.unfinished()?,
            quarantined: BTreeMap::new(),
            marks: tables.number(TableQuery::Marks)?,
            reported: BTreeSet::new(),
            reported_marks: tables.number(TableQuery::LostMarks)?,
            failures: HashMap::new(),
            dropped: HashMap::new(),
            done: HashMap::new(),
            seen: BTreeMap::new(),
            kept: BTreeMap::new(),
        };
        round_ledger.ledgers(lines);
        round_ledger.tables(tables)?;
        Ok(round_ledger)
    }

    fn ledgers(&mut self, lines: &[LedgerLine]) {
        let lossy = lossy(lines);
        // A run records its payload at its start.
        for line in lines {
            match &line.fact {
                Fact::Offered { m, v } => _ = self.offered.entry(*m).or_default().insert(*v),
                Fact::Acked { m, v } => _ = self.acked.entry(*m).or_default().insert(*v),
                Fact::Refused { m, why, .. } => self.refused.push((*m, why.clone())),
                Fact::Start { m, v, .. } => {
                    self.seen.entry(*m).or_default().insert(*v);
                    if !lossy.iter().any(|(from, until)| (*from..=*until).contains(&line.t)) {
                        self.kept.entry(*m).or_default().insert(*v);
                    }
                }
                Fact::End { m, h, end, .. } => match end {
                    HandlerEnd::Ok => *self.done.entry((*m, h.clone())).or_default() += 1,
                    HandlerEnd::Fail | HandlerEnd::Panic | HandlerEnd::Store => {
                        *self.failures.entry((*m, h.clone())).or_default() += 1;
                    }
                    HandlerEnd::Dropped => *self.dropped.entry((*m, h.clone())).or_default() += 1,
                    HandlerEnd::Snooze | HandlerEnd::Reject => {}
                },
                _ => {}
            }
        }
    }

    fn tables(&mut self, tables: &dyn RoundTables) -> Result<()> {
        let mut by_seq = HashMap::new();
        for row in tables.query(TableQuery::Messages)? {
            let (seq, id): (i64, String) = (cell(&row, 0)?, cell(&row, 1)?);
            match crate::plan::number_of(id.as_bytes()) {
                Some(m) => {
                    by_seq.insert(seq, m);
                    self.seqs.entry(m).or_default().push(seq);
                }
                None => self.unknown.push(id),
            }
        }
        for (query, poisoned) in [(TableQuery::Outcomes, false), (TableQuery::Poisoned, true)] {
            for row in tables.query(query)? {
                let seq: i64 = cell(&row, 0)?;
                // A message may be deleted before its history.
                let Some(m) = by_seq.get(&seq).copied() else { continue };
                self.ended.push(EndedEntry {
                    m,
                    h: handler_of(&cell::<String>(&row, 1)?).to_owned(),
                    generation: cell(&row, 2)?,
                    word: cell(&row, 3)?,
                    poisoned,
                    token: cell(&row, 4)?,
                    attempts: cell(&row, 5)?,
                    crashes: cell(&row, 6)?,
                });
            }
        }
        for row in tables.query(TableQuery::Effects)? {
            let (id, m, v, h) = (cell(&row, 0)?, cell(&row, 1)?, cell(&row, 2)?, cell(&row, 3)?);
            self.effects.push(EffectRow { id, m, v, h });
        }
        for row in tables.query(TableQuery::Quarantine)? {
            let id: String = cell(&row, 0)?;
            let m = crate::plan::number_of(id.as_bytes()).context("an unknown message was quarantined")?;
            self.quarantined.entry(m).or_default().insert(cell(&row, 1)?);
        }
        for row in tables.query(TableQuery::Lost)? {
            let id: String = cell(&row, 0)?;
            self.reported
                .insert(crate::plan::number_of(id.as_bytes()).context("an unknown message was lost")?);
        }
        ensure!(self.effects.is_sorted_by_key(|effect| effect.id), "the effects are not in order");
        Ok(())
    }

    /// I2: every effect belongs to an offered message, and one key always has one payload.
    pub(super) fn phantoms(&self, rules: &RoundRules, verdict: &mut RoundVerdict) {
        for id in &self.unknown {
            verdict.phantom += 1;
            verdict.violations.push(format!("I2: a message {id:?} is stored, and was never offered"));
        }
        let mut payloads: BTreeMap<u32, BTreeSet<u8>> = self.seen.clone();
        let (mut kept, mut stored) = (self.kept.clone(), BTreeMap::<u32, BTreeSet<u8>>::new());
        for effect in &self.effects {
            for effects in [&mut payloads, &mut kept, &mut stored] {
                effects.entry(effect.m).or_default().insert(effect.v);
            }
        }
        for (m, seen) in payloads {
            let offered = self.offered.get(&m);
            // A message may have run in a lost history, and come with another payload in the remaining one. An inline
            // run without a commit leaves no mark, so the next delivery counts as the first, whatever its payload.
            let inline = rules.plan.message(m).kind == PlannedKind::Inline;
            let counted = if inline { &stored } else { &kept };
            let apart = counted.get(&m).map_or(0, BTreeSet::len);
            if offered.is_none_or(|offered| !seen.is_subset(offered)) {
                verdict.phantom += 1;
                verdict.violations.push(format!("I2: message {m} has effects of what was never offered"));
            } else if apart > 1 {
                verdict.phantom += 1;
                verdict.violations.push(format!("I2: message {m} ran with two payloads"));
            }
        }
        for (m, why) in &self.refused {
            verdict.violations.push(format!("I1: message {m} was refused: {why}"));
        }
    }

    /// I1 and I3: each acknowledged message finished once at each handler, with one effect.
    pub(super) fn outcomes(&self, rules: &RoundRules, verdict: &mut RoundVerdict) {
        let mut effects: HashMap<(u32, &str), u64> = HashMap::new();
        for effect in &self.effects {
            *effects.entry((effect.m, &effect.h)).or_default() += 1;
        }
        let mut ends: HashMap<(u32, &str), Vec<&EndedEntry>> = HashMap::new();
        for ended in &self.ended {
            ends.entry((ended.m, &ended.h)).or_default().push(ended);
        }
        for (&(m, h), &count) in effects.iter().filter(|(_, count)| **count > 1) {
            verdict.doubled += count - 1;
            verdict.violations.push(format!("I3: the effect of message {m} at {h} is there {count} times"));
        }
        let mut marks = self.reported_marks;
        for &m in self.acked.keys() {
            for &h in rules.plan.message(m).kind.handlers() {
                let count = effects.get(&(m, h)).copied().unwrap_or(0);
                let end = ends.get(&(m, h)).map_or(&[][..], Vec::as_slice);
                if let Some(what) = self.wrong(rules, m, h, count, end) {
                    if rules.loses && self.is_reported(m, h, &mut marks) {
                        verdict.gone += 1;
                        continue;
                    }
                    verdict.lost += 1;
                    verdict.violations.push(format!("I1: message {m} at {h}: {what}"));
                }
            }
        }
    }

    /// Returns true if the store reports the loss: a message by name, marks by number.
    fn is_reported(&self, m: u32, h: &str, marks: &mut u64) -> bool {
        if h == "inline" {
            let left = marks.checked_sub(1);
            *marks = left.unwrap_or(0);
            return left.is_some();
        }
        self.reported.contains(&m) && !self.seqs.contains_key(&m)
    }

    /// I1: the store reports as lost only offered messages, and only if a loss is possible.
    pub(super) fn reports(&self, rules: &RoundRules, verdict: &mut RoundVerdict) {
        let (count, marks) = (self.reported.len(), self.reported_marks);
        verdict.reported_lost = count as u64 + marks;
        if !rules.loses && (count > 0 || marks > 0) {
            verdict.violations.push(format!(
                "I1: the store reports {count} messages and {marks} marks as lost, and nothing could be lost"
            ));
        }
        if let Some(m) = self.reported.iter().find(|m| !self.offered.contains_key(m)) {
            verdict
                .violations
                .push(format!("I1: the store reports message {m} as lost, and it was never offered"));
        }
    }

    fn wrong(
        &self,
        rules: &RoundRules,
        m: u32,
        h: &str,
        effects: u64,
        end: &[&EndedEntry],
    ) -> Option<String> {
        let happened =
            if is_transactional(h) { effects > 0 } else { self.done.contains_key(&(m, h.to_owned())) };
        if h == "inline" {
            return (!happened).then(|| "it was acknowledged, and its effect is not there".into());
        }
        let only_stale = !self.seqs.contains_key(&m)
            && self.quarantined.get(&m).is_some_and(|reasons| reasons.contains("stale"));
        match end {
            // An unfinished entry is not lost; another check reports it.
            [] if self.unfinished > 0 && self.seqs.contains_key(&m) => None,
            [] if rules.forgets && happened => None,
            // Every delivery came too late for its mark.
            [] if rules.forgets && only_stale => None,
            [] => Some("it was acknowledged, and is not there".into()),
            [one] if one.poisoned && happened && is_transactional(h) => {
                Some("it is poisoned, and its effect is there".into())
            }
            [one] if one.poisoned => None,
            [one] if one.word == "completed" && !happened => {
                Some("it is completed, and nothing has happened".into())
            }
            [one] if one.word == "completed" => None,
            [one] => Some(format!("it is {}, which was never requested", one.word)),
            many => Some(format!("it has {} ends", many.len())),
        }
    }

    /// I5 and I7: no message was replayed. Attempts equal the handlers' failures, and poison has its reason.
    pub(super) fn attempts(&self, rules: &RoundRules, verdict: &mut RoundVerdict) {
        for ended in &self.ended {
            let EndedEntry { m, h, attempts, crashes, word, .. } = ended;
            let mut wrong = |rule: &str, what: String| {
                verdict.violations.push(format!("{rule}: message {m} at {h}: {what}"));
            };
            if ended.generation != 0 {
                wrong("I5", "it was replayed, and that was never requested".into());
            }
            let place = (*m, h.clone());
            let mut failures = self.failures.get(&place).copied().unwrap_or(0);
            if rules.plan.outcome(*m, h) == PlannedOutcome::Hangs {
                failures += self.dropped.get(&place).copied().unwrap_or(0);
            }
            if *attempts > failures {
                wrong(
                    "I7",
                    format!("{attempts} attempts are counted, and its handler failed {failures} times"),
                );
            }
            if *attempts > rules.attempts {
                wrong("I7", format!("{attempts} attempts are counted, and {} are allowed", rules.attempts));
            }
            let outcome = rules.plan.outcome(*m, h);
            if ended.poisoned {
                let reason = match word.as_str() {
                    "rejected" => outcome == PlannedOutcome::Rejects,
                    "exhausted" => *attempts == rules.attempts,
                    "crashed" => {
                        let alone = crashes.checked_sub(BEFORE_ALONE);
                        let poisons = rules.crashes..=rules.crashes + 1;
                        outcome == PlannedOutcome::Kills
                            && alone.is_some_and(|alone| poisons.contains(&alone))
                    }
                    _ => false,
                };
                if !reason {
                    wrong(
                        "I7",
                        format!("it is poisoned as {word} after {attempts} attempts and {crashes} crashes"),
                    );
                }
            } else if outcome == PlannedOutcome::Kills {
                wrong("I7", "it takes its process down every time, and is completed".into());
            }
        }
    }

    /// I11: the store holds exactly the accepted messages, each with an entry per handler.
    pub(super) fn accounts(&self, rules: &RoundRules, verdict: &mut RoundVerdict) {
        let mut wrong = |what: String| verdict.violations.push(format!("I11: {what}"));
        if self.unfinished > 0 {
            wrong(format!("{} entries are not finished", self.unfinished));
        }
        for (m, seqs) in &self.seqs {
            if seqs.len() > 1 {
                wrong(format!("message {m} is stored {} times", seqs.len()));
            }
        }
        if rules.forgets {
            return;
        }
        let durable = |m: &&u32| rules.plan.message(**m).kind != PlannedKind::Inline;
        let missing = self.acked.keys().filter(durable).filter(|m| !self.seqs.contains_key(m));
        let missing: Vec<&u32> = missing.filter(|m| !(rules.loses && self.reported.contains(m))).collect();
        if !missing.is_empty() {
            wrong(format!(
                "{} acknowledged messages are not stored, the first is {}",
                missing.len(),
                missing[0]
            ));
        }
        let inline = self.effects.iter().filter(|effect| effect.h == "inline").count() as u64;
        if inline != self.marks {
            wrong(format!("there are {} marks and {inline} effects of inline handlers", self.marks));
        }
        for (m, reasons) in &self.quarantined {
            if self.offered.get(m).is_none_or(|variants| variants.len() < 2) || reasons.contains("stale") {
                wrong(format!("message {m} is quarantined as {reasons:?}, and never had another payload"));
            }
        }
        // A failover may lose a quarantined message, too, without a new report to the sender.
        let conflicts =
            |m: &&u32| !rules.loses && self.acked[*m].len() > 1 && !self.quarantined.contains_key(*m);
        if let Some(m) = self.acked.keys().find(conflicts) {
            wrong(format!("two payloads of message {m} were acknowledged, and none is quarantined"));
        }
    }

    /// I8: effects of one ordering key follow the order of acceptance.
    pub(super) fn order(&self, rules: &RoundRules, verdict: &mut RoundVerdict) {
        let mut last: HashMap<u64, (i64, u32)> = HashMap::new();
        for effect in self.effects.iter().filter(|effect| effect.h == "ordered") {
            let (Some(line), Some(seqs)) = (rules.plan.message(effect.m).line, self.seqs.get(&effect.m))
            else {
                continue;
            };
            let seq = seqs[0];
            if let Some((before, other)) = last.insert(line, (seq, effect.m))
                && before > seq
            {
                verdict.violations.push(format!(
                    "I8: message {} took effect after message {other} of its line, which was accepted later",
                    effect.m
                ));
            }
        }
    }
}
