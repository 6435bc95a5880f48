//! The login of a store, which can be replaced while the store is in use. Tests: `tests/login.rs`.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::Postgres;
use crate::connect::connect_error;
use crate::error::{TxPhase, lost};
use crate::options::STATEMENTS;
use crate::url;

/// Hosts and login options. Clones share them, so that all pools of a store change together.
#[derive(Clone)]
pub(crate) struct Login(Arc<RwLock<Hosts>>);

/// The options of each host of a URL, at least one.
type Hosts = Arc<[PgConnectOptions]>;

impl Login {
    pub(crate) fn new(hosts: Vec<PgConnectOptions>) -> Self {
        Self(Arc::new(RwLock::new(with_cache(hosts))))
    }

    /// Returns the options of the next connection, by host.
    pub(crate) fn current(&self) -> Hosts {
        Arc::clone(&self.0.read())
    }

    /// The same for a store of its own.
    pub(crate) fn unshared(&self) -> Self {
        Self(Arc::new(RwLock::new(self.current())))
    }
}

fn with_cache(hosts: Vec<PgConnectOptions>) -> Hosts {
    hosts.into_iter().map(|one| one.statement_cache_capacity(STATEMENTS)).collect()
}

/// The URLs of some hosts without user and password, to compare places.
fn places(hosts: &[PgConnectOptions]) -> Vec<String> {
    let place = |options: &PgConnectOptions| {
        let mut url = options.to_url_lossy();
        // A URL of PostgreSQL can have a login, so it can be without one.
        let _ = (url.set_username(""), url.set_password(None));
        url.into()
    };
    hosts.iter().map(place).collect()
}

impl Postgres {
    /// Tells whether a URL holds a password. It need not be the URL of a database.
    pub fn url_has_password(url: &str) -> bool {
        url::has_password(url)
    }

    /// Tells whether two URLs differ in nothing but user and password.
    pub fn urls_differ_in_login_alone(url: &str, other: &str) -> Result<bool> {
        Ok(places(&url::read_all(url)?) == places(&url::read_all(other)?))
    }

    /// Uses the user and password of this URL for connections that are opened from now on; those that are open stay as they are.
    /// For a password that was rotated while the store is in use.
    ///
    /// It logs in once to try them. If that fails, the store keeps the login that it has. The rest of the URL has to be what it
    /// was: another database is another store.
    pub async fn change_login(&self, url: &str) -> Result<()> {
        let (login, patience) = (&self.inner.options.login, self.inner.options.patience);
        let new = with_cache(url::read_all(url)?);
        if places(&login.current()) != places(&new) {
            let what = "the URL names another database, server or setting; only user and password can change while the store is in use";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        // One host that takes the login is enough: the others may be away.
        let mut taken = Err(lost(TxPhase::Before));
        for options in new.iter() {
            taken = try_login(options, patience).await;
            if taken.is_ok() {
                break;
            }
        }
        taken?;
        *login.0.write() = new;
        Ok(())
    }
}

async fn try_login(options: &PgConnectOptions, patience: Duration) -> Result<()> {
    match tokio::time::timeout(patience, PgConnection::connect_with(options)).await {
        Ok(Ok(connection)) => {
            // The server notices either way.
            let _ = tokio::time::timeout(patience, connection.close()).await;
            Ok(())
        }
        Ok(Err(error)) => Err(connect_error(error, options)),
        Err(_) => Err(lost(TxPhase::Before).caused_by(format!("no answer within {patience:?}"))),
    }
}
