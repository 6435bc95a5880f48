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

    /// Returns a copy that later changes of this login do not affect.
    pub(crate) fn unshared(&self) -> Self {
        Self(Arc::new(RwLock::new(self.current())))
    }
}

fn with_cache(hosts: Vec<PgConnectOptions>) -> Hosts {
    hosts.into_iter().map(|one| one.statement_cache_capacity(STATEMENTS)).collect()
}

/// Returns the URLs of hosts without user and password, to compare them.
fn places(hosts: &[PgConnectOptions]) -> Vec<String> {
    let place = |options: &PgConnectOptions| {
        let mut url = options.to_url_lossy();
        // Both calls succeed, because a PostgreSQL URL may have a login.
        let _ = (url.set_username(""), url.set_password(None));
        url.into()
    };
    hosts.iter().map(place).collect()
}

impl Postgres {
    /// Returns true if a URL contains a password. Accepts any URL.
    pub fn url_has_password(url: &str) -> bool {
        url::has_password(url)
    }

    /// Returns true if two URLs differ only in user and password.
    pub fn urls_differ_in_login_alone(url: &str, other: &str) -> Result<bool> {
        Ok(places(&url::read_all(url)?) == places(&url::read_all(other)?))
    }

    /// Uses the user and password of this URL for new connections. Open connections stay as they are. For a password
    /// that is rotated while the store is in use.
    ///
    /// Logs in once to test them. If that fails, the store keeps its login. The rest of the URL must be unchanged:
    /// another database is another store.
    pub async fn change_login(&self, url: &str) -> Result<()> {
        let (login, patience) = (&self.inner.options.login, self.inner.options.patience);
        let new = with_cache(url::read_all(url)?);
        if places(&login.current()) != places(&new) {
            let what = "the URL names another database, server or setting; only user and password can change while the store is in use";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        // One host that accepts the login is enough: the others may be down.
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
            // An error does not matter: the server notices the end of the connection either way.
            let _ = tokio::time::timeout(patience, connection.close()).await;
            Ok(())
        }
        Ok(Err(error)) => Err(connect_error(error, options)),
        Err(_) => Err(lost(TxPhase::Before).caused_by(format!("no answer within {patience:?}"))),
    }
}
