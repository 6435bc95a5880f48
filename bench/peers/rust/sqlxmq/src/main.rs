//! sqlxmq, with the same rows as the other peers.

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use measure::{Payload, Peer, Started, key};
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgExecutor, PgPoolOptions};
use sqlxmq::{CurrentJob, JobBuilder, JobRunnerOptions};
use uuid::Uuid;

struct Sqlxmq {
    pool: PgPool,
}

async fn spawn(n: usize, executor: impl PgExecutor<'_>) -> Result<()> {
    let mut job = JobBuilder::new_with_id(Uuid::parse_str(&key(n))?, "noop");
    job.set_json(&Payload::new(n))?.spawn(executor).await?;
    Ok(())
}

async fn noop(mut job: CurrentJob, started: Started) -> Result<()> {
    let payload: Payload = job.json()?.context("a job without a payload")?;
    started(payload.n);
    Ok(job.complete().await?)
}

impl Peer for Sqlxmq {
    const NAME: &'static str = "sqlxmq";
    // There is always one row with a nil id.
    const UNFINISHED: &'static str = "select count(*) from mq_msgs where id <> uuid_nil()";
    const MANIFEST: &'static str = include_str!("../Cargo.toml");
    const BATCHES: bool = false;

    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().min_connections(10).max_connections(30).connect(url).await?;
        Migrator::new(Path::new(env!("MIGRATIONS"))).await?.run(&pool).await?;
        Ok(Self { pool })
    }

    async fn enqueue(&self, n: usize) -> Result<()> {
        spawn(n, &self.pool).await
    }

    async fn enqueue_batch(&self, numbers: Range<usize>) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        for n in numbers {
            spawn(n, &mut *tx).await?;
        }
        Ok(tx.commit().await?)
    }

    async fn work(&self, started: Started) -> Result<()> {
        let mut options = JobRunnerOptions::new(&self.pool, move |job| {
            let started = Started::clone(&started);
            tokio::spawn(async move {
                if let Err(error) = noop(job, started).await {
                    eprintln!("a job failed: {error:#}");
                }
            });
        });
        let _running = options.set_concurrency(64, 128).run().await?;
        std::future::pending().await
    }
}

fn main() -> ExitCode {
    measure::main::<Sqlxmq>()
}
