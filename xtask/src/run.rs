//! Runs other programs. Tests: below.

use std::env;
use std::io::{Read as _, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::tally::TestTotals;

/// Runs each test program after a line with its package, which no other output names.
pub(crate) const NAMES_PACKAGES: &str =
    r#"target."cfg(unix)".runner = ["sh", "-c", 'echo "package $CARGO_PKG_NAME"; exec "$@"', "named"]"#;

/// Returns the current cargo, at the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command to its end; its output goes to the terminal. Fails unless it succeeds.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    print_command(command);
    let status = command.status().with_context(|| no_start(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a command like [`check`], and counts the test results on their way to `out`.
pub(crate) fn check_counting(
    command: &mut Command,
    tally: &mut TestTotals,
    out: &mut impl Write,
) -> Result<()> {
    print_command(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| no_start(command))?;
    if let Some(mut output) = child.stdout.take() {
        // Bytes, not lines: the name of a hanging test has no newline yet.
        let mut buffer = [0; 8192];
        loop {
            let count = output.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            out.write_all(&buffer[..count])?;
            out.flush()?;
            tally.feed(&buffer[..count]);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Returns the standard output of a command.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| no_start(command))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", shown(command), output.status);
    }
    String::from_utf8(output.stdout).context("the output is not UTF-8")
}

fn no_start(command: &Command) -> String {
    format!("cannot start `{}`", shown(command))
}

fn print_command(command: &Command) {
    println!("$ {}", shown(command));
}

/// Returns the command as a user would type it: the added environment, then the program by its name.
fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (key, value) in command.get_envs() {
        // Removed variables are irrelevant to a user's shell.
        if let Some(value) = value {
            words.push(format!("{}='{}'", key.display(), value.display()));
        }
    }
    let program = Path::new(command.get_program());
    words.push(program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned());
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command() {
        let error = check(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(error.contains("`sh -c exit 3` failed") && error.contains('3'), "{error}");
        let error =
            check(Command::new("/nowhere/absent").env("A", "b c").env_remove("B")).unwrap_err().to_string();
        assert_eq!(error, "cannot start `A='b c' absent`");
    }

    #[test]
    fn results_are_counted_though_the_command_fails() {
        let mut tally = TestTotals::default();
        let script = "echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured'; exit 101";
        // Not to the terminal: there it would count as a result of this test's suite.
        let mut out = Vec::new();
        check_counting(Command::new("sh").args(["-c", script]), &mut tally, &mut out).unwrap_err();
        assert_eq!(tally.to_string(), "2 passed, 1 failed");
        assert!(out.starts_with(b"test result"));
    }
}
