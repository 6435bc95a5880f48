//! The Rust port of Graphile Worker, with the same rows as the other peers.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, JobSpecBuilder, LocalQueueConfig, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use measure::{Payload, Peer, Started, key};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

#[derive(Clone, Serialize, Deserialize)]
struct Noop(Payload);

/// State for the handler, in the worker's extensions.
#[derive(Clone)]
struct Handler(Started);

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
    }
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        match context.get_ext::<Handler>() {
            Some(handler) => {
                (handler.0)(self.0.n);
                Ok(())
            }
            None => Err("there is no handler".to_owned()),
        }
    }
}

struct Graphile {
    pool: PgPool,
    utils: WorkerUtils,
}

fn options(pool: &PgPool) -> WorkerOptions {
    WorkerOptions::default()
        .pg_pool(pool.clone())
        .concurrency(200)
        .local_queue(LocalQueueConfig::default().with_size(1000))
        .complete_job_batch_delay(Duration::from_millis(2))
        .listen_os_shutdown_signals(false)
        .define_job::<Noop>()
}

fn spec(n: usize) -> JobSpec {
    JobSpecBuilder::new().job_key(key(n)).build()
}

impl Peer for Graphile {
    const NAME: &'static str = "graphile_worker";
    const UNFINISHED: &'static str = "select count(*) from graphile_worker.jobs";
    const MANIFEST: &'static str = include_str!("../Cargo.toml");

    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().min_connections(10).max_connections(30).connect(url).await?;
        let utils = options(&pool).init().await?.create_utils();
        Ok(Self { pool, utils })
    }

    async fn enqueue(&self, n: usize) -> Result<()> {
        self.utils.add_job(Noop(Payload::new(n)), spec(n)).await?;
        Ok(())
    }

    async fn enqueue_batch(&self, numbers: Range<usize>) -> Result<()> {
        let jobs: Vec<_> = numbers.map(|n| (Noop(Payload::new(n)), spec(n))).collect();
        let jobs: Vec<_> = jobs.iter().map(|(job, spec)| (job.clone(), spec)).collect();
        self.utils.add_jobs(&jobs).await?;
        Ok(())
    }

    async fn work(&self, started: Started) -> Result<()> {
        let worker = options(&self.pool).add_extension(Handler(started)).init().await?;
        Ok(worker.run().await?)
    }
}

fn main() -> ExitCode {
    measure::main::<Graphile>()
}
