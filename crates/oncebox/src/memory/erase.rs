//! Erasure of one message in the memory store.

use std::sync::Arc;

use super::operations::Operations;
use super::tables::{InboxTables, MemoryMark};
use crate::error::Result;
use crate::key::{Fingerprint, Key};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{Operation, erase};
use crate::store::{ErasedIds, ErasureCounts, nothing_to_erase};
use crate::time::Timestamp;

impl InboxTables {
    pub(super) fn erase(
        &mut self,
        key: &Key,
        discard_unfinished: bool,
        now: Timestamp,
    ) -> Result<(ErasureCounts, ErasedIds)> {
        let under: Vec<_> = self
            .quarantined
            .range((*key, [0; 16])..=(*key, [u8::MAX; 16]))
            .map(|(under, _)| *under)
            .collect();
        let marks: Vec<_> = self.marks.keys().filter(|(of, _)| of == key).cloned().collect();
        let seq = self.keys.get(key).copied();
        if seq.is_none() && under.is_empty() && marks.is_empty() {
            return Err(nothing_to_erase(key));
        }
        // All decisions come before the first change.
        let entries = seq.and_then(|seq| self.messages.get(&seq)).map(|stored| &stored.entries);
        let mut unfinished: Vec<(HandlerKey, Operation)> = Vec::new();
        for (handler, entry) in entries.into_iter().flatten() {
            unfinished.extend(
                erase(entry.status, discard_unfinished)?.map(|operation| (handler.clone(), operation)),
            );
        }
        for (handler, operation) in &unfinished {
            self.operate(key, handler, *operation, now)?;
        }
        let mut ids = ErasedIds::default();
        if let Some(stored) = seq.and_then(|seq| self.messages.get_mut(&seq)) {
            ids.add(stored.message.id(), stored.message.ordering_key());
            let mut nothing = Message::new("", "", "");
            if let Some(tenant) = stored.message.tenant() {
                nothing = nothing.with_tenant(tenant);
            }
            (stored.message, stored.fingerprint, stored.order) =
                (Arc::new(nothing), Fingerprint::ERASED, None);
            stored.attempts.clear();
            for entry in stored.entries.values_mut() {
                (entry.error, entry.order) = (None, None);
                entry.past.iter_mut().for_each(|past| past.error = None);
            }
        }
        for under in &under {
            if let Some(item) = self.quarantined.remove(under) {
                ids.add(item.message.id(), item.message.ordering_key());
                self.quarantined_ids.remove(&item.id);
            }
        }
        for mark in &marks {
            if let Some(MemoryMark::Done(fingerprint, result)) = self.marks.get_mut(mark) {
                (*fingerprint, *result) = (None, None);
            }
        }
        Ok((ErasureCounts::new(unfinished.len(), under.len()), ids))
    }
}

impl Operations {
    /// Removes content of a message from the records of earlier operations.
    pub(super) fn erase(&mut self, inbox: &InboxName, key: &Key, ids: &ErasedIds) {
        self.change_bodies(inbox, |body| ids.without(body));
        self.change_answers(key, crate::store::ActionResult::without_content);
    }
}
