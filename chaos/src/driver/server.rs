//! The store's side of a round: a fresh file or database, and what can be done to the server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use oncebox_servers::{Cluster, Version};

use super::faults::Fault;
use super::{Options, StoreKind};
use crate::checker::tables::{Postgres, Sqlite, Tables};
use crate::ledger::{Fact, Ledger};
use crate::worker::Place;

/// A word that stands in the address of the database, and nowhere else.
pub(crate) const CANARY: &str = "canary-Zq7vX2";

/// What all rounds share.
pub(super) struct Server {
    cluster: Option<Arc<Cluster>>,
    /// Whether something is being done to the server.
    busy: Arc<AtomicBool>,
    rounds: u64,
}

impl Server {
    pub(super) fn start(options: &Options) -> Result<Self> {
        let cluster = match options.store {
            StoreKind::Sqlite => None,
            StoreKind::Postgres => {
                let cluster = Cluster::builder(Version::Newest).set("max_connections", "300").start();
                Some(Arc::new(cluster.context("cannot start PostgreSQL")?))
            }
        };
        Ok(Self { cluster, busy: Arc::default(), rounds: 0 })
    }

    /// A fresh place for a round, with the business table in it.
    pub(super) fn prepare(&mut self, dir: &Path) -> Result<(Place, Arc<dyn Tables>)> {
        self.rounds += 1;
        let Some(cluster) = &self.cluster else {
            let file = dir.join("chaos.db");
            let tables = Sqlite::new(&file);
            tables.create()?;
            return Ok((Place::Sqlite(file), Arc::new(tables)));
        };
        let name = format!("round{}", self.rounds);
        cluster.create_database(&name)?;
        let tables = Postgres::new(Arc::clone(cluster), &name);
        tables.create()?;
        let url = cluster.url(&name).replacen("oncebox@", &format!("oncebox:{CANARY}@"), 1);
        Ok((Place::Postgres(url), Arc::new(tables)))
    }

    /// Does something to the server, beside the driver. Nothing if something is being done to it already.
    pub(super) fn suffer(&self, fault: Fault, ledger: &Arc<Ledger>) {
        let Some(cluster) = self.cluster.clone() else { return };
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let database = format!("round{}", self.rounds);
        let (busy, ledger) = (Arc::clone(&self.busy), Arc::clone(ledger));
        std::thread::spawn(move || {
            let note = |what: &str| ledger.note(Fact::Fault { life: 0, what: what.to_owned() });
            if let Err(error) = inflict(&cluster, &database, fault, &note) {
                eprintln!("chaos: {fault:?} did not work out: {error:#}");
            }
            busy.store(false, Ordering::Release);
        });
    }

    /// Waits until nothing is being done to the server any more.
    pub(super) fn settle(&self) {
        while self.busy.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

fn inflict(cluster: &Cluster, database: &str, fault: Fault, note: &dyn Fn(&str)) -> Result<()> {
    let ours = format!("from pg_stat_activity where datname = '{database}' and pid <> pg_backend_pid()");
    match fault {
        Fault::EndSessions => {
            note("server: sessions ended");
            cluster
                .sql("postgres", &format!("select pg_terminate_backend(pid) {ours} and random() < 0.4"))?;
            note("server: sessions ended");
        }
        Fault::LoseCommits => {
            note("server: commits without an answer");
            cluster.configure("synchronous_standby_names", "ghost")?;
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(600) {
                let hanging = format!("select pg_terminate_backend(pid) {ours} and wait_event = 'SyncRep'");
                cluster.sql("postgres", &hanging)?;
            }
            cluster.configure("synchronous_standby_names", "")?;
            // Whoever hangs now is let go by the change of the setting.
            note("server: commits are answered again");
        }
        Fault::KillServer => {
            note("server: killed");
            cluster.kill9()?;
            cluster.start_again()?;
            note("server: started again");
        }
        Fault::SuspendServer(time) => {
            note("server: suspended");
            cluster.suspend_all()?;
            std::thread::park_timeout(time);
            cluster.resume()?;
            note("server: resumed");
        }
        Fault::Kill | Fault::Stop(_) | Fault::Terminate => {}
    }
    Ok(())
}
