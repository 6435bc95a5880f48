//! `oncebox completions` and `oncebox man`, generated from the commands. Tests: `tests/operate/output.rs`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, CommandError, Exit, out};

/// Arguments of `oncebox completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn completions(args: &Completions) -> Result<ExitCode, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "oncebox", &mut script);
    out::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `oncebox man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write one page per command into this directory, and create it if needed
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn man(args: &Man) -> Result<ExitCode, CommandError> {
    if let Some(dir) = &args.dir {
        pages(dir).map_err(|error| Exit::Failure.with(error))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
    rendered.context("cannot render the manual page").map_err(|error| Exit::Failure.with(error))?;
    out::print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

fn pages(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir)).with_context(
        || format!("cannot write manual pages to {}; choose a writable directory", dir.display()),
    )
}
