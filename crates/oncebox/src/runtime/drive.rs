//! Processing by hand: no background task, for tests, cron jobs and serverless functions. Every run is alone: who asks
//! for a number of entries is told of each before the next begins, so handlers do not share commits here.

use std::sync::Arc;

use super::executor::{Verdict, execute};
use super::flights::Flights;
use super::renewer::keep_renewing;
use super::repeat::is_trouble;
use super::supervisor::Stop;
use super::{rescuer, settler};
use crate::error::Result;
use crate::inbox::Shared;
use crate::state::{Outcome, Policy, Settlement, decide};
use crate::store::{ClaimParams, Claimed, Store, Want};

/// How often a call that failed is made again. Without a pause: whoever drives by hand may have stopped the clock.
const REPEATS: usize = 3;

/// Runs at most `limit` entries that are due, one after the other; returns how many ran.
pub(crate) async fn process_pending<S: Store>(inbox: &Arc<Shared<S>>, limit: usize) -> Result<usize> {
    while rescue(inbox).await? >= rescuer::BATCH {}
    let mut ran = 0;
    while ran < limit {
        let mut claimed = claim(inbox, limit - ran, false).await?;
        if claimed.is_empty() {
            claimed = claim(inbox, 1, true).await?;
        }
        if claimed.is_empty() {
            break;
        }
        ran += run_all(inbox, claimed).await?;
    }
    Ok(ran)
}

/// Runs everything that is due, until nothing is.
pub(crate) async fn drain<S: Store>(inbox: &Arc<Shared<S>>) -> Result<usize> {
    process_pending(inbox, usize::MAX).await
}

async fn rescue<S: Store>(inbox: &Shared<S>) -> Result<usize> {
    let Some(params) = rescuer::params(inbox) else { return Ok(0) };
    let rescued = insist(|| inbox.store.rescue(&params)).await?;
    settle(inbox, &rescuer::crashed(inbox, &rescued)).await?;
    Ok(rescued.len())
}

async fn claim<S: Store>(inbox: &Shared<S>, limit: usize, suspect: bool) -> Result<Vec<Claimed>> {
    let limit = limit.min(inbox.config.batch);
    let wants: Vec<Want> =
        inbox.registry.durable().map(|handler| Want { route: handler.route.clone(), limit }).collect();
    if wants.is_empty() {
        return Ok(Vec::new());
    }
    let params = ClaimParams::new(inbox.name.clone(), wants, inbox.config.lease);
    let params = if suspect { params.suspect() } else { params };
    insist(|| inbox.store.claim(&params)).await
}

/// Runs claimed entries, and keeps the claims of those that still wait.
async fn run_all<S: Store>(inbox: &Arc<Shared<S>>, claimed: Vec<Claimed>) -> Result<usize> {
    let flights = Flights::default();
    for Claimed { claim, .. } in &claimed {
        flights.insert(claim, &claim.handler, std::time::Duration::MAX);
    }
    tokio::select! {
        biased;
        ran = run_each(inbox, &flights, claimed) => ran,
        never = keep_renewing(inbox, &flights) => match never {},
    }
}

async fn run_each<S: Store>(
    inbox: &Arc<Shared<S>>,
    flights: &Flights,
    claimed: Vec<Claimed>,
) -> Result<usize> {
    let mut ran = 0;
    let mut waiting = claimed.into_iter();
    while let Some(claimed) = waiting.next() {
        let claim = claimed.claim.clone();
        let ended = run(inbox, claimed).await;
        flights.land([&claim]);
        if let Err(error) = ended {
            let rest = waiting.map(|rest| decide(&Policy::default(), &rest.claim, Outcome::Released));
            if let Err(error) = settle(inbox, &rest.collect::<Vec<_>>()).await {
                tracing::warn!(inbox = %inbox.name, error = %error, "cannot give back what did not run");
            }
            return Err(error);
        }
        ran += 1;
    }
    Ok(ran)
}

async fn run<S: Store>(inbox: &Arc<Shared<S>>, claimed: Claimed) -> Result<()> {
    let Some(handler) = inbox.registry.by_key(&claimed.claim.handler) else {
        return Ok(());
    };
    match execute(inbox, handler, &claimed, &Stop::default()).await {
        Verdict::Settle(settlement) => settle(inbox, &[settlement]).await,
        Verdict::Written => Ok(()),
    }
}

async fn settle<S: Store>(inbox: &Shared<S>, batch: &[Settlement]) -> Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    insist(|| settler::settle(inbox, batch)).await
}

/// Makes a call again if the store had trouble: the same claim id and the same fence recognise what was done.
async fn insist<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> Result<T> {
    for _ in 0..REPEATS {
        match call().await {
            Err(error) if is_trouble(error.kind()) => {}
            answer => return answer,
        }
    }
    call().await
}
