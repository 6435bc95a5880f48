//! `oncebox completions` and `oncebox man`: what belongs to a shell and to a system, made from the commands themselves.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, CommandError, Exit, out};

/// What `completions` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn completions(args: &Completions) -> Result<ExitCode, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "oncebox", &mut script);
    out::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// What `man` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Writes a page for each command into this directory, which is made if it is missing. Default: the first page, to the
    /// standard output.
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
    rendered.context("cannot make the page").map_err(|error| Exit::Failure.with(error))?;
    out::print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

fn pages(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir)).with_context(
        || format!("cannot write pages into {}; name a directory that can be written", dir.display()),
    )
}
