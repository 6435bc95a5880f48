//! User that runs the servers. Tests: below.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// User of a server, if it differs from ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Returns an unprivileged user if we are root, and `None` otherwise.
pub(crate) fn unprivileged() -> Result<Option<User>> {
    if !is_root()? {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    for name in ["postgres", "nobody"] {
        if let Some(user) = find(&passwd, name) {
            return Ok(Some(user));
        }
    }
    bail!("servers do not run as root, and there is neither a user `postgres` nor `nobody`")
}

/// Returns true if this process runs as root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("cannot read /proc, which Linux has")?.uid() == 0)
}

fn find(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let mut ids = fields.skip(1).map(|id| id.parse().ok());
        Some(User { uid: ids.next()??, gid: ids.next()?? })
    })
}

/// Returns true if the user of the servers can enter `path`. The home of root, for example, is closed.
pub(crate) fn reaches(path: &Path) -> bool {
    let closed = |dir: &Path| fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    !is_root().unwrap_or(false) || !path.ancestors().any(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533:nobody:/:/sbin/nologin\nhalf:x\n";

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let nobody = find(PASSWD, "nobody").unwrap();
        assert_eq!((nobody.uid, nobody.gid), (65534, 65533));
        assert!(find(PASSWD, "nobod").is_none());
        assert!(find(PASSWD, "half").is_none());
    }

    #[test]
    fn a_closed_directory_is_not_reached_by_another_user() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let allow = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        allow(0o711);
        assert!(reaches(&inside));
        allow(0o700);
        assert_eq!(reaches(&inside), !is_root().unwrap());
        assert!(reaches(Path::new("/usr/bin")));
    }
}
