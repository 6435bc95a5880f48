//! The rows of the peers, for Oncebox.

use std::time::Instant;

use anyhow::Result;
use oncebox_postgres::sqlx::{self, Connection as _, Executor as _, PgConnection};
use serde::Serialize;

use crate::ours::{Mode, Ours};
use crate::rows::{WARM_UP, median, percentile, round, write_out};
use crate::{PostgresBench, rate};

/// A row in the format of the peers' runners.
#[derive(Debug, Default, Serialize)]
struct PeerRow {
    #[serde(rename = "row")]
    name: &'static str,
    peer: &'static str,
    version: &'static str,
    messages: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ms: Option<f64>,
    note: &'static str,
}

impl PeerRow {
    fn new(name: &'static str, messages: usize) -> Self {
        let note = "durable inbox: each key once, history kept";
        Self { name, peer: "oncebox", version: env!("CARGO_PKG_VERSION"), messages, note, ..Self::default() }
    }

    fn rate(self, rates: Vec<f64>) -> Result<()> {
        Self { value: Some(median(rates).round()), unit: Some("msg/s"), ..self }.print()
    }

    fn print(&self) -> Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// Checkpoints writes of the previous row: the peers' are written when their database is dropped.
async fn fresh(bench: &PostgresBench) -> Result<Ours> {
    let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
    write_out(bench).await?;
    Ok(ours)
}

pub(crate) async fn measure(bench: &PostgresBench) -> Result<()> {
    let rounds = if bench.args.quick { 1 } else { 3 };
    let (mut singles, mut batches, mut drains) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let ours = fresh(bench).await?;
        singles.push(ours.accept(0, 16_000, 8).await?);
        let ours = fresh(bench).await?;
        let start = Instant::now();
        ours.load_by(0, 100_000, 500).await?;
        batches.push(rate(100_000, start));
        let ours = fresh(bench).await?;
        ours.load(0, 50_000).await?;
        // The peers are also drained with statistics on their tables.
        let mut connection = PgConnection::connect(&bench.url).await?;
        connection.execute(sqlx::raw_sql("ANALYZE")).await?;
        drains.push(ours.drain(50_000).await?);
    }
    PeerRow::new("enqueue-single-8", 16_000).rate(singles)?;
    PeerRow::new("enqueue-batch-500", 100_000).rate(batches)?;
    PeerRow::new("drain", 50_000).rate(drains)?;
    let ours = fresh(bench).await?;
    let times = ours.latencies(WARM_UP + 1_000).await?;
    let at = |part| Some(round(percentile(&times, part)));
    PeerRow { p50_ms: at(50), p99_ms: at(99), ..PeerRow::new("latency-200", 1_000) }.print()
}
