//! Operations and their records in the memory store.

use std::collections::{BTreeMap, HashMap};

use super::tables::{InboxTables, MemoryTables};
use crate::error::Result;
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::store::{
    Acted, Action, ActionKind, ActionResult, AuditFilter, AuditPage, OperationId, OperationView, OrderQueue,
    PausedKey, Route,
};
use crate::time::Timestamp;

/// Records of all inboxes. An identity is used once.
#[derive(Default)]
pub(super) struct Operations {
    by_number: BTreeMap<i64, (InboxName, OperationView)>,
    numbers: HashMap<OperationId, i64>,
    last: i64,
}

impl Operations {
    fn get(&self, id: OperationId) -> Option<&OperationView> {
        self.by_number.get(self.numbers.get(&id)?).map(|(_, view)| view)
    }

    fn add(&mut self, action: &Action, answer: &ActionResult, now: Timestamp) {
        self.last += 1;
        self.numbers.insert(action.id, self.last);
        let view = OperationView::of(action, answer, self.last, now);
        self.by_number.insert(self.last, (action.inbox.clone(), view));
    }

    pub(super) fn page(&self, filter: &AuditFilter) -> AuditPage {
        let before = filter.before.unwrap_or(i64::MAX);
        let wanted = |view: &OperationView| {
            filter.id.is_none_or(|id| view.id == id)
                && filter.parent.is_none_or(|parent| view.parent == Some(parent))
                && filter.key.is_none_or(|key| view.key == Some(key))
                && filter.actor.as_ref().is_none_or(|actor| view.actor == *actor)
                && filter.token.as_ref().is_none_or(|token| view.token.as_ref() == Some(token))
        };
        let all = self.by_number.range(..before).rev().map(|(_, row)| row);
        let theirs = all.filter(|(inbox, view)| *inbox == filter.inbox && wanted(view));
        let mut operations: Vec<_> =
            theirs.take(filter.limit.saturating_add(1)).map(|(_, view)| view.clone()).collect();
        let more = operations.len() > filter.limit;
        operations.truncate(filter.limit);
        let next = operations.last().map(|last| last.number).filter(|_| more);
        AuditPage::new(operations, next)
    }

    /// Changes the results of operations on a key.
    pub(super) fn change_answers(&mut self, key: &Key, change: impl Fn(&str) -> Option<String>) {
        for (_, view) in self.by_number.values_mut().filter(|(_, view)| view.key == Some(*key)) {
            if let Some(answer) = change(&view.answer) {
                view.answer = answer.into();
            }
        }
    }

    /// Changes the requests of operations on an inbox.
    pub(super) fn change_bodies(&mut self, inbox: &InboxName, change: impl Fn(&str) -> Option<String>) {
        for (_, view) in self.by_number.values_mut().filter(|(of, _)| of == inbox) {
            if let Some(body) = change(&view.body) {
                view.body = body.into();
            }
        }
    }

    pub(super) fn note(&mut self, id: OperationId, noted: u32, progress: &str) -> bool {
        let row = self.numbers.get(&id).and_then(|number| self.by_number.get_mut(number));
        let Some((_, view)) = row else { return false };
        let known = view.progress.as_ref().map_or(0, |(noted, _)| *noted);
        if known == noted {
            view.progress = Some((noted + 1, progress.into()));
        }
        known == noted
    }

    /// Deletes the records of an inbox up to a time, and returns their number.
    pub(super) fn forget(&mut self, inbox: &InboxName, horizon: Timestamp) -> usize {
        let (numbers, before) = (&mut self.numbers, self.by_number.len());
        self.by_number.retain(|_, (of, view)| {
            let stays = of != inbox || view.at > horizon;
            if !stays {
                numbers.remove(&view.id);
            }
            stays
        });
        before - self.by_number.len()
    }
}

impl InboxTables {
    fn pause_key(
        &mut self,
        inbox: &InboxName,
        handler: &HandlerKey,
        line: &OrderQueue,
        paused: bool,
    ) -> ActionResult {
        let handler = &self.names.link(&Route::new(handler.clone())).swap_remove(0);
        let key = PausedKey { handler: handler.clone(), line: line.clone() };
        let changed = if paused { self.paused_keys.insert(key) } else { self.paused_keys.remove(&key) };
        if let Some(order) = line.order(inbox).filter(|_| changed) {
            self.indexes.pause_lane(handler, order, paused);
        }
        ActionResult::Changed(changed)
    }
}

impl MemoryTables {
    pub(super) fn act(&mut self, action: &Action, now: Timestamp) -> Result<Acted> {
        if let Some(known) = self.operations.get(action.id) {
            return Acted::again(action, &known.body, &known.reason, &known.answer);
        }
        let scope = self.scope(&action.inbox);
        let answer = match &action.kind {
            ActionKind::Entry { key, handler, operation } => {
                ActionResult::Entry(Box::new(scope.operate(key, handler, *operation, now)?))
            }
            ActionKind::Pause { handler } => {
                let handler = scope.names.link(&Route::new(handler.clone())).swap_remove(0);
                ActionResult::Changed(scope.paused.insert(handler))
            }
            ActionKind::Resume { handler } => {
                let resumed = scope.paused.remove(&scope.names.origin(handler));
                if resumed {
                    scope.indexes.announce();
                }
                ActionResult::Changed(resumed)
            }
            ActionKind::PauseKey { handler, line } => scope.pause_key(&action.inbox, handler, line, true),
            ActionKind::ResumeKey { handler, line } => scope.pause_key(&action.inbox, handler, line, false),
            ActionKind::Purge { age, limit } => ActionResult::Purged(scope.purge(now.before(*age), *limit)),
            ActionKind::Erase { key, discard_unfinished } => {
                let (counts, ids) = scope.erase(key, *discard_unfinished, now)?;
                self.operations.erase(&action.inbox, key, &ids);
                ActionResult::Erased(counts)
            }
            // A bulk operation or a backfill: its caller does the work.
            _ => ActionResult::Begun,
        };
        self.operations.add(action, &answer, now);
        Ok(Acted::now(answer))
    }
}
