//! Processes entries without background tasks, for tests, cron jobs and serverless functions. Tests: `tests/durable.rs`, `tests/lifecycle.rs`.
//!
//! Handlers run one after the other and do not share commits here. The call never waits for a throttle, because the caller
//! may have stopped the clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::batch;
use super::executor::{RunVerdict, execute};
use super::in_flight::InFlight;
use super::renewer::keep_renewing;
use super::settler;
use crate::error::Result;
use crate::handler::{Function, RegisteredHandler};
use crate::inbox::Shared;
use crate::runtime::upkeep::repeat::{Pauses, is_trouble};
use crate::runtime::upkeep::rescuer;
use crate::runtime::upkeep::supervisor::Stop;
use crate::state::{CircuitPass, CircuitSignal, Outcome, Policy, Settlement, decide};
use crate::store::{ClaimMode, ClaimParams, ClaimQuota, Claimed, Store};

/// Maximum repeats of a failed call. There is no pause between them, because the caller may have stopped the clock. Only settlements
/// are worth a pause: without them a handler that has done its work runs again.
const REPEATS: usize = 3;

/// Runs at most `limit` due entries, one after the other. Returns the number of entries that ran.
pub(crate) async fn process_pending<S: Store>(inbox: &Arc<Shared<S>>, limit: usize) -> Result<usize> {
    crate::runtime::registered(inbox).await?;
    let _drive = inbox.drives.begin();
    while rescue(inbox).await? >= rescuer::BATCH {}
    let handlers: Vec<_> = inbox.registry.durable().collect();
    // The index of the next handler to claim for, and the number of handlers since the last entry.
    let (mut ran, mut turn, mut idle) = (0, 0, 0);
    while ran < limit && !handlers.is_empty() {
        let shares = shares(&handlers, turn, limit - ran, inbox.config.batch);
        (turn, idle) = ((turn + shares.len()) % handlers.len(), idle + shares.len());
        let mut claimed = claim(inbox, &shares, ClaimMode::Healthy).await?;
        if claimed.is_empty() {
            claimed = claim(inbox, &shares, ClaimMode::Suspect).await?;
        }
        if claimed.is_empty() && idle < handlers.len() {
            continue;
        }
        if claimed.is_empty() {
            break;
        }
        idle = 0;
        ran += run_all(inbox, claimed).await?;
    }
    Ok(ran)
}

/// Counts the active calls of `process_pending`.
#[derive(Default)]
pub(crate) struct Drives(AtomicUsize);

impl Drives {
    fn begin(&self) -> Drive<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Drive(self)
    }

    /// Returns true if one such call is the only activity of this inbox in this process.
    fn is_only_work<S: Store>(&self, inbox: &Shared<S>) -> bool {
        self.0.load(Ordering::SeqCst) == 1 && inbox.running.lock().upgrade().is_none()
    }
}

/// One active call, until it is dropped.
struct Drive<'a>(&'a Drives);

impl Drop for Drive<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Divides `limit` among the handlers. With a small limit some handlers get nothing.
fn shares<'a, S: Store>(
    handlers: &[&'a Arc<RegisteredHandler<S>>],
    turn: usize,
    limit: usize,
    batch: usize,
) -> Vec<(&'a Arc<RegisteredHandler<S>>, usize)> {
    let (each, more) = (limit / handlers.len(), limit % handlers.len());
    let in_turn = handlers.iter().cycle().skip(turn).take(handlers.len());
    let shares =
        in_turn.enumerate().map(|(at, handler)| (*handler, (each + usize::from(at < more)).min(batch)));
    shares.filter(|(_, share)| *share > 0).collect()
}

/// Runs entries until none is due.
pub(crate) async fn drain<S: Store>(inbox: &Arc<Shared<S>>) -> Result<usize> {
    process_pending(inbox, usize::MAX).await
}

async fn rescue<S: Store>(inbox: &Shared<S>) -> Result<usize> {
    rescuer::write_duplicate_counts(inbox).await;
    let Some(params) = rescuer::params(inbox) else { return Ok(0) };
    let rescued = insist(|| inbox.store.rescue(&params)).await?;
    settle_at_once(inbox, &rescuer::crashed(inbox, &rescued)).await?;
    Ok(rescued.len())
}

async fn claim<S: Store>(
    inbox: &Shared<S>,
    shares: &[(&Arc<RegisteredHandler<S>>, usize)],
    mode: ClaimMode,
) -> Result<Vec<Claimed>> {
    let now = inbox.clock.monotonic();
    let handlers: Vec<_> =
        shares.iter().map(|(handler, share)| (*handler, handler.throttle.take(*share, now))).collect();
    let some = handlers.iter().filter(|(_, limit)| *limit > 0);
    let wants: Vec<ClaimQuota> =
        some.map(|(handler, limit)| ClaimQuota { route: handler.route.clone(), limit: *limit }).collect();
    if wants.is_empty() {
        return Ok(Vec::new());
    }
    let params = ClaimParams::new(inbox.name.clone(), wants, inbox.config.lease);
    let params = params.policies(inbox.registry.policies());
    let params = match mode {
        ClaimMode::Healthy => params,
        ClaimMode::Suspect => params.suspect().idle(inbox.drives.is_only_work(inbox)),
    };
    let claimed = insist(|| inbox.store.claim(&params)).await;
    let answers = claimed.as_deref().unwrap_or_default();
    for (handler, taken) in handlers {
        let of_handler = |claimed: &&Claimed| handler.route.answers_to(&claimed.claim.handler);
        handler.throttle.give_back(taken.saturating_sub(answers.iter().filter(of_handler).count()));
    }
    claimed
}

/// Runs claimed entries, and renews the claims of those that wait.
async fn run_all<S: Store>(inbox: &Arc<Shared<S>>, claimed: Vec<Claimed>) -> Result<usize> {
    let watch = inbox.store.watch();
    let in_flight = InFlight::new(Arc::clone(&watch.claims));
    for claimed in &claimed {
        watch.claimed(claimed);
        in_flight.insert(&claimed.claim, &claimed.claim.handler, std::time::Duration::MAX);
    }
    tokio::select! {
        biased;
        ran = run_each(inbox, &in_flight, claimed) => ran,
        never = keep_renewing(inbox, &in_flight) => match never {},
    }
}

async fn run_each<S: Store>(
    inbox: &Arc<Shared<S>>,
    in_flight: &InFlight,
    claimed: Vec<Claimed>,
) -> Result<usize> {
    let mut ran = 0;
    let mut waiting: VecDeque<Claimed> = claimed.into();
    while let Some(first) = waiting.pop_front() {
        let Some(handler) = inbox.registry.by_key(&first.claim.handler).map(Arc::clone) else { continue };
        let mut part = vec![first];
        let others = std::mem::take(&mut waiting);
        for other in others {
            let fits = part.len() < handler.registration.max_batch.unwrap_or(1);
            if fits && handler.route.answers_to(&other.claim.handler) {
                part.push(other);
            } else {
                waiting.push_back(other);
            }
        }
        let ended = run(inbox, &handler, &part).await;
        in_flight.release(part.iter().map(|claimed| &claimed.claim));
        match ended {
            Ok(count) => ran += count,
            Err(error) => {
                let rest = waiting.iter().map(released);
                if let Err(error) = settle_at_once(inbox, &rest.collect::<Vec<_>>()).await {
                    tracing::warn!(inbox = %inbox.name, error = %error, "cannot release unstarted entries");
                }
                return Err(error);
            }
        }
    }
    Ok(ran)
}

fn released(claimed: &Claimed) -> Settlement {
    decide(&Policy::default(), &claimed.claim, Outcome::Released)
}

/// Runs claimed entries of one handler, several in one call for a batch handler. Returns the number that ran.
async fn run<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &RegisteredHandler<S>,
    claimed: &[Claimed],
) -> Result<usize> {
    let (never, mut together) = (Stop::default(), Vec::new());
    if let ([_, _, ..], Function::Batch(function)) = (claimed, &handler.registration.function) {
        let entered: Option<Vec<_>> = claimed.iter().map(|_| Entered::new(inbox, handler)).collect();
        if let Some(entered) = entered {
            let refs: Vec<&Claimed> = claimed.iter().collect();
            together = batch::execute(inbox, handler, &**function, &refs, &never).await;
            for (entered, verdict) in entered.into_iter().zip(&together) {
                if let Some(verdict) = verdict {
                    entered.end(verdict.ended());
                }
            }
        }
    }
    together.resize_with(claimed.len(), || None);
    let (mut ran, mut settlements) = (0, Vec::new());
    for (claimed, verdict) in claimed.iter().zip(together) {
        let verdict = if let Some(verdict) = verdict {
            verdict
        } else {
            let Some(entered) = Entered::new(inbox, handler) else {
                // The breaker is open, so it did not run.
                settlements.push(released(claimed));
                continue;
            };
            let verdict = execute(inbox, handler, claimed, &never).await;
            entered.end(verdict.ended());
            verdict
        };
        ran += 1;
        if let RunVerdict::Settle(settlement) = verdict {
            settlements.push(settlement);
        }
    }
    settle(inbox, &settlements).await?;
    Ok(ran)
}

/// A run that the throttle admitted, and that ends there even if the caller drops the call.
struct Entered<'a, S: Store> {
    inbox: &'a Shared<S>,
    handler: &'a RegisteredHandler<S>,
    pass: Option<CircuitPass>,
}

impl<'a, S: Store> Entered<'a, S> {
    fn new(inbox: &'a Shared<S>, handler: &'a RegisteredHandler<S>) -> Option<Self> {
        let pass = handler.throttle.enter(inbox.clock.monotonic())?;
        Some(Self { inbox, handler, pass: Some(pass) })
    }

    fn end(mut self, ended: CircuitSignal) {
        self.report(ended);
    }

    fn report(&mut self, ended: CircuitSignal) {
        if let Some(pass) = self.pass.take() {
            self.handler.throttle.end(pass, ended, self.inbox.clock.monotonic());
        }
    }
}

impl<S: Store> Drop for Entered<'_, S> {
    fn drop(&mut self) {
        self.report(CircuitSignal::Neutral);
    }
}

/// Settles what ran. A handler has done its work, so this retries for the time of a lease, whatever the error. If the store refuses
/// several settlements at once, each gets its own call, so that only the bad ones fail.
async fn settle<S: Store>(inbox: &Shared<S>, batch: &[Settlement]) -> Result<()> {
    let ends = inbox.clock.monotonic().saturating_add(inbox.config.lease);
    let (mut pauses, mut parts) = (Pauses::default(), vec![batch]);
    loop {
        let (mut left, mut last) = (Vec::new(), None);
        for part in parts {
            match settle_at_once(inbox, part).await {
                Ok(()) => {}
                Err(error) if part.len() > 1 && !is_trouble(error.kind()) => {
                    for one in part.chunks(1) {
                        if let Err(error) = settle_at_once(inbox, one).await {
                            left.push(one);
                            last = Some(error);
                        }
                    }
                }
                Err(error) => {
                    left.push(part);
                    last = Some(error);
                }
            }
        }
        let Some(error) = last else { return Ok(()) };
        if inbox.clock.monotonic() >= ends {
            return Err(error);
        }
        inbox.store.watch().trouble(&inbox.name, "settle", &error);
        inbox.clock.sleep(pauses.next()).await;
        parts = left;
    }
}

async fn settle_at_once<S: Store>(inbox: &Shared<S>, batch: &[Settlement]) -> Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    insist(|| settler::settle(inbox, batch)).await
}

/// Repeats a call if the store has trouble. The claim id and the fence make the repeat safe.
async fn insist<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> Result<T> {
    for _ in 0..REPEATS {
        match call().await {
            Err(error) if is_trouble(error.kind()) => {}
            answer => return answer,
        }
    }
    call().await
}
