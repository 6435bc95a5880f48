//! Commands of this repository. `cargo xtask --help` lists them. Tests: below.

mod chaos;
mod deny;
mod faults;
mod hygiene;
mod literals;
mod metrics;
mod msrv;
mod peers;
mod python;
mod room;
mod run;
mod servers;
mod state_diagram;
mod stores;
mod tally;
mod test;
mod toolchain;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                      every check a change must pass, as CI runs them
  cargo xtask test --advisories         the same, and known vulnerabilities; needs the advisory database's host
  cargo xtask servers                   install the servers that tests use, as far as they are missing
  cargo xtask servers run -- cargo test -p oncebox-servers
                                        start them for one command
  cargo xtask state-diagram             write docs/state.md anew after a change of the states
  cargo xtask state-diagram --check     only say whether docs/state.md is up to date
  cargo xtask chaos --store sqlite --minutes 1
                                        kill workers and check what is left; see chaos/README.md
  cargo xtask chaos sabotage            plant bugs, each of which has to be noticed
  cargo xtask metrics                   write docs/metrics.md anew after a change of the metrics
  cargo xtask faults                    write docs/faults.md anew: which test is for which fault
  cargo xtask stores                    write docs/stores.md anew: run the suites of all stores
  cargo xtask decisions                 write docs/adr/README.md anew after a new decision
  cargo xtask words server/src          list breaches of the rules for prose and names
  cargo xtask words --types             list type names with more than one definition
  cargo xtask hygiene                   check the rules that no compiler knows, such as the length of files
  cargo xtask bench --help              what can be measured, and how
  cargo xtask bench postgres --quick    ours on PostgreSQL, beside hand-written loops
  cargo xtask bench http --load         many clients over HTTP, bad ones among them
  cargo xtask bench rabbitmq --quick    from RabbitMQ to PostgreSQL, beside each half of the way
  cargo xtask bench peers --help        other queues and ours, measured on one PostgreSQL server";

/// Commands of the Oncebox repository
#[derive(Parser)]
#[command(bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every check a change must pass; stop at the first failure
    #[command(after_help = "Example: cargo xtask test")]
    Test(test::TestOptions),

    /// Install missing servers for tests, or start them for a command
    #[command(after_help = "Example: cargo xtask servers run -- cargo test -p oncebox-servers")]
    Servers {
        #[command(subcommand)]
        command: Option<servers::Command>,
    },

    /// Write docs/state.md from the code's table of states
    #[command(after_help = "Example: cargo xtask state-diagram --check")]
    StateDiagram {
        /// Write nothing; fail if the file is out of date
        #[arg(long)]
        check: bool,
    },

    /// Inject faults into real processes and servers, and check the result
    #[command(
        after_help = "Example: cargo xtask chaos --store postgres --minutes 5 --json",
        disable_help_flag = true
    )]
    Chaos {
        /// Arguments of the rig, `--release`, or `sabotage [NAME]`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },

    /// Write docs/metrics.md from the code's table of metrics
    #[command(after_help = "Example: cargo xtask metrics --check")]
    Metrics {
        /// Write nothing; fail if the file is out of date
        #[arg(long)]
        check: bool,
    },

    /// Write docs/faults.md from the ids that tests name
    #[command(after_help = "Example: cargo xtask faults --check")]
    Faults {
        /// Write nothing; fail if the page names a missing test
        #[arg(long)]
        check: bool,
    },

    /// Write docs/stores.md from a run of the suites of all stores
    #[command(after_help = "Example: cargo xtask stores --check")]
    Stores {
        /// Write nothing, run nothing; fail if the page differs from the lists of cases
        #[arg(long)]
        check: bool,
    },

    /// Write docs/adr/README.md from the titles of the decisions
    Decisions,

    /// List breaches of the rules for prose and names, by rule and directory
    #[command(after_help = "Example: cargo xtask words server/src")]
    Words(hygiene::WordsOptions),
    /// Check the rules of this repository beyond the compiler
    #[command(after_help = "Example: cargo xtask hygiene")]
    Hygiene,

    /// Build and run a benchmark: SQLite, `postgres`, `http`, `rabbitmq` or `peers`
    #[command(after_help = "Example: cargo xtask bench --help", disable_help_flag = true)]
    Bench {
        /// Arguments of the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<()> {
    match command {
        Command::Test(options) => test::test(Workspace::load()?, options),
        Command::Servers { command } => servers::servers(&Workspace::load()?, command),
        Command::StateDiagram { check: true } => state_diagram::check(&workspace::root()),
        Command::StateDiagram { check: false } => state_diagram::write(&workspace::root()),
        Command::Chaos { args } => chaos::chaos(&Workspace::load()?, args),
        Command::Metrics { check: true } => metrics::check(&workspace::root()),
        Command::Metrics { check: false } => metrics::write(&workspace::root()),
        Command::Faults { check: true } => faults::check(&workspace::root()),
        Command::Faults { check: false } => faults::write(&workspace::root()),
        Command::Stores { check: true } => stores::check(&Workspace::load()?),
        Command::Stores { check: false } => stores::write(&Workspace::load()?),
        Command::Words(options) => hygiene::words(&workspace::root(), &options),
        Command::Decisions => hygiene::write_decisions(&workspace::root()),
        Command::Hygiene => hygiene::check(&Workspace::load()?),
        Command::Bench { args } if args.first().is_some_and(|first| first == "peers") => {
            peers::bench(&peers::PeerOptions::parse_from(args))
        }
        Command::Bench { args } if args.first().is_some_and(|first| first == "postgres") => {
            bench_with_servers("oncebox-bench-postgres", &args[1..])
        }
        Command::Bench { args } if args.first().is_some_and(|first| first == "http") => {
            bench_with_servers("oncebox-bench-http", &args[1..])
        }
        Command::Bench { args } if args.first().is_some_and(|first| first == "rabbitmq") => {
            bench_with_servers("oncebox-bench-rabbitmq", &args[1..])
        }
        Command::Bench { args } => {
            let mut bench = run::cargo(&workspace::root());
            bench.args(["run", "--release", "--locked", "--package", "oncebox-bench", "--"]).args(args);
            run::check(&mut bench)
        }
    }
}

/// Runs a benchmark that starts servers of its own.
fn bench_with_servers(package: &str, args: &[OsString]) -> Result<()> {
    servers::install(&Workspace::load()?)?;
    let mut bench = run::cargo(&workspace::root());
    run::check(bench.args(["run", "--release", "--locked", "--package", package, "--"]).args(args))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_for_the_servers_is_taken_as_it_is() {
        let cli =
            Cli::try_parse_from(["xtask", "servers", "run", "--", "cargo", "test", "-p", "x", "--", "-q"]);
        let Command::Servers { command: Some(servers::Command::Run { program }) } = cli.ok().unwrap().command
        else {
            panic!("not the servers command")
        };
        assert_eq!(program, ["cargo", "test", "-p", "x", "--", "-q"]);
        assert!(Cli::try_parse_from(["xtask", "servers", "run"]).is_err(), "there is nothing to run");
    }

    #[test]
    fn the_benchmark_gets_its_arguments_untouched() {
        let cli = Cli::try_parse_from(["xtask", "bench", "--help", "-n", "5", "--", "x"]).ok().unwrap();
        let Command::Bench { args } = cli.command else { panic!("not the bench command") };
        assert_eq!(args, ["--help", "-n", "5", "--", "x"]);
    }
}
