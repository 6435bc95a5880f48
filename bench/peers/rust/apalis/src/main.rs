//! apalis with PostgreSQL storage, with the same rows as the other peers.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use apalis_core::backend::ext::BackendExt as _;
use apalis_core::error::BoxDynError;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_postgres::{Config, PgTask, PostgresStorage};
use measure::{Payload, Peer, Started, key};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

const QUEUE: &str = "bench";
const WORKERS: usize = 2;
/// With notifications alone, some messages are never handled in many runs.
const POLL: Duration = Duration::from_millis(100);

struct Apalis {
    pool: PgPool,
}

fn task(n: usize) -> Result<PgTask> {
    Ok(TaskBuilder::new(serde_json::to_vec(&Payload::new(n))?).idempotency_key(key(n)).build())
}

impl Apalis {
    async fn push(&self, tasks: Vec<PgTask>) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        Ok(apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, tasks).await?)
    }
}

impl Peer for Apalis {
    const NAME: &'static str = "apalis-postgres";
    const UNFINISHED: &'static str = "select count(*) from apalis.jobs where status <> 'Done'";
    const MANIFEST: &'static str = include_str!("../Cargo.toml");

    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().min_connections(10).max_connections(30).connect(url).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self { pool })
    }

    async fn enqueue(&self, n: usize) -> Result<()> {
        self.push(vec![task(n)?]).await
    }

    async fn enqueue_batch(&self, numbers: Range<usize>) -> Result<()> {
        self.push(numbers.map(task).collect::<Result<_>>()?).await
    }

    async fn work(&self, started: Started) -> Result<()> {
        let mut workers = JoinSet::new();
        for number in 0..WORKERS {
            let config = Config::default().queue(QUEUE).batch_size(500).lock_tasks(false);
            let backend = PostgresStorage::<Payload>::new(&self.pool)
                .with_config(config)
                .with_pubsub()
                .poll_with_interval(POLL);
            let started = Started::clone(&started);
            let worker = WorkerBuilder::new(format!("worker-{number}")).backend(backend).build(
                move |payload: Payload| {
                    started(payload.n);
                    std::future::ready(Ok::<(), BoxDynError>(()))
                },
            );
            workers.spawn(worker.run());
        }
        while let Some(worker) = workers.join_next().await {
            worker?.map_err(|error| anyhow!("{error}"))?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    measure::main::<Apalis>()
}
