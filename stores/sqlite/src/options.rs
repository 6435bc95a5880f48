//! Settings of a SQLite store. Tests: `tests/files.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use oncebox_core::Result;
use oncebox_core::store::{Migrate, Migration};
use oncebox_core::time::{SharedClock, Timestamp};
use oncebox_tokio::SystemClock;
use tokio::sync::watch;

use crate::accept_in::UnmergedKeys;
use crate::connect::FileOpener;
use crate::proof::Pace;
use crate::transaction::WriteTurn;
use crate::writer::{SharedState, WriterHandle};
use crate::{Inner, Sqlite, Synchronous, error, migrate, mode};

/// Minimum time that calls of one process wait for each other: a slow disk is no reason to refuse.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(1);

/// Settings of a store in a file.
#[derive(Clone)]
pub struct SqliteOptions {
    pub(crate) opener: FileOpener,
    pub(crate) clock: Option<SharedClock>,
    pub(crate) migrate: bool,
    pub(crate) pace: Pace,
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("opener", &self.opener)
            .field("migrate", &self.migrate)
            .finish_non_exhaustive()
    }
}

impl SqliteOptions {
    /// Durability of a commit. Default: [`Synchronous::Full`].
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.opener.synchronous = synchronous;
        self
    }

    /// Maximum time to wait for a write of another process, or for a handler's open transaction. Default: 5 seconds.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.opener.busy_timeout = timeout;
        self
    }

    /// Maximum size of the file, in bytes. Accepting fails with [`ErrorKind::Full`](oncebox_core::ErrorKind::Full) a little earlier, so that
    /// there is room to handle the stored messages. Default: the disk.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.opener.max_bytes = Some(bytes);
        self
    }

    /// Opens the file read-only: every change fails with [`ErrorKind::ReadOnly`](oncebox_core::ErrorKind::ReadOnly). Default: no.
    pub fn read_only(mut self) -> Self {
        self.opener.read_only = true;
        self.migrate = false;
        self
    }

    /// Applies missing schema steps when the store opens the file. Default: yes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Takes time from this clock instead of the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the file.
    pub fn open(self) -> Result<Sqlite> {
        let mut connection = self.opener.open()?;
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        if self.migrate {
            migrate::apply(&mut connection, clock.now())?;
        }
        migrate::check(&connection)?;
        let opener = self.opener.opened();
        mode::warn(&opener.path);
        let (write_turn, wake) =
            (WriteTurn::new(opener.busy_timeout.max(SHORTEST_PATIENCE)), watch::Sender::new(0));
        let known = SharedState::default();
        let (writer, end) = WriterHandle::start(
            opener.clone(),
            connection,
            Arc::clone(&clock),
            write_turn.clone(),
            wake.clone(),
            (Arc::clone(&known), self.pace),
        )?;
        let inner = Inner {
            opener,
            clock,
            writer,
            recent: UnmergedKeys::new(known, self.pace),
            write_turn,
            wake,
            watching: AtomicBool::new(false),
            stop: Arc::default(),
            _end: end,
        };
        Ok(Sqlite { inner: Arc::new(inner) })
    }
}

/// Implemented for the options, not for the open store: a file with a missing or outdated schema can be read and
/// migrated, but not opened. Reading creates no file.
#[async_trait]
impl Migrate for SqliteOptions {
    async fn current(&self) -> Result<u32> {
        if !self.opener.path.exists() {
            return Ok(0);
        }
        self.with_connection(|connection, _| migrate::current(connection)).await
    }

    async fn pending(&self) -> Result<Vec<Migration>> {
        if !self.opener.path.exists() {
            return Ok(migrate::MIGRATIONS.to_vec());
        }
        self.with_connection(|connection, _| migrate::pending(connection)).await
    }

    async fn apply(&self) -> Result<Vec<Migration>> {
        self.with_connection(migrate::apply).await
    }
}

impl SqliteOptions {
    async fn with_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut rusqlite::Connection, Timestamp) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let now = self.clock.clone().unwrap_or_else(SystemClock::shared).now();
        let opener = self.opener.clone();
        let done = tokio::task::spawn_blocking(move || work(&mut opener.open()?, now));
        done.await.map_err(|panic| error::stopped().caused_by(panic))?
    }
}
