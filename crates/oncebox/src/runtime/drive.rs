//! Processing by hand: no background task, for tests, cron jobs and serverless functions.

use std::sync::Arc;

use super::executor::{Verdict, execute};
use super::supervisor::Stop;
use super::{rescuer, settler};
use crate::error::Result;
use crate::inbox::Shared;
use crate::store::{ClaimParams, Claimed, Store, Want};

/// Runs at most `limit` entries that are due, one after the other; returns how many ran.
pub(crate) async fn process_pending<S: Store>(inbox: &Arc<Shared<S>>, limit: usize) -> Result<usize> {
    while rescuer::rescue(inbox).await? > 0 {}
    let mut ran = 0;
    while ran < limit {
        let mut claimed = claim(inbox, limit - ran, false).await?;
        if claimed.is_empty() {
            claimed = claim(inbox, 1, true).await?;
        }
        if claimed.is_empty() {
            break;
        }
        ran += claimed.len();
        for claimed in claimed {
            run(inbox, claimed).await?;
        }
    }
    Ok(ran)
}

/// Runs everything that is due, until nothing is.
pub(crate) async fn drain<S: Store>(inbox: &Arc<Shared<S>>) -> Result<usize> {
    process_pending(inbox, usize::MAX).await
}

async fn claim<S: Store>(inbox: &Shared<S>, limit: usize, suspect: bool) -> Result<Vec<Claimed>> {
    let limit = limit.min(inbox.config.batch);
    let wants: Vec<Want> =
        inbox.registry.durable().map(|handler| Want { route: handler.route.clone(), limit }).collect();
    let params = ClaimParams::new(inbox.name.clone(), wants, inbox.config.lease);
    inbox.store.claim(&if suspect { params.suspect() } else { params }).await
}

async fn run<S: Store>(inbox: &Arc<Shared<S>>, claimed: Claimed) -> Result<()> {
    let Some(handler) = inbox.registry.by_key(&claimed.claim.handler) else {
        return Ok(());
    };
    match execute(inbox, handler, claimed, &Stop::default()).await {
        Verdict::Settle(settlement) => settler::settle(inbox, &[settlement]).await,
        Verdict::Written => Ok(()),
    }
}
