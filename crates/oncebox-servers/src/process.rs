//! Commands, and searches for running processes. Tests: below.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Timeout for any action of a server. Only a broken server needs as long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// Runs a command to its end and returns its output, without the last newline.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let shown = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let shown = shown();
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {} {}", output.status, errors.trim(), text.trim());
    }
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Sends a signal, such as `KILL`. An ended process is no error.
pub(crate) fn signal(name: &str, pids: &[u32]) -> Result<()> {
    if pids.is_empty() {
        return Ok(());
    }
    // The shell's own `kill`, because some systems lack the program. It fails if a process is gone.
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -s \"$0\" \"$@\" 2>/dev/null || true", name]);
    kill.args(pids.iter().map(ToString::to_string));
    run(&mut kill).map(drop)
}

/// Suspends processes, and waits until they are: a process notices the signal only when it runs the next time.
pub(crate) fn stop(pids: &[u32]) -> Result<()> {
    signal("STOP", pids)?;
    until("suspended processes stand still", || {
        // An ended process has no state.
        let stands = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 'Z']))
            })
        };
        Ok(pids.iter().all(stands).then_some(()))
    })
}

/// Returns the processes whose working directory is `dir`, as that of all processes of a PostgreSQL server is its data directory.
pub(crate) fn working_in(dir: &Path) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc, which Linux has")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Ended processes and those of other users cannot be read.
        if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Polls until there is a result.
pub(crate) fn until<T>(what: &str, poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(PATIENCE, what, poll)
}

/// Polls with a longer timeout, for slow actions on a busy machine.
pub(crate) fn until_within<T>(
    patience: Duration,
    what: &str,
    poll: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    within(patience, poll)?.with_context(|| format!("waited {} s in vain: {what}", patience.as_secs()))
}

/// Polls until there is a result. Returns `None` after the timeout.
pub(crate) fn within<T>(
    patience: Duration,
    mut poll: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    const PAUSE: Duration = Duration::from_millis(10);
    let start = Instant::now();
    loop {
        let answer = poll()?;
        if answer.is_some() || start.elapsed() > patience {
            return Ok(answer);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the kernel reports neither the end of another process's child nor an open port"
        )]
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_the_program_said() {
        let error = run(Command::new("sh").args(["-c", "echo no disk >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit 3`") && error.contains("no disk"), "{error}");
        assert!(run(&mut Command::new("/nowhere/absent")).unwrap_err().to_string().contains("cannot start"));
        assert_eq!(run(Command::new("sh").args(["-c", "echo a; echo b"])).unwrap(), "a\nb");
    }

    #[test]
    fn processes_are_found_by_where_they_work_and_can_be_ended() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert!(working_in(&dir).unwrap().is_empty());
        let mut child = Command::new("sleep").arg("100").current_dir(&dir).spawn().unwrap();
        assert_eq!(working_in(&dir).unwrap(), [child.id()]);
        signal("KILL", &[child.id()]).unwrap();
        child.wait().unwrap();
        assert!(working_in(&dir).unwrap().is_empty());
        signal("KILL", &[child.id()]).unwrap();
    }
}
