//! How a database is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::store::{Migrate, Migration, Walk};
use oncebox::time::SharedClock;
use oncebox::{Error, ErrorKind, Result};
use sqlx::postgres::PgConnectOptions;

use crate::connect::Pool;
use crate::error::at_start;
use crate::login::Login;
use crate::migrate::{self, Plan};
use crate::segment::{self, Segments};
use crate::sql::{Place, Statements, strip};
use crate::timeline::Timeline;
use crate::unit::Units;
use crate::url;

/// The shortest time to wait for an answer of the server.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);

/// Statements that a connection keeps prepared. Our own are few; what handlers prepare comes on top.
pub(crate) const STATEMENTS: usize = 256;

/// The settings of a store: where its tables are, and how they are reached.
///
/// Nothing here ever shows the password.
#[derive(Clone)]
pub struct Options {
    /// By host, of which one is the primary.
    pub(crate) login: Login,
    pub(crate) plan: Plan,
    pub(crate) migrate: bool,
    pub(crate) pooled: bool,
    pub(crate) clock: Option<SharedClock>,
    pub(crate) patience: Duration,
    pub(crate) handler_patience: Duration,
    pub(crate) handlers: usize,
    pub(crate) segments: Segments,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connect = self.login.current();
        f.debug_struct("Options")
            .field("hosts", &crate::connect::hosts(&connect))
            .field("database", &connect.first().and_then(PgConnectOptions::get_database))
            .field("tables", &self.plan.place.to_string())
            .field("pooled", &self.pooled)
            .finish_non_exhaustive()
    }
}

impl Options {
    pub(crate) fn new(url: &str) -> Result<Self> {
        Ok(Self {
            // Our own statements are few; what handlers prepare comes on top.
            login: Login::new(url::read_all(url)?),
            plan: Plan { place: Place::default(), lanes: 4, checks: false },
            migrate: true,
            pooled: false,
            clock: None,
            patience: Duration::from_secs(30),
            handler_patience: Duration::from_mins(5),
            handlers: 16,
            segments: Segments { life: Duration::from_hours(24), size: 4_000_000, payload: None },
        })
    }

    /// The schema the tables are in; made by the migrations if it is missing. Default: `public`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.plan.place.schema = schema.into();
        self
    }

    /// What the names of the tables start with. Default: `oncebox_`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.plan.place.prefix = prefix.into();
        self
    }

    /// In how many lanes the tables are laid out, from 1 to 64, when they are made; afterwards the tables say. More lanes
    /// spread the work of many cores over more pages. Default: 4.
    pub fn lanes(mut self, lanes: u8) -> Self {
        self.plan.lanes = i16::from(lanes);
        self
    }

    /// Whether the tables that every message goes through are made with CHECK constraints, so that the server itself refuses a
    /// row that no version of this library may write; the other tables always have theirs. They cost a single accept about a
    /// quarter of its speed. Default: no; nearly all tests of this library have them.
    pub fn checks(mut self, checks: bool) -> Self {
        self.plan.checks = checks;
        self
    }

    /// Whether missing schema steps are applied when the database is opened. Default: yes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// For a connection through a pooler in transaction mode, like `PgBouncer`: keeps nothing on a connection between
    /// two transactions, and hears of work in other processes only by asking. Default: no.
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = pooled;
        self
    }

    /// How long the store waits for a connection, a lock or an answer: at most ten minutes. Default 30 seconds.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long a handler's transaction may sit idle before the server ends it. Default 5 minutes.
    pub fn idle_handlers(mut self, patience: Duration) -> Self {
        self.handler_patience = patience;
        self
    }

    /// How many handlers may have a transaction open at the same time. They have connections of their own, so that they
    /// cannot keep the store from renewing leases. Default 16.
    pub fn handler_connections(mut self, connections: usize) -> Self {
        self.handlers = connections;
        self
    }

    /// When a new partition of messages and history is begun: after this time, or with this many messages. Partitions
    /// leave whole, so this is how much longer than its retention a message may lie on the disk. Default: a day, or 4
    /// million.
    pub fn partitions(mut self, life: Duration, messages: u32) -> Self {
        (self.segments.life, self.segments.size) = (life, i64::from(messages));
        self
    }

    /// How long payloads of finished messages are kept, if not as long as their keys are remembered.
    pub fn payload_retention(mut self, retention: Duration) -> Self {
        self.segments.payload = Some(retention);
        self
    }

    /// Takes time from this clock instead of the server's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Refuses settings that cannot work. Opens nothing; opening the store checks the same first.
    pub fn check(&self) -> Result<()> {
        self.plan.place.check()?;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        let Self { plan: Plan { lanes, .. }, handlers, patience, segments, .. } = self;
        let (life, size, most) = (segments.life, segments.size, segment::MOST);
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
        if size > most {
            let what = "the numbers of messages reach no further";
            return refuse(format!("`partitions` is {life:?} and {size}: {what}; use at most {most}"));
        }
        if *patience < SHORTEST_PATIENCE {
            let what = format!("no answer could come in time; use at least {SHORTEST_PATIENCE:?}");
            return refuse(format!("`patience` is {patience:?}: {what}"));
        }
        if *patience > Walk::SETTLED {
            let what = "sweeps rely on it that nothing is stored later than that";
            return refuse(format!("`patience` is {patience:?}: {what}; use at most {:?}", Walk::SETTLED));
        }
        Ok(())
    }

    /// Checks that the files with certificates and keys that the URL names can be read. Opens nothing else.
    pub fn check_files(&self) -> Result<()> {
        self.login.current().iter().try_for_each(url::check_files)
    }

    /// What a session of the store is told, or every transaction of it behind a pooler.
    fn session(&self, files: &[&str]) -> String {
        let millis = |span: Duration| span.as_millis().min(i32::MAX.unsigned_abs().into()).to_string();
        let mut sql = String::new();
        for file in files {
            let lines = file.lines().filter(|line| !line.starts_with("--"));
            sql.extend(lines.flat_map(|line| [line, "\n"]));
        }
        let (local, scope) = if self.pooled { ("true", "LOCAL") } else { ("false", "SESSION") };
        sql
            // The server gives up first: then it is known that nothing was stored, and the connection is still good.
            .replace(":patience", &millis(self.patience * 4 / 5))
            .replace(":handler_patience", &millis(self.handler_patience))
            .replace(":local", local)
            .replace(":scope", scope)
    }

    fn units(&self, name: &'static str, files: &[&str], size: usize, begin: &str) -> Units {
        self.units_on(None, name, files, size, begin)
    }

    /// The same for connections that are checked against the history that the process knows.
    fn units_on(
        &self,
        timeline: Option<&Arc<Timeline>>,
        name: &'static str,
        files: &[&str],
        size: usize,
        begin: &str,
    ) -> Units {
        let begin = strip(begin);
        let session = self.session(files);
        let (setup, begin) = if self.pooled {
            (String::new(), format!("{begin}; {session}"))
        } else {
            (session, begin.to_owned())
        };
        let timeline = timeline.cloned();
        // Behind a pooler the check comes with each claim.
        let of_connections = timeline.clone().filter(|_| !self.pooled);
        let pool = Pool::new(name, &self.login, setup.into(), of_connections, size, self.patience);
        Units { pool, begin: begin.into(), pooled: self.pooled, timeline }
    }

    /// Claims, settlements, renewals: what keeps the inbox going.
    pub(crate) fn control(&self, timeline: &Arc<Timeline>) -> Units {
        let files = [include_str!("../sql/session/store.sql"), include_str!("../sql/session/control.sql")];
        self.units_on(Some(timeline), "control", &files, 6, READ_COMMITTED)
    }

    /// Messages coming in.
    pub(crate) fn ingest(&self, timeline: &Arc<Timeline>) -> Units {
        let files = [include_str!("../sql/session/store.sql"), include_str!("../sql/session/ingest.sql")];
        self.units_on(Some(timeline), "ingest", &files, 2, READ_COMMITTED)
    }

    /// Handlers' own transactions.
    pub(crate) fn for_handlers(&self) -> Units {
        let begin = include_str!("../sql/transaction/begin.sql");
        let finish = self.plan.place.render(include_str!("../sql/session/finish.sql"));
        // A pooler lends another connection every time: nothing can be left on it.
        let finish = if self.pooled { "" } else { &finish };
        self.units("handlers", &[include_str!("../sql/session/handlers.sql"), finish], self.handlers, begin)
    }

    /// What operators look at: plans over everything are the server's business.
    pub(crate) fn reads(&self) -> Units {
        let files = [include_str!("../sql/session/reads.sql")];
        self.units("reads", &files, 2, include_str!("../sql/transaction/begin_read.sql"))
    }

    /// Telling other processes of work.
    pub(crate) fn wakeups(&self) -> Units {
        self.units("wakeups", &[include_str!("../sql/session/wakeups.sql")], 1, READ_COMMITTED)
    }

    fn migrations(&self) -> Units {
        self.units("migrations", &[], 1, READ_COMMITTED)
    }

    pub(crate) async fn apply_if_asked(&self, sql: &Statements) -> Result<()> {
        let units = self.migrations();
        if self.migrate {
            migrate::apply(&units, sql, &self.plan).await?;
        }
        migrate::check(&units, sql, &self.plan).await
    }

    /// The SQL of the whole schema with these settings, for whoever applies it by hand: all of it, in one transaction.
    pub fn schema_sql(&self) -> Result<String> {
        self.check()?;
        Ok(migrate::whole(&self.plan))
    }

    /// The SQL that gives a role all it needs to work with the tables without owning them, for their owner to run.
    pub fn grants_sql(&self, role: &str) -> Result<String> {
        self.check()?;
        if role.is_empty() || role.contains(char::is_control) {
            let what =
                format!("{role:?} is not the name of a role; name the one that the service logs in with");
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        let grants = self.plan.place.render(strip(include_str!("../sql/schema/grants.sql")));
        let role = format!("\"{}\"", role.replace('"', "\"\""));
        Ok(format!("{}\n", grants.replace(":role", &role)))
    }
}

const READ_COMMITTED: &str = include_str!("../sql/transaction/begin_store.sql");

/// On the options, not on the open store: a database whose schema is missing or outdated can be looked at and migrated, but
/// not opened.
#[async_trait]
impl Migrate for Options {
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

/// The lock that tells our transactions' locks from those of another inbox.
pub(crate) fn lock_class(place: &Place) -> i32 {
    let number = crate::db::lock_number(&[b"order", place.schema.as_bytes(), place.prefix.as_bytes()]);
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}
