//! Stores under test, opened as a user would open them. Tests: tests/short.rs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use oncebox::store::{Acted, Action, Admin, EntryFilter, EntryPage, RegisterParams, Route, Store};
use oncebox::{BoxError, HandlerKey, InboxName};
use oncebox_postgres::{Postgres, PostgresTx, sqlx};
use oncebox_sqlite::{Sqlite, SqliteTx};

use super::{INBOX, StoreLocation, WorkerJob, serve};
use crate::bugs::Bug;
use crate::plan::renamed;
use crate::seam::{Chaos, NewEffect, Notes, Rigged, pause};

const SQLITE_EFFECT: &str = "INSERT INTO chaos_effect (m, v, h, life) VALUES (?1, ?2, ?3, ?4)";
const POSTGRES_EFFECT: &str = "INSERT INTO chaos_effect (m, v, h, life) VALUES ($1, $2, $3, $4)";

impl Rigged for Sqlite {
    fn effect(tx: &mut SqliteTx, effect: NewEffect) -> impl Future<Output = Result<(), BoxError>> + Send {
        let NewEffect { message, variant, handler, life } = effect;
        let life = i64::try_from(life).unwrap_or(i64::MAX);
        let written = tx.execute(SQLITE_EFFECT, (message, variant, handler, life));
        std::future::ready(written.map(drop).map_err(Into::into))
    }

    async fn act(&self, action: &Action) -> oncebox::Result<Acted> {
        Admin::act(self, action).await
    }

    async fn list(&self, filter: &EntryFilter) -> oncebox::Result<EntryPage> {
        Admin::list(self, filter).await
    }
}

impl Rigged for Postgres {
    async fn effect(tx: &mut PostgresTx, effect: NewEffect) -> Result<(), BoxError> {
        let NewEffect { message, variant, handler, life } = effect;
        sqlx::query(POSTGRES_EFFECT)
            .bind(i64::from(message))
            .bind(i16::from(variant))
            .bind(handler)
            .bind(i64::try_from(life).unwrap_or(i64::MAX))
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    async fn act(&self, action: &Action) -> oncebox::Result<Acted> {
        Admin::act(self, action).await
    }

    async fn list(&self, filter: &EntryFilter) -> oncebox::Result<EntryPage> {
        Admin::list(self, filter).await
    }
}

/// Opens the store, retrying, and works.
pub(super) async fn open_and_serve(job: WorkerJob, notes: Arc<Notes>) -> Result<()> {
    match job.store.clone() {
        StoreLocation::Sqlite(file) => {
            let mut options =
                Sqlite::options(file).busy_timeout(Duration::from_secs(20)).migrate(job.migrates);
            if job.has(Bug::AppClockLease) {
                options = options.clock(job.clock());
            }
            let store = until(|| async { options.clone().open() }).await;
            between(job, store, notes).await
        }
        StoreLocation::Postgres(url) => {
            let mut options = Postgres::options(&url)?
                .patience(Duration::from_secs(4))
                .idle_handlers(Duration::from_secs(20))
                .handler_connections(job.connections)
                .checks(true)
                .migrate(job.migrates);
            if job.has(Bug::AppClockLease) {
                options = options.clock(job.clock());
            }
            let store = until(|| options.clone().open()).await;
            between(job, store, notes).await
        }
    }
}

/// Creates the tables, retrying, so that workers need not check.
pub(crate) fn make_tables(place: &StoreLocation) -> Result<()> {
    const PATIENCE: Duration = Duration::from_mins(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match place {
            StoreLocation::Sqlite(file) => drop(Sqlite::options(file).busy_timeout(PATIENCE).open()?),
            StoreLocation::Postgres(url) => {
                drop(Postgres::options(url)?.patience(PATIENCE).checks(true).open().await?);
            }
        }
        Ok(())
    })
}

/// Registers both keys of renamed handlers as separate handlers, as if a user names the former key too late. Each then
/// has an id, and the store groups them. The group has no order guarantee for old processes.
pub(crate) fn set_keys_apart(place: &StoreLocation) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match place {
            StoreLocation::Sqlite(file) => register_apart(&Sqlite::options(file).open()?).await,
            StoreLocation::Postgres(url) => register_apart(&Postgres::options(url)?.open().await?).await,
        }
    })
}

async fn register_apart(store: &impl Store) -> Result<()> {
    for handler in ["tx", "plain", "share", "batch"] {
        for key in [handler.to_owned(), renamed(handler)] {
            let mut params = RegisterParams::new(InboxName::new(INBOX)?, Duration::from_hours(1));
            params.routes = vec![Route::new(HandlerKey::new(key)?)];
            store.register(&params).await?;
        }
    }
    Ok(())
}

/// Retries until the server is available.
async fn until<T, F>(open: impl Fn() -> F) -> T
where
    F: Future<Output = oncebox::Result<T>>,
{
    loop {
        match open().await {
            Ok(store) => return store,
            Err(error) => {
                eprintln!("the store cannot be opened yet: {error}");
                pause(Duration::from_millis(50)).await;
            }
        }
    }
}

#[cfg(feature = "sabotage")]
async fn between<S: Rigged + Clone>(job: WorkerJob, store: S, notes: Arc<Notes>) -> Result<()> {
    let store = Chaos::new(store, Arc::clone(&notes));
    let store = crate::seam::sabotage::Sabotaged::new(store, &job)?;
    serve(job, store, notes).await
}

#[cfg(not(feature = "sabotage"))]
async fn between<S: Rigged + Clone>(job: WorkerJob, store: S, notes: Arc<Notes>) -> Result<()> {
    anyhow::ensure!(
        job.sabotage.is_none(),
        "this build has no planted bugs: build it with `--features sabotage`"
    );
    serve(job, Chaos::new(store, Arc::clone(&notes)), notes).await
}
