//! The login of a store, which can be replaced while the store is in use.

use std::sync::Arc;

use oncebox::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::Postgres;
use crate::connect::connect_error;
use crate::error::Phase;
use crate::error::lost;
use crate::url;

/// Where the server is and how a session logs in. Clones share it, so that all pools of a store change together.
#[derive(Clone)]
pub(crate) struct Login(Arc<RwLock<PgConnectOptions>>);

impl Login {
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        Self(Arc::new(RwLock::new(options)))
    }

    /// What the next connection is opened with.
    pub(crate) fn current(&self) -> PgConnectOptions {
        self.0.read().clone()
    }

    /// The same for a store of its own.
    pub(crate) fn unshared(&self) -> Self {
        Self::new(self.current())
    }
}

/// The URL of some options without user and password, to compare places.
fn place(options: &PgConnectOptions) -> String {
    let mut url = options.to_url_lossy();
    // A URL of PostgreSQL can have a login, so it can be without one.
    let _ = (url.set_username(""), url.set_password(None));
    url.into()
}

impl Postgres {
    /// Uses the user and password of this URL for connections that are opened from now on; those that are open stay as they are.
    /// For a password that was rotated while the store is in use.
    ///
    /// It logs in once to try them. If that fails, the store keeps the login that it has. The rest of the URL has to be what it
    /// was: another database is another store.
    pub async fn change_login(&self, url: &str) -> Result<()> {
        let (login, patience) = (&self.inner.options.login, self.inner.options.patience);
        let old = login.current();
        let new = url::read(url)?.statement_cache_capacity(crate::options::STATEMENTS);
        if place(&old) != place(&new) {
            let what = "the URL names another database, server or setting; only user and password can change while the store is in use";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        match tokio::time::timeout(patience, PgConnection::connect_with(&new)).await {
            Ok(Ok(connection)) => {
                // The server notices either way.
                let _ = tokio::time::timeout(patience, connection.close()).await;
            }
            Ok(Err(error)) => return Err(connect_error(error, &new)),
            Err(_) => return Err(lost(Phase::Before).caused_by(format!("no answer within {patience:?}"))),
        }
        *login.0.write() = new;
        Ok(())
    }
}
