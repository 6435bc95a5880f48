//! File modes of real files, under a umask that lets other users read.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use oncebox::store::{Examine, ExamineParams, Severity, Store as _};
use oncebox::time::{Clock as _, SystemClock};
use oncebox_sqlite::Sqlite;
use support::{claim_params, inbox, offer};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const ROLE: &str = "ONCEBOX_TEST_MODES";

/// Returns the mode of every file in a directory.
fn modes(dir: &Path) -> Vec<(PathBuf, u32)> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.clone(), std::fs::metadata(&path).unwrap().mode() & 0o777)).collect()
}

async fn findings(store: &Sqlite) -> Vec<oncebox::store::Finding> {
    let params = ExamineParams::new(inbox(), SystemClock::default().now());
    let all = store.examine(&params).await.unwrap();
    all.into_iter().filter(|finding| finding.code == "file_mode").collect()
}

/// Helper process of another test: creates a file with umask 022, uses it and ends.
#[tokio::test]
async fn process_under_a_umask() {
    let Some(path) = std::env::var_os(ROLE).map(PathBuf::from) else { return };
    let store = Sqlite::open(&path).unwrap();
    store.accept(&[offer("1")]).await.unwrap();
    assert_eq!(store.claim(&claim_params(1)).await.unwrap().len(), 1);
    let names: Vec<_> = modes(path.parent().unwrap());
    for end in ["inbox.db", "-wal", "-shm"] {
        assert!(names.iter().any(|(path, _)| path.to_string_lossy().ends_with(end)), "no {end}: {names:?}");
    }
    assert!(names.iter().any(|(path, _)| path.to_string_lossy().contains("-owner-")), "{names:?}");
    for (path, mode) in names {
        assert_eq!(mode, 0o600, "{} has mode {mode:o}", path.display());
    }
    assert!(findings(&store).await.is_empty());
    println!("all are private");
}

// FAULTS S19
#[test]
fn new_files_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/inbox.db");
    std::fs::create_dir(dir.path().join("made")).unwrap();
    let run = Command::new("sh")
        .args(["-c", "umask 022; exec \"$0\" --exact process_under_a_umask --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, &path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && said.contains("all are private"),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_that_is_there_keeps_its_mode_and_the_doctor_warns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inbox.db");
    drop(Sqlite::open(&path).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = Sqlite::open(&path).unwrap();
    let found = findings(&store).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::Warning);
    assert!(found[0].what.contains("inbox.db has mode 0644"), "{}", found[0].what);
    assert!(found[0].fix.contains("chmod 600"), "{}", found[0].fix);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o644, "the store changes no mode");
}

/// Warnings of one thread.
#[derive(Clone, Default)]
struct ModeWarnings(Arc<Mutex<Vec<String>>>);

struct WarningFields(String);

impl Visit for WarningFields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for ModeWarnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = WarningFields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
}

#[test]
fn a_store_that_others_can_read_is_logged_when_it_is_opened() {
    let heard = ModeWarnings::default();
    let _listening = tracing::subscriber::set_default(heard.clone());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inbox.db");
    drop(Sqlite::open(&path).unwrap());
    assert_eq!(*heard.0.lock().unwrap(), [""; 0], "a private file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(Sqlite::open(&path).unwrap());
    let lines = heard.0.lock().unwrap();
    let [line] = &lines[..] else { panic!("one line, not {lines:?}") };
    assert!(line.contains("inbox.db has mode 0644") && line.contains("chmod 600"), "{line}");
}

#[test]
fn a_file_behind_a_link_is_made_private_where_it_belongs() {
    let dir = tempfile::tempdir().unwrap();
    let (link, file) = (dir.path().join("link.db"), dir.path().join("file.db"));
    symlink("file.db", &link).unwrap();
    drop(Sqlite::open(&link).unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

// SQLite's locks belong to the process: creating a file while other threads open it must not release them.
#[test]
fn a_file_is_made_once_by_many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let path = dir.path().join(format!("{round}.db"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| Sqlite::open(&path).unwrap());
            }
        });
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
