//! The databases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use async_trait::async_trait;
use oncebox::store::{Admin, Migrate, Migration};
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{Error, ErrorKind, Store};
use oncebox_postgres::Postgres;
use oncebox_sqlite::Sqlite;

use super::fleet::build;
use super::told::Told;
use crate::api::{Api, AwaitedStore, Backfills, Errand};
use crate::config::{InboxPlan, StorePlace, StorePlan};

/// A store of whichever kind.
pub(super) type Any = Arc<dyn Store>;

/// The first pause and the longest between two looks for a store that is away. Each look is told.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A store as it is.
#[derive(Clone)]
enum Opened {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// Every store, by name.
#[derive(Clone)]
pub(super) struct Stores(BTreeMap<String, (Any, Opened)>);

impl Stores {
    /// Opens all of them. Meanwhile `api` says which one is waited for, and the log that `watch` are the URLs to ask.
    pub(super) async fn open(plans: &[StorePlan], watch: &str, api: &Api) -> Result<Self> {
        let mut stores = BTreeMap::new();
        for plan in plans {
            api.wait_for(AwaitedStore { store: plan.name.clone(), reason: None });
            let store = open_at_last(plan, watch, api).await;
            let store = store.with_context(|| format!("cannot open the store {:?}", plan.name))?;
            let told = match &store {
                Opened::Sqlite(store) => Told::new(Arc::new(store.clone())),
                Opened::Postgres(store) => Told::new(Arc::new(store.clone())),
            };
            stores.insert(plan.name.clone(), (Arc::new(told) as Any, store));
        }
        Ok(Self(stores))
    }

    pub(super) fn get(&self, name: &str) -> Result<Any> {
        self.0.get(name).map(|(told, _)| told.clone()).ok_or_else(|| anyhow!("there is no store {name:?}"))
    }

    /// The store itself, for operators: what they do is no line about a message.
    pub(super) fn admin(&self, name: &str) -> Result<Arc<dyn Admin>> {
        Ok(match self.opened(name)? {
            Opened::Sqlite(store) => Arc::new(store.clone()),
            Opened::Postgres(store) => Arc::new(store.clone()),
        })
    }

    /// Uses the logins of `new` for connections that are opened from now on, where they changed. A login that the server refuses
    /// is an error, and the store keeps the one it has.
    pub(super) async fn log_in(&self, old: &[StorePlan], new: &[StorePlan]) -> Result<()> {
        for (old, new) in old.iter().zip(new) {
            let StorePlace::Postgres { url, .. } = &new.place else { continue };
            if let Opened::Postgres(store) = self.opened(&new.name)?
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
        for (name, (_, opened)) in &self.0 {
            let Opened::Sqlite(store) = opened else { continue };
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

    fn opened(&self, name: &str) -> Result<&Opened> {
        self.0.get(name).map(|(_, store)| store).ok_or_else(|| anyhow!("there is no store {name:?}"))
    }

    /// Gives a handler what was stored before it was there; returns how many messages.
    pub(super) async fn catch_up(&self, plan: &InboxPlan, handler: &str) -> Result<u64> {
        Ok(match self.opened(&plan.store)? {
            Opened::Sqlite(store) => build(plan, store.clone())?.backfill(handler).await?,
            Opened::Postgres(store) => build(plan, store.clone())?.backfill(handler).await?,
        })
    }
}

/// What was built before is built again: that it fails is not expected.
fn unexpected(error: &anyhow::Error) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("{error:#}"))
}

#[async_trait]
impl Backfills for Stores {
    async fn record_backfill(&self, plan: &InboxPlan, errand: &Errand) -> oncebox::Result<()> {
        let Errand { handler, id, actor, reason } = errand;
        match self.opened(&plan.store).map_err(|error| unexpected(&error))? {
            Opened::Sqlite(store) => {
                let inbox = build(plan, store.clone()).map_err(|error| unexpected(&error))?;
                inbox.record_backfill(handler, *id, actor, reason).await?;
            }
            Opened::Postgres(store) => {
                let inbox = build(plan, store.clone()).map_err(|error| unexpected(&error))?;
                inbox.record_backfill(handler, *id, actor, reason).await?;
            }
        }
        Ok(())
    }

    async fn backfill(&self, plan: &InboxPlan, errand: &Errand) -> oncebox::Result<u64> {
        let Errand { handler, id, actor, reason } = errand;
        match self.opened(&plan.store).map_err(|error| unexpected(&error))? {
            Opened::Sqlite(store) => {
                let inbox = build(plan, store.clone()).map_err(|error| unexpected(&error))?;
                inbox.backfill_by(handler, *id, actor, reason).await
            }
            Opened::Postgres(store) => {
                let inbox = build(plan, store.clone()).map_err(|error| unexpected(&error))?;
                inbox.backfill_by(handler, *id, actor, reason).await
            }
        }
    }
}

/// Opens a store, as soon as it is there: a server may start later than we do. What no waiting helps is an error, and so is a
/// file that cannot be opened.
async fn open_at_last(plan: &StorePlan, watch: &str, api: &Api) -> Result<Opened> {
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

async fn open(plan: &StorePlan) -> Result<oncebox::Result<Opened>> {
    match &plan.place {
        StorePlace::Sqlite(path) => {
            let options = Sqlite::options(path).migrate(plan.migrate);
            // It waits for the disk.
            let opened = tokio::task::spawn_blocking(move || options.open()).await?;
            Ok(opened.map(Opened::Sqlite))
        }
        StorePlace::Postgres { .. } => {
            let options = postgres(plan)?.migrate(plan.migrate);
            Ok(options.open().await.map(Opened::Postgres))
        }
    }
}

/// Opens a store for an operator. Its tables are never made or changed by that, and a file that is not there is not made.
pub(crate) async fn open_admin(plan: &StorePlan) -> oncebox::Result<Box<dyn Admin>> {
    match &plan.place {
        StorePlace::Sqlite(path) => {
            if !path.exists() {
                let what = format!("there is no file {}; check the path", path.display());
                return Err(Error::new(ErrorKind::InvalidConfig, what));
            }
            Ok(Box::new(Sqlite::options(path).migrate(false).open()?))
        }
        StorePlace::Postgres { .. } => Ok(Box::new(postgres(plan)?.migrate(false).open().await?)),
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

fn postgres(plan: &StorePlan) -> oncebox::Result<oncebox_postgres::Options> {
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
