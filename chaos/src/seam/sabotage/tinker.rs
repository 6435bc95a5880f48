//! Changes the tables behind the store, as a statement without its conditions would. Tests: `cargo xtask chaos
//! sabotage`.

use oncebox::store::Claim;
use oncebox::{HandlerKey, InboxName, Key};
use oncebox_postgres::sqlx::{self, Connection as _};
use parking_lot::Mutex;

use crate::worker::StoreLocation;

/// A mark still to write.
type Owed = (InboxName, Key, HandlerKey);

/// Changes the tables behind the store's back.
pub(super) struct TableTamperer {
    place: StoreLocation,
    owed: Mutex<Vec<Owed>>,
    /// Completions still to write.
    completions: Mutex<Vec<Claim>>,
}

impl TableTamperer {
    pub(super) fn new(place: StoreLocation) -> Self {
        Self { place, owed: Mutex::default(), completions: Mutex::default() }
    }

    pub(super) fn mark_later(&self, mark: Owed) {
        self.owed.lock().push(mark);
    }

    pub(super) fn take_marks(&self) -> Vec<Owed> {
        std::mem::take(&mut self.owed.lock())
    }

    pub(super) fn complete_later(&self, claim: Claim) {
        self.completions.lock().push(claim);
    }

    pub(super) fn take_completions(&self) -> Vec<Claim> {
        std::mem::take(&mut self.completions.lock())
    }

    /// Releases entries that wait behind another one.
    pub(super) async fn release_all(&self) {
        self.run(
            "UPDATE OR IGNORE oncebox_entry SET due = not_before WHERE due = 9223372036854775807",
            "UPDATE oncebox_scheduled SET due = not_before WHERE due = 9223372036854775807",
        )
        .await;
    }

    /// Reopens completed entries.
    pub(super) async fn reopen(&self, claim: &Claim) {
        let (seq, handler) = (claim.seq.0, claim.handler.as_str());
        let whose = format!(
            "seq = {seq} AND handler IN (SELECT handler FROM oncebox_handler_key WHERE key = '{handler}')"
        );
        self.run(
            &format!(
                "INSERT INTO oncebox_entry (handler, due, seq) SELECT handler, 0, seq FROM oncebox_outcome WHERE {whose};
                 DELETE FROM oncebox_outcome WHERE {whose}"
            ),
            &format!(
                "INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler)
                 SELECT seq, 0, 0, lane, handler FROM oncebox_outcome WHERE {whose};
                 DELETE FROM oncebox_outcome WHERE {whose}"
            ),
        )
        .await;
    }

    /// Ends the current lease of the entry.
    pub(super) async fn expire(&self, claim: &Claim) {
        let (seq, handler) = (claim.seq.0, claim.handler.as_str());
        let whose = format!(
            "seq = {seq} AND handler IN (SELECT handler FROM oncebox_handler_key WHERE key = '{handler}')"
        );
        self.run(
            &format!("UPDATE oncebox_running SET lease_until = 0 WHERE {whose}"),
            &format!(
                "UPDATE oncebox_entry SET lease_until = 0 WHERE token IS NOT NULL AND {whose}; UPDATE oncebox_claim SET until = 0"
            ),
        )
        .await;
    }

    /// Ends every lease.
    pub(super) async fn expire_all(&self) {
        self.run(
            "UPDATE oncebox_running SET lease_until = 0",
            "UPDATE oncebox_entry SET lease_until = 0 WHERE token IS NOT NULL; UPDATE oncebox_claim SET until = 0",
        )
        .await;
    }

    /// Deletes pending entries.
    pub(super) async fn drop_pending(&self) {
        self.run(
            "DELETE FROM oncebox_entry WHERE seq % 7 = 0;
             UPDATE oncebox_line SET seq = 0 WHERE seq % 7 = 0 AND seq NOT IN (SELECT seq FROM oncebox_running)",
            "DELETE FROM oncebox_entry WHERE token IS NULL AND seq % 448 < 64; DELETE FROM oncebox_scheduled WHERE seq % 448 < 64",
        )
        .await;
    }

    /// Deletes finished entries.
    pub(super) async fn forget_finished(&self) {
        const DONE: &str = "SELECT seq FROM oncebox_outcome o WHERE status = 'completed'";
        self.run(
            &format!(
                "DELETE FROM oncebox_message WHERE seq IN ({DONE}
                    AND NOT EXISTS (SELECT 1 FROM oncebox_entry e WHERE e.seq = o.seq)
                    AND NOT EXISTS (SELECT 1 FROM oncebox_running e WHERE e.seq = o.seq))"
            ),
            &format!("DELETE FROM oncebox_proof WHERE seq IN ({DONE})"),
        )
        .await;
    }

    /// Lets later claims have lower tokens.
    pub(super) async fn turn_tokens_back(&self) {
        self.run(
            "UPDATE oncebox_counter SET token = max(1, token - 500)",
            "SELECT setval('oncebox_token', greatest(1, last_value - 500)) FROM oncebox_token",
        )
        .await;
    }

    /// Deletes what processes reported as lost.
    pub(super) async fn hide_losses(&self) {
        self.run(
            "SELECT 1",
            "UPDATE oncebox_timeline SET lost_messages = 0, lost_marks = 0, lost_sources = '{}', lost_ids = '{}'",
        )
        .await;
    }

    /// Puts a free file in the place of each lock file, so that every owner seems to be dead.
    pub(super) fn free_owner_locks(&self) {
        let StoreLocation::Sqlite(file) = &self.place else { return };
        let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { return };
        let prefix = format!("{}-owner-", name.display());
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let path = entry.path();
                let free = path.with_file_name(format!("free-{}", fastrand::u64(..)));
                let replaced = std::fs::write(&free, b"").and_then(|()| std::fs::rename(&free, &path));
                if let Err(error) = replaced {
                    eprintln!("sabotage: {error}");
                }
            }
        }
    }

    /// Runs a statement once; a failure is ignored.
    async fn run(&self, sqlite: &str, postgres: &str) {
        match &self.place {
            StoreLocation::Sqlite(file) => {
                let (file, sql) = (file.clone(), sqlite.to_owned());
                let done = tokio::task::spawn_blocking(move || {
                    let connection = rusqlite::Connection::open(file)?;
                    connection.busy_timeout(std::time::Duration::ZERO)?;
                    begin(&connection)?;
                    connection.execute_batch(&format!("{sql}; COMMIT"))
                });
                if let Ok(Err(error)) = done.await {
                    eprintln!("sabotage: {error}");
                }
            }
            StoreLocation::Postgres(url) => {
                let Ok(mut connection) = sqlx::PgConnection::connect(url).await else { return };
                let sql = sqlx::AssertSqlSafe(postgres.to_owned());
                if let Err(error) = sqlx::raw_sql(sql).execute(&mut connection).await {
                    eprintln!("sabotage: {error}");
                }
            }
        }
    }
}

/// Retries the lock as often as the store does, which would always win otherwise.
fn begin(connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    let mut left = 5_000;
    loop {
        match connection.execute_batch("BEGIN IMMEDIATE") {
            Err(error)
                if left > 0 && error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) =>
            {
                left -= 1;
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
            begun => return begun,
        }
    }
}
