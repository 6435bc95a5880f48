//! Pauses and resumes of a handler, under its current and former keys, or of one of its ordering keys. Tests:
//! `tests/operate/actions.rs` and `tests/serve/api/one.rs`.

use std::collections::BTreeSet;

use oncebox::store::{self, Action, ActionKind, ActionResult, EntryFilter, OrderQueue};
use oncebox::{Error, ErrorKind, HandlerKey};

use super::{OperatorError, OperatorResult, StoreClient, wire};

/// Maximum handlers that an error for an unknown one lists.
const MAX_LISTED: usize = 20;

/// Returns the action that pauses or resumes a handler, or one of its ordering keys.
pub(super) fn hold_of(handler: HandlerKey, line: Option<&OrderQueue>, pause: bool) -> ActionKind {
    match (line.cloned(), pause) {
        (None, true) => ActionKind::Pause { handler },
        (None, false) => ActionKind::Resume { handler },
        (Some(line), true) => ActionKind::PauseKey { handler, line },
        (Some(line), false) => ActionKind::ResumeKey { handler, line },
    }
}

/// A pause or resume of a handler.
pub(super) struct PauseOperation<'a> {
    pub(super) client: &'a StoreClient,
    pub(super) action: &'a Action,
}

impl PauseOperation<'_> {
    /// Returns the former keys of the handler in the configuration. A handler that neither the configuration nor the store knows is
    /// an error unless `unknown` is set: a typing error would look like a success.
    pub(super) async fn legacy(
        &self,
        handler: &HandlerKey,
        unknown: bool,
    ) -> OperatorResult<Vec<HandlerKey>> {
        let StoreClient { store, inbox, plan, words, .. } = self.client;
        let planned = plan.as_ref().map_or(&[][..], |plan| &plan.handlers);
        if let Some(found) = planned.iter().find(|one| one.key == handler.as_str()) {
            return Ok(found.legacy.iter().map(HandlerKey::new).collect::<Result<_, _>>()?);
        }
        if unknown {
            return Ok(Vec::new());
        }
        let counts = store.count(inbox).await?;
        let stored = counts.entries.iter().map(|count| &count.handler).chain(&counts.paused);
        let stored = stored.chain(counts.paused_keys.iter().map(|key| &key.handler)).map(HandlerKey::as_str);
        let planned = planned.iter().flat_map(|one| one.legacy.iter().chain([&one.key])).map(String::as_str);
        let known: BTreeSet<&str> = stored.chain(planned).collect();
        // A store lists a handler under its newest key, and accepts any.
        let mut by_key = EntryFilter::any(inbox.clone());
        (by_key.handler, by_key.limit) = (Some(handler.clone()), 1);
        if !store.list(&by_key).await?.entries.is_empty() {
            return Ok(Vec::new());
        }
        // A repeated request succeeds again, even if the handler is gone by now.
        if known.contains(handler.as_str()) || self.client.record(self.action.id).await?.is_some() {
            return Ok(Vec::new());
        }
        let more = if known.len() > MAX_LISTED { ", and others" } else { "" };
        let there = match known.len() {
            0 => "it has none yet".to_owned(),
            _ => {
                format!("it has {}{more}", known.into_iter().take(MAX_LISTED).collect::<Vec<_>>().join(", "))
            }
        };
        let flag = words.unknown;
        let what = format!(
            "the inbox {inbox} has no handler {handler}; {there}; use {flag} for a handler that does not exist yet"
        );
        Err(Error::new(ErrorKind::NotFound, what).into())
    }

    /// Runs the action for the handler and for each of its former keys.
    pub(super) async fn act(
        &self,
        legacy: &[HandlerKey],
        what: impl Fn(HandlerKey) -> ActionKind,
    ) -> OperatorResult<store::Acted> {
        let action = self.action;
        let mut acted = self.client.store.act(action).await?;
        for key in legacy {
            let mut part = action.clone();
            (part.id, part.parent) = (action.id.of_legacy(key), Some(action.id));
            part.kind = what(key.clone());
            let done = self.client.store.act(&part).await.map_err(|error| {
                let verb = action.kind.verb();
                let what = format!("{verb} was done, but its outcome for the former key {key} is unknown");
                Error::new(ErrorKind::CommitUnknown, what).caused_by(error)
            })?;
            if done.answer == ActionResult::Changed(true) {
                acted.answer = ActionResult::Changed(true);
            }
        }
        Ok(acted)
    }
}

/// Returns the ordering key of a request.
pub(super) fn queue_of(named: &wire::OrderingKeyRef) -> OperatorResult<OrderQueue> {
    let bytes: Box<[u8]> = match (&named.ordering_key, &named.ordering_key_hex) {
        (Some(text), None) => text.as_bytes().into(),
        (None, Some(digits)) => unhex(digits)?,
        _ => {
            let what = "name the ordering key with `ordering_key` or with `ordering_key_hex`";
            return Err(OperatorError::Invalid(what.into()));
        }
    };
    let mut queue = OrderQueue::new(named.source.as_deref().unwrap_or_default(), bytes);
    queue.tenant = named.tenant.as_deref().map(Into::into);
    Ok(queue)
}

fn unhex(digits: &str) -> OperatorResult<Box<[u8]>> {
    let pair = |at: usize| {
        let pair = digits.get(at..at + 2).filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Box<[u8]>> = (0..digits.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| OperatorError::Invalid("`ordering_key_hex` is not hexadecimal".into()))
}
