//! Compares the requests of operators with their records. Tests: `tests/round_ledger.rs`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::tables::{RoundTables, TableQuery};
use super::{RoundRules, RoundVerdict};
use crate::ledger::{Fact, LedgerLine, SettleResult};

/// Times of requested retries, by entry.
pub(super) type Retries = BTreeMap<(u32, String), Vec<u64>>;

/// Returns the retries that operators requested, from the ledgers.
pub(super) fn retries(lines: &[LedgerLine]) -> Retries {
    let mut retries: Retries = BTreeMap::new();
    for line in lines {
        if let Fact::Requested { m: Some(m), h, .. } = &line.fact {
            retries.entry((*m, h.clone())).or_default().push(line.t);
        }
    }
    retries
}

/// I5: each confirmed operation is recorded once, and each recorded operation was requested.
pub(super) fn check(
    lines: &[LedgerLine],
    tables: &dyn RoundTables,
    rules: &RoundRules,
    verdict: &mut RoundVerdict,
) -> Result<()> {
    let (mut requested, mut done) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        match &line.fact {
            Fact::Requested { op, .. } => _ = requested.insert(op.replace('-', "")),
            Fact::Acted { op, r: SettleResult::Applied } => _ = done.insert(op.replace('-', "")),
            _ => {}
        }
    }
    let mut recorded = BTreeSet::new();
    for row in tables.query(TableQuery::Operations)? {
        let op = row.first().map(|op| op.to_lowercase().replace('-', "")).unwrap_or_default();
        if !requested.contains(&op) {
            verdict.violations.push(format!("I5: the operation {op} is recorded, and was never requested"));
        }
        if !recorded.insert(op.clone()) {
            verdict.violations.push(format!("I5: the operation {op} is recorded twice"));
        }
    }
    let missing: Vec<&String> = done.difference(&recorded).collect();
    // Records are deleted with their messages.
    if let Some(first) = missing.first().filter(|_| !rules.forgets) {
        let count = missing.len();
        verdict
            .violations
            .push(format!("I5: {count} operations were done and are not recorded, the first is {first}"));
    }
    verdict.operations += recorded.len() as u64;
    Ok(())
}
