//! Removes what is finished and past its retention.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::error::Result;
use crate::inbox::Shared;
use crate::store::{Store, SweepParams};

/// Messages looked at in one call.
const BATCH: usize = 10_000;

pub(super) async fn run<S: Store>(core: Arc<Core<S>>, retention: Duration) -> Result<()> {
    loop {
        tokio::select! {
            () = core.inbox.clock.sleep(core.inbox.config.sweep) => {}
            () = core.stop.wait() => return Ok(()),
        }
        match sweep(&core.inbox, retention).await {
            Ok(0) => tracing::debug!(inbox = %core.inbox.name, "nothing to sweep"),
            Ok(removed) => tracing::info!(inbox = %core.inbox.name, removed, "swept"),
            Err(error) => {
                tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot sweep; trying again later");
            }
        }
    }
}

/// Looks at everything that is old enough, page by page; returns how many messages were removed.
pub(crate) async fn sweep<S: Store>(inbox: &Shared<S>, retention: Duration) -> Result<usize> {
    let mut params = SweepParams::new(inbox.name.clone(), retention, BATCH);
    let mut removed = 0;
    loop {
        let swept = inbox.store.sweep(&params).await?;
        removed += swept.messages;
        match swept.next {
            Some(next) => params.after = Some(next),
            None => return Ok(removed),
        }
    }
}
