//! Underway, with the same rows as the other peers.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::Result;
use jiff::ToSpan as _;
use measure::{Payload, Peer, Started};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use underway::{Queue, Task, Worker};

struct Noop(Started);

impl Task for Noop {
    type Input = Payload;
    type Output = ();

    async fn execute(&self, _tx: Transaction<'_, Postgres>, input: Payload) -> underway::task::Result<()> {
        (self.0)(input.n);
        Ok(())
    }
}

struct Underway {
    pool: PgPool,
    queue: Queue<Noop>,
}

/// Returns a task for its settings only.
fn settings() -> Noop {
    Noop(std::sync::Arc::new(|_| {}))
}

impl Peer for Underway {
    const NAME: &'static str = "underway";
    const UNFINISHED: &'static str =
        "select count(*) from underway.task where state in ('pending', 'in_progress')";
    const MANIFEST: &'static str = include_str!("../Cargo.toml");
    const NOTE: Option<&'static str> = Some("no key per message that keeps a second one out");

    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().min_connections(10).max_connections(40).connect(url).await?;
        underway::run_migrations(&pool).await?;
        let queue = Queue::builder().name("bench").pool(pool.clone()).build().await?;
        Ok(Self { pool, queue })
    }

    async fn enqueue(&self, n: usize) -> Result<()> {
        self.queue.enqueue(&self.pool, &settings(), &Payload::new(n)).await?;
        Ok(())
    }

    async fn enqueue_batch(&self, numbers: Range<usize>) -> Result<()> {
        let inputs: Vec<_> = numbers.map(Payload::new).collect();
        self.queue.enqueue_multi(&self.pool, &settings(), &inputs).await?;
        Ok(())
    }

    async fn work(&self, started: Started) -> Result<()> {
        let mut worker = Worker::new(self.queue.clone().into(), Noop(started));
        worker.set_concurrency_limit(16);
        Ok(worker.run_every(10.milliseconds()).await?)
    }
}

fn main() -> ExitCode {
    measure::main::<Underway>()
}
