//! Dry runs: runs a handler of this build on a stored message and rolls its transaction back.

use std::sync::Arc;

use super::Inbox;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::Function;
use crate::key::Key;
use crate::name::HandlerKey;
use crate::runtime;
use crate::state::{NextState, Outcome, Settlement, Suspicion};
use crate::store::{Admin, Claim, ClaimId, Claimed, Token};

/// What would become of an entry if it ran now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryRun {
    /// What the handler said.
    pub outcome: Outcome,
    /// Where the entry would go, as the handler's policy has it.
    pub next: NextState,
}

impl DryRun {
    /// Whether the handler did its work.
    pub fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }
}

impl<S: Admin> Inbox<S> {
    /// Runs a handler of this build on a stored message, in a transaction that is rolled back: what would happen if the entry was
    /// retried. Nothing is stored, no attempt is counted, and the entry may be in any state.
    ///
    /// Only for handlers that are [`undoable`](crate::Registration::undoable); others are refused, because what they do cannot be
    /// undone. The transaction holds its locks until the handler returns, and at the longest for the handler's timeout, or a
    /// lease. What the database checks at the commit is not checked.
    pub async fn dry_run(&self, key: &Key, handler: &str) -> Result<DryRun> {
        let name = HandlerKey::new(handler)?;
        let refuse = |what: String| Error::new(ErrorKind::Refused, what);
        let registered = self.shared.registry.by_key(&name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("this process has no handler {name:?}"))
        })?;
        let open = registered.registration.open_for_dry_run.ok_or_else(|| {
            refuse(format!(
                "what the handler {name:?} does cannot be undone: it is not registered with `undoable`"
            ))
        })?;
        if matches!(registered.registration.function, Function::Batch(_)) {
            return Err(refuse(format!("{name:?} is a batch handler: it takes more than one message")));
        }
        let unknown =
            || Error::new(ErrorKind::NotFound, format!("no entry of handler {name:?} is stored for {key}"));
        let view = self.store().show(self.name(), key).await?.ok_or_else(unknown)?;
        // Another process may have renamed it: then this one knows the entry by its origin.
        let known = |key: &HandlerKey| registered.route.answers_to(key);
        let entries = view.entries.iter().filter(|entry| known(&entry.handler) || known(&entry.origin));
        let entry = entries.max_by_key(|entry| entry.generation).ok_or_else(unknown)?;
        let (seq, received_at, message) = view
            .stored
            .as_ref()
            .ok_or_else(|| refuse(format!("the payload of {key} has left; only its key is remembered")))?;
        let claim = Claim {
            inbox: self.name().clone(),
            seq: *seq,
            handler: registered.route.key.clone(),
            origin: entry.origin.clone(),
            key: *key,
            // Nobody's: nothing can be written under it.
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
