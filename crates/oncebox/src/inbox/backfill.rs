//! Retention advice of an inbox, and backfills for handlers that were added later. Tests: `tests/retention.rs`.

use std::time::Duration;

use super::Inbox;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::RegisteredHandler;
use crate::operate::Backfill;
use crate::retention::RetentionAdvice;
use crate::store::{Admin, Store};

impl<S: Store> Inbox<S> {
    /// Returns the delays of duplicates in this process, and advice about the retention window.
    pub fn retention_advice(&self) -> RetentionAdvice {
        let inbox = &self.shared;
        let default = inbox.config.retention.unwrap_or(Duration::MAX);
        let own = inbox.registry.durable().map(|handler| handler.registration.retention.unwrap_or(default));
        let window = own.min().unwrap_or(default);
        inbox.lateness.advice((window < Duration::MAX).then_some(window))
    }

    /// Adds entries of a handler that was added later to the stored messages of its types, in the order of acceptance, and returns
    /// their number. Messages with an entry under its key or a legacy key get none. So the call can be repeated, also to continue
    /// after an error.
    ///
    /// A message that is older than the handler's watermark gets none either: it may have run before. A warning counts such
    /// messages.
    ///
    /// It does not happen automatically, because another system may have handled the earlier messages.
    pub async fn backfill(&self, handler: &str) -> Result<u64>
    where
        S: Admin,
    {
        let backfill = self.plan_backfill(handler)?;
        let report = backfill.run_with_progress(self.store(), |_| self.shared.local_wakeup.now()).await?;
        Ok(report.done as u64)
    }

    /// Returns a backfill of the handler for an operator, or an error if the handler cannot get entries for earlier messages.
    pub fn plan_backfill(&self, handler: &str) -> Result<Backfill> {
        let found = self.to_backfill(handler)?;
        Ok(Backfill::new(self.name().clone(), found.route.clone(), found.types.clone()))
    }

    /// Returns the handler, if it can get entries for earlier messages.
    fn to_backfill(&self, handler: &str) -> Result<&RegisteredHandler<S>> {
        let registry = &self.shared.registry;
        let found = registry.handlers().find(|one| one.route.key.as_str() == handler);
        let Some(found) = found else {
            let what = format!(
                "no handler is registered under {handler:?}, so nothing was added; use its current key"
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        };
        if !found.registration.is_durable() {
            let what = format!(
                "the handler {handler:?} is inline or fire-and-forget and has no entries, so nothing was added; have its messages \
                 delivered again"
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        }
        // A message under several keys is stored once for each, and would get an entry in each.
        if let Some(kind) = registry.has_several_keys(found) {
            let what = format!(
                "the handlers of type {kind:?} go by several keys, so its messages are stored more than once and {handler:?} would run \
                 for each; nothing was added: have the messages delivered again"
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        }
        Ok(found)
    }
}
