//! Settings of a PostgreSQL store. Tests: `tests/migrate.rs`, `tests/connections.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox_core::store::{Migrate, Migration, SweepCursor};
use oncebox_core::time::SharedClock;
use oncebox_core::{Error, ErrorKind, Result};
use sqlx::postgres::PgConnectOptions;

use crate::connect::Pool;
use crate::error::at_start;
use crate::login::Login;
use crate::migrate::{self, SchemaPlan};
use crate::partition::{self, PartitionLimits};
use crate::session::Sessions;
use crate::sql::{FIXED, Namespace, Statements};
use crate::timeline::Timeline;
use crate::url;

/// The shortest time to wait for an answer of the server.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);

/// Statements that a connection keeps prepared. The store has few; handlers add theirs.
pub(crate) const STATEMENTS: usize = 256;

/// Settings of a store: its server, tables and limits. No output shows the password.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Login by host; one host is the primary.
    pub(crate) login: Login,
    pub(crate) plan: SchemaPlan,
    pub(crate) migrate: bool,
    pub(crate) pooled: bool,
    pub(crate) clock: Option<SharedClock>,
    pub(crate) patience: Duration,
    pub(crate) handler_patience: Duration,
    pub(crate) handlers: usize,
    pub(crate) partitions: PartitionLimits,
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connect = self.login.current();
        f.debug_struct("PostgresOptions")
            .field("hosts", &crate::connect::hosts(&connect))
            .field("database", &connect.first().and_then(PgConnectOptions::get_database))
            .field("tables", &self.plan.place.to_string())
            .field("pooled", &self.pooled)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    pub(crate) fn new(url: &str) -> Result<Self> {
        Ok(Self {
            // Our own statements are few; what handlers prepare comes on top.
            login: Login::new(url::read_all(url)?),
            plan: SchemaPlan { place: Namespace::default(), lanes: 4, checks: false },
            migrate: true,
            pooled: false,
            clock: None,
            patience: Duration::from_secs(30),
            handler_patience: Duration::from_mins(5),
            handlers: 16,
            partitions: PartitionLimits { life: Duration::from_hours(24), size: 4_000_000, payload: None },
        })
    }

    /// Schema of the tables. Migrations create it if it is missing. Default: `public`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.plan.place.schema = schema.into();
        self
    }

    /// Prefix of all table names. Default: `oncebox_`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.plan.place.prefix = prefix.into();
        self
    }

    /// Number of lanes of new tables, from 1 to 64; existing tables keep theirs. More lanes spread the work of many cores
    /// over more pages. Default: 4.
    pub fn lanes(mut self, lanes: u8) -> Self {
        self.plan.lanes = i16::from(lanes);
        self
    }

    /// Creates the tables that every message uses with CHECK constraints. The server then refuses rows that no version of
    /// this library may write. The other tables always have theirs. They cost a single accept about a quarter of its
    /// speed. Default: no. Nearly all tests of this library use them.
    pub fn checks(mut self, checks: bool) -> Self {
        self.plan.checks = checks;
        self
    }

    /// Applies missing schema steps when the store opens the database. Default: yes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// For a connection through a pooler in transaction mode, like `PgBouncer`: keeps no state on a connection between
    /// two transactions, and finds work of other processes only by polling. Default: no.
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = pooled;
        self
    }

    /// Maximum time to wait for a connection, a lock or an answer, up to ten minutes. Default: 30 seconds.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Maximum idle time of a handler's transaction; then the server ends it. Default: 5 minutes.
    pub fn idle_handlers(mut self, patience: Duration) -> Self {
        self.handler_patience = patience;
        self
    }

    /// Maximum handlers with an open transaction at the same time. They use their own connections, so that the store can
    /// always renew leases. Default: 16.
    pub fn handler_connections(mut self, connections: usize) -> Self {
        self.handlers = connections;
        self
    }

    /// Maximum age and maximum messages of a partition of messages and history. Retention drops whole partitions, so a
    /// message may stay on disk for this much longer than its retention. Default: one day, or 4 million messages.
    pub fn partitions(mut self, life: Duration, messages: u32) -> Self {
        (self.partitions.life, self.partitions.size) = (life, i64::from(messages));
        self
    }

    /// Retention of the payloads of finished messages. Default: as long as their keys.
    pub fn payload_retention(mut self, retention: Duration) -> Self {
        self.partitions.payload = Some(retention);
        self
    }

    /// Takes time from this clock instead of the server's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Refuses settings that cannot work. Opens no connection. Opening the store runs the same check.
    pub fn check(&self) -> Result<()> {
        self.plan.place.check()?;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        let Self { plan: SchemaPlan { lanes, .. }, handlers, patience, partitions, .. } = self;
        let (life, size, max) = (partitions.life, partitions.size, partition::MAX_SIZE);
        if !(1..=64).contains(lanes) {
            return refuse(format!("`lanes` is {lanes}: the tables cannot be laid out so; use 1 to 64"));
        }
        if *handlers == 0 {
            let what = "no handler could ever have a transaction; use at least 1";
            return refuse(format!("`handler_connections` is {handlers}: {what}"));
        }
        if size == 0 || life.is_zero() {
            let what = "a partition takes some time and at least one message; make both longer than nothing";
            return refuse(format!("`partitions` is {life:?} and {size}: {what}"));
        }
        if size > max {
            let what = "the numbers of messages reach no further";
            return refuse(format!("`partitions` is {life:?} and {size}: {what}; use at most {max}"));
        }
        if *patience < SHORTEST_PATIENCE {
            let what = format!("no answer could come in time; use at least {SHORTEST_PATIENCE:?}");
            return refuse(format!("`patience` is {patience:?}: {what}"));
        }
        if *patience > SweepCursor::SETTLED {
            let what = "sweeps rely on it that nothing is stored later than that";
            return refuse(format!(
                "`patience` is {patience:?}: {what}; use at most {:?}",
                SweepCursor::SETTLED
            ));
        }
        Ok(())
    }

    /// Checks that the certificate and key files of the URL can be read. Opens nothing else.
    pub fn check_files(&self) -> Result<()> {
        self.login.current().iter().try_for_each(url::check_files)
    }

    /// Returns the settings of a store session, or of each of its transactions behind a pooler.
    fn session(&self, files: &[&str]) -> String {
        let millis = |span: Duration| span.as_millis().min(i32::MAX.unsigned_abs().into()).to_string();
        let mut sql = String::new();
        for file in files {
            let lines = file.lines().filter(|line| !line.starts_with("--"));
            sql.extend(lines.flat_map(|line| [line, "\n"]));
            sql.push_str(";\n");
        }
        if self.pooled {
            sql = sql.replace("SET SESSION ", "SET LOCAL ").replace("'on', false)", "'on', true)");
        }
        // The server gives up first: then nothing was stored, and the connection is still usable.
        sql.replace("'30s'", &format!("'{}'", millis(self.patience * 4 / 5)))
            .replace("'5min'", &format!("'{}'", millis(self.handler_patience)))
    }

    fn sessions(&self, name: &'static str, files: &[&str], size: usize, begin: &str) -> Sessions {
        self.units_on(None, name, files, size, begin)
    }

    /// Returns sessions on connections that are checked against the timeline that the process knows.
    fn units_on(
        &self,
        timeline: Option<&Arc<Timeline>>,
        name: &'static str,
        files: &[&str],
        size: usize,
        begin: &str,
    ) -> Sessions {
        let session = self.session(files);
        let (setup, begin) = if self.pooled {
            (String::new(), format!("{begin}; {session}"))
        } else {
            (session, begin.to_owned())
        };
        let timeline = timeline.cloned();
        // Behind a pooler each claim brings the check.
        let of_connections = timeline.clone().filter(|_| !self.pooled);
        let pool = Pool::new(name, &self.login, setup.into(), of_connections, size, self.patience);
        Sessions { pool, begin: begin.into(), pooled: self.pooled, timeline, known: None }
    }

    /// Refuses a pooler in transaction mode, unless these options expect one.
    pub(crate) async fn refuse_transaction_mode(&self) -> Result<()> {
        if self.pooled {
            return Ok(());
        }
        let probe = Pool::new("probe", &self.login, "".into(), None, 2, self.patience);
        probe.refuse_transaction_mode().await
    }

    /// Sessions for claims, settlements and renewals.
    pub(crate) fn control(&self, timeline: &Arc<Timeline>) -> Sessions {
        let files = [FIXED.session_store, FIXED.session_control];
        self.units_on(Some(timeline), "control", &files, 6, FIXED.transaction_begin_store)
    }

    /// Sessions for accept.
    pub(crate) fn ingest(&self, timeline: &Arc<Timeline>) -> Sessions {
        let files = [FIXED.session_store, FIXED.session_ingest];
        self.units_on(Some(timeline), "ingest", &files, 2, FIXED.transaction_begin_store)
    }

    /// Sessions for handlers' own transactions.
    pub(crate) fn for_handlers(&self) -> Sessions {
        let begin = FIXED.transaction_begin;
        let finish = self.plan.place.render(FIXED.session_finish);
        let files = [FIXED.session_handlers, &*finish];
        // A pooler lends another connection every time, so no prepared statement can stay on it.
        let files = if self.pooled { &files[..1] } else { &files[..] };
        self.sessions("handlers", files, self.handlers, begin)
    }

    /// Sessions for operators' queries. The server chooses their plans.
    pub(crate) fn reads(&self) -> Sessions {
        let files = [FIXED.session_reads];
        self.sessions("reads", &files, 2, FIXED.transaction_begin_read)
    }

    /// Sessions that notify other processes.
    pub(crate) fn wakeups(&self) -> Sessions {
        self.sessions("wakeups", &[FIXED.session_wakeups], 1, FIXED.transaction_begin_store)
    }

    fn migrations(&self) -> Sessions {
        self.sessions("migrations", &[], 1, FIXED.transaction_begin_store)
    }

    pub(crate) async fn apply_if_asked(&self, sql: &Statements) -> Result<()> {
        let sessions = self.migrations();
        if self.migrate {
            migrate::apply(&sessions, sql, &self.plan).await?;
        }
        migrate::check(&sessions, sql, &self.plan).await
    }

    /// Returns the SQL of the whole schema with these settings. Apply all of it by hand in one transaction.
    pub fn schema_sql(&self) -> Result<String> {
        self.check()?;
        Ok(migrate::whole(&self.plan))
    }

    /// Drops the functions of earlier builds and returns their names. Processes of such a build fail from then on, so call it when
    /// none is left. Needs the role that migrated.
    pub async fn drop_former_functions(&self) -> Result<Vec<String>> {
        self.check()?;
        let sql = Statements::new(&self.plan.place);
        migrate::drop_former_functions(&self.migrations(), &sql, &self.plan).await.map_err(at_start)
    }

    /// Returns the SQL that grants a role everything it needs without owning the tables. Their owner runs it.
    pub fn grants_sql(&self, role: &str) -> Result<String> {
        self.check()?;
        if role.is_empty() || role.contains(char::is_control) {
            let what =
                format!("{role:?} is not the name of a role; name the one that the service logs in with");
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        let role = format!("\"{}\"", role.replace('"', "\"\""));
        let granted = |sql| self.plan.place.render(sql).replace("\"application\"", &role);
        Ok(format!(
            "{};\n-- For busy inboxes on PostgreSQL 17 and later, also: {};\n",
            granted(FIXED.schema_grants),
            granted(FIXED.schema_grant_vacuum)
        ))
    }
}

/// Implemented for the options, not for the open store: a database with a missing or outdated schema can be read and
/// migrated, but not opened.
#[async_trait]
impl Migrate for PostgresOptions {
    async fn current(&self) -> Result<u32> {
        self.check()?;
        migrate::current(&self.migrations(), &Statements::new(&self.plan.place)).await.map_err(at_start)
    }

    async fn pending(&self) -> Result<Vec<Migration>> {
        self.check()?;
        let sql = Statements::new(&self.plan.place);
        migrate::pending(&self.migrations(), &sql, &self.plan).await.map_err(at_start)
    }

    async fn apply(&self) -> Result<Vec<Migration>> {
        self.check()?;
        let sql = Statements::new(&self.plan.place);
        migrate::apply(&self.migrations(), &sql, &self.plan).await.map_err(at_start)
    }
}

/// Class of the advisory locks, which separates them from those of another inbox.
pub(crate) fn lock_class(purpose: &str, place: &Namespace) -> i32 {
    let number =
        crate::db::lock_number(&[purpose.as_bytes(), place.schema.as_bytes(), place.prefix.as_bytes()]);
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}
