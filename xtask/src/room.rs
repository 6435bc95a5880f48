//! Free disk space for the test command. Tests: below.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;

/// Maximum bytes that a run in an empty target directory writes: about 5 GB of programs and libraries, the build of
/// `cargo-deny`, and the servers' data. See CONTRIBUTING.md.
const NEEDED: u64 = 8_000_000_000;

/// Bytes that a run in a full target directory needs: new versions of programs, and the servers' data.
const LEAST: u64 = 3_000_000_000;

/// Prints the free space, and fails if the run would fill the disk.
pub(crate) fn ensure(target: &Path) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot create {}", target.display()))?;
    let (free, used) = (free(target)?, used(target));
    let needed = needed(used);
    println!(
        "{} free, {} in the target directory, {} needed",
        gigabytes(free),
        gigabytes(used),
        gigabytes(needed)
    );
    enough(free, needed, target)
}

fn needed(used: u64) -> u64 {
    NEEDED.saturating_sub(used).max(LEAST)
}

fn enough(free: u64, needed: u64, target: &Path) -> Result<()> {
    if free < needed {
        bail!(
            "the disk of {} has {} free, and the tests need {}; make room (`cargo clean` removes what is stale, too), or set \
             CARGO_TARGET_DIR to a directory on another disk",
            target.display(),
            gigabytes(free),
            gigabytes(needed)
        );
    }
    Ok(())
}

fn gigabytes(bytes: u64) -> String {
    // Tenths, without a float.
    let tenths = bytes / 100_000_000;
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

/// Returns the free bytes on the disk of a directory.
fn free(dir: &Path) -> Result<u64> {
    let text = run::output(Command::new("df").arg("-Pk").arg(dir))?;
    blocks(&text).map(|blocks| blocks * 1024).with_context(|| format!("cannot read what df printed: {text}"))
}

/// Returns the fourth column of the line after the titles.
fn blocks(df: &str) -> Option<u64> {
    df.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

/// Returns the size of a directory. Ignores files that vanish meanwhile.
fn used(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(if metadata.is_dir() { used(&entry.path()) } else { metadata.len() })
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_before_anything_is_built() {
        let df = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n/dev/vda1   100 60 40 60% /a b\n";
        assert_eq!(blocks(df), Some(40));
        assert_eq!(blocks("df: nowhere: No such file or directory"), None);
        let error = enough(3_950_000_000, needed(0), Path::new("/t")).unwrap_err().to_string();
        assert!(error.contains("/t has 3.9 GB free, and the tests need 8.0 GB"), "{error}");
        enough(NEEDED, needed(0), Path::new("/t")).unwrap();
        enough(LEAST, needed(NEEDED * 2), Path::new("/t")).unwrap();
        assert!(enough(LEAST - 1, needed(NEEDED * 2), Path::new("/t")).is_err());
    }

    #[test]
    fn the_disk_of_this_test_is_measured() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(free(dir).is_ok());
        assert!(used(dir) > 10_000);
    }
}
