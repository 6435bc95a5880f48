//! The store's side of a round: a fresh file or database, and what can be done to the server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use oncebox_servers::{Cluster, Version};
use parking_lot::Mutex;

use super::disk::Disk;
use super::faults::{Fault, Mix};
use super::proxy::{Proxy, Trouble};
use super::{Options, StoreKind};
use crate::checker::tables::{Postgres, Primary, Sqlite, Tables};
use crate::ledger::{Fact, Ledger};
use crate::worker::Place;

/// A word that stands in the address of the database, and nowhere else.
pub(crate) const CANARY: &str = "canary-Zq7vX2";

/// How much room there is on a disk that gets full.
const ROOM: u64 = 96 << 20;

/// What all rounds share.
pub(super) struct Server {
    mix: Mix,
    postgres: Option<Arc<Running>>,
    /// For a file, where the disk gets full.
    disk: Option<Arc<Disk>>,
    /// Whether something is being done to the server.
    busy: Arc<AtomicBool>,
    rounds: u64,
}

/// A PostgreSQL server, and what stands before and behind it.
struct Running {
    primary: Arc<Primary>,
    proxy: Option<Proxy>,
    /// Takes over when the primary is gone.
    replica: Mutex<Option<Cluster>>,
}

impl Server {
    pub(super) fn start(options: &Options) -> Result<Self> {
        let postgres = match options.store {
            StoreKind::Sqlite => None,
            StoreKind::Postgres => {
                Some(Arc::new(Running::start(options.mix).context("cannot start PostgreSQL")?))
            }
        };
        Ok(Self { mix: options.mix, postgres, disk: None, busy: Arc::default(), rounds: 0 })
    }

    /// A fresh place for a round, with the business table in it.
    pub(super) fn prepare(&mut self, dir: &Path) -> Result<(Place, Arc<dyn Tables>)> {
        self.rounds += 1;
        let Some(server) = &self.postgres else {
            self.disk = if self.mix == Mix::Full { Some(Arc::new(Disk::mount(ROOM)?)) } else { None };
            let file = self.disk.as_ref().map_or(dir, |disk| disk.path()).join("chaos.db");
            let tables = Sqlite::new(&file);
            tables.create()?;
            return Ok((Place::Sqlite(file), Arc::new(tables)));
        };
        let (name, cluster) = (format!("round{}", self.rounds), server.primary.now());
        cluster.create_database(&name)?;
        let tables = Postgres::new(Arc::clone(&server.primary), &name);
        tables.create()?;
        let port = server.proxy.as_ref().map_or(cluster.port(), Proxy::port);
        let url = cluster.url(&name).replacen("oncebox@", &format!("oncebox:{CANARY}@"), 1);
        let url = url.replacen(&format!(":{}/", cluster.port()), &format!(":{port}/"), 1);
        Ok((Place::Postgres(url), Arc::new(tables)))
    }

    /// Does something to a connection to the server. Says whether there was one.
    pub(super) fn disturb(&self, trouble: Trouble, rng: &mut fastrand::Rng) -> bool {
        let proxy = self.postgres.as_ref().and_then(|server| server.proxy.as_ref());
        proxy.is_some_and(|proxy| proxy.disturb(trouble, rng))
    }

    /// Does something to the server, beside the driver. Nothing if something is being done to it already.
    pub(super) fn suffer(&self, fault: Fault, ledger: &Arc<Ledger>) -> bool {
        if self.busy.swap(true, Ordering::AcqRel) {
            return false;
        }
        let (postgres, disk, database) =
            (self.postgres.clone(), self.disk.clone(), format!("round{}", self.rounds));
        let (busy, ledger) = (Arc::clone(&self.busy), Arc::clone(ledger));
        std::thread::spawn(move || {
            let note = |what: &str| ledger.note(Fact::Fault { life: 0, what: what.to_owned() });
            let done = match (&postgres, &disk, fault) {
                (Some(server), ..) => server.suffer(&database, fault, &note),
                (None, Some(disk), Fault::FillDisk(time)) => fill(disk, time, &note),
                _ => Ok(()),
            };
            if let Err(error) = done {
                eprintln!("chaos: {fault:?} did not work out: {error:#}");
            }
            busy.store(false, Ordering::Release);
        });
        true
    }

    /// Waits until nothing is being done to the server any more.
    pub(super) fn settle(&self) {
        while self.busy.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

fn fill(disk: &Disk, time: Duration, note: &dyn Fn(&str)) -> Result<()> {
    note("disk: full");
    let ballast = disk.fill()?;
    std::thread::park_timeout(time);
    drop(ballast);
    note("disk: has room again");
    Ok(())
}

impl Running {
    fn start(mix: Mix) -> Result<Self> {
        let mut builder = Cluster::builder(Version::Newest).set("max_connections", "300");
        if mix == Mix::Full {
            builder = builder.tmpfs(4 * ROOM).set("max_wal_size", "64MB").set("min_wal_size", "32MB");
        }
        let cluster = builder.start()?;
        let proxy = if mix.has_proxy() { Some(Proxy::start(cluster.port())?) } else { None };
        let running = Self { primary: Arc::new(Primary::new(cluster)), proxy, replica: Mutex::default() };
        if mix == Mix::Failover {
            running.follow()?;
        }
        Ok(running)
    }

    /// Gives the primary a replica, for which every commit waits from now on.
    fn follow(&self) -> Result<()> {
        let primary = self.primary.now();
        let replica = primary.replica()?;
        primary.configure("synchronous_standby_names", "*")?;
        primary.wait_for("postgres", "exists (select from pg_stat_replication where sync_state = 'sync')")?;
        *self.replica.lock() = Some(replica);
        Ok(())
    }

    fn fail_over(&self, note: &dyn Fn(&str)) -> Result<()> {
        let Some(replica) = self.replica.lock().take() else { return Ok(()) };
        note("server: primary killed");
        self.primary.now().kill9()?;
        replica.promote()?;
        if let Some(proxy) = &self.proxy {
            proxy.lead_to(replica.port());
        }
        self.primary.set(replica);
        note("server: failed over");
        self.follow()
    }

    fn suffer(&self, database: &str, fault: Fault, note: &dyn Fn(&str)) -> Result<()> {
        let cluster = self.primary.now();
        let ours = format!("from pg_stat_activity where datname = '{database}' and pid <> pg_backend_pid()");
        match fault {
            Fault::EndSessions => {
                note("server: ending sessions");
                cluster.sql(
                    "postgres",
                    &format!("select pg_terminate_backend(pid) {ours} and random() < 0.4"),
                )?;
                note("server: sessions ended");
            }
            Fault::LoseCommits => {
                note("server: commits without an answer");
                cluster.configure("synchronous_standby_names", "ghost")?;
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(600) {
                    let hanging =
                        format!("select pg_terminate_backend(pid) {ours} and wait_event = 'SyncRep'");
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
            Fault::FailOver => self.fail_over(note)?,
            Fault::FillDisk(time) => {
                let before = without_room(&cluster);
                note("disk: full");
                let ballast = cluster.fill_disk()?;
                // Otherwise it has room in its log for longer than this lasts. It may well end at this.
                let _ = cluster.sql("postgres", "select pg_switch_wal()");
                std::thread::park_timeout(time);
                drop(ballast);
                revive(&cluster)?;
                if without_room(&cluster) > before {
                    note("server: found no room");
                }
                note("disk: has room again");
            }
            Fault::Kill | Fault::Stop(_) | Fault::Terminate | Fault::Disturb(_) | Fault::KillBroker => {}
        }
        Ok(())
    }
}

/// How often a server has said that it found no room.
fn without_room(cluster: &Cluster) -> usize {
    cluster.log_text().map_or(0, |text| text.matches("No space left on device").count())
}

/// A server that found no room for its log has ended itself; it starts again by itself, or not.
fn revive(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    loop {
        match cluster.sql("postgres", "select 1") {
            Ok(_) => return Ok(()),
            Err(error) if start.elapsed() > Duration::from_mins(3) => return Err(error),
            // One that is still running refuses to be started.
            Err(_) => drop(cluster.start_again()),
        }
    }
}
