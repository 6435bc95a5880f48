//! The databases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use async_trait::async_trait;
use oncebox::store::{Admin, Migrate, Migration};
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{Error, ErrorKind, Inbox, Store};
use oncebox_postgres::Postgres;
use oncebox_sealed::{Keyring, Sealed, SharedKeyring};
use oncebox_sqlite::Sqlite;

use super::message_log::MessageLog;
use super::running_config::build;
use crate::api::{AwaitedStore, BackfillRequest, Backfills, OperatorApi};
use crate::config::{InboxPlan, SealPlan, StorePlace, StorePlan};

/// A store of whichever kind.
pub(super) type AnyStore = Arc<dyn Store>;

/// The first pause and the longest between two looks for a store that is away. Each look is told.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A database that is open.
#[derive(Clone)]
enum OpenDatabase {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// A store that is open.
#[derive(Clone)]
struct OpenedStore {
    /// The database itself.
    database: OpenDatabase,
    /// The store as inboxes use it, with a line for each message.
    told: AnyStore,
    /// The same for operators.
    admin: Arc<dyn Admin>,
    /// The keys it is sealed with, if it is.
    keys: Option<SharedKeyring>,
}

/// Every store, by name.
#[derive(Clone)]
pub(super) struct Stores(BTreeMap<String, OpenedStore>);

impl Stores {
    /// Opens all of them. Meanwhile `api` says which one is waited for, and the log that `watch` are the URLs to ask.
    pub(super) async fn open(plans: &[StorePlan], watch: &str, api: &OperatorApi) -> Result<Self> {
        let mut stores = BTreeMap::new();
        for plan in plans {
            api.wait_for(AwaitedStore { store: plan.name.clone(), reason: None });
            let keys = plan.seal.as_ref().map(SealPlan::keyring).transpose()?.map(SharedKeyring::new);
            let database = open_at_last(plan, watch, api).await;
            let database = database.with_context(|| format!("cannot open the store {:?}", plan.name))?;
            let admin = match &database {
                OpenDatabase::Sqlite(store) => sealed(store.clone(), plan, keys.as_ref()),
                OpenDatabase::Postgres(store) => sealed(store.clone(), plan, keys.as_ref()),
            };
            let told = Arc::new(MessageLog::new(Arc::clone(&admin) as AnyStore));
            stores.insert(plan.name.clone(), OpenedStore { database, told, admin, keys });
        }
        Ok(Self(stores))
    }

    pub(super) fn get(&self, name: &str) -> Result<AnyStore> {
        self.opened(name).map(|store| Arc::clone(&store.told))
    }

    /// The store itself, for operators: what they do is no line about a message.
    pub(super) fn admin(&self, name: &str) -> Result<Arc<dyn Admin>> {
        self.opened(name).map(|store| Arc::clone(&store.admin))
    }

    /// Uses the logins of `new` for connections that are opened from now on, where they changed. A login that the server refuses
    /// is an error, and the store keeps the one it has.
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

    /// At a clean end: SQLite files hold every message without the log beside them.
    pub(super) async fn checkpoint(&self) {
        for (name, opened) in &self.0 {
            let OpenDatabase::Sqlite(store) = &opened.database else { continue };
            match store.checkpoint().await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(
                        store = name,
                        "the SQLite file is still in use; copy its -wal file together with it"
                    );
                }
                Err(error) => {
                    tracing::warn!(store = name, %error, "cannot empty the log; copy its -wal file together with the file");
                }
            }
        }
    }

    fn opened(&self, name: &str) -> Result<&OpenedStore> {
        self.0.get(name).ok_or_else(|| anyhow!("there is no store {name:?}"))
    }

    /// Writes and reads with the keys of another configuration from now on.
    pub(super) fn change_keys(&self, plans: &[StorePlan]) -> Result<()> {
        for plan in plans {
            let (keys, seal) = (&self.opened(&plan.name)?.keys, &plan.seal);
            if let (Some(keys), Some(seal)) = (keys, seal) {
                keys.replace(seal.keyring()?)?;
            }
        }
        Ok(())
    }

    /// Gives a handler what was stored before it was there; returns how many messages.
    pub(super) async fn catch_up(&self, plan: &InboxPlan, handler: &str) -> Result<u64> {
        Ok(build(plan, self.admin(&plan.store)?)?.backfill(handler).await?)
    }

    /// An inbox of a plan that was built before.
    fn built(&self, plan: &InboxPlan) -> oncebox::Result<Inbox<Arc<dyn Admin>>> {
        self.admin(&plan.store).and_then(|store| build(plan, store)).map_err(|error| unexpected(&error))
    }
}

/// What was built before is built again: that it fails is not expected.
fn unexpected(error: &anyhow::Error) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("{error:#}"))
}

#[async_trait]
impl Backfills for Stores {
    async fn record_backfill(&self, plan: &InboxPlan, request: &BackfillRequest) -> oncebox::Result<()> {
        let BackfillRequest { handler, id, actor, reason } = request;
        self.built(plan)?.record_backfill(handler, *id, actor, reason).await.map(|_| ())
    }

    async fn backfill(&self, plan: &InboxPlan, request: &BackfillRequest) -> oncebox::Result<u64> {
        let BackfillRequest { handler, id, actor, reason } = request;
        self.built(plan)?.backfill_by(handler, *id, actor, reason).await
    }
}

/// Opens a store, as soon as it is there: a server may start later than we do. What no waiting helps is an error, and so is a
/// file that cannot be opened.
async fn open_at_last(plan: &StorePlan, watch: &str, api: &OperatorApi) -> Result<OpenDatabase> {
    let (mut pause, longest) = PAUSES;
    loop {
        match open(plan).await? {
            Ok(opened) => return Ok(opened),
            Err(error) if is_away(plan, &error) => {
                api.wait_for(AwaitedStore { store: plan.name.clone(), reason: Some(error.kind().as_str()) });
                let (name, why) = (&plan.name, format!("{error:?}").replace("\n  caused by", "; caused by"));
                tracing::warn!(
                    "waiting for the store {name:?}, and taking nothing in ({watch}); the next look is in \
                     {pause:?}: {why}"
                );
            }
            Err(error) => return Err(outdated(plan, &error)),
        }
        SystemClock::default().sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

fn is_away(plan: &StorePlan, error: &Error) -> bool {
    let is_server = matches!(plan.place, StorePlace::Postgres { .. });
    is_server && (error.is_retryable() || error.kind() == ErrorKind::ReadOnly)
}

async fn open(plan: &StorePlan) -> Result<oncebox::Result<OpenDatabase>> {
    match &plan.place {
        StorePlace::Sqlite(path) => {
            let options = Sqlite::options(path).migrate(plan.migrate);
            // It waits for the disk.
            let opened = tokio::task::spawn_blocking(move || options.open()).await?;
            Ok(opened.map(OpenDatabase::Sqlite))
        }
        StorePlace::Postgres { .. } => {
            let options = postgres(plan)?.migrate(plan.migrate);
            Ok(options.open().await.map(OpenDatabase::Postgres))
        }
    }
}

/// A store as it is used: sealed, if the plan says so.
fn sealed<S: Admin>(store: S, plan: &StorePlan, keys: Option<&SharedKeyring>) -> Arc<dyn Admin> {
    match (&plan.seal, keys) {
        (Some(seal), Some(keys)) => Arc::new(seal.wrap(store, keys.clone())),
        _ => Arc::new(store),
    }
}

/// A store as an operator sees it: with the keys, if the operator has them. Otherwise what is sealed is shown as that.
fn for_operator<S: Admin>(store: S, plan: &StorePlan) -> oncebox::Result<Box<dyn Admin>> {
    Ok(match &plan.seal {
        Some(seal) => Box::new(seal.wrap(store, seal.keyring()?.into())),
        None => Box::new(Sealed::new(store, Keyring::locked()).allow_plaintext()),
    })
}

/// Opens a store for an operator. Its tables are never made or changed by that, and a file that is not there is not made.
pub(crate) async fn open_admin(plan: &StorePlan) -> oncebox::Result<Box<dyn Admin>> {
    match &plan.place {
        StorePlace::Sqlite(path) => {
            if !path.exists() {
                let what = format!("there is no file {}; check the path", path.display());
                return Err(Error::new(ErrorKind::InvalidConfig, what));
            }
            for_operator(Sqlite::options(path).migrate(false).open()?, plan)
        }
        StorePlace::Postgres { .. } => for_operator(postgres(plan)?.migrate(false).open().await?, plan),
    }
}

/// An error of a store, with the command that mends it if there is one.
fn outdated(plan: &StorePlan, error: &Error) -> anyhow::Error {
    if error.kind() != ErrorKind::SchemaOutdated {
        // Its text says what was kept and what to do; the causes say what the database said.
        return anyhow!("{error:?}");
    }
    let name = &plan.name;
    anyhow!(
        "its tables are missing or lack something, and `migrate` is false; as the owner of the tables run `oncebox migrate \
         apply --store {name}` with the same `--config`, or `oncebox migrate print --store {name}` and then that SQL in one transaction"
    )
}

fn postgres(plan: &StorePlan) -> oncebox::Result<oncebox_postgres::PostgresOptions> {
    let StorePlace::Postgres { url, schema, prefix, pooled } = &plan.place else {
        let what = format!("the store {:?} is no PostgreSQL", plan.name);
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

/// Whether a store is a file that is not there.
pub(crate) fn is_missing(plan: &StorePlan) -> bool {
    matches!(&plan.place, StorePlace::Sqlite(path) if !path.exists())
}

/// The version of a store's tables, and the steps that they lack. Makes nothing, not even a file.
pub(crate) async fn pending(plan: &StorePlan) -> oncebox::Result<(u32, Vec<Migration>)> {
    let options: Box<dyn Migrate> = match &plan.place {
        StorePlace::Sqlite(path) => Box::new(Sqlite::options(path)),
        StorePlace::Postgres { .. } => Box::new(postgres(plan)?),
    };
    Ok((options.current().await?, options.pending().await?))
}

/// Brings the tables of a store up to date; returns the steps that were missing.
pub(crate) async fn migrate(plan: &StorePlan) -> oncebox::Result<Vec<Migration>> {
    match &plan.place {
        StorePlace::Sqlite(path) => Sqlite::options(path).apply().await,
        StorePlace::Postgres { .. } => postgres(plan)?.apply().await,
    }
}

/// The SQL of the whole schema. Opens nothing.
pub(crate) async fn schema_sql(plan: &StorePlan) -> oncebox::Result<String> {
    match &plan.place {
        StorePlace::Sqlite(_) => {
            let steps = Sqlite::options("").pending().await?;
            let steps = steps
                .iter()
                .map(|step| format!("\n-- Version {}: {}\n{}", step.version, step.name, step.sql));
            let note = "-- To be read: `oncebox migrate apply` makes the tables of a SQLite file, and notes their version.\n";
            Ok(std::iter::once(note.to_owned()).chain(steps).collect())
        }
        StorePlace::Postgres { .. } => postgres(plan)?.schema_sql(),
    }
}

/// Whether a store lets some in and others not.
pub(crate) fn has_roles(plan: &StorePlan) -> bool {
    matches!(plan.place, StorePlace::Postgres { .. })
}

/// The SQL that lets a role work with the tables of a store. Opens nothing.
pub(crate) fn grants_sql(plan: &StorePlan, role: &str) -> oncebox::Result<String> {
    match &plan.place {
        StorePlace::Sqlite(_) => {
            let what = "a SQLite file knows no roles: whoever may write to the file may use it";
            Err(Error::new(ErrorKind::Unsupported, what))
        }
        StorePlace::Postgres { .. } => postgres(plan)?.grants_sql(role),
    }
}
