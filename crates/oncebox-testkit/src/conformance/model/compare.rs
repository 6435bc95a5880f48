//! Comparison of the store's content with the model.

use oncebox::state::Status;
use oncebox::time::Timestamp;

use super::run::{Checked, ModelRun, check, failed, key};
use super::step::{HANDLERS, MESSAGES};
use crate::StoreUnderTest;
use crate::fixture::handler;

impl<S: StoreUnderTest> ModelRun<'_, S> {
    /// Compares the store's content with the model.
    pub(super) async fn compare(&self) -> Checked {
        for id in 0..MESSAGES {
            self.compare_message(id).await?;
        }
        let counts = self.h.store.count(&self.inbox).await.map_err(failed("count"))?;
        let model = &self.model;
        let expected = (model.messages.len() as u64, model.quarantined.len() as u64, model.paused.len());
        let counted = (counts.messages, counts.quarantined, counts.paused.len());
        check(counted == expected, || format!("{counts:?} instead of {expected:?}"))?;
        for status in [Status::Pending, Status::Running, Status::Poisoned] {
            let expected = model.with_status(status) as u64;
            check(counts.with_status(status) == expected, || format!("{counts:?}: {expected} are {status}"))?;
        }
        Ok(())
    }

    async fn compare_message(&self, id: u8) -> Checked {
        let view = self.h.store.show(&self.inbox, &key(&self.inbox, id)).await.map_err(failed("show"))?;
        let stored = view.as_ref().and_then(|view| view.stored.as_ref()).map(|(seq, at, _)| (*seq, *at));
        let expected = self.model.messages.get(&id).map(|stored| (stored.seq, stored.received_at));
        check(stored == expected, || format!("{id} is stored as {stored:?}, not {expected:?}"))?;
        let item = view.as_ref().map_or(0, |view| view.quarantined.len());
        let expected = self.model.quarantined.iter().filter(|(of, _)| *of == id).count();
        check(item == expected, || format!("{item} of {id} are quarantined, not {expected}"))?;
        let views = view.map(|view| view.entries).unwrap_or_default();
        for name in HANDLERS {
            let mut generations = views.iter().filter(|view| view.origin == handler(name));
            let Some(entry) = self.model.entries.get(&(id, name)) else {
                check(generations.next().is_none(), || format!("{id} has no entry for {name}: {views:?}"))?;
                continue;
            };
            // Finished entries stay as they were.
            for (number, past) in (0..).zip(&entry.past) {
                let same = generations.next().is_some_and(|view| {
                    view.generation == number
                        && (view.status, view.attempts, view.suspicion, view.at) == *past
                });
                check(same, || format!("generation {number} of {id} for {name} was {past:?}: {views:?}"))?;
            }
            let (latest, more) = (generations.next(), generations.next());
            check(more.is_none(), || format!("too many entries of {id} for {name}: {views:?}"))?;
            let latest = latest.ok_or_else(|| format!("the entry of {id} for {name} is lost: {views:?}"))?;
            let expected = (entry.status, entry.attempts, entry.suspicion, entry.generation(), entry.in_line);
            let same = (latest.status, latest.attempts, latest.suspicion, latest.generation, latest.in_line);
            check(same == expected, || format!("{id} for {name} is {latest:?}, not {expected:?}"))?;
            let blocked = entry.status == Status::Pending && self.model.is_blocked(entry, name);
            let at = if blocked { Timestamp::MAX } else { entry.at };
            // Releasing an ordered entry may change its time.
            let dated_anew = entry.ordered && entry.status == Status::Pending && latest.at != Timestamp::MAX;
            let right = latest.at == at || (dated_anew && !blocked);
            check(right, || format!("{id} for {name} is at {:?}, not {at:?}", latest.at))?;
        }
        Ok(())
    }
}
