//! `docs/stores.md`: the cases that each store passes, written from the output of a real run. Tests: below.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::tally::TestTotals;
use crate::workspace::Workspace;
use crate::{run, servers};

const FILE: &str = "docs/stores.md";

/// Tiers of the suite, from the lowest.
pub(crate) const TIERS: [&str; 5] = ["store", "inspect", "operate", "transactional", "share"];

/// Passed cases by package, module and tier.
pub(crate) type TierCounts = BTreeMap<(String, String, String), u64>;

/// A store of the page: its package, its test program, and the module of its suite there.
struct StoreRow {
    name: &'static str,
    package: &'static str,
    program: &'static str,
    module: &'static str,
    capabilities: &'static str,
}

const ALL: &str = "durable, transactions, shared";

const STORES: &[StoreRow] = &[
    row("memory", "oncebox", "memory", "conformance", "none"),
    row("SQLite", "oncebox-sqlite", "conformance", "conformance", ALL),
    row("PostgreSQL, oldest", "oncebox-postgres", "conformance", "debian", ALL),
    row("PostgreSQL, newest", "oncebox-postgres", "conformance", "newest", ALL),
    row("PostgreSQL behind PgBouncer", "oncebox-postgres", "conformance", "pgbouncer", ALL),
    row("sealed memory", "oncebox-sealed", "conformance", "memory", "none"),
    row("sealed SQLite", "oncebox-sealed", "conformance", "sqlite", ALL),
    row("sealed PostgreSQL", "oncebox-postgres", "sealed", "sealed", ALL),
    row("the small example", "oncebox-example-store", "conformance", "conformance", "none"),
];

const fn row(
    name: &'static str,
    package: &'static str,
    program: &'static str,
    module: &'static str,
    capabilities: &'static str,
) -> StoreRow {
    StoreRow { name, package, program, module, capabilities }
}

const INTRO: &str = "\
<!-- Written by `cargo xtask stores`, which runs the suites. Change the stores or the suites, then run it again. -->

# Stores

The conformance suite has a tier for each step from a working inbox to shared commits. A store runs the tiers that it implements, and
passes every case that it runs. Each number counts the cases of a suite. `cargo xtask test` fails if another number of them passed in its
run; `cargo xtask stores --check` compares the lists of cases, and runs none.
[Write a store](guides/store-author.md) explains the tiers.

";

const GUARANTEES: &str = "
The capabilities are those that `Store::capabilities` returns. They and the table below are written by hand: no run can prove that
a disk keeps its promise. The [fault injection rig](../RELIABILITY.md) kills processes and servers to find out.

## Guarantees

| way | memory, the small example | SQLite, PostgreSQL |
|---|---|---|
| durable handler | at least once, until the process ends | at least once, over crashes; the same idempotency key at every attempt |
| durable handler that writes with `cx.tx()` | memory: its own writes are outside of the transaction; the small example has none | effects exactly once: its writes and its completion share one commit |
| inline handler | once per key, until the process ends; the small example has none | effects exactly once, if it writes in the transaction of the mark |
| `once` in the caller's transaction | memory: marks only; the small example has none | effects exactly once |

A sealed store has the guarantees of the store inside. `Config::guarantee` makes an inbox refuse a store that cannot keep what it asks for.
";

/// Writes the page from a run of the suites.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    fs::write(workspace.root.join(FILE), document(&run_suites(workspace)?)?)
        .with_context(|| format!("cannot write {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}

/// Fails if the page is out of date, by the lists of cases. It runs none: `cargo xtask test` compares what passed.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut list = suites(workspace);
    let mut tally = TestTotals::default();
    run::check_counting(list.arg("--list"), &mut tally, &mut io::sink())?;
    compare(&workspace.root, &tally.cases)
}

/// Fails if the page is out of date, by the cases that passed.
pub(crate) fn compare(root: &Path, passed: &TierCounts) -> Result<()> {
    let found = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    if found != document(passed)? {
        bail!("{FILE} is out of date: run `cargo xtask stores` and commit what it writes");
    }
    println!("{FILE} is up to date");
    Ok(())
}

/// Runs the suites of all stores.
fn run_suites(workspace: &Workspace) -> Result<TierCounts> {
    servers::install(workspace)?;
    let servers = servers::start()?;
    let mut tally = TestTotals::default();
    run::check_counting(suites(workspace).envs(servers.variables()), &mut tally, &mut io::stdout())?;
    Ok(tally.cases)
}

/// Returns the command for the suites of all stores, and no other tests.
fn suites(workspace: &Workspace) -> Command {
    let mut test = run::cargo(&workspace.root);
    test.args(["test", "--locked", "--no-fail-fast", "--config", run::NAMES_PACKAGES]);
    for store in STORES {
        test.args(["-p", store.package, "--test", store.program]);
    }
    test.arg("--").args(TIERS.map(|tier| format!("::{tier}::")));
    test
}

fn document(passed: &TierCounts) -> Result<String> {
    let mut text = format!("{INTRO}| store |");
    for (number, tier) in TIERS.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, " {number}: {tier} |");
    }
    text.push_str(" capabilities |\n|---|--:|--:|--:|--:|--:|---|\n");
    for store in STORES {
        let _ = write!(text, "| {} |", store.name);
        let of = |tier: &str| passed.get(&(store.package.into(), store.module.into(), tier.into()));
        if of(TIERS[0]).is_none() {
            bail!(
                "no case of the suite `{}` in {} passed: is it still called so?",
                store.module,
                store.package
            );
        }
        for tier in TIERS {
            let _ = write!(text, " {} |", of(tier).map_or("–".into(), ToString::to_string));
        }
        let _ = writeln!(text, " {} |", store.capabilities);
    }
    let known = |package: &str| STORES.iter().any(|store| store.package == package);
    let listed = |package: &str, module: &str| {
        STORES.iter().any(|store| store.package == package && store.module == module)
    };
    if let Some((package, module, _)) =
        passed.keys().find(|(package, module, _)| known(package) && !listed(package, module))
    {
        bail!("the suite `{module}` in {package} is not in the table of xtask/src/stores.rs: add a row");
    }
    text.push_str(GUARANTEES);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> TierCounts {
        let of = |store: &StoreRow| {
            let (package, module) = (store.package.to_owned(), store.module.to_owned());
            TIERS.map(|tier| ((package.clone(), module.clone(), tier.to_owned()), 7))
        };
        STORES.iter().flat_map(of).collect()
    }

    #[test]
    fn a_tier_that_a_store_does_not_run_is_a_dash() {
        let mut passed = passed();
        passed.retain(|(package, _, tier), _| package != "oncebox-example-store" || tier == "store");
        let text = document(&passed).expect("a page");
        assert!(text.contains("| the small example | 7 | – | – | – | – | none |"), "{text}");
    }

    #[test]
    fn a_suite_that_did_not_run_is_an_error() {
        let mut passed = passed();
        passed.retain(|(_, module, _), _| module != "pgbouncer");
        assert!(document(&passed).unwrap_err().to_string().contains("pgbouncer"));
    }

    #[test]
    fn a_suite_without_a_row_is_an_error() {
        let mut passed = passed();
        passed.insert(("oncebox-sqlite".into(), "new".into(), "store".into()), 1);
        assert!(document(&passed).unwrap_err().to_string().contains("`new`"));
    }
}
