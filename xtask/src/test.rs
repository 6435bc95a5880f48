//! `cargo xtask test`: every check a change must pass, in one list. Tests: none; CI runs it.
//!
//! If a check needs a running program, an earlier step puts its guard into [`Checks`]. Guards are dropped at the end of
//! every run.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use oncebox_servers::shared::SharedServers;

use crate::tally::TestTotals;
use crate::workspace::Workspace;
use crate::{deny, hygiene, msrv, room, run, servers, stores, toolchain};

/// Options of `cargo xtask test`.
#[derive(clap::Args, Debug)]
pub(crate) struct TestOptions {
    /// Check dependencies for vulnerabilities; fetches the advisory database
    #[arg(long)]
    advisories: bool,
}

/// State that the steps share.
struct Checks {
    workspace: Workspace,
    options: TestOptions,
    tally: TestTotals,
    servers: Option<SharedServers>,
}

struct CheckStep {
    name: &'static str,
    run: fn(&mut Checks) -> Result<()>,
}

/// Steps: cheap and informative ones first, and last the one that may build its tool.
const STEPS: &[CheckStep] = &[
    CheckStep { name: "disk", run: |checks| room::ensure(&checks.workspace.target) },
    CheckStep { name: "tools", run: |checks| toolchain::ensure(&checks.workspace.root) },
    CheckStep { name: "format", run: format },
    CheckStep { name: "clippy", run: clippy },
    CheckStep { name: "documentation", run: documentation },
    CheckStep { name: "oldest compiler", run: |checks| msrv::check(&checks.workspace) },
    CheckStep { name: "tests", run: tests },
    CheckStep { name: "servers", run: start_servers },
    CheckStep { name: "tests with servers", run: tests_with_servers },
    CheckStep {
        name: "table of stores",
        run: |checks| stores::compare(&checks.workspace.root, &checks.tally.cases),
    },
    CheckStep { name: "hygiene", run: |checks| hygiene::check(&checks.workspace) },
    CheckStep {
        name: "dependencies",
        run: |checks| deny::check(&checks.workspace, checks.options.advisories),
    },
];

/// Runs every step, and stops at the first failure.
pub(crate) fn test(workspace: Workspace, options: TestOptions) -> Result<()> {
    let mut checks = Checks { workspace, options, tally: TestTotals::default(), servers: None };
    let mut times = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        println!("\n=== {}/{} {}", index + 1, STEPS.len(), step.name);
        let start = Instant::now();
        let result = (step.run)(&mut checks);
        let time = start.elapsed();
        if let Err(error) = result {
            print_times(&times);
            println!("{}  {}  FAILED", seconds(time), step.name);
            if checks.tally.suites > 0 {
                println!("{}", checks.tally);
            }
            return Err(error.context(format!("step {}/{} ({}) failed", index + 1, STEPS.len(), step.name)));
        }
        println!("--- {} passed in {}", step.name, seconds(time).trim_start());
        times.push((step.name, time));
    }
    print_times(&times);
    println!("\n{}", checks.tally);
    println!("all checks passed");
    Ok(())
}

fn print_times(times: &[(&str, Duration)]) {
    println!();
    for (name, time) in times {
        println!("{}  {name}", seconds(*time));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:>7.1} s", time.as_secs_f64())
}

fn format(checks: &mut Checks) -> Result<()> {
    run::check(run::cargo(&checks.workspace.root).args(["fmt", "--all", "--check"]))
        .context("`cargo fmt --all` mends this")
}

/// Returns the cargo of all builds, without incremental caches or debug information, which would take several
/// gigabytes. All steps build alike, so that none rebuilds a dependency.
fn build(checks: &Checks) -> Command {
    let mut cargo = run::cargo(&checks.workspace.root);
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "false");
    cargo
}

fn clippy(checks: &mut Checks) -> Result<()> {
    let mut clippy = build(checks);
    clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]).args(FEATURES);
    clippy.args(["--", "-D", "warnings"]);
    // Named, so that no lint table disables it: no other step finds parts of the standard library that are newer than
    // the oldest compiler.
    clippy.args(["-D", "clippy::incompatible_msrv"]);
    run::check(&mut clippy)
}

fn documentation(checks: &mut Checks) -> Result<()> {
    let mut doc = build(checks);
    // With the features of the other steps, whose dependencies are already built.
    doc.env("RUSTDOCFLAGS", "-D warnings")
        .args(["doc", "--workspace", "--no-deps", "--locked"])
        .args(FEATURES);
    run::check(&mut doc)
}

/// Runs the test programs of some packages, each after a line with its package, and skips those of the others. Both test
/// steps build all of them, because each selection of packages with other features would rebuild a package.
const ONLY: &str = r#"target."cfg(unix)".runner = ["sh", "-c", 'case " $TESTED " in *" $CARGO_PKG_NAME "*) echo "package $CARGO_PKG_NAME"; exec "$@";; esac', "only"]"#;

/// The optional second driver of the PostgreSQL store.
const FEATURES: [&str; 2] = ["--features", "oncebox-postgres/tokio-postgres"];

/// Returns the command for the test programs of these packages.
fn test_programs(checks: &Checks, packages: &[String]) -> Command {
    let mut test = build(checks);
    test.args(["test", "--workspace", "--tests", "--config", ONLY]).args(FEATURES);
    test.env("TESTED", packages.join(" "));
    // For a test that runs an example with cargo.
    test.env("BUILT_SELECTION", format!("--workspace {}", FEATURES.join(" ")));
    test
}

/// Checks that need no installed server. They run first.
fn tests(checks: &mut Checks) -> Result<()> {
    let mut test = test_programs(checks, &checks.workspace.without_servers);
    run_tests(&mut test, &mut checks.tally)
}

fn start_servers(checks: &mut Checks) -> Result<()> {
    servers::install(&checks.workspace)?;
    checks.servers = Some(servers::start()?);
    Ok(())
}

fn tests_with_servers(checks: &mut Checks) -> Result<()> {
    // No later step needs the servers.
    let servers = checks.servers.take().context("the servers were not started")?;
    let mut test = test_programs(checks, &checks.workspace.with_servers);
    run_tests(test.envs(servers.variables()), &mut checks.tally)?;
    let mut examples = build(checks);
    examples.args(["test", "--workspace", "--doc"]).args(FEATURES);
    run_tests(examples.envs(servers.variables()), &mut checks.tally)
}

fn run_tests(test: &mut Command, total: &mut TestTotals) -> Result<()> {
    // Show every failure, not only those of the first failing program.
    test.args(["--locked", "--no-fail-fast"]);
    let mut tally = TestTotals::default();
    let result = run::check_counting(test, &mut tally, &mut io::stdout());
    total.add(&tally);
    result?;
    let TestTotals { suites, passed, failed, ignored, .. } = tally;
    if passed == 0 || failed > 0 {
        bail!("cargo test succeeded, but its output says: {tally}");
    }
    if ignored > 0 {
        bail!(
            "{ignored} tests were ignored (`ignore` on a documentation example, too): a test runs or is deleted"
        );
    }
    println!("{suites} suites: {tally}");
    Ok(())
}
