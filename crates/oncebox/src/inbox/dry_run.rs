//! Dry runs: runs a handler of this build on a stored message and rolls its transaction back. Tests: `tests/dry_run.rs`.

use std::sync::Arc;

use super::Inbox;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::Function;
use crate::key::Key;
use crate::name::HandlerKey;
use crate::runtime;
use crate::state::{NextState, Outcome, Settlement, Suspicion};
use crate::store::{Admin, Claim, ClaimId, Claimed, Token};

/// Result of a dry run: the outcome of an entry if it ran now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryRun {
    /// Outcome of the handler.
    pub outcome: Outcome,
    /// Next state of the entry under the handler's policy.
    pub next: NextState,
}

impl DryRun {
    /// Returns true if the handler succeeded.
    pub fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }
}

impl<S: Admin> Inbox<S> {
    /// Runs a handler of this build on a stored message, in a transaction that is rolled back. Returns the result of a retry.
    /// Nothing is stored, no attempt is counted, and the entry may be in any state.
    ///
    /// Only for handlers that are [`undoable`](crate::Registration::undoable). The transaction holds its locks until the
    /// handler returns, at most for the handler's timeout or a lease. Checks that the database makes at commit do not run.
    pub async fn dry_run(&self, key: &Key, handler: &str) -> Result<DryRun> {
        let name = HandlerKey::new(handler)?;
        let refuse = |what: String| Error::new(ErrorKind::Refused, what);
        let registered = self.shared.registry.by_key(&name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("this process has no handler {name:?}"))
        })?;
        let open = registered.registration.open_for_dry_run.ok_or_else(|| {
            refuse(format!(
                "the handler {name:?} has no dry run: register it with `undoable` if a rollback undoes its effects"
            ))
        })?;
        if matches!(registered.registration.function, Function::Batch(_)) {
            return Err(refuse(format!("the batch handler {name:?} has no dry run")));
        }
        let unknown =
            || Error::new(ErrorKind::NotFound, format!("no entry of handler {name:?} is stored for {key}"));
        let view = self.store().show(self.name(), key).await?.ok_or_else(unknown)?;
        // Another process may have renamed the handler. This one then knows the entry by its origin.
        let known = |key: &HandlerKey| registered.route.answers_to(key);
        let entries = view.entries.iter().filter(|entry| known(&entry.handler) || known(&entry.origin));
        let entry = entries.max_by_key(|entry| entry.generation).ok_or_else(unknown)?;
        let (seq, received_at, message) = view
            .stored
            .as_ref()
            .ok_or_else(|| refuse(format!("the payload of {key} was deleted; only its key is remembered")))?;
        let claim = Claim {
            inbox: self.name().clone(),
            seq: *seq,
            handler: registered.route.key.clone(),
            origin: entry.origin.clone(),
            key: *key,
            // A token that no claim has, so nothing can be written under it.
            token: Token(0),
            claim_id: ClaimId::fresh(),
            // As after a retry.
            attempts: 0,
            suspicion: Suspicion::NONE,
            alone: false,
            generation: entry.generation,
            order: None,
            received_at: *received_at,
            claimed_at: self.shared.clock.now(),
        };
        let claimed = Claimed { claim, message: Arc::clone(message) };
        let (outcome, Settlement { next, .. }) =
            runtime::dry_run(&self.shared, registered, open, &claimed).await?;
        Ok(DryRun { outcome, next })
    }
}
