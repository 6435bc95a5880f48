//! Hand-written loops with the same work on prepared statements, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use oncebox::{InboxName, Key};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use crate::{payload, rate};

/// Rows in a statement.
const BATCH: usize = 500;
/// Messages in a transaction that several handlers share.
const SHARED: usize = 64;

/// A database with hand-written tables.
pub(crate) struct Limit {
    url: String,
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

struct Columns {
    digests: Vec<Vec<u8>>,
    times: Vec<i64>,
    sources: Vec<&'static str>,
    ids: Vec<String>,
    types: Vec<&'static str>,
    payloads: Vec<Vec<u8>>,
}

fn columns(inbox: &InboxName, payload: &str, numbers: std::ops::Range<usize>) -> Columns {
    let count = numbers.len();
    let ids: Vec<String> = numbers.map(crate::id).collect();
    let digest =
        |id: &String| Key::new(inbox, "bench", [b"id".as_slice(), id.as_bytes()]).as_bytes().to_vec();
    Columns {
        digests: ids.iter().map(digest).collect(),
        times: vec![1_800_000_000_000; count],
        sources: vec!["bench"; count],
        types: vec!["bench"; count],
        payloads: vec![payload.as_bytes().to_vec(); count],
        ids,
    }
}

impl Limit {
    pub(crate) async fn fresh(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute("DROP SCHEMA IF EXISTS bench_limit CASCADE; CREATE SCHEMA bench_limit").await?;
        let limit = Self { url: url.to_owned() };
        limit.client().await?.batch_execute(include_str!("../sql/limit.sql")).await?;
        Ok(limit)
    }

    async fn client(&self) -> Result<Client> {
        let client = connect(&self.url).await?;
        client.batch_execute("SET search_path = bench_limit").await?;
        Ok(client)
    }

    async fn pinned(&self) -> Result<Client> {
        let client = self.client().await?;
        client.batch_execute(include_str!("../sql/limit_pin.sql")).await?;
        Ok(client)
    }

    /// Inserts batches of 500 on one connection.
    pub(crate) async fn accept(&self, count: usize) -> Result<f64> {
        let (payload, inbox) = (payload(), InboxName::new("bench")?);
        let client = self.client().await?;
        let accept = client.prepare(include_str!("../sql/limit_accept.sql")).await?;
        let start = Instant::now();
        for first in (0..count).step_by(BATCH) {
            let c = columns(&inbox, &payload, first..count.min(first + BATCH));
            client
                .execute(&accept, &[&c.digests, &c.times, &c.sources, &c.ids, &c.types, &c.payloads])
                .await?;
        }
        Ok(rate(count, start))
    }

    /// Inserts one message after the other on one connection.
    pub(crate) async fn accept_one_by_one(&self, count: usize) -> Result<f64> {
        let (payload, inbox) = (payload(), InboxName::new("bench")?);
        let client = self.client().await?;
        let accept = client.prepare(include_str!("../sql/limit_accept_one.sql")).await?;
        let start = Instant::now();
        for number in 0..count {
            let c = columns(&inbox, &payload, number..number + 1);
            client
                .execute(
                    &accept,
                    &[&c.digests[0], &c.times[0], &c.sources[0], &c.ids[0], &c.types[0], &c.payloads[0]],
                )
                .await?;
        }
        Ok(rate(count, start))
    }

    /// Claims by lease and completes in batches, on `workers` connections.
    pub(crate) async fn drain(&self, count: usize, workers: usize) -> Result<f64> {
        let start = Instant::now();
        let tasks = (0..workers).map(|_| async {
            let mut worker = HandWrittenWorker::new(self.pinned().await?).await?;
            while let Some(claimed) = worker.claim(BATCH).await? {
                worker.complete(&claimed).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
        try_join_all(tasks).await?;
        let rate = rate(count, start);
        self.check(count).await?;
        Ok(rate)
    }

    /// Claims by lease, with a transaction per message, in two round trips.
    pub(crate) async fn drain_in_own_transactions(&self, count: usize, workers: usize) -> Result<f64> {
        let start = Instant::now();
        let tasks = (0..workers).map(|_| async {
            let mut worker = HandWrittenWorker::new(self.pinned().await?).await?;
            let insert = worker.client.prepare("INSERT INTO business VALUES ($1, 'done')").await?;
            while let Some(claimed) = worker.claim(50).await? {
                for one in claimed {
                    let client = &worker.client;
                    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&one.0];
                    tokio::try_join!(client.batch_execute("BEGIN"), client.execute(&insert, &parameters))?;
                    let (seqs, tokens) = (vec![one.0], vec![one.1]);
                    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                        [&seqs, &tokens, &0_i64];
                    let done = client.execute(&worker.complete, &parameters);
                    tokio::try_join!(done, client.batch_execute("COMMIT"))?;
                }
            }
            Ok::<_, anyhow::Error>(())
        });
        try_join_all(tasks).await?;
        let rate = rate(count, start);
        self.check(count).await?;
        Ok(rate)
    }

    /// Claims by lease, with one commit for 64 messages, each in a savepoint, one round trip each.
    pub(crate) async fn drain_in_shared_transactions(&self, count: usize, workers: usize) -> Result<f64> {
        let start = Instant::now();
        let tasks = (0..workers).map(|_| async {
            let mut worker = HandWrittenWorker::new(self.pinned().await?).await?;
            let insert = worker.client.prepare("INSERT INTO business VALUES ($1, 'done')").await?;
            while let Some(claimed) = worker.claim(SHARED).await? {
                let client = &worker.client;
                client.batch_execute("BEGIN").await?;
                for (seq, _) in &claimed {
                    let savepoint = client.batch_execute("SAVEPOINT s");
                    let release = client.batch_execute("RELEASE SAVEPOINT s");
                    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [seq];
                    tokio::try_join!(savepoint, client.execute(&insert, &parameters), release)?;
                }
                worker.complete(&claimed).await?;
                worker.client.batch_execute("COMMIT").await?;
            }
            Ok::<_, anyhow::Error>(())
        });
        try_join_all(tasks).await?;
        let rate = rate(count, start);
        self.check(count).await?;
        Ok(rate)
    }

    /// Inserts a message every 5 ms on one connection; another is notified, claims and completes. Returns the times
    /// from the insert to the claim's result.
    pub(crate) async fn latencies(&self, count: usize) -> Result<Vec<Duration>> {
        let (payload, inbox) = (payload(), InboxName::new("bench")?);
        let client = Arc::new(self.client().await?);
        let accept = client.prepare(include_str!("../sql/limit_accept_one.sql")).await?;
        let mut worker = HandWrittenWorker::new(self.pinned().await?).await?;
        let offered = Arc::new(Mutex::new(Vec::with_capacity(count)));
        let stored = Arc::new(Notify::new());
        let offers = tokio::spawn({
            let (offered, stored) = (Arc::clone(&offered), Arc::clone(&stored));
            async move {
                let mut beat = tokio::time::interval(Duration::from_millis(5));
                let mut tasks = JoinSet::new();
                for number in 0..count {
                    beat.tick().await;
                    offered.lock().await.push(Instant::now());
                    let c = columns(&inbox, &payload, number..number + 1);
                    let (client, accept, stored) = (Arc::clone(&client), accept.clone(), Arc::clone(&stored));
                    tasks.spawn(async move {
                        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 6] = [
                            &c.digests[0],
                            &c.times[0],
                            &c.sources[0],
                            &c.ids[0],
                            &c.types[0],
                            &c.payloads[0],
                        ];
                        let stored_now = client.execute(&accept, &row).await;
                        stored.notify_one();
                        stored_now
                    });
                }
                tasks.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()
            }
        });
        let mut times = Vec::with_capacity(count);
        while times.len() < count {
            stored.notified().await;
            while let Some(claimed) = worker.claim(BATCH).await? {
                let offered = offered.lock().await;
                // Numbers begin with 1, and one connection assigns them in insertion order.
                times.extend(
                    claimed.iter().map(|(seq, _)| offered[usize::try_from(seq - 1).unwrap_or(0)].elapsed()),
                );
                drop(offered);
                worker.complete(&claimed).await?;
            }
        }
        offers.await??;
        Ok(times)
    }

    async fn check(&self, count: usize) -> Result<()> {
        let row = self.client().await?.query_one("SELECT count(*) FROM outcome", &[]).await?;
        ensure!(row.get::<_, i64>(0) == i64::try_from(count)?, "the loop has not done all");
        Ok(())
    }
}

struct HandWrittenWorker {
    client: Client,
    claim: Statement,
    complete: Statement,
    from: i64,
    looked_back: Instant,
}

impl HandWrittenWorker {
    async fn new(client: Client) -> Result<Self> {
        let claim = client.prepare(include_str!("../sql/limit_claim.sql")).await?;
        let complete = client.prepare(include_str!("../sql/limit_complete.sql")).await?;
        Ok(Self { client, claim, complete, from: 0, looked_back: Instant::now() })
    }

    /// Leases the next messages, and reads them; `None` if there are none.
    async fn claim(&mut self, count: usize) -> Result<Option<Vec<(i64, i64)>>> {
        let limit = i64::try_from(count)?;
        if self.looked_back.elapsed() > Duration::from_secs(1) {
            (self.from, self.looked_back) = (0, Instant::now());
        }
        for from in [self.from, 0] {
            let rows = self.client.query(&self.claim, &[&from, &1_800_000_000_000_i64, &limit]).await?;
            if !rows.is_empty() {
                let mut bytes = 0;
                let claimed = rows.iter().map(|row| {
                    bytes += row.get::<_, &[u8]>(5).len() + row.get::<_, &str>(3).len();
                    (row.get(0), row.get(1))
                });
                let claimed: Vec<(i64, i64)> = claimed.collect();
                ensure!(bytes > 0, "messages have payloads");
                self.from = claimed.iter().map(|(seq, _)| seq + 1).max().unwrap_or(0);
                return Ok(Some(claimed));
            }
        }
        Ok(None)
    }

    async fn complete(&self, claimed: &[(i64, i64)]) -> Result<()> {
        let (seqs, tokens): (Vec<i64>, Vec<i64>) = claimed.iter().copied().unzip();
        self.client.execute(&self.complete, &[&seqs, &tokens, &1_800_000_000_000_i64]).await?;
        Ok(())
    }
}
