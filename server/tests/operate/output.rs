//! Output of commands: tables, colours, progress, completions and the manual.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::fixture::{ADA, OperateFixture, code, oncebox, refused, said, text};

/// A pseudo terminal: our side and the other one.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal");
    let name = ptsname(&ours, Vec::new()).expect("its name").into_string().expect("its name");
    let theirs = OpenOptions::new().read(true).write(true).open(name).expect("the other side");
    (File::from(ours), theirs)
}

/// Reads everything written to a terminal until all writers have closed it.
fn written(mut ours: File) -> String {
    let mut all = Vec::new();
    let mut some = [0; 4096];
    // A closed other side is an error on Linux.
    while let Ok(read @ 1..) = ours.read(&mut some) {
        all.extend_from_slice(&some[..read]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns the output of a command whose standard output or standard error is a terminal.
fn on_a_terminal(mut command: Command, stderr: bool) -> String {
    let (ours, theirs) = terminal();
    if stderr {
        command.stderr(theirs).stdout(Stdio::null());
    } else {
        command.stdout(theirs).stderr(Stdio::null());
    }
    let mut child = command.spawn().expect("the binary runs");
    // The command holds the other side too.
    drop(command);
    let all = written(ours);
    child.wait().expect("it ends");
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn only_terminals_get_colours() {
    let fixture = OperateFixture::new().await;
    let list = || {
        let mut command = fixture.command("list", &["--status", "poisoned"]);
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        command
    };
    let coloured = on_a_terminal(list(), false);
    assert!(coloured.contains("\u{1b}[31mpoisoned\u{1b}[0m"), "{coloured:?}");
    assert!(coloured.contains("evt_\\u{1b}[31m2"), "an id has no colours of its own: {coloured:?}");
    let mut plain = list();
    plain.env("NO_COLOR", "1");
    assert!(!on_a_terminal(plain, false).contains('\u{1b}'));
    let mut dumb = list();
    dumb.env("TERM", "dumb");
    assert!(!on_a_terminal(dumb, false).contains('\u{1b}'));
    assert!(!text(&list().output().expect("it runs")).contains('\u{1b}'), "nor for a file");
    let json = on_a_terminal(fixture.command("list", &["--json"]), false);
    assert!(!json.contains('\u{1b}'), "nor for programs: {json:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_terminals_get_progress() {
    let fixture = OperateFixture::with(3, refused).await;
    let args = [&ADA[..], &["--error", "refused", "--confirm"]].concat();
    let mut discard = fixture.command("discard", &args);
    discard.env("TERM", "xterm");
    let drawn = on_a_terminal(discard, true);
    assert!(drawn.contains("/3") && drawn.contains("skipped (changed)"), "{drawn:?}");
    let fixture = OperateFixture::with(1, refused).await;
    let piped = fixture.run("discard", &args);
    assert_eq!(said(&piped).lines().count(), 1, "who it is and nothing else: {piped:?}");
    assert_eq!(text(&piped), "finished: 1 done, 0 skipped (changed), 0 failed again\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_is_no_failure() {
    let fixture = OperateFixture::with(200, refused).await;
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut list = fixture.command("list", &["--limit", "1000"]);
    let output = list.stdout(writer).stderr(Stdio::piped()).output().expect("the binary runs");
    assert_eq!((code(&output), said(&output)), (0, String::new()), "{output:?}");
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = oncebox(["completions", shell]).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let script = text(&output);
        for word in ["oncebox", "explain", "go-on"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("oncebox.bash");
    std::fs::write(&file, oncebox(["completions", "bash"]).output().expect("it runs").stdout)
        .expect("a file");
    let script = format!(
        ". {}; COMP_WORDS=(oncebox migr); COMP_CWORD=1; _oncebox oncebox migr oncebox; echo $COMPREPLY",
        file.display()
    );
    let completed = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    assert_eq!(text(&completed).trim(), "migrate", "{completed:?}");
    assert_eq!(code(&oncebox(["completions", "cmd"]).output().expect("it runs")), 2);
}

#[test]
fn every_command_has_a_page() {
    let page = oncebox(["man"]).output().expect("it runs");
    assert!(page.status.success() && text(&page).contains(".TH oncebox 1"), "{page:?}");
    assert!(text(&page).contains("Exit codes"), "{page:?}");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let inside = dir.path().join("man1");
    let made = oncebox(["man", "--dir"]).arg(&inside).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    for name in ["oncebox", "oncebox-retry", "oncebox-show", "oncebox-migrate-apply", "oncebox-serve"] {
        let page = std::fs::read_to_string(inside.join(format!("{name}.1"))).expect(name);
        assert!(page.contains("oncebox"), "{name}: {page}");
    }
    assert!(!inside.join("oncebox-demo-worker.1").exists());
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let wrong = oncebox(["man", "--dir"]).arg(&file).output().expect("it runs");
    assert_eq!(code(&wrong), 4, "{wrong:?}");
    assert!(said(&wrong).contains("choose a writable directory"), "{wrong:?}");
}

#[test]
fn help_lists_the_exit_codes() {
    let help = text(&oncebox(["--help"]).output().expect("it runs"));
    for code in ["0 success", "1 a check", "2 command line", "3 cannot start", "4 failed", "5 not found"] {
        let words: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(code), "{code}: {help}");
    }
    for command in ["status", "list", "show", "explain", "audit", "doctor", "retry", "purge", "backfill"] {
        assert!(
            text(&oncebox([command, "--help"]).output().expect("it runs")).contains("Exit codes:"),
            "{command}"
        );
    }
}
