//! Where stores are, checked as far as that is known without opening them.

use std::path::Path;

use oncebox_postgres::Postgres;

use super::model;
use super::plan::{Planner, Secrets};
use super::value::{At, Guarded};

impl Planner {
    /// Checks where the tables of a store are, whatever its URL is: that may be a secret which is not read.
    pub(super) fn check_names(&mut self, store: &model::Store) {
        // Opens nothing: any URL does.
        let options = || Postgres::options("postgres://localhost/oncebox");
        let checked = [
            store
                .schema
                .as_ref()
                .map(|set| (set.at(), options().and_then(|all| all.schema(set.as_str()).check()))),
            store
                .prefix
                .as_ref()
                .map(|set| (set.at(), options().and_then(|all| all.prefix(set.as_str()).check()))),
        ];
        for (at, checked) in checked.into_iter().flatten() {
            if let Err(error) = checked {
                self.wrong(at, error.what());
            }
        }
    }

    /// Checks the URL of a server. The error does not repeat it: it may hold a password.
    pub(super) fn check_url(&mut self, set: &At<Guarded>, url: &str) {
        if let Err(error) = Postgres::options(url) {
            self.wrong(set.at(), error.what());
        }
    }

    /// What keeps a file from being opened or made. The files of another machine are not looked for.
    pub(super) fn flaw_of_file(&self, path: &Path) -> Option<String> {
        if self.secrets != Secrets::Read {
            return None;
        }
        if path.is_dir() {
            return Some(format!("{} is a directory; name a file in it", path.display()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())?;
        let (path, parent) = (path.display(), parent.display());
        Some(format!(
            "the file {path} cannot be made: there is no directory {parent}; make it, or name another file"
        ))
    }
}
