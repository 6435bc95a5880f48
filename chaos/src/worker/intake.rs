//! Direct transport of the rig: deliveries and results are lines. Tests: tests/short.rs.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use oncebox::source::{Ack, Delivery, Settle, Source};
use oncebox::store::Store;
use oncebox::time::Timestamp;
use oncebox::{Inbox, Message};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::sync::oneshot;

use super::{HandedDelivery, QUIESCE, ReportWriter, WorkerJob, WorkerReport};
use crate::plan::{RoundPlan, id_of};
use crate::seam::{Notes, pause};

/// Returns the message of a delivery.
fn message(plan: &RoundPlan, handed: HandedDelivery) -> Message {
    let planned = plan.message(handed.m);
    let message = Message::new(id_of(handed.m), planned.kind.as_str(), plan.payload(handed.m, handed.v))
        .with_source("chaos")
        .with_time(Timestamp::from_millis(handed.at));
    match planned.line {
        Some(line) => message.with_ordering_key(format!("line-{line}")),
        None => message,
    }
}

/// A source that reads the driver's lines.
pub(super) struct Pipe {
    lines: Lines<BufReader<Stdin>>,
    plan: RoundPlan,
    reports: ReportWriter,
    notes: Arc<Notes>,
    /// Dropped when the driver closes the pipe.
    over: Option<oneshot::Sender<()>>,
}

/// Returns the source, and a receiver that resolves when the driver closes the pipe.
pub(super) fn source(
    job: &WorkerJob,
    reports: ReportWriter,
    notes: Arc<Notes>,
) -> (Pipe, oneshot::Receiver<()>) {
    let (over, hung_up) = oneshot::channel();
    let lines = BufReader::new(tokio::io::stdin()).lines();
    (Pipe { lines, plan: job.plan, reports, notes, over: Some(over) }, hung_up)
}

#[async_trait]
impl Source for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    async fn recv(&mut self) -> Option<Delivery> {
        loop {
            let Ok(Some(line)) = self.lines.next_line().await else {
                self.over = None;
                return None;
            };
            if line == QUIESCE {
                self.notes.quiesce();
            } else if let Ok(handed) = serde_json::from_str::<HandedDelivery>(&line) {
                let settle = PipeSettle { delivery: handed.d, reports: self.reports.clone() };
                return Some(Delivery::new(message(&self.plan, handed), settle));
            }
        }
    }

    fn ready(&mut self) -> Option<Delivery> {
        self.recv().now_or_never().flatten()
    }
}

struct PipeSettle {
    delivery: u64,
    reports: ReportWriter,
}

#[async_trait]
impl Settle for PipeSettle {
    async fn settle(self: Box<Self>, ack: Ack) -> oncebox::Result<()> {
        self.reports.send(match ack {
            Ack::Done => WorkerReport::Acked(self.delivery),
            Ack::Reject { reason } => WorkerReport::Refused(self.delivery, reason),
            _ => WorkerReport::Again(self.delivery),
        });
        Ok(())
    }
}

/// Accepts messages and runs no handlers: the other workers must find them.
pub(super) async fn front<S: Store>(
    inbox: &Inbox<S>,
    job: &WorkerJob,
    reports: &ReportWriter,
    notes: &Notes,
) -> anyhow::Result<()> {
    let plan = job.plan;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    // Once for all lines: without a listener, a signal is lost.
    let mut stop = std::pin::pin!(stopped());
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            () = &mut stop => None,
        };
        let Some(line) = line else { return Ok(()) };
        if line == QUIESCE {
            notes.quiesce();
            continue;
        }
        let handed: HandedDelivery = serde_json::from_str(&line)?;
        let (inbox, reports) = (inbox.clone(), reports.clone());
        tokio::spawn(async move {
            let offered = message(&plan, handed);
            loop {
                match inbox.accept(offered.clone()).await {
                    Ok(_) => return reports.send(WorkerReport::Acked(handed.d)),
                    Err(error) if error.is_retryable() => pause(std::time::Duration::from_millis(5)).await,
                    Err(error) => return reports.send(WorkerReport::Refused(handed.d, error.to_string())),
                }
            }
        });
    }
}

/// Resolves on SIGTERM.
pub(super) async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => _ = terminate.recv().await,
        Err(_) => std::future::pending().await,
    }
}
