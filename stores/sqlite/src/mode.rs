//! File modes: only its owner may read a new database. SQLite gives `-wal` and `-shm` the mode of the database.
//! Tests: `tests/modes.rs`.

use std::path::{Path, PathBuf};

use oncebox_core::store::{Finding, Severity};
use parking_lot::Mutex;

/// Maximum links that are followed to the place of a new file. The kernel follows 40.
const LINKS: usize = 40;

/// Lets one thread create a file at a time. Closing a file releases all locks of the process on it, so no
/// other thread may open the file before it is closed here.
static MAKING: Mutex<()> = Mutex::new(());

/// Creates a missing file with mode 0600, independent of the umask. Leaves an existing file unchanged.
/// Ignores errors, because SQLite reports them when it opens the file.
pub(crate) fn make_private(path: &Path) {
    let _making = MAKING.lock();
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && !path.exists() => {
                // The path is a link to a missing file. Create its target.
                let Ok(target) = std::fs::read_link(&path) else { return };
                path = path.parent().unwrap_or(Path::new("")).join(target);
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// Returns the files of a database that other users may read or write, with their modes.
#[cfg(unix)]
fn wide(database: &Path) -> Vec<(PathBuf, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    let beside = |end: &str| {
        let mut path = database.as_os_str().to_owned();
        path.push(end);
        PathBuf::from(path)
    };
    let modes = [database.to_owned(), beside("-wal"), beside("-shm")].into_iter().filter_map(|path| {
        let mode = std::fs::metadata(&path).ok()?.mode() & 0o777;
        (mode & 0o077 != 0).then_some((path, mode))
    });
    modes.collect()
}

#[cfg(not(unix))]
fn wide(_: &Path) -> Vec<(PathBuf, u32)> {
    Vec::new()
}

/// Returns a finding if other users may read or write the files.
pub(crate) fn examine(database: &Path) -> Option<Finding> {
    let wide = wide(database);
    let named: Vec<_> =
        wide.iter().map(|(path, mode)| format!("{} has mode {mode:04o}", path.display())).collect();
    (!named.is_empty()).then(|| {
        let paths: Vec<_> = wide.iter().map(|(path, _)| path.display().to_string()).collect();
        Finding::new(
            Severity::Warning,
            "file_mode",
            format!("other users of this machine may read or write what is stored: {}", named.join(", ")),
            format!("run `chmod 600 {}`, unless a group shares the file on purpose", paths.join(" ")),
        )
    })
}

/// Logs a warning, once per opened store.
pub(crate) fn warn(database: &Path) {
    if let Some(finding) = examine(database) {
        tracing::warn!(fix = finding.fix, "{}", finding.what);
    }
}
