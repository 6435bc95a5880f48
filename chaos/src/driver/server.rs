//! Database of a round: a fresh file or database, and the faults of its server. Tests: tests/short.rs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use oncebox_servers::{Cluster, PostgresVersion};
use parking_lot::Mutex;

use super::disk::Disk;
use super::faults::{Denial, DriverFault, Mix};
use super::proxy::{FaultProxy, LinkFault};
use super::{RunOptions, StoreKind};
use crate::checker::tables::{PostgresTables, Primary, RoundTables, SqliteTables};
use crate::ledger::{DENIED, DENIED_FOR_LONG, FAILED_OVER, Fact, LOSES_FROM_NOW, ProcessLedger};
use crate::worker::StoreLocation;

/// Secret in the database address that must not appear in any output.
pub(crate) const CANARY: &str = "canary-Zq7vX2";

/// Role of the workers while the server refuses them commands.
const ROLE: &str = "chaos_app";

/// Size of the disk that becomes full, in bytes.
const ROOM: u64 = 96 << 20;

/// The database server of all rounds.
pub(super) struct DatabaseServer {
    mix: Mix,
    postgres: Option<Arc<RunningPostgres>>,
    /// For a file: the disk that becomes full.
    disk: Option<Arc<Disk>>,
    /// True while a fault acts on the server.
    busy: Arc<AtomicBool>,
    rounds: u64,
}

/// A PostgreSQL server with its proxy and its replica.
struct RunningPostgres {
    primary: Arc<Primary>,
    proxy: Option<FaultProxy>,
    /// Promoted when the primary is gone.
    replica: Mutex<Option<Cluster>>,
    /// True if commits wait for it.
    synchronous: bool,
    failovers: AtomicU64,
}

impl DatabaseServer {
    pub(super) fn start(options: &RunOptions) -> Result<Self> {
        let postgres = match options.store {
            StoreKind::Sqlite => None,
            StoreKind::Postgres => {
                Some(Arc::new(RunningPostgres::start(options.mix).context("cannot start PostgreSQL")?))
            }
        };
        Ok(Self { mix: options.mix, postgres, disk: None, busy: Arc::default(), rounds: 0 })
    }

    /// Creates a fresh database for a round, with the business table.
    pub(super) fn prepare(&mut self, dir: &Path) -> Result<(StoreLocation, Arc<dyn RoundTables>)> {
        self.rounds += 1;
        let Some(server) = &self.postgres else {
            self.disk = if self.mix == Mix::Full { Some(Arc::new(Disk::mount(ROOM)?)) } else { None };
            let file = self.disk.as_ref().map_or(dir, |disk| disk.path()).join("chaos.db");
            let tables = SqliteTables::new(&file);
            tables.create()?;
            return Ok((StoreLocation::Sqlite(file), Arc::new(tables)));
        };
        let (name, cluster) = (format!("round{}", self.rounds), server.primary.now());
        cluster.create_database(&name)?;
        let tables = PostgresTables::new(Arc::clone(&server.primary), &name);
        tables.create()?;
        let user = if self.mix.denies() { ROLE } else { "oncebox" };
        if self.mix.denies() {
            cluster.sql(
                &name,
                &format!("alter database {name} owner to {ROLE}; grant all on chaos_effect to {ROLE}"),
            )?;
        }
        let port = server.proxy.as_ref().map_or(cluster.port(), FaultProxy::port);
        let url = cluster.url(&name).replacen("oncebox@", &format!("{user}:{CANARY}@"), 1);
        let url = url.replacen(&format!(":{}/", cluster.port()), &format!(":{port}/"), 1);
        Ok((StoreLocation::Postgres(url), Arc::new(tables)))
    }

    /// Disturbs a connection to the server. Returns whether there was one.
    pub(super) fn disturb(&self, trouble: LinkFault, rng: &mut fastrand::Rng) -> bool {
        let proxy = self.postgres.as_ref().and_then(|server| server.proxy.as_ref());
        proxy.is_some_and(|proxy| proxy.disturb(trouble, rng))
    }

    /// Inflicts a fault on the server in the background, unless one is active.
    pub(super) fn suffer(&self, fault: DriverFault, ledger: &Arc<ProcessLedger>) -> bool {
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
                (None, Some(disk), DriverFault::FillDisk(time)) => fill(disk, time, &note),
                _ => Ok(()),
            };
            if let Err(error) = done {
                eprintln!("chaos: {fault:?} did not work out: {error:#}");
            }
            busy.store(false, Ordering::Release);
        });
        true
    }

    /// Returns the number of failovers.
    pub(super) fn failovers(&self) -> u64 {
        self.postgres.as_ref().map_or(0, |server| server.failovers.load(Ordering::Acquire))
    }

    /// Waits until no fault acts on the server.
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

impl RunningPostgres {
    fn start(mix: Mix) -> Result<Self> {
        let mut builder = Cluster::builder(PostgresVersion::Newest).set("max_connections", "300");
        if mix == Mix::Full {
            builder = builder.tmpfs(4 * ROOM).set("max_wal_size", "64MB").set("min_wal_size", "32MB");
        }
        let cluster = builder.start()?;
        let proxy = if mix.has_proxy() { Some(FaultProxy::start(cluster.port())?) } else { None };
        if mix.denies() {
            cluster.sql("postgres", &format!("create role {ROLE} login"))?;
        }
        let (primary, replica) = (Arc::new(Primary::new(cluster)), Mutex::default());
        let running =
            Self { primary, proxy, replica, synchronous: !mix.loses(), failovers: AtomicU64::new(0) };
        if mix.fails_over() {
            running.follow()?;
        }
        Ok(running)
    }

    /// Creates a replica. If it is synchronous, every commit waits for it from now on.
    fn follow(&self) -> Result<()> {
        let primary = self.primary.now();
        let replica = primary.replica()?;
        if self.synchronous {
            primary.configure("synchronous_standby_names", "*")?;
        }
        let state = if self.synchronous { "sync" } else { "async" };
        let follows = format!(
            "exists (select from pg_stat_replication where state = 'streaming' and sync_state = '{state}')"
        );
        primary.wait_for("postgres", &follows)?;
        *self.replica.lock() = Some(replica);
        Ok(())
    }

    fn fail_over(&self, behind: Option<Duration>, note: &dyn Fn(&str)) -> Result<()> {
        if self.replica.lock().is_none() {
            // The previous replica could not catch up in time.
            self.follow()?;
        }
        let Some(replica) = self.replica.lock().take() else { return Ok(()) };
        if let Some(time) = behind {
            note(LOSES_FROM_NOW);
            replica.configure("primary_conninfo", "")?;
            self.primary.now().wait_for("postgres", "not exists (select from pg_stat_replication)")?;
            std::thread::park_timeout(time);
        }
        note("server: primary killed");
        self.primary.now().kill9()?;
        replica.promote()?;
        if let Some(proxy) = &self.proxy {
            proxy.lead_to(replica.port());
        }
        self.primary.set(replica);
        note(FAILED_OVER);
        self.failovers.fetch_add(1, Ordering::AcqRel);
        self.follow()
    }

    fn suffer(&self, database: &str, fault: DriverFault, note: &dyn Fn(&str)) -> Result<()> {
        let cluster = self.primary.now();
        let ours = format!("from pg_stat_activity where datname = '{database}' and pid <> pg_backend_pid()");
        match fault {
            DriverFault::EndSessions => {
                note("server: ending sessions");
                cluster.sql(
                    "postgres",
                    &format!("select pg_terminate_backend(pid) {ours} and random() < 0.4"),
                )?;
                note("server: sessions ended");
            }
            DriverFault::LoseCommits => {
                note("server: commits without an answer");
                cluster.configure("synchronous_standby_names", "ghost")?;
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(600) {
                    let hanging =
                        format!("select pg_terminate_backend(pid) {ours} and wait_event = 'SyncRep'");
                    cluster.sql("postgres", &hanging)?;
                }
                cluster.configure("synchronous_standby_names", "")?;
                // The new setting releases hanging sessions.
                note("server: commits are answered again");
            }
            DriverFault::KillServer => {
                note("server: killed");
                cluster.kill9()?;
                cluster.start_again()?;
                note("server: started again");
            }
            DriverFault::SuspendServer(time) => {
                note("server: suspended");
                cluster.suspend_all()?;
                std::thread::park_timeout(time);
                cluster.resume()?;
                note("server: resumed");
            }
            DriverFault::FailOver => self.fail_over(None, note)?,
            DriverFault::FailOverBehind(time) => self.fail_over(Some(time), note)?,
            DriverFault::Deny(denial, time) => deny(&cluster, database, (denial, time), note)?,
            DriverFault::FillDisk(time) => {
                let before = without_room(&cluster);
                note("disk: full");
                let ballast = cluster.fill_disk()?;
                // Otherwise its log has room for longer than this lasts. The server may crash here.
                let _ = cluster.sql("postgres", "select pg_switch_wal()");
                std::thread::park_timeout(time);
                drop(ballast);
                revive(&cluster)?;
                if without_room(&cluster) > before {
                    note("server: found no room");
                }
                note("disk: has room again");
            }
            DriverFault::Kill
            | DriverFault::Stop(_)
            | DriverFault::Terminate
            | DriverFault::Disturb(_)
            | DriverFault::KillBroker => {}
        }
        Ok(())
    }
}

/// Refuses commands of the workers, and ends their sessions.
fn deny(cluster: &Cluster, database: &str, what: (Denial, Duration), note: &dyn Fn(&str)) -> Result<()> {
    let (denial, time) = what;
    let (refuse, allow) = match denial {
        Denial::Logins => (format!("alter role {ROLE} nologin"), format!("alter role {ROLE} login")),
        Denial::Rights => {
            let all = "all on all tables in schema public";
            // Handlers' tables are not the store's concern.
            let refuse = format!("revoke {all} from {ROLE}; grant all on chaos_effect to {ROLE}");
            (refuse, format!("grant {all} to {ROLE}"))
        }
        Denial::Connections => {
            let limit = |limit: &str| format!("alter role {ROLE} connection limit {limit}");
            (limit("0"), limit("-1"))
        }
    };
    let denied = if Mix::Denied.outlasts_leases(time) { DENIED_FOR_LONG } else { DENIED };
    note(&format!("{denied}{}", denial.name()));
    cluster.sql(database, &refuse)?;
    let own = format!("pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'");
    cluster.sql(database, &format!("select {own}"))?;
    std::thread::park_timeout(time);
    cluster.sql(database, &allow)?;
    note(&format!("{denied}{} no more", denial.name()));
    Ok(())
}

/// Returns the number of times the server reported a full disk.
fn without_room(cluster: &Cluster) -> usize {
    cluster.log_text().map_or(0, |text| text.matches("No space left on device").count())
}

/// Restarts a server that crashed without room for its log. It may also restart by itself.
fn revive(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    loop {
        match cluster.sql("postgres", "select 1") {
            Ok(_) => return Ok(()),
            Err(error) if start.elapsed() > Duration::from_mins(3) => return Err(error),
            // A running server refuses to start.
            Err(_) => drop(cluster.start_again()),
        }
    }
}
