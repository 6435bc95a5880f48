//! Live owners: each store instance that claims holds an operating-system lock on a file beside the database. The kernel
//! releases the lock when the process dies, so a free lock belongs to a dead owner (ADR 22). Tests: `tests/takeover.rs`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use oncebox_core::Result;
use oncebox_core::store::ClaimId;
use rusqlite::{Connection, params};

use crate::error::store_error;
use crate::lock;
use crate::sql::SQL;
use crate::writer::WriteTx;

/// Identity of one boot of one machine. Linux only; elsewhere leases alone decide.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The identity of one store instance, from its first claim on.
pub(crate) struct Owner {
    database: PathBuf,
    boot: Option<String>,
    state: OwnerState,
}

enum OwnerState {
    /// The instance has not claimed yet.
    Unknown,
    /// The instance holds the lock. `id` is its stored number, unless the transaction that stored it was rolled back.
    Alive { lock: OwnerLock, id: Option<i64> },
    /// There is no boot id, or no lock is available: leases decide.
    Unavailable,
}

/// A lock file that this instance holds.
struct OwnerLock {
    name: String,
    path: PathBuf,
    /// Closing the file releases the lock.
    _file: File,
}

impl Owner {
    pub(crate) fn new(database: PathBuf) -> Self {
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned());
        Self { database, boot: boot.filter(|id| !id.is_empty()), state: OwnerState::Unknown }
    }

    /// Returns an owner for work that claims nothing.
    pub(crate) fn without_claims() -> Self {
        Self { database: PathBuf::new(), boot: None, state: OwnerState::Unavailable }
    }

    /// Returns the number of the owner, if it is stored.
    pub(crate) fn id(&self) -> Option<i64> {
        match &self.state {
            OwnerState::Alive { id, .. } => *id,
            OwnerState::Unknown | OwnerState::Unavailable => None,
        }
    }

    /// Forgets the number after a rollback, which may have removed its row.
    pub(crate) fn rolled_back(&mut self) {
        if let OwnerState::Alive { id, .. } = &mut self.state {
            *id = None;
        }
    }

    /// Returns the number of the owner. Stores it if it is new.
    fn enter(&mut self, connection: &Connection) -> Result<Option<i64>> {
        let Some(boot) = &self.boot else { return Ok(None) };
        if matches!(self.state, OwnerState::Unknown) {
            self.state = match OwnerLock::make(&self.database) {
                Ok(lock) => OwnerState::Alive { lock, id: None },
                Err(error) => {
                    tracing::warn!(%error, effect = "restarts wait for leases", "cannot lock owner file");
                    OwnerState::Unavailable
                }
            };
        }
        let OwnerState::Alive { lock, id } = &mut self.state else { return Ok(None) };
        if id.is_none() {
            let number = connection
                .prepare_cached(SQL.owner_enter)
                .and_then(|mut enter| enter.query_row(params![lock.name, boot], |row| row.get(0)))
                .map_err(store_error)?;
            *id = Some(number);
        }
        Ok(*id)
    }

    /// Removes row and file at a clean end. If the owner still holds entries, keeps both, and the next process finds
    /// the lock free.
    pub(crate) fn leave(self, connection: Option<&Connection>, patience: std::time::Duration) {
        let OwnerState::Alive { lock, id } = self.state else { return };
        let gone = match (id, connection) {
            (None, _) => Ok(1),
            (Some(_), None) => return,
            (Some(id), Some(connection)) => lock::begin(connection, patience).and_then(|()| {
                let gone = connection.execute(SQL.owner_leave, [id])?;
                connection.execute_batch(SQL.transaction_commit)?;
                Ok(gone)
            }),
        };
        match gone {
            Ok(0) => {}
            Ok(_) => remove(&lock.path),
            Err(error) => tracing::debug!(%error, "cannot remove owner, next process will"),
        }
    }
}

impl OwnerLock {
    fn make(database: &Path) -> std::io::Result<Self> {
        let name = ClaimId::fresh().to_string();
        let path = lock_file(database, &name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        if let Err(error) = file.try_lock() {
            remove(&path);
            return Err(error.into());
        }
        Ok(Self { name, path, _file: file })
    }
}

/// Returns the path of an owner's lock file.
fn lock_file(database: &Path, name: &str) -> PathBuf {
    let mut path = OsString::from(database);
    path.push("-owner-");
    path.push(name);
    path.into()
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "cannot remove a lock file");
    }
}

/// Returns the owner number for a claim.
pub(crate) fn enter(work: &mut WriteTx<'_>) -> Result<Option<i64>> {
    work.owner.enter(work.connection)
}

/// Sets this instance as the owner of the entries of its first claim. Later claims store the owner with the row.
pub(crate) fn own_first(work: &mut WriteTx<'_>, claim_id: ClaimId) -> Result<()> {
    let Some(id) = enter(work)? else { return Ok(()) };
    work.statement(SQL.owner_own)?.execute(params![&claim_id.as_bytes()[..], id]).map_err(store_error)?;
    Ok(())
}

/// Owners of this boot of this machine that are certainly dead and hold entries. Their locks are held until this is
/// dropped. Dead owners without entries are deleted, with their files.
pub(crate) struct Dead {
    pub(crate) ids: Vec<i64>,
    locks: Vec<File>,
}

pub(crate) fn dead(work: &WriteTx<'_>) -> Result<Dead> {
    let mut dead = Dead { ids: Vec::new(), locks: Vec::new() };
    let others: Vec<(i64, String, String, bool)> = {
        let mut others = work.statement(SQL.owner_others)?;
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let rows = others.query_map([work.owner.id()], row).map_err(store_error)?;
        rows.collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    for (id, name, boot, holds) in others {
        let path = lock_file(&work.owner.database, &name);
        match (seized(&path), holds) {
            (Seized::Locked(lock), true) if work.owner.boot.as_ref() == Some(&boot) => {
                dead.ids.push(id);
                dead.locks.push(lock);
            }
            (Seized::Locked(_), false) => {
                forget(work, id)?;
                remove(&path);
            }
            (Seized::Missing, false) => forget(work, id)?,
            // The owner is alive, its state is unknown, or another machine may hold the lock: its leases decide.
            (Seized::Locked(_) | Seized::Missing, true) | (Seized::No, _) => {}
        }
    }
    Ok(dead)
}

fn forget(work: &WriteTx<'_>, id: i64) -> Result<()> {
    work.statement(SQL.owner_leave)?.execute([id]).map_err(store_error)?;
    Ok(())
}

/// Result of an attempt to take the lock of another owner.
enum Seized {
    Locked(File),
    Missing,
    No,
}

fn seized(path: &Path) -> Seized {
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Seized::Missing,
        Err(_) => return Seized::No,
    };
    match file.try_lock() {
        Ok(()) => Seized::Locked(file),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Seized::No,
    }
}
