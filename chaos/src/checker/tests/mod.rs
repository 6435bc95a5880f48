//! Tests of the checker on handwritten ledgers: for each rule a valid round and a violation.

mod failover;
mod round_ledger;
mod runs;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;

use super::tables::{RoundTables, TableQuery, TableRow};
use super::{EffectWatcher, RoundRules, check};
use crate::ledger::{Fact, HandlerEnd, LedgerLine, SettleResult};
use crate::plan::{PlannedKind, PlannedOutcome, RoundPlan, id_of};

const CANARY: &str = "canary-of-a-test";
/// Token of a claim that never existed.
const NEVER: i64 = 99;

/// A handwritten round: ledgers, tables and rules.
struct Case {
    lines: Vec<LedgerLine>,
    rows: HashMap<&'static str, Vec<TableRow>>,
    rules: RoundRules,
    /// Text in the log of a worker.
    log: String,
}

impl RoundTables for HashMap<&'static str, Vec<TableRow>> {
    fn query(&self, query: TableQuery) -> Result<Vec<TableRow>> {
        let found = self.get(name(query)).cloned().unwrap_or_default();
        Ok(match query {
            TableQuery::Unfinished | TableQuery::Marks | TableQuery::LostMarks => {
                vec![vec![found.len().to_string()]]
            }
            _ => found,
        })
    }

    fn sessions(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn forget(&self) {}
}

fn name(query: TableQuery) -> &'static str {
    match query {
        TableQuery::Effects => "effects",
        TableQuery::Doubled => "doubled",
        TableQuery::Messages => "messages",
        TableQuery::Outcomes => "outcomes",
        TableQuery::Poisoned => "poisoned",
        TableQuery::Unfinished => "unfinished",
        TableQuery::Quarantine => "quarantine",
        TableQuery::Marks => "marks",
        TableQuery::Operations => "operations",
        TableQuery::Lost => "lost",
        TableQuery::LostMarks => "lost marks",
    }
}

impl Case {
    fn new() -> Self {
        let plan = RoundPlan { seed: 7, killers: true, long: false, quick: false, steady: false };
        let rules = RoundRules {
            plan,
            attempts: 8,
            crashes: 3,
            forgets: false,
            one_writer: false,
            fails_over: false,
            loses: false,
            canary: CANARY,
        };
        Self { lines: Vec::new(), rows: HashMap::new(), rules, log: String::new() }
    }

    /// Returns the first message of a kind with this outcome at its first handler, except `others`.
    fn find(&self, kind: PlannedKind, outcome: impl Fn(PlannedOutcome) -> bool, others: &[u32]) -> u32 {
        let plan = self.rules.plan;
        let is = |m: &u32| {
            !others.contains(m)
                && plan.message(*m).kind == kind
                && kind.handlers().iter().all(|handler| outcome(plan.outcome(*m, handler)))
        };
        (0..100_000).find(is).unwrap()
    }

    /// Returns a message without faults.
    fn well(&self, kind: PlannedKind) -> u32 {
        self.find(kind, |outcome| outcome == PlannedOutcome::Well, &[])
    }

    fn note(&mut self, t: u64, life: u64, fact: Fact) -> &mut Self {
        self.lines.push(LedgerLine { t, life, fact });
        self
    }

    fn row<const N: usize>(&mut self, table: &'static str, row: [&str; N]) -> &mut Self {
        self.rows.entry(table).or_default().push(row.map(str::to_owned).to_vec());
        self
    }

    /// Adds a message that is offered, acknowledged, and stored under its own number.
    fn taken(&mut self, m: u32) -> &mut Self {
        self.note(1, 0, Fact::Offered { m, v: 0 }).note(2, 0, Fact::Acked { m, v: 0 }).stored(m, m)
    }

    fn stored(&mut self, m: u32, seq: u32) -> &mut Self {
        self.row("messages", [&seq.to_string(), &id_of(m)])
    }

    /// Adds a claim and a run of an entry, from `t` to `t + 10`.
    fn run(&mut self, (m, h): (u32, &str), (life, tok): (u64, i64), t: u64, end: HandlerEnd) -> &mut Self {
        self.begun((m, h), (life, tok), t).note(t + 10, life, Fact::End { m, h: h.to_owned(), tok, end })
    }

    fn begun(&mut self, (m, h): (u32, &str), (life, tok): (u64, i64), t: u64) -> &mut Self {
        let own = || h.to_owned();
        self.note(t, life, Fact::Claimed { m, h: own(), tok });
        self.note(t, life, Fact::Start { m, h: own(), tok, v: 0 })
    }

    /// Adds the store's response to a settlement.
    fn settled(
        &mut self,
        (m, h): (u32, &str),
        (life, tok): (u64, i64),
        t: u64,
        to: &str,
        r: SettleResult,
    ) -> &mut Self {
        let event = if to == "completed" { "done" } else { "failed" };
        let (h, to, event) = (h.to_owned(), to.to_owned(), event.to_owned());
        self.note(t, life, Fact::Settled { m, h, tok, to, event, r })
    }

    fn fault(&mut self, t: u64, life: u64, what: &str) -> &mut Self {
        self.note(t, 0, Fact::Fault { life, what: what.to_owned() })
    }

    /// Adds a finished entry with this token and these attempts.
    fn ended(&mut self, (m, h): (u32, &str), tok: i64, attempts: u32) -> &mut Self {
        let [m, tok, attempts] = [i64::from(m), tok, i64::from(attempts)].map(|number| number.to_string());
        self.row("outcomes", [&m, h, "0", "completed", &tok, &attempts, "0"])
    }

    fn poisoned(&mut self, (m, h): (u32, &str), reason: &str, attempts: u32, crashes: u32) -> &mut Self {
        let [m, attempts, crashes] = [m, attempts, crashes].map(|number| number.to_string());
        self.row("poisoned", [&m, h, "0", reason, "1", &attempts, &crashes])
    }

    fn effect(&mut self, m: u32, v: u8, h: &str) -> &mut Self {
        let id = self.rows.get("effects").map_or(0, Vec::len).to_string();
        let [m, v] = [m, u32::from(v)].map(|number| number.to_string());
        self.row("effects", [&id, &m, &v, h, "1"])
    }

    /// Adds a faultless message with one handler run, under token 1 of process 1.
    fn good(&mut self, m: u32) -> &mut Self {
        let h = self.rules.plan.message(m).kind.handlers()[0];
        self.good_from(m, 100).ended((m, h), 1, 0)
    }

    /// The same from `t` on, without its end in the tables.
    fn good_from(&mut self, m: u32, t: u64) -> &mut Self {
        let h = self.rules.plan.message(m).kind.handlers()[0];
        self.taken(m).run((m, h), (1, 1), t, HandlerEnd::Ok);
        if crate::plan::is_transactional(h) {
            self.effect(m, 0, h);
        }
        self.settled((m, h), (1, 1), t + 11, "completed", SettleResult::Applied)
    }

    /// Returns the violations.
    fn violations(&mut self) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let ledger: Vec<String> =
            self.lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        std::fs::write(dir.path().join("ledger-0.jsonl"), ledger.join("\n")).unwrap();
        std::fs::write(dir.path().join("worker-0.log"), &self.log).unwrap();
        check(dir.path(), &self.rows, &self.rules).unwrap().violations
    }

    fn is_clean(&mut self) {
        assert_eq!(self.violations(), [""; 0]);
    }

    /// Asserts no violation of this rule.
    fn is_clean_of(&mut self, rule: &str) {
        let violations = self.violations();
        assert!(!violations.iter().any(|violation| violation.starts_with(rule)), "{violations:#?}");
    }

    /// Asserts exactly this violation of this rule.
    fn cries_of(&mut self, rule: &str, wanted: &str) {
        let violations = self.violations();
        let found: Vec<&String> = violations.iter().filter(|violation| violation.starts_with(rule)).collect();
        assert_eq!(found, [wanted]);
    }

    /// Asserts exactly these violations.
    fn cries<const N: usize>(&mut self, wanted: [&str; N]) {
        let violations = self.violations();
        let fits = |(found, wanted): (&String, &&str)| found.starts_with(wanted);
        assert!(
            violations.len() == N && violations.iter().zip(&wanted).all(fits),
            "{violations:#?} instead of {wanted:#?}"
        );
    }
}

#[test]
fn what_is_as_it_should_be_is_not_spoken_of() {
    for kind in
        [PlannedKind::Tx, PlannedKind::Plain, PlannedKind::Ordered, PlannedKind::Share, PlannedKind::Batch]
    {
        let mut case = Case::new();
        let m = case.well(kind);
        case.good(m).is_clean();
    }
}

#[test]
fn i3_an_effect_that_is_there_twice_is_seen_while_it_runs() {
    let observe = |rows: HashMap<&'static str, Vec<TableRow>>| {
        let (queried, queries) = std::sync::mpsc::channel();
        let observer = EffectWatcher::start(Arc::new(WatchedTables(rows, queried)));
        // It has read at least once.
        queries.recv().unwrap();
        observer.stop()
    };
    assert_eq!(observe(HashMap::new()), [""; 0]);
    let twice = vec![["7", "tx", "2"].map(str::to_owned).to_vec()];
    assert_eq!(observe(HashMap::from([("doubled", twice)])), ["I3, seen while it ran: message 7 at tx"]);
}

/// Tables that report each query.
struct WatchedTables(HashMap<&'static str, Vec<TableRow>>, std::sync::mpsc::Sender<()>);

impl RoundTables for WatchedTables {
    fn query(&self, query: TableQuery) -> Result<Vec<TableRow>> {
        let _ = self.1.send(());
        self.0.query(query)
    }

    fn sessions(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn forget(&self) {}
}

#[test]
fn i12_a_password_in_a_log_or_a_ledger_is_noticed() {
    let mut case = Case::new();
    case.log = format!("cannot connect to postgres://oncebox:{CANARY}@127.0.0.1");
    case.cries(["I12: the password of the database stands in worker-0.log"]);
    let mut case = Case::new();
    case.fault(1, 1, CANARY).cries(["I12: the password of the database stands in ledger-0.jsonl"]);
}
