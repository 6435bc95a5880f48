//! The source commit of a record. Tests: below.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// Paths without influence on a run.
const NO_EFFECT: [&str; 3] = ["chaos/runs", "*.md", "bench"];

/// The built commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Commit {
    /// Its hash.
    commit: String,
    /// True if the source differs from it.
    dirty: bool,
}

impl Commit {
    /// Returns the commit of the rig's repository, if there is one. `cargo xtask chaos` builds the rig from it right
    /// before a run.
    pub(crate) fn of_the_rig() -> Option<Self> {
        Self::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
    }

    fn of(repository: &Path) -> Option<Self> {
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            let output = git.arg("-C").arg(repository).args(args).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| text.trim().to_owned())
        };
        let commit = git(&["rev-parse", "HEAD"])?;
        let beside = NO_EFFECT.map(|path| format!(":(exclude,top){path}"));
        let mut status = vec!["status", "--porcelain", "--", ":(top)"];
        status.extend(beside.iter().map(String::as_str));
        let dirty = !git(&status)?.is_empty();
        Some(Self { commit, dirty })
    }

    /// Adds it to a record.
    pub(crate) fn note(this: Option<&Self>, record: &mut serde_json::Value) {
        if let Some(Self { commit, dirty }) = this {
            record["commit"] = commit.as_str().into();
            record["dirty"] = (*dirty).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_its_commit_and_whether_the_source_differs() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            let who = ["-c", "user.name=rig", "-c", "user.email=rig@example.com"];
            assert!(git.arg("-C").arg(dir.path()).args(who).args(args).status().unwrap().success());
        };
        assert_eq!(Commit::of(dir.path()), None);
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        git(&["init", "--quiet"]);
        write("lib.rs", "1");
        write("chaos/runs/one.json", "{}");
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "first"]);
        let clean = Commit::of(dir.path()).unwrap();
        assert!(clean.commit.len() == 40 && !clean.dirty, "{clean:?}");
        // Records and pages do not change the product.
        write("chaos/runs/two.json", "{}");
        write("docs/page.md", "text");
        assert_eq!(Commit::of(dir.path()), Some(clean.clone()));
        write("lib.rs", "2");
        assert_eq!(Commit::of(dir.path()), Some(Commit { dirty: true, ..clean.clone() }));
        let mut record = serde_json::json!({});
        Commit::note(Some(&clean), &mut record);
        assert_eq!(record, serde_json::json!({"commit": clean.commit, "dirty": false}));
    }
}
