//! A full disk: errors say that nothing was stored, and work continues when there is room again.

mod support;

use std::fs;
use std::io::{ErrorKind as IoErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use oncebox::store::{Accepted, Store as _};
use oncebox::{ErrorKind, Message};
use oncebox_sqlite::rusqlite::Connection;
use oncebox_sqlite::{Sqlite, Synchronous};
use support::{accept, check, first, offer_message};

/// Environment variable of a test that runs in namespaces.
const NAMESPACES: &str = "ONCEBOX_IN_NAMESPACES";

/// A disk of 4 MiB, which is unmounted after the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts the disk. Returns `None` without the right to mount.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "oncebox-full"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = fs::File::create(&path).expect("a file");
        loop {
            match file.write_all(&[1; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == IoErrorKind::StorageFull => return path,
                Err(error) => panic!("cannot fill the disk: {error}"),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Runs a test of this file in its own namespaces, where this user may mount.
fn run_in_namespaces(test: &str) {
    assert!(std::env::var_os(NAMESPACES).is_none(), "cannot mount in a namespace either");
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().expect("this program"));
    unshare.args([test, "--exact", "--nocapture"]).env(NAMESPACES, "1");
    let ended = unshare.status().expect("a small disk needs the right to mount, or `unshare`");
    assert!(ended.success(), "{test} failed in namespaces, or this user may not make any: run it as root");
}

// FAULTS E10: the log grows with the commit, so the commit fails on a full disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_finds_no_room_is_full_and_not_in_doubt() {
    let Some(disk) = SmallDisk::mount() else {
        run_in_namespaces("a_commit_that_finds_no_room_is_full_and_not_in_doubt");
        return;
    };
    let file = disk.path().join("inbox.db");
    let store = Sqlite::options(&file).synchronous(Synchronous::Full).open().expect("the file opens");
    first(&store, "before").await;
    let ballast = disk.fill();
    let large = || offer_message(Message::new("large", "order.placed", vec![7; 200_000]), &["h"]);
    for _ in 0..3 {
        let error = store.accept(&[large()]).await.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(error.to_string().contains(ErrorKind::Full.kept()), "{error}");
    }
    fs::remove_file(ballast).expect("room again");
    let known = accept(&store, "before").await.expect("accept");
    assert!(matches!(known, Accepted::Duplicate(_)), "{known:?}");
    let stored = store.accept(&[large()]).await.expect("accept");
    assert!(matches!(stored[0], Accepted::First(_)), "nothing of it was stored before: {stored:?}");
    check(&Connection::open(&file).expect("another connection"));
}
