//! Operations on many entries: previewed, capped, slow at first, stopped when they do harm, and carried on after a crash.
//!
//! Each entry is done by [`Admin::act`] under an identity that follows from the operation's own, so nothing is done twice
//! however often the operation is run. How far it has come stands with its record.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> oncebox::Result<()> {
//! use oncebox::operate::BulkOperation;
//! use oncebox::state::{Operation, Status};
//! use oncebox::store::EntryFilter;
//! use oncebox::time::SystemClock;
//! use oncebox::{InboxName, Memory};
//!
//! let store = Memory::new();
//! let mut filter = EntryFilter::new(InboxName::new("orders")?, Status::Poisoned);
//! filter.error_contains = Some("connection refused".into());
//! let bulk = BulkOperation::new(Operation::Retry, filter)?.by("ada", "the depot is back");
//! println!("{} entries", bulk.preview(&store).await?.count);
//! let report = bulk.run(&store, &SystemClock::shared()).await?;
//! assert_eq!(report.done, 0);
//! # Ok(()) }
//! ```

mod backfill;

pub use backfill::Backfill;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::{Operation, Status};
use crate::store::{
    Action, ActionKind, Actor, Admin, AuditFilter, EntryCursor, EntryFilter, EntryView, OperationId,
    OperationView,
};
use crate::time::SharedClock;

/// The time of one step: so much is done in it, and what was done is looked at before the next.
const STEP: Duration = Duration::from_secs(1);
/// How many entries are looked at in a step, to see whether they failed again.
const WATCHED: usize = 50;

/// An operation on every entry that a filter takes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BulkOperation {
    /// The identity of the operation. Running it again under the same one carries it on.
    pub id: OperationId,
    /// What to do with each entry.
    pub operation: Operation,
    /// Which entries.
    pub filter: EntryFilter,
    /// How many entries at most. Default 1,000.
    pub limit: usize,
    /// How many entries a second, once it is at full speed. It begins with one, and doubles every second. Default 50.
    pub per_second: usize,
    /// How many of those that were retried or replayed may be poisoned again before it stops. Default 10.
    pub failures: usize,
    /// Whether to carry on one that was stopped by failures. Default: no.
    pub go_on: bool,
    /// Who asks for it.
    pub actor: Box<str>,
    /// The name of the token that the request came with, if it came with one.
    pub token: Option<Box<str>>,
    /// Why.
    pub reason: Box<str>,
}

impl BulkOperation {
    /// An operation on the entries that a filter takes. One that asks for nothing but an inbox and statuses is refused: see
    /// [`on_everything`](Self::on_everything). Without statuses, those are taken that the operation is meant for.
    pub fn new(operation: Operation, filter: EntryFilter) -> Result<Self> {
        if !filter.is_narrow() {
            let what = format!("{} of everything in the inbox was not meant", operation.as_str());
            return Err(Error::new(ErrorKind::Refused, what));
        }
        Self::on_everything(operation, filter)
    }

    /// The same, for a filter that takes everything with a status, on purpose. A status that the operation is never done to is
    /// refused: it would go through all entries that have it, and change none.
    pub fn on_everything(operation: Operation, mut filter: EntryFilter) -> Result<Self> {
        if let Some(status) = filter.statuses.iter().find(|status| !operation.is_for(**status)) {
            let good = Status::ALL.into_iter().filter(|status| operation.is_for(*status));
            let good = good.map(Status::as_str).collect::<Vec<_>>().join(" or ");
            let what = format!("{} is for entries that are {good}, never {status}", operation.as_str());
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        if filter.statuses.is_empty() {
            filter.statuses = vec![match operation {
                Operation::Retry | Operation::Discard | Operation::Unblock => Status::Poisoned,
                Operation::Replay => Status::Completed,
            }];
        }
        (filter.after, filter.limit) = (None, 100);
        Ok(Self {
            id: OperationId::fresh(),
            operation,
            filter,
            limit: 1_000,
            per_second: 50,
            failures: 10,
            go_on: false,
            actor: Action::UNKNOWN_ACTOR.into(),
            token: None,
            reason: "".into(),
        })
    }

    /// The same, with who asks for it and why.
    #[must_use]
    pub fn by<'a>(mut self, actor: impl Into<Actor<'a>>, reason: &str) -> Self {
        let Actor { name, token } = actor.into();
        (self.actor, self.token, self.reason) = (name.into(), token.map(Into::into), reason.into());
        self
    }

    fn actor(&self) -> Actor<'_> {
        Actor::from(&self.actor).with_token(self.token.as_deref())
    }

    /// The same, under an identity that was made before.
    #[must_use]
    pub fn id(mut self, id: OperationId) -> Self {
        self.id = id;
        self
    }

    /// What it would do, without doing it: how many entries there are, and the first of them.
    pub async fn preview<S: Admin + ?Sized>(&self, store: &S) -> Result<OperationPreview> {
        let mut preview = OperationPreview::default();
        let mut filter = self.filter.clone();
        filter.limit = 1_000;
        for looked in 1_usize.. {
            let page = store.list(&filter).await?;
            let room = OperationPreview::SHOWN.saturating_sub(preview.first.len());
            preview.first.extend(page.entries.iter().take(room).cloned());
            preview.count += page.entries.len();
            if preview.count > self.limit {
                (preview.count, preview.more) = (self.limit, true);
                return Ok(preview);
            }
            match page.next {
                None => break,
                // A filter that takes next to nothing would read all history for a look.
                Some(_) if looked == OperationPreview::PAGES => {
                    preview.more = true;
                    break;
                }
                next => filter.after = next,
            }
        }
        Ok(preview)
    }

    /// Does it, or carries it on from where it was. An error leaves it where it was noted last; run it again.
    pub async fn run<S: Admin + ?Sized>(&self, store: &S, clock: &SharedClock) -> Result<OperationReport> {
        self.run_with_progress(store, clock, |_| {}).await
    }

    /// The same, and tells after every step how far it has come.
    pub async fn run_with_progress<S: Admin + ?Sized>(
        &self,
        store: &S,
        clock: &SharedClock,
        mut told: impl FnMut(&OperationReport) + Send,
    ) -> Result<OperationReport> {
        let what = ActionKind::Bulk {
            operation: self.operation,
            filter: Box::new(self.filter.clone()),
            limit: self.limit,
        };
        let action = Action::new(self.filter.inbox.clone(), what).id(self.id).by(self.actor(), &self.reason);
        store.act(&action).await?;
        let mut run = Run::load(self, store).await?;
        let stopped = run.progress.state == OperationState::Stopped && !self.go_on;
        if stopped || matches!(run.progress.state, OperationState::Finished | OperationState::Capped) {
            return Ok(run.progress.report(self.id));
        }
        run.resume();
        // Taken over first, and then looked at what was done: whoever carried it on before may have done something meanwhile.
        run.note().await?;
        run.load_done().await?;
        if run.forgiven > 0 {
            run.watched.clear();
        }
        let mut speed = 1;
        while run.progress.state == OperationState::Running {
            let some = run.step(speed).await?;
            run.watch().await?;
            run.note().await?;
            told(&run.progress.report(self.id));
            if some && run.progress.state == OperationState::Running {
                clock.sleep(STEP).await;
                speed = (speed * 2).min(self.per_second.max(1));
            }
        }
        Ok(run.progress.report(self.id))
    }

    /// How far it has come, as was noted last; nothing if it was never begun.
    pub async fn report<S: Admin + ?Sized>(&self, store: &S) -> Result<Option<OperationReport>> {
        report_of(store, &self.filter.inbox, self.id).await
    }
}

/// What an operation would do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OperationPreview {
    /// How many entries it would be done to.
    pub count: usize,
    /// Whether there are more of them than it may be done to, or there may be: no more than [`Self::PAGES`] pages are looked at.
    pub more: bool,
    /// The first of them.
    pub first: Vec<EntryView>,
}

impl OperationPreview {
    /// How many entries are shown at most.
    pub const SHOWN: usize = 10;
    /// How many pages are looked at.
    pub const PAGES: usize = 500;
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationState {
    /// It is carried on, or was interrupted.
    Running,
    /// It has seen every entry that there was.
    Finished,
    /// It was done to as many entries as it might be.
    Capped,
    /// Too many of those that it was done to failed again.
    Stopped,
}

impl OperationState {
    const ALL: [Self; 4] = [Self::Running, Self::Finished, Self::Capped, Self::Stopped];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Capped => "capped",
            Self::Stopped => "stopped",
        }
    }
}

/// What an operation has done so far, as is noted after every step. One that was interrupted may have done a step more: whoever
/// carries it on finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationReport {
    /// The identity of the operation.
    pub id: OperationId,
    /// Where it stands.
    pub state: OperationState,
    /// To how many entries it was done.
    pub done: usize,
    /// How many had changed before their turn came, so that it could not be done to them.
    pub refused: usize,
    /// How many of those it was done to were seen to be poisoned again.
    pub failed: usize,
}

impl OperationReport {
    /// What the record of an operation says, without another look at the store; nothing if it is none that takes its time.
    pub fn of(record: &OperationView) -> Result<Option<Self>> {
        Ok(match &*record.verb {
            "bulk" => Some(Progress::of(record)?.1.report(record.id)),
            "backfill" => Some(backfill::Place::of(record)?.1.report(record.id)),
            _ => None,
        })
    }
}

/// What is noted with the record of an operation.
#[derive(Clone, Debug)]
struct Progress {
    state: OperationState,
    cursor: Option<EntryCursor>,
    done: usize,
    refused: usize,
    failed: usize,
}

impl Progress {
    /// What is noted with a record, and how often that was.
    fn of(record: &OperationView) -> Result<(u32, Self)> {
        let Some((noted, text)) = &record.progress else {
            return Ok((
                0,
                Self { state: OperationState::Running, cursor: None, done: 0, refused: 0, failed: 0 },
            ));
        };
        Ok((*noted, Self::decode(text).ok_or_else(|| unreadable(record))?))
    }

    fn encode(&self) -> String {
        let cursor = self.cursor.as_ref().map(ToString::to_string);
        let Self { state, done, refused, failed, .. } = self;
        json!({ "state": state.as_str(), "cursor": cursor, "done": done, "refused": refused, "failed": failed })
            .to_string()
    }

    fn decode(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let count = |name: &str| usize::try_from(value.get(name)?.as_u64()?).ok();
        let word = value.get("state")?.as_str()?;
        let cursor = match value.get("cursor")?.as_str() {
            None => None,
            Some(text) => Some(text.parse().ok()?),
        };
        let state = OperationState::ALL.into_iter().find(|state| state.as_str() == word)?;
        let (done, refused, failed) = (count("done")?, count("refused")?, count("failed")?);
        Some(Self { state, cursor, done, refused, failed })
    }

    fn report(&self, id: OperationId) -> OperationReport {
        let Self { state, done, refused, failed, .. } = *self;
        OperationReport { id, state, done, refused, failed }
    }
}

/// An operation that is carried on.
struct Run<'a, S: ?Sized> {
    bulk: &'a BulkOperation,
    store: &'a S,
    progress: Progress,
    noted: u32,
    /// What it was done to, by this run or an earlier one.
    done: HashSet<(Key, HandlerKey)>,
    /// Those of them of which it is not known yet how they ended.
    watched: VecDeque<(Key, HandlerKey)>,
    /// Failures that somebody has seen and gone on.
    forgiven: usize,
}

impl<'a, S: Admin + ?Sized> Run<'a, S> {
    async fn load(bulk: &'a BulkOperation, store: &'a S) -> Result<Self> {
        let (noted, progress) = Progress::of(&record_of(store, &bulk.filter.inbox, bulk.id).await?)?;
        let (done, watched) = (HashSet::new(), VecDeque::new());
        Ok(Self { bulk, store, progress, noted, done, watched, forgiven: 0 })
    }

    /// Goes on from where it was. After a crash everything it was done to is looked at anew; after it was stopped by failures,
    /// and told to go on, only what is done from now on counts.
    fn resume(&mut self) {
        if self.progress.state == OperationState::Stopped {
            self.forgiven = self.progress.failed;
        } else {
            self.progress.failed = 0;
        }
        self.progress.state = OperationState::Running;
    }

    /// What was done before: each entry has a record of its own.
    async fn load_done(&mut self) -> Result<()> {
        let mut filter = AuditFilter::new(self.bulk.filter.inbox.clone());
        (filter.parent, filter.limit) = (Some(self.bulk.id), 1_000);
        loop {
            let page = self.store.audit(&filter).await?;
            for record in page.operations {
                if let (Some(key), Some(handler)) = (record.key, record.handler) {
                    self.add(key, handler);
                }
            }
            match page.next {
                None => break,
                next => filter.before = next,
            }
        }
        self.progress.done = self.done.len();
        Ok(())
    }

    fn add(&mut self, key: Key, handler: HandlerKey) {
        let runs_again = matches!(self.bulk.operation, Operation::Retry | Operation::Replay);
        if self.done.insert((key, handler.clone())) && runs_again {
            self.watched.push_back((key, handler));
        }
        self.progress.done = self.done.len();
    }

    /// Does it to the next entries; says whether there were any.
    async fn step(&mut self, speed: usize) -> Result<bool> {
        let room = self.bulk.limit.saturating_sub(self.done.len());
        if room == 0 {
            self.progress.state = OperationState::Capped;
            return Ok(false);
        }
        let mut filter = self.bulk.filter.clone();
        (filter.after, filter.limit) = (self.progress.cursor.clone(), speed.min(room));
        let page = self.store.list(&filter).await?;
        for entry in &page.entries {
            self.act(entry).await?;
            self.progress.cursor = Some(entry.cursor());
        }
        match page.next {
            None => self.progress.state = OperationState::Finished,
            next => self.progress.cursor = next,
        }
        Ok(!page.entries.is_empty())
    }

    async fn act(&mut self, entry: &EntryView) -> Result<()> {
        let EntryView { key, handler, .. } = entry;
        let what = ActionKind::Entry { key: *key, handler: handler.clone(), operation: self.bulk.operation };
        let mut action = Action::new(self.bulk.filter.inbox.clone(), what)
            .id(self.bulk.id.of_entry(key, handler))
            .by(self.bulk.actor(), &self.bulk.reason);
        action.parent = Some(self.bulk.id);
        match self.store.act(&action).await {
            Ok(_) => self.add(*key, handler.clone()),
            // Somebody else was faster, or a worker.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotFound) => {
                self.progress.refused += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Looks at some of those that it was done to, and stops if too many failed again.
    async fn watch(&mut self) -> Result<()> {
        for _ in 0..self.watched.len().min(WATCHED) {
            let Some((key, handler)) = self.watched.pop_front() else { break };
            let view = self.store.show(&self.bulk.filter.inbox, &key).await?;
            let entries = view.into_iter().flat_map(|view| view.entries);
            let latest =
                entries.filter(|entry| entry.handler == handler).max_by_key(|entry| entry.generation);
            match latest.map(|entry| entry.status) {
                Some(Status::Poisoned) => self.progress.failed += 1,
                Some(Status::Pending | Status::Running) => self.watched.push_back((key, handler)),
                Some(Status::Completed | Status::Discarded) | None => {}
            }
        }
        if self.progress.failed - self.forgiven > self.bulk.failures
            && self.progress.state == OperationState::Running
        {
            self.progress.state = OperationState::Stopped;
        }
        Ok(())
    }

    async fn note(&mut self) -> Result<()> {
        note(self.store, self.bulk.id, &mut self.noted, &self.progress.encode()).await
    }
}

/// The record of an operation that has begun.
async fn record_of<S: Admin + ?Sized>(
    store: &S,
    inbox: &InboxName,
    id: OperationId,
) -> Result<OperationView> {
    let mut filter = AuditFilter::new(inbox.clone());
    (filter.id, filter.limit) = (Some(id), 1);
    let known = store.audit(&filter).await?.operations.into_iter().next();
    known.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no operation {id}")))
}

/// How far an operation has come; nothing if it was never begun.
async fn report_of<S: Admin + ?Sized>(
    store: &S,
    inbox: &InboxName,
    id: OperationId,
) -> Result<Option<OperationReport>> {
    match record_of(store, inbox, id).await {
        Ok(record) => OperationReport::of(&record),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Notes how far an operation has come, unless somebody else carries it on.
async fn note<S: Admin + ?Sized>(store: &S, id: OperationId, noted: &mut u32, progress: &str) -> Result<()> {
    if !store.progress(id, *noted, progress).await? {
        let what = format!("operation {id} is carried on by somebody else");
        return Err(Error::new(ErrorKind::Refused, what));
    }
    *noted += 1;
    Ok(())
}

fn unreadable(record: &OperationView) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the progress of operation {} cannot be read", record.id))
}
