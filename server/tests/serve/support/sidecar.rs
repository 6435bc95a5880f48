//! The real binary, running.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use tempfile::TempDir;

use super::watched::WatchedList;

/// Runs a command and returns its output.
pub(crate) fn oncebox(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().expect("the binary runs")
}

/// Runs a command with more environment variables and returns its output.
pub(crate) fn oncebox_with(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    command(dir).args(args).envs(env.iter().copied()).output().expect("the binary runs")
}

fn command(dir: &Path) -> Command {
    at_home(Command::new(env!("CARGO_BIN_EXE_oncebox")), dir)
}

fn at_home(mut command: Command, dir: &Path) -> Command {
    command.current_dir(dir).env_remove("RUST_LOG").env_remove("ONCEBOX_CONFIG").env("NO_COLOR", "1");
    // Invalid secrets, for configurations that name them.
    let secrets = [("EMPTY", ""), ("BLANK", " \t "), ("WORD", "no base64!"), ("PHRASE", "two words")];
    command.envs(secrets.map(|(name, secret)| (format!("ONCEBOX_{name}"), secret)));
    // And good ones.
    command.env("AMQP_URL", "amqp://127.0.0.1:9").env("S", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    command
}

/// A running sidecar. Killed when dropped.
pub(crate) struct Sidecar {
    child: Child,
    lines: WatchedList<String>,
    pub(crate) dir: std::sync::Arc<TempDir>,
    /// Base URL for messages.
    pub(crate) base: String,
}

impl Sidecar {
    /// Starts in a new directory, without a configuration.
    pub(crate) fn quick(args: &[&str]) -> Self {
        Self::start(std::sync::Arc::new(TempDir::new().expect("a directory")), args, &[])
    }

    /// Starts in a new directory with this configuration.
    pub(crate) fn with(config: &str) -> Self {
        Self::with_env(config, &[])
    }

    pub(crate) fn with_env(config: &str, env: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        std::fs::write(dir.path().join("oncebox.toml"), config).expect("a file");
        Self::start(std::sync::Arc::new(dir), &[], env)
    }

    /// Starts with this configuration and a limit on file descriptors.
    pub(crate) fn limited(descriptors: u32, config: &str, env: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        std::fs::write(dir.path().join("oncebox.toml"), config).expect("a file");
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_oncebox")]);
        Self::start_by(shell, std::sync::Arc::new(dir), &[], env)
    }

    /// Starts with this configuration, and returns while it waits for its store.
    pub(crate) fn early(config: &str, env: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        std::fs::write(dir.path().join("oncebox.toml"), config).expect("a file");
        let binary = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        let mut sidecar = Self::spawn(binary, std::sync::Arc::new(dir), &[], env);
        let line = sidecar.wait_words(&["waiting for the store", "/readyz"]);
        let start = line.find("http://").expect("where it listens");
        line[start..].split("/readyz").next().unwrap_or_default().clone_into(&mut sidecar.base);
        sidecar
    }

    /// Starts in an existing directory.
    pub(crate) fn start(dir: std::sync::Arc<TempDir>, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_oncebox")), dir, args, env)
    }

    fn start_by(binary: Command, dir: std::sync::Arc<TempDir>, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut sidecar = Self::spawn(binary, dir, args, env);
        let ready = sidecar.wait_line("ready", |line| {
            line == "<end>" || line.starts_with("ready;") || line.contains("\"message\":\"ready\"")
        });
        assert_ne!(ready, "<end>", "it ended: {:#?}", sidecar.lines());
        let base = sidecar.lines().iter().find_map(|line| {
            let start = line.find("http://127.0.0.1:").or_else(|| line.find("https://127.0.0.1:"))?;
            Some(line[start..].split("/in/").next()?.to_owned())
        });
        sidecar.base = base.unwrap_or_default();
        sidecar
    }

    fn spawn(binary: Command, dir: std::sync::Arc<TempDir>, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child = at_home(binary, dir.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("its standard error"));
        let lines = WatchedList::default();
        let all = WatchedList::clone(&lines);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                all.push(line);
            }
            // Tells waiting tests that the output has ended.
            all.push(String::from("<end>"));
        });
        Self { child, lines, dir, base: String::new() }
    }

    /// Returns the URL of an endpoint.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}/in/{name}", self.base)
    }

    /// Returns the base URL for operators.
    pub(crate) fn operators(&self) -> String {
        let line = self.wait_line("where operators are answered", |line| line.contains("/api/v1"));
        let from = line.find("http").expect("a URL");
        line[from..].split("/api/v1").next().expect("its beginning").to_owned()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.all()
    }

    /// Waits for a line.
    pub(crate) fn wait_line(&self, what: &str, mut fits: impl FnMut(&str) -> bool) -> String {
        self.lines.wait(what, |lines| lines.iter().find(|line| fits(line)).cloned())
    }

    /// Waits until the lines so far match.
    pub(crate) fn wait_lines(&self, what: &str, mut fit: impl FnMut(&[String]) -> bool) {
        self.lines.wait(what, |lines| fit(lines).then_some(()));
    }

    /// Waits for a line that contains all words.
    pub(crate) fn wait_words(&self, words: &[&str]) -> String {
        self.wait_line(&format!("{words:?}"), |line| words.iter().all(|word| line.contains(word)))
    }

    /// Waits until `count` lines start with this word, after their time.
    pub(crate) fn wait_count(&self, word: &str, count: usize) {
        let begins = |line: &&String| line.split(' ').nth(1) == Some(word);
        let all = |lines: &[String]| lines.iter().filter(begins).count();
        self.lines.wait(&format!("{count} times {word}"), |lines| (all(lines) >= count).then_some(()));
    }

    /// Returns its memory use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let held = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        held.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("its end");
        self.wait_line("its last line", |line| line == "<end>");
        status
    }

    /// Stops it and waits until it has ended.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.signal("TERM");
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{:#?}", self.lines());
        self.lines()
    }

    pub(crate) fn write_config(&self, text: &str) {
        std::fs::write(self.dir.path().join("oncebox.toml"), text).expect("a file");
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
