//! Checks the settings of stores, without opening them. Tests: `tests/serve/config.rs`.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use oncebox_postgres::Postgres;

use super::model;
use super::plan::{Planner, Secrets};
use super::seal::SealPlan;
use super::value::{Guarded, Located};

/// Plan of a database. Never shows its URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StorePlan {
    pub(crate) name: String,
    pub(crate) place: StorePlace,
    pub(crate) migrate: bool,
    /// Encryption, if configured.
    pub(crate) seal: Option<SealPlan>,
}

impl StorePlan {
    /// Returns true if both have the same tables and encryption. Login and keys may differ.
    pub(crate) fn is_same_but_secrets(&self, other: &Self) -> bool {
        let seals = match (&self.seal, &other.seal) {
            (Some(seal), Some(other)) => seal.is_same_but_keys(other),
            (seal, other) => seal.is_none() && other.is_none(),
        };
        seals
            && (&self.name, self.migrate) == (&other.name, other.migrate)
            && self.place.is_same_but_login(&other.place)
    }

    pub(super) fn warning(&self) -> Option<String> {
        self.seal.as_ref()?.warning().map(|warning| format!("store {}: {warning}", self.name))
    }
}

impl std::fmt::Debug for StorePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorePlan").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StorePlace {
    Sqlite(PathBuf),
    Postgres { url: String, schema: Option<String>, prefix: Option<String>, pooled: bool },
}

impl StorePlace {
    /// Returns true if both have the same tables. The login may differ.
    fn is_same_but_login(&self, other: &Self) -> bool {
        let (mut place, mut former) = (self.clone(), other.clone());
        if let (Self::Postgres { url, .. }, Self::Postgres { url: other, .. }) = (&mut place, &mut former)
            && Postgres::urls_differ_in_login_alone(url, other).unwrap_or(false)
        {
            url.clone_from(other);
        }
        place == former
    }
}

impl Planner {
    pub(super) fn store(&mut self, name: &Located<String>, store: &model::StoreTable) -> Option<StorePlan> {
        let migrate = store.migrate.unwrap_or(true);
        let seal = store.seal.as_ref().and_then(|seal| self.seal(seal));
        let wanted = self.secrets == Secrets::Stores;
        self.check_names(store);
        let Some(url) = (if wanted { self.read(&store.url) } else { self.guarded(&store.url) }) else {
            // Assumed, and never opened.
            let place = StorePlace::Sqlite(PathBuf::new());
            return Some(StorePlan { name: name.to_string(), place, migrate, seal });
        };
        let place = if let Some(path) = url.strip_prefix("sqlite:") {
            let only = [
                store.schema.as_ref().map(|set| (set.at(), "schema")),
                store.prefix.as_ref().map(|set| (set.at(), "prefix")),
                store.pooled.as_ref().map(|set| (set.at(), "pooled")),
            ];
            for (at, setting) in only.into_iter().flatten() {
                self.wrong(at, format!("`{setting}` is for PostgreSQL, and this store is SQLite; remove it"));
            }
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                self.wrong(store.url.at(), "the URL has no file; write it like \"sqlite:oncebox.db\"");
            } else if let Some(flaw) = self.flaw_of_file(Path::new(path)) {
                self.wrong(store.url.at(), flaw);
            }
            StorePlace::Sqlite(path.into())
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            self.check_url(&store.url, &url);
            StorePlace::Postgres {
                url,
                schema: store.schema.as_deref().cloned(),
                prefix: store.prefix.as_deref().cloned(),
                pooled: store.pooled.as_deref().copied().unwrap_or(false),
            }
        } else {
            // Not quoted: it may contain a password.
            let what = "not the URL of a store; start it with \"sqlite:\" or \"postgres://\"";
            self.wrong(store.url.at(), what);
            return None;
        };
        Some(StorePlan { name: name.to_string(), place, migrate, seal })
    }

    /// Checks the names of the tables, even if the URL is a secret that is not read.
    pub(super) fn check_names(&mut self, store: &model::StoreTable) {
        // Opens nothing, so any URL works.
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

    /// Checks the URL of a server. The error does not quote it, because it may contain a password.
    pub(super) fn check_url(&mut self, set: &Located<Guarded>, url: &str) {
        // The files of another machine are not looked for.
        let here = self.secrets == Secrets::Read;
        let checked =
            Postgres::options(url).and_then(|options| if here { options.check_files() } else { Ok(()) });
        if let Err(error) = checked {
            self.wrong(set.at(), error.what());
        }
    }

    /// Returns a reason that the file cannot be opened or created. Skips the check if secrets are assumed.
    pub(super) fn flaw_of_file(&self, path: &Path) -> Option<String> {
        if self.secrets != Secrets::Read {
            return None;
        }
        if path.is_dir() {
            return Some(format!("{} is a directory; use a file in it", path.display()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        let (file, dir) = (path.display(), parent.display());
        if !parent.is_dir() {
            return Some(format!(
                "cannot create the file {file}: the directory {dir} does not exist; create it, or use another file"
            ));
        }
        // SQLite opens a file that it cannot write, and stores nothing.
        if let Err(error) = OpenOptions::new().write(true).open(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Some(format!(
                "the file {file} cannot be written: {error}; change its owner or mode, or name another file"
            ));
        }
        // This leaves nothing behind.
        let error = tempfile::tempfile_in(parent).err()?;
        Some(format!(
            "nothing can be written to the directory {dir}: {error}; SQLite keeps files beside its own, so change the owner or mode \
             of the directory, or name another file"
        ))
    }
}
