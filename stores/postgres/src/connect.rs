//! Connection pool: lends a connection to one user at a time, and lends it again only if it is clean. Tests:
//! `tests/connections.rs`.
//!
//! The driver's own pool sends a query on every return. After a `begin()` that is dropped half-way, it lends a
//! connection inside an open transaction. This pool takes a connection back in one of two ways: its user confirms that
//! it is clean, or the pool rolls it back first.

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

/// Maximum idle time of a connection that is lent without a check. The pool pings a connection that was idle for
/// longer, so that a restart of the server causes no error.
const TRUST: Duration = Duration::from_secs(1);

/// A pool of connections to one database, opened on demand.
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
    /// SQL sent once on every new connection. Empty through a pooler, which would not keep the settings.
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
    /// Connections with a transaction begun for a waiting caller. Never more than waiting callers.
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
            // Another connection may have taken the place. Then the pool closes this one.
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

    /// Borrows a connection. Waits at most `patience` for a free one.
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
            // The other idle connections are of the same age or older. Close them, so that callers wait for a hanging
            // server once, and not once per connection.
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

    /// Refuses a pooler in transaction mode: it lends the server process of one open connection to another one. Opens
    /// two connections or more, and changes no settings on them.
    pub(crate) async fn refuse_transaction_mode(&self) -> Result<()> {
        let patience = self.inner.patience;
        let late = |_| unusable("not answering");
        let mut one = tokio::time::timeout(patience, self.open()).await.map_err(late)??;
        let lent = async {
            let first = process(&mut one, FIXED.session_process).await?;
            for _ in 0..3 {
                let mut other = self.open().await?;
                let held = process(&mut other, FIXED.session_hold_process).await?;
                // While the other connection holds its process, this one gets a new process.
                let lent = held == first || { process(&mut one, FIXED.session_process).await? != first };
                if lent {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        // Without an answer there is nothing to refuse. If the error lasts, the store will report it soon.
        let lent: Result<bool> = tokio::time::timeout(patience, lent).await.unwrap_or(Ok(false));
        if lent? {
            let what = "the PostgreSQL URL leads to a pooler in transaction mode, such as PgBouncer with `pool_mode = transaction`, which \
                        needs other sessions: write these two lines in the configuration: `[store.NAME]`, with the name of the store, and \
                        `pooled = true`; in a program, `PostgresOptions::pooled(true)`";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        Ok(())
    }

    /// Connects to the host that was the primary last, or to the first other host that is the primary now.
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
        // A wrong password is mostly wrong at all hosts, and a start must not wait for it.
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

    /// Rolls back an open transaction, and keeps the connection if that succeeded. Then frees its place.
    fn clean(&self, mut connection: PgConnection, place: Option<OwnedSemaphorePermit>) {
        // Without a runtime, the connection is closed, and the server rolls back its transaction.
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

    /// Closes all idle connections: one of them was dead, so the others may be dead, too.
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

/// Returns the hosts and ports as text.
pub(crate) fn hosts(options: &[PgConnectOptions]) -> String {
    let all: Vec<String> =
        options.iter().map(|one| format!("{}:{}", one.get_host(), one.get_port())).collect();
    all.join(", ")
}

fn unusable(state: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("PostgreSQL is {state}"))
}

/// Maps the error of a failed connect, which changed nothing.
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
        // PgBouncer returns this error for every attempt.
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
    /// `None` after the connection was returned or dropped.
    connection: Option<PgConnection>,
    place: Option<OwnedSemaphorePermit>,
    /// True if the last user began a transaction for the next one.
    begun: bool,
    /// True if the connection is lost, or was left in the middle of an answer.
    broken: bool,
}

impl PooledConn {
    /// Returns the connection to the pool. It must have no open transaction and no outstanding answer.
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

    /// Waits at most `patience` for an answer.
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
        // A lost connection is closed. Any other one is rolled back, because its user did not confirm that it is clean.
        if !self.broken {
            self.pool.clean(connection, self.place.take());
        }
    }
}

/// Rolls back every open transaction of a connection.
pub(crate) async fn roll_back(connection: &mut PgConnection) -> sqlx::Result<()> {
    if Manager::get_transaction_depth(connection) == 0 {
        // The driver does not count a transaction that a dropped `begin()` opened.
        connection.execute(sqlx::raw_sql(FIXED.transaction_rollback)).await?;
    }
    while Manager::get_transaction_depth(connection) > 0 {
        Manager::rollback(connection).await?;
    }
    Ok(())
}
