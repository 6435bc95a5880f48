//! Runs a handler on a stored message in a transaction that is rolled back. Tests: `tests/dry_run.rs`.

use std::sync::Arc;

use super::executor::{HandlerFailure, context, failed, run};
use crate::error::Result;
use crate::handler::{OpenInline, RegisteredHandler};
use crate::inbox::Shared;
use crate::state::{Outcome, Settlement};
use crate::store::{Claimed, Store};

/// Runs a handler in a transaction and rolls it back. Returns its outcome and the settlement that would follow.
pub(crate) async fn dry_run<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &RegisteredHandler<S>,
    open: OpenInline<S>,
    claimed: &Claimed,
) -> Result<(Outcome, Settlement)> {
    let (store, _) = inbox.surroundings();
    let mut context = context(inbox, claimed);
    context.set_tx(open(store).await?);
    let longest = inbox.config.lease;
    let said = tokio::select! {
        biased;
        ended = run(handler, &claimed.message, &mut context, inbox) => ended.err().unwrap_or_else(|| Outcome::Done.into()),
        () = inbox.clock.sleep(longest) => failed(inbox, &format!("the handler did not finish within {longest:?}")),
    };
    if let Some(tx) = context.take_tx() {
        tx.rollback().await;
    }
    let HandlerFailure { outcome, .. } = &said;
    Ok((outcome.clone(), said.decide(handler, &claimed.claim)))
}
