//! Connection pool: lends a connection to one user at a time, and lends it again only if it is clean. Tests:
//! `tests/connections.rs`.
//!
//! The driver's own pool asks the server on every return, and gives a connection back inside an open transaction when a
//! `begin()` is dropped half-way. Here a connection comes back in one of two ways: its user says that it is clean, or
//! it is rolled back first.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncebox_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use sqlx_core::transaction::TransactionManager as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{TxPhase, innermost, is_connection_lost, lost, store_error};
use crate::login::Login;
use crate::row;
use crate::sql::FIXED;
use crate::timeline::Timeline;

/// The driver's counter of nested transactions.
pub(crate) type Manager = <sqlx::Postgres as sqlx::Database>::TransactionManager;

/// A connection that was idle for longer is asked whether it still lives before it is lent: a server that was restarted
/// meanwhile is not a reason to fail.
const TRUST: Duration = Duration::from_secs(1);

/// A number of connections to one database, opened when they are needed.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    /// Purpose of the connection, shown as `application_name`.
    name: &'static str,
    login: Login,
    /// Index of the host that was the primary last.
    primary: AtomicUsize,
    /// Sent once on every new connection; empty through a pooler, which would not keep it.
    setup: Arc<str>,
    /// Checks a new connection before its first use.
    timeline: Option<Arc<Timeline>>,
    places: Arc<Semaphore>,
    shelf: Mutex<IdleConnections>,
    patience: Duration,
}

/// Idle connections, and the callers that wait for one.
#[derive(Default)]
struct IdleConnections {
    idle: Vec<Idle>,
    /// With a transaction begun for one of those who wait: never more of these than of those.
    begun: Vec<PgConnection>,
    waiting: usize,
}

struct Idle {
    connection: PgConnection,
    since: Instant,
}

/// A caller that waits for a connection.
struct PoolWaiter<'a>(&'a Pool);

impl<'a> PoolWaiter<'a> {
    fn new(pool: &'a Pool) -> Self {
        pool.inner.shelf.lock().waiting += 1;
        Self(pool)
    }

    /// Takes a connection with a transaction, if one was begun.
    fn take_begun(self) -> Option<PgConnection> {
        self.0.inner.shelf.lock().begun.pop()
    }
}

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        let mut shelf = self.0.inner.shelf.lock();
        shelf.waiting -= 1;
        let left = shelf.waiting.min(shelf.begun.len());
        let surplus = shelf.begun.split_off(left);
        drop(shelf);
        for connection in surplus {
            // Another connection may have taken its place: then the pool closes it.
            if let Ok(place) = Arc::clone(&self.0.inner.places).try_acquire_owned() {
                self.0.clean(connection, Some(place));
            }
        }
    }
}

impl Pool {
    pub(crate) fn new(
        name: &'static str,
        login: &Login,
        setup: Arc<str>,
        timeline: Option<Arc<Timeline>>,
        size: usize,
        patience: Duration,
    ) -> Self {
        let (login, primary) = (login.clone(), AtomicUsize::new(0));
        let places = Arc::new(Semaphore::new(size.max(1)));
        let shelf = Mutex::default();
        Self { inner: Arc::new(Inner { name, login, primary, setup, timeline, places, shelf, patience }) }
    }

    /// Borrows a connection. Waits for one to be free, but not for ever.
    pub(crate) async fn acquire(&self) -> Result<PooledConn> {
        let inner = &self.inner;
        let waiting = PoolWaiter::new(self);
        let place = tokio::time::timeout(inner.patience, Arc::clone(&inner.places).acquire_owned()).await;
        let place = match place {
            Ok(Ok(place)) => place,
            Ok(Err(closed)) => return Err(unusable("closed").caused_by(closed)),
            Err(_) => {
                let what = format!(
                    "all PostgreSQL connections for {} stayed in use for {:?}",
                    inner.name, inner.patience
                );
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
        };
        if let Some(connection) = waiting.take_begun() {
            return Ok(self.pooled(connection, place, true));
        }
        while let Some(mut idle) = self.take_idle() {
            if idle.since.elapsed() < TRUST || self.is_alive(&mut idle.connection).await {
                return Ok(self.pooled(idle.connection, place, false));
            }
            // The others are of the same age or older: a server that hangs is waited for once, not once for each.
            self.forget_idle();
        }
        let connection = tokio::time::timeout(inner.patience, self.connect()).await;
        match connection {
            Ok(Ok(connection)) => Ok(self.pooled(connection, place, false)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(unusable("not answering")),
        }
    }

    fn take_idle(&self) -> Option<Idle> {
        self.inner.shelf.lock().idle.pop()
    }

    async fn is_alive(&self, connection: &mut PgConnection) -> bool {
        matches!(tokio::time::timeout(self.inner.patience, connection.ping()).await, Ok(Ok(())))
    }

    async fn connect(&self) -> Result<PgConnection> {
        let mut connection = self.open().await?;
        if let Some(timeline) = &self.inner.timeline {
            timeline.check(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Refuses a pooler in transaction mode: it lends the server process of one open connection to another one. Opens two
    /// connections or more, and sets nothing on them.
    pub(crate) async fn refuse_transaction_mode(&self) -> Result<()> {
        let patience = self.inner.patience;
        let late = |_| unusable("not answering");
        let mut one = tokio::time::timeout(patience, self.open()).await.map_err(late)??;
        let lent = async {
            let first = process(&mut one, FIXED.session_process).await?;
            for _ in 0..3 {
                let mut other = self.open().await?;
                let held = process(&mut other, FIXED.session_hold_process).await?;
                // While the other one holds its process, this one gets a new one.
                let lent = held == first || { process(&mut one, FIXED.session_process).await? != first };
                if lent {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        // Without an answer there is nothing to refuse: the store meets the same error soon, if it lasts.
        let lent: Result<bool> = tokio::time::timeout(patience, lent).await.unwrap_or(Ok(false));
        if lent? {
            let what = "the PostgreSQL URL leads to a pooler in transaction mode, such as PgBouncer with `pool_mode = transaction`, which \
                        needs other sessions: write these two lines in the configuration: `[store.NAME]`, with the name of the store, and \
                        `pooled = true`; in a program, `PostgresOptions::pooled(true)`";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        Ok(())
    }

    /// Connects to the host that was the primary last, or to the first other one that is.
    async fn open(&self) -> Result<PgConnection> {
        let inner = &*self.inner;
        let logins = inner.login.current();
        let last = inner.primary.load(Ordering::Relaxed);
        if let [one] = &logins[..] {
            return self.open_one(one).await.map_err(|error| connect_error(error, one));
        }
        let mut errors = Vec::with_capacity(logins.len());
        for place in (last..).take(logins.len()).map(|place| place % logins.len()) {
            let options = &logins[place];
            // Each host gets a part of the time, so that a host that hangs leaves time for the others.
            let patience = inner.patience / u32::try_from(logins.len()).unwrap_or(u32::MAX);
            let opened = async {
                let mut connection = self.open_one(options).await?;
                let recovering = sqlx::query_scalar(FIXED.schema_recovering).persistent(false);
                Ok((recovering.fetch_one(&mut connection).await?, connection))
            };
            errors.push(match tokio::time::timeout(patience, opened).await {
                Ok(Ok((false, connection))) => {
                    inner.primary.store(place, Ordering::Relaxed);
                    return Ok(connection);
                }
                Ok(Ok((true, _))) => Error::new(ErrorKind::ReadOnly, "a standby"),
                Ok(Err(error)) => connect_error(error, options),
                Err(_) => unusable("not answering"),
            });
        }
        let hosts = hosts(&logins);
        // A wrong password is mostly the same at all of them, and is not waited for at a start.
        let refused = |error: &Error| matches!(error.kind(), ErrorKind::Denied | ErrorKind::InvalidConfig);
        if let Some(denied) = errors.iter().position(refused) {
            return Err(errors.swap_remove(denied));
        }
        let kind = if errors.iter().all(|error| error.kind() == ErrorKind::ReadOnly) {
            ErrorKind::ReadOnly
        } else {
            ErrorKind::Unavailable
        };
        let reasons: Vec<&str> = errors.iter().map(Error::what).collect();
        Err(Error::new(kind, format!("none of {hosts} is a primary that answers ({})", reasons.join("; "))))
    }

    async fn open_one(&self, options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
        let options = options.clone().application_name(&format!("oncebox {}", self.inner.name));
        let mut connection = PgConnection::connect_with(&options).await?;
        if !self.inner.setup.is_empty() {
            let setup = sqlx::raw_sql(AssertSqlSafe(Arc::clone(&self.inner.setup)));
            connection.execute(setup).await?;
        }
        Ok(connection)
    }

    fn pooled(&self, connection: PgConnection, place: OwnedSemaphorePermit, begun: bool) -> PooledConn {
        let pool = self.clone();
        PooledConn { pool, connection: Some(connection), place: Some(place), begun, broken: false }
    }

    fn keep(&self, connection: PgConnection) {
        self.inner.shelf.lock().idle.push(Idle { connection, since: Instant::now() });
    }

    /// Rolls back whatever is open on a connection, and keeps it if that worked. Its place is free then.
    fn clean(&self, mut connection: PgConnection, place: Option<OwnedSemaphorePermit>) {
        // Without a runtime it is closed; the server rolls back what is open on it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let pool = self.clone();
        runtime.spawn(async move {
            let rolled_back = tokio::time::timeout(pool.inner.patience, roll_back(&mut connection)).await;
            if matches!(rolled_back, Ok(Ok(()))) {
                pool.keep(connection);
            }
            drop(place);
        });
    }

    /// Forgets all idle connections: one of them was found dead, so the others may be.
    pub(crate) fn forget_idle(&self) {
        let forgotten = std::mem::take(&mut self.inner.shelf.lock().idle);
        drop(forgotten);
    }
}

async fn process(connection: &mut PgConnection, sql: &'static str) -> Result<i32> {
    let row = connection.fetch_one(sqlx::raw_sql(sql)).await;
    let row = row.map_err(|error| store_error(error, TxPhase::Before))?;
    row::get(&row, 0)
}

/// The hosts and ports, for people.
pub(crate) fn hosts(options: &[PgConnectOptions]) -> String {
    let all: Vec<String> =
        options.iter().map(|one| format!("{}:{}", one.get_host(), one.get_port())).collect();
    all.join(", ")
}

fn unusable(state: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("PostgreSQL is {state}"))
}

/// A connection that could not be opened has changed nothing.
pub(crate) fn connect_error(error: sqlx::Error, options: &PgConnectOptions) -> Error {
    match error {
        sqlx::Error::Io(_) => {
            let place = format!("not reachable at {}:{}", options.get_host(), options.get_port());
            unusable(&place).caused_by(innermost(error))
        }
        sqlx::Error::Tls(_) => Error::new(
            ErrorKind::Denied,
            "the TLS connection to PostgreSQL failed, which is required beyond this machine, or by the URL: switch TLS on at the server \
             (`ssl = on`), and with `sslmode=verify-full` name the authority that signed its certificate (`sslrootcert=FILE`); only \
             on a private network, `sslmode=disable` in the URL turns TLS off and sends everything in clear text",
        )
        .caused_by(innermost(error)),
        // PgBouncer says so, and says it again however often it is asked.
        sqlx::Error::Database(error) if error.message().starts_with(UNSUPPORTED) => {
            let name = error.message().rsplit(':').next().unwrap_or_default().trim().to_owned();
            let what = format!(
                "the pooler refuses the startup parameter {name}: write these two lines in its configuration, and reload it: `[pgbouncer]` \
                 and `ignore_startup_parameters = {name}`; or leave the parameter out of the PostgreSQL URL"
            );
            Error::new(ErrorKind::InvalidConfig, what).caused_by(sqlx::Error::Database(error))
        }
        error => store_error(error, TxPhase::Before),
    }
}

/// Error text of `PgBouncer` for an unknown startup parameter.
const UNSUPPORTED: &str = "unsupported startup parameter";

/// A borrowed connection.
pub(crate) struct PooledConn {
    pool: Pool,
    /// There until it is given back or dropped.
    connection: Option<PgConnection>,
    place: Option<OwnedSemaphorePermit>,
    /// True if the last user began a transaction for the next one.
    begun: bool,
    /// Lost, or left in the middle of an answer.
    broken: bool,
}

impl PooledConn {
    /// Gives the connection back: no transaction is open on it, and no answer outstanding.
    pub(crate) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.keep(connection);
        }
    }

    /// Hands the connection, with its begun transaction, to a waiting caller. Rolls that transaction back if no caller
    /// waits.
    pub(crate) fn return_to_pool(mut self) {
        let mut shelf = self.pool.inner.shelf.lock();
        if shelf.begun.len() < shelf.waiting {
            shelf.begun.extend(self.connection.take());
        }
    }

    /// Returns true if a transaction is already open.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Returns true if a caller waits for a connection.
    pub(crate) fn is_waited_for(&self) -> bool {
        let shelf = self.pool.inner.shelf.lock();
        shelf.begun.len() < shelf.waiting
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn answer<T>(
        &mut self,
        phase: TxPhase,
        query: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> Result<T> {
        let patience = self.pool.inner.patience;
        let Some(connection) = self.connection.as_mut().filter(|_| !self.broken) else {
            return Err(lost(TxPhase::Before));
        };
        match tokio::time::timeout(patience, query(connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if is_connection_lost(&error) {
                    self.broken = true;
                    self.pool.forget_idle();
                }
                Err(store_error(error, phase))
            }
            Err(_) => {
                self.broken = true;
                Err(lost(phase).caused_by(format!("no answer within {patience:?}")))
            }
        }
    }
}

impl Deref for PooledConn {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("it is taken out only when the borrower is gone")
    }
}

impl DerefMut for PooledConn {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("it is taken out only when the borrower is gone")
    }
}

impl Drop for PooledConn {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // A lost connection is closed. Otherwise its user did not confirm that it is clean.
        if !self.broken {
            self.pool.clean(connection, self.place.take());
        }
    }
}

/// Brings a connection to a known state, whatever was going on.
pub(crate) async fn roll_back(connection: &mut PgConnection) -> sqlx::Result<()> {
    if Manager::get_transaction_depth(connection) == 0 {
        // The driver does not count what a dropped `begin()` has opened.
        connection.execute(sqlx::raw_sql(FIXED.transaction_rollback)).await?;
    }
    while Manager::get_transaction_depth(connection) > 0 {
        Manager::rollback(connection).await?;
    }
    Ok(())
}
