//! Opens, migrates and closes the databases. Tests: `tests/serve/start.rs` and `postgres.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use oncebox::store::{Admin, Migrate, Migration};
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{Error, ErrorKind, Store};
use oncebox_postgres::Postgres;
use oncebox_sealed::{Keyring, Sealed, SharedKeyring};
use oncebox_sqlite::Sqlite;

use super::message_log::MessageLog;
use super::running_config::build;
use crate::api::{AwaitedStore, OperatorApi};
use crate::config::{InboxPlan, SealPlan, StorePlace, StorePlan};

/// A store of any kind.
pub(super) type AnyStore = Arc<dyn Store>;

/// First and longest delay between two attempts to open an unavailable store. Each attempt is logged.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Advice for a SQLite file with a write-ahead log.
const COPY_WAL: &str = "copy the -wal file together with the SQLite file";

/// An open database.
#[derive(Clone)]
enum OpenDatabase {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// An open store.
#[derive(Clone)]
struct OpenedStore {
    /// The database itself.
    database: OpenDatabase,
    /// Store for inboxes, which logs a line for each message.
    logged: AnyStore,
    /// Store for operators.
    admin: Arc<dyn Admin>,
    /// Keys of a sealed store.
    keys: Option<SharedKeyring>,
}

/// All stores by name.
#[derive(Clone)]
pub(super) struct Stores(BTreeMap<String, OpenedStore>);

impl Stores {
    /// Opens all stores. Meanwhile `api` reports the store it waits for, and the log the `probe` URLs.
    pub(super) async fn open(plans: &[StorePlan], probe: &str, api: &OperatorApi) -> Result<Self> {
        let mut stores = BTreeMap::new();
        for plan in plans {
            api.wait_for(AwaitedStore { store: plan.name.clone(), reason: None });
            let keys = plan.seal.as_ref().map(SealPlan::keyring).transpose()?.map(SharedKeyring::new);
            let database = open_when_available(plan, probe, api).await;
            let database = database.with_context(|| format!("cannot open the store {:?}", plan.name))?;
            let admin = match &database {
                OpenDatabase::Sqlite(store) => sealed(store.clone(), plan, keys.as_ref()),
                OpenDatabase::Postgres(store) => sealed(store.clone(), plan, keys.as_ref()),
            };
            let logged = Arc::new(MessageLog::new(Arc::clone(&admin) as AnyStore));
            stores.insert(plan.name.clone(), OpenedStore { database, logged, admin, keys });
        }
        Ok(Self(stores))
    }

    pub(super) fn get(&self, name: &str) -> Result<AnyStore> {
        self.opened(name).map(|store| Arc::clone(&store.logged))
    }

    /// Returns the store for operators, whose actions log no line about a message.
    pub(super) fn admin(&self, name: &str) -> Result<Arc<dyn Admin>> {
        self.opened(name).map(|store| Arc::clone(&store.admin))
    }

    /// Uses changed logins of `new` for new connections. If the server refuses a login, returns an error and keeps the old one.
    pub(super) async fn log_in(&self, old: &[StorePlan], new: &[StorePlan]) -> Result<()> {
        for (old, new) in old.iter().zip(new) {
            let StorePlace::Postgres { url, .. } = &new.place else { continue };
            if let OpenDatabase::Postgres(store) = &self.opened(&new.name)?.database
                && old != new
            {
                let logged_in = store.change_login(url).await.map_err(|error| anyhow!("{error:?}"));
                logged_in.with_context(|| format!("cannot use the new login of the store {:?}", new.name))?;
                tracing::info!(store = new.name, "new connections use the new login");
            }
        }
        Ok(())
    }

    /// Restores former logins after a reload that failed. A store whose server refuses the former login keeps the new one, which works.
    pub(super) async fn log_back_in(&self, new: &[StorePlan], old: &[StorePlan]) {
        for (new, old) in new.iter().zip(old).filter(|(new, old)| new != old) {
            let StorePlace::Postgres { url, .. } = &old.place else { continue };
            let Ok(OpenedStore { database: OpenDatabase::Postgres(store), .. }) = self.opened(&old.name)
            else {
                continue;
            };
            match store.change_login(url).await {
                Ok(()) => tracing::info!(store = new.name, "former login restored"),
                Err(error) => tracing::warn!(store = new.name, %error, "former login refused, new one kept"),
            }
        }
    }

    /// Moves the write-ahead logs into the SQLite files, at a clean shutdown.
    pub(super) async fn checkpoint(&self) {
        for (name, opened) in &self.0 {
            let OpenDatabase::Sqlite(store) = &opened.database else { continue };
            match store.checkpoint().await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(store = name, advice = COPY_WAL, "SQLite file still in use");
                }
                Err(error) => {
                    tracing::warn!(store = name, %error, advice = COPY_WAL, "SQLite checkpoint failed");
                }
            }
        }
    }

    fn opened(&self, name: &str) -> Result<&OpenedStore> {
        self.0.get(name).ok_or_else(|| anyhow!("unknown store {name:?}"))
    }

    /// Replaces the keys of sealed stores.
    pub(super) fn change_keys(&self, plans: &[StorePlan]) -> Result<()> {
        for plan in plans {
            let (keys, seal) = (&self.opened(&plan.name)?.keys, &plan.seal);
            if let (Some(keys), Some(seal)) = (keys, seal) {
                keys.replace(seal.keyring()?)?;
            }
        }
        Ok(())
    }

    /// Adds entries for stored messages that a handler has not had; returns their number.
    pub(super) async fn add_missing(&self, plan: &InboxPlan, handler: &str) -> Result<u64> {
        Ok(build(plan, self.admin(&plan.store)?)?.backfill(handler).await?)
    }
}

/// Opens a store, and waits for an unavailable server. Returns other errors at once.
async fn open_when_available(plan: &StorePlan, probe: &str, api: &OperatorApi) -> Result<OpenDatabase> {
    let (mut delay, longest) = RETRY_DELAYS;
    loop {
        match open(plan).await? {
            Ok(opened) => return Ok(opened),
            Err(error) if is_unavailable(plan, &error) => {
                api.wait_for(AwaitedStore { store: plan.name.clone(), reason: Some(error.kind().as_str()) });
                let error = format!("{error:?}").replace("\n  caused by", "; caused by");
                tracing::warn!(store = plan.name, retry_in = ?delay, %probe, %error, "waiting for the store");
            }
            Err(error) => return Err(outdated(plan, &error)),
        }
        SystemClock::default().sleep(delay).await;
        delay = (delay * 2).min(longest);
    }
}

fn is_unavailable(plan: &StorePlan, error: &Error) -> bool {
    let is_server = matches!(plan.place, StorePlace::Postgres { .. });
    is_server && (error.is_retryable() || error.kind() == ErrorKind::ReadOnly)
}

async fn open(plan: &StorePlan) -> Result<oncebox::Result<OpenDatabase>> {
    match &plan.place {
        StorePlace::Sqlite(path) => {
            let options = Sqlite::options(path).migrate(plan.migrate);
            // Blocks on disk access.
            let opened = tokio::task::spawn_blocking(move || options.open()).await?;
            Ok(opened.map(OpenDatabase::Sqlite))
        }
        StorePlace::Postgres { .. } => {
            let options = postgres(plan)?.migrate(plan.migrate);
            Ok(options.open().await.map(OpenDatabase::Postgres))
        }
    }
}

/// Wraps a store with its encryption, if configured.
fn sealed<S: Admin>(store: S, plan: &StorePlan, keys: Option<&SharedKeyring>) -> Arc<dyn Admin> {
    match (&plan.seal, keys) {
        (Some(seal), Some(keys)) => Arc::new(seal.wrap(store, keys.clone())),
        _ => Arc::new(store),
    }
}

/// Wraps a store for an operator. Without keys, sealed content is shown as sealed.
fn for_operator<S: Admin>(store: S, plan: &StorePlan) -> oncebox::Result<Arc<dyn Admin>> {
    Ok(match &plan.seal {
        Some(seal) => Arc::new(seal.wrap(store, seal.keyring()?.into())),
        None => Arc::new(Sealed::new(store, Keyring::locked()).allow_plaintext()),
    })
}

/// Opens a store for an operator. Never creates a file, and never creates or changes tables.
pub(crate) async fn open_admin(plan: &StorePlan) -> oncebox::Result<Arc<dyn Admin>> {
    match &plan.place {
        StorePlace::Sqlite(path) => {
            if !path.exists() {
                let what = format!("the file {} does not exist; check the path", path.display());
                return Err(Error::new(ErrorKind::InvalidConfig, what));
            }
            for_operator(Sqlite::options(path).migrate(false).open()?, plan)
        }
        StorePlace::Postgres { .. } => for_operator(postgres(plan)?.migrate(false).open().await?, plan),
    }
}

/// Converts an error of a store, and names the command that fixes outdated tables.
fn outdated(plan: &StorePlan, error: &Error) -> anyhow::Error {
    if error.kind() != ErrorKind::SchemaOutdated {
        // Includes the advice and the causes from the database.
        return anyhow!("{error:?}");
    }
    let name = &plan.name;
    anyhow!(
        "its tables are missing or outdated, and `migrate` is false; as the owner of the tables, run `oncebox migrate apply \
         --store {name}` with the same `--config`, or run the SQL of `oncebox migrate print --store {name}` in one transaction"
    )
}

fn postgres(plan: &StorePlan) -> oncebox::Result<oncebox_postgres::PostgresOptions> {
    let StorePlace::Postgres { url, schema, prefix, pooled } = &plan.place else {
        let what = format!("the store {:?} is not PostgreSQL", plan.name);
        return Err(Error::new(ErrorKind::InvalidConfig, what));
    };
    let mut options = Postgres::options(url)?.pooled(*pooled);
    if let Some(schema) = schema {
        options = options.schema(schema);
    }
    if let Some(prefix) = prefix {
        options = options.prefix(prefix);
    }
    Ok(options)
}

/// Returns true if the store is a file that does not exist.
pub(crate) fn is_missing(plan: &StorePlan) -> bool {
    matches!(&plan.place, StorePlace::Sqlite(path) if !path.exists())
}

/// Returns the version of the tables and the missing steps. Creates nothing, not even a file.
pub(crate) async fn pending(plan: &StorePlan) -> oncebox::Result<(u32, Vec<Migration>)> {
    let options: Box<dyn Migrate> = match &plan.place {
        StorePlace::Sqlite(path) => Box::new(Sqlite::options(path)),
        StorePlace::Postgres { .. } => Box::new(postgres(plan)?),
    };
    Ok((options.current().await?, options.pending().await?))
}

/// Applies the missing steps and returns them.
pub(crate) async fn migrate(plan: &StorePlan) -> oncebox::Result<Vec<Migration>> {
    match &plan.place {
        StorePlace::Sqlite(path) => Sqlite::options(path).apply().await,
        StorePlace::Postgres { .. } => postgres(plan)?.apply().await,
    }
}

/// Drops the functions of earlier releases and returns their names. A SQLite file has none.
pub(crate) async fn prune(plan: &StorePlan) -> oncebox::Result<Vec<String>> {
    match &plan.place {
        StorePlace::Sqlite(_) => Ok(Vec::new()),
        StorePlace::Postgres { .. } => postgres(plan)?.drop_former_functions().await,
    }
}

/// Returns the SQL of the whole schema, without connecting.
pub(crate) async fn schema_sql(plan: &StorePlan) -> oncebox::Result<String> {
    match &plan.place {
        StorePlace::Sqlite(_) => {
            let steps = Sqlite::options("").pending().await?;
            let steps = steps
                .iter()
                .map(|step| format!("\n-- Version {}: {}\n{}", step.version, step.name, step.sql));
            let note = "-- For reading only: `oncebox migrate apply` creates the tables of a SQLite file and records their version.\n";
            Ok(std::iter::once(note.to_owned()).chain(steps).collect())
        }
        StorePlace::Postgres { .. } => postgres(plan)?.schema_sql(),
    }
}

/// Returns true if the store has roles.
pub(crate) fn has_roles(plan: &StorePlan) -> bool {
    matches!(plan.place, StorePlace::Postgres { .. })
}

/// Returns the SQL that grants a role access to the tables, without connecting.
pub(crate) fn grants_sql(plan: &StorePlan, role: &str) -> oncebox::Result<String> {
    match &plan.place {
        StorePlace::Sqlite(_) => {
            let what = "a SQLite file has no roles; grant access with the permissions of the file";
            Err(Error::new(ErrorKind::Unsupported, what))
        }
        StorePlace::Postgres { .. } => postgres(plan)?.grants_sql(role),
    }
}
