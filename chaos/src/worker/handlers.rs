//! Handlers of the rig: each follows the plan, and records its start and end. Tests: tests/short.rs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oncebox::{BatchContext, BoxError, Context, Message, Reject, Snooze};
use serde::Deserialize;

use super::{ReportWriter, WorkerReport};
use crate::ledger::{Fact, HandlerEnd};
use crate::plan::{PlannedOutcome, RoundPlan, number_of};
use crate::seam::{NewEffect, Notes, Rigged, pause};

/// Shared state of the handlers.
pub(super) struct Business {
    pub(super) plan: RoundPlan,
    pub(super) dir: PathBuf,
    /// Longer than a lease.
    pub(super) long: Duration,
    pub(super) notes: Arc<Notes>,
    pub(super) reports: ReportWriter,
    /// True if idempotency keys go to the ledger.
    pub(super) keyed: bool,
}

impl Business {
    /// Records the idempotency key of a run.
    fn note_key(&self, run: &ChaosRun<'_>, key: impl FnOnce() -> String) {
        if self.keyed {
            let (m, h, k) = (run.message, run.handler.to_owned(), key());
            self.notes.ledger.note(Fact::Keyed { m, h, k });
        }
    }
}

/// Payload of a message.
#[derive(Deserialize)]
struct PayloadBody {
    variant: u8,
}

type Handled = Result<(), BoxError>;

/// One run of a handler. If its end is not recorded, it was dropped or panicked.
struct ChaosRun<'a> {
    business: &'a Business,
    message: u32,
    variant: u8,
    handler: &'static str,
    token: i64,
    end: Option<HandlerEnd>,
}

impl<'a> ChaosRun<'a> {
    fn begin(
        business: &'a Business,
        message: &Message,
        handler: &'static str,
        token: i64,
    ) -> Result<Self, BoxError> {
        let number = number_of(message.id()).ok_or("the id is not the rig's")?;
        let body: PayloadBody = serde_json::from_slice(message.payload())?;
        let run = Self { business, message: number, variant: body.variant, handler, token, end: None };
        let (m, h, v) = (run.message, handler.to_owned(), run.variant);
        business.notes.ledger.note(Fact::Start { m, h, tok: token, v });
        business.notes.pass(true);
        Ok(run)
    }

    fn effect(&self) -> NewEffect {
        let life = self.business.notes.life;
        NewEffect { message: self.message, variant: self.variant, handler: self.handler, life }
    }

    /// Returns true the first time; a file remembers it across processes.
    fn first_time(&self) -> bool {
        let file = self.business.dir.join(format!("once-{}-{}", self.message, self.handler));
        std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_ok()
    }

    /// Follows the plan for this run.
    async fn meet(&mut self, attempt: u32) -> Handled {
        match self.business.plan.outcome(self.message, self.handler) {
            PlannedOutcome::Slow(millis) => pause(Duration::from_millis(millis)).await,
            PlannedOutcome::Long => pause(self.business.long).await,
            PlannedOutcome::Fails(times) if self.counts(attempt, times) => {
                self.end = Some(HandlerEnd::Fail);
                return Err("the carrier does not answer".into());
            }
            PlannedOutcome::Panics if self.counts(attempt, 1) => {
                self.end = Some(HandlerEnd::Panic);
                panic!("a bug in the handler");
            }
            PlannedOutcome::Hangs if self.counts(attempt, 1) => std::future::pending().await,
            PlannedOutcome::Snoozes if self.first_time() => {
                self.end = Some(HandlerEnd::Snooze);
                return Err(Snooze(Duration::from_millis(50)).into());
            }
            PlannedOutcome::Rejects => {
                self.end = Some(HandlerEnd::Reject);
                self.business.reports.send(WorkerReport::Ran(self.message));
                return Err(Reject("no retry can help".into()).into());
            }
            PlannedOutcome::Aborts if self.first_time() => self.abort(),
            PlannedOutcome::Kills => self.abort(),
            _ => {}
        }
        Ok(())
    }

    /// Returns true if this attempt is one of the first `times`. An inline handler has no attempts: only its first time
    /// counts.
    fn counts(&self, attempt: u32, times: u32) -> bool {
        if self.handler == "inline" { self.first_time() } else { attempt <= times }
    }

    fn abort(&self) -> ! {
        let life = self.business.notes.life;
        self.business.notes.ledger.note(Fact::Fault { life, what: "handler: abort".into() });
        std::process::abort();
    }

    fn done(mut self) {
        self.business.notes.pass(false);
        self.end = Some(HandlerEnd::Ok);
        self.business.reports.send(WorkerReport::Ran(self.message));
    }

    /// Records that the store failed the handler.
    fn stuck<T>(&mut self, result: Result<T, impl Into<BoxError>>) -> Result<T, BoxError> {
        result.map_err(|error| {
            self.end = Some(HandlerEnd::Store);
            error.into()
        })
    }
}

impl Drop for ChaosRun<'_> {
    fn drop(&mut self) {
        let end = self.end.unwrap_or(HandlerEnd::Dropped);
        let (m, h, tok) = (self.message, self.handler.to_owned(), self.token);
        self.business.notes.ledger.note(Fact::End { m, h, tok, end });
    }
}

/// Runs a handler whose effect is a row in its own transaction.
async fn transactional<S: Rigged>(message: Message, cx: &mut Context<S>, handler: &'static str) -> Handled {
    // Borrowed longer than the context.
    let business = cx.data::<Arc<Business>>()?;
    let token = business.notes.token(cx.key(), handler);
    let mut run = ChaosRun::begin(&business, &message, handler, token)?;
    business.note_key(&run, || cx.idempotency_key("effect"));
    let attempt = cx.attempt();
    let long = matches!(business.plan.outcome(run.message, handler), PlannedOutcome::Long);
    // SQLite allows one writer: take the time before the transaction starts.
    if long {
        run.meet(attempt).await?;
    }
    let effect = run.effect();
    let tx = run.stuck(cx.tx().await)?;
    let written = S::effect(tx, effect).await;
    run.stuck(written)?;
    if !long {
        run.meet(attempt).await?;
    }
    run.done();
    Ok(())
}

pub(super) async fn tx<S: Rigged>(message: Message, cx: &mut Context<S>) -> Handled {
    transactional(message, cx, "tx").await
}

pub(super) async fn ordered<S: Rigged>(message: Message, cx: &mut Context<S>) -> Handled {
    transactional(message, cx, "ordered").await
}

pub(super) async fn inline<S: Rigged>(message: Message, cx: &mut Context<S>) -> Handled {
    transactional(message, cx, "inline").await
}

pub(super) async fn share<S: Rigged>(message: Message, cx: &mut Context<S>) -> Handled {
    transactional(message, cx, "share").await
}

/// Runs a handler with an outside effect: only its ledger lines show it.
pub(super) async fn plain<S: Rigged>(message: Message, cx: &mut Context<S>) -> Handled {
    let business = cx.data::<Arc<Business>>()?;
    let token = business.notes.token(cx.key(), "plain");
    let mut run = ChaosRun::begin(&business, &message, "plain", token)?;
    business.note_key(&run, || cx.idempotency_key("effect"));
    run.meet(cx.attempt()).await?;
    run.done();
    Ok(())
}

pub(super) async fn killer<S: Rigged>(message: Message, cx: &mut Context<S>) -> Handled {
    let business = cx.data::<Arc<Business>>()?;
    let token = business.notes.token(cx.key(), "killer");
    let mut run = ChaosRun::begin(&business, &message, "killer", token)?;
    run.meet(cx.attempt()).await?;
    run.done();
    Ok(())
}

/// Runs many messages in one call. A failure fails the call; then each runs alone.
pub(super) async fn batch<S: Rigged>(messages: Vec<Message>, cx: &mut BatchContext<S>) -> Handled {
    let business = cx.data::<Arc<Business>>()?;
    let mut runs = Vec::new();
    for item in cx.items() {
        let token = business.notes.token(item.key(), "batch");
        let run = ChaosRun::begin(&business, item.message(), "batch", token)?;
        business.note_key(&run, || item.idempotency_key("effect"));
        runs.push((run, item.attempt()));
    }
    debug_assert_eq!(runs.len(), messages.len());
    for (run, attempt) in &mut runs {
        run.meet(*attempt).await?;
    }
    for (run, _) in runs {
        run.done();
    }
    Ok(())
}
