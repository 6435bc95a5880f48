//! Real servers for tests and benchmarks. Tests: `tests/`.
//!
//! Every server has its own directory and port, and runs as an unprivileged user (PostgreSQL refuses root). It ends when its value
//! is dropped, when the test panics, and even when the test's process is killed, because a guardian process waits for that. Linux
//! only: it finds running processes in `/proc`.
//!
//! ```no_run
//! use oncebox_servers::{Cluster, PostgresVersion};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cluster = Cluster::start(PostgresVersion::Debian)?;
//! cluster.create_database("orders")?;
//! assert_eq!(cluster.sql("orders", "select 1 + 1")?, "2");
//! cluster.kill9()?;
//! cluster.start_again()?;
//! let replica = cluster.replica()?;
//! # drop(replica);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo xtask servers` installs the programs. A test that only needs some database uses a [shared] server, which `cargo xtask
//! test` has started.

mod builder;
mod cluster;
mod faults;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod python;
mod rabbitmq;
mod replica;
mod scratch;
pub mod shared;
mod tls;
mod user;

pub use builder::ClusterBuilder;
pub use cluster::Cluster;
pub use faults::DiskFiller;
pub use pgbouncer::{PgBouncer, PoolMode};
pub use port::Port;
pub use postgres::{NEWEST, PostgresInstall, PostgresVersion, servers_dir};
pub use python::PythonEnv;
pub use rabbitmq::{RabbitMqServer, RabbitMqServerBuilder};

/// Superuser of every cluster. It needs no password.
pub const SUPERUSER: &str = "oncebox";

/// Command that installs the programs of this crate.
const INSTALL: &str = "cargo xtask servers";
