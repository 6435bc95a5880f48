//! Operations on many entries: previewed, capped, slow at first, stopped on failures, resumed after a crash. Tests: `tests/operate.rs`.
//!
//! [`Operate::act`](crate::store::Operate::act) changes each entry under an id derived from the operation's id, so a repeat changes nothing twice. The
//! record of the operation stores its progress.
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

/// Time of one step. The operation checks the results of a step before the next one.
const STEP: Duration = Duration::from_secs(1);
/// Maximum entries per step that are checked for new failures.
const WATCHED: usize = 50;

/// An operation on every entry that matches a filter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BulkOperation {
    /// Id of the operation. A run with the same id resumes it.
    pub id: OperationId,
    /// Operation on each entry.
    pub operation: Operation,
    /// Filter that selects the entries.
    pub filter: EntryFilter,
    /// Maximum entries. Default: 1,000.
    pub limit: usize,
    /// Entries per second at full speed. It starts with one and doubles every second. Default: 50.
    pub per_second: usize,
    /// Maximum retried or replayed entries that may be poisoned again before the operation stops. Default: 10.
    pub failures: usize,
    /// True to resume an operation that failures stopped. Default: false.
    pub go_on: bool,
    /// Actor for the audit record.
    pub actor: Box<str>,
    /// Name of the API token of the request, if it had one.
    pub token: Option<Box<str>>,
    /// Reason for the audit record.
    pub reason: Box<str>,
}

impl BulkOperation {
    /// Makes an operation on the entries that match a filter. A filter with only an inbox and statuses is refused: see
    /// [`on_everything`](Self::on_everything). Default statuses: those that the operation applies to.
    pub fn new(operation: Operation, filter: EntryFilter) -> Result<Self> {
        if !filter.is_narrow() {
            let what = format!("{} needs a narrower filter than a whole inbox", operation.as_str());
            return Err(Error::new(ErrorKind::Refused, what));
        }
        Self::on_everything(operation, filter)
    }

    /// Like [`new`](Self::new), and accepts a filter that selects every entry with a status. A status that the operation
    /// never applies to is refused.
    pub fn on_everything(operation: Operation, mut filter: EntryFilter) -> Result<Self> {
        if let Some(status) = filter.statuses.iter().find(|status| !operation.is_for(**status)) {
            let good = Status::ALL.into_iter().filter(|status| operation.is_for(*status));
            let good = good.map(Status::as_str).collect::<Vec<_>>().join(" or ");
            let what = format!("{} is for entries that are {good}, never {status}", operation.as_str());
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        if filter.statuses.is_empty() {
            filter.statuses = vec![operation.usual_status()];
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

    /// Sets the actor and the reason.
    #[must_use]
    pub fn by<'a>(mut self, actor: impl Into<Actor<'a>>, reason: &str) -> Self {
        let Actor { name, token, .. } = actor.into();
        (self.actor, self.token, self.reason) = (name.into(), token.map(Into::into), reason.into());
        self
    }

    fn actor(&self) -> Actor<'_> {
        Actor::from(&self.actor).with_token(self.token.as_deref())
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: OperationId) -> Self {
        self.id = id;
        self
    }

    /// Returns the number of matching entries and the first of them, and changes nothing.
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
                // A filter with few matches would read all history for a preview.
                Some(_) if looked == OperationPreview::PAGES => {
                    preview.more = true;
                    break;
                }
                next => filter.after = next,
            }
        }
        Ok(preview)
    }

    /// Starts or resumes the operation. After an error the last recorded progress remains; run it again.
    pub async fn run<S: Admin + ?Sized>(&self, store: &S, clock: &SharedClock) -> Result<OperationReport> {
        self.run_with_progress(store, clock, |_| {}).await
    }

    /// Like [`run`](Self::run), and calls `progress` after every step.
    pub async fn run_with_progress<S: Admin + ?Sized>(
        &self,
        store: &S,
        clock: &SharedClock,
        mut progress: impl FnMut(&OperationReport) + Send,
    ) -> Result<OperationReport> {
        let what = ActionKind::Bulk {
            operation: self.operation,
            filter: Box::new(self.filter.clone()),
            limit: self.limit,
        };
        let action = Action::new(self.filter.inbox.clone(), what).id(self.id).by(self.actor(), &self.reason);
        store.act(&action).await?;
        let mut run = BulkRun::load(self, store).await?;
        let stopped = run.progress.state == OperationState::Stopped && !self.go_on;
        if stopped || matches!(run.progress.state, OperationState::Finished | OperationState::Capped) {
            return Ok(run.progress.report(self.id));
        }
        run.resume();
        // Take over first, then load what was done: the process that ran it before may have changed more entries meanwhile.
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
            progress(&run.progress.report(self.id));
            if some && run.progress.state == OperationState::Running {
                clock.sleep(STEP).await;
                speed = (speed * 2).min(self.per_second.max(1));
            }
        }
        Ok(run.progress.report(self.id))
    }

    /// Returns the last recorded progress, or `None` if the operation never started.
    pub async fn report<S: Admin + ?Sized>(&self, store: &S) -> Result<Option<OperationReport>> {
        report_of(store, &self.filter.inbox, self.id).await
    }
}

/// Result of [`BulkOperation::preview`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OperationPreview {
    /// Number of entries that the operation would change.
    pub count: usize,
    /// True if more entries match than the limit allows, or may match: a preview reads at most [`Self::PAGES`] pages.
    pub more: bool,
    /// First entries that match.
    pub first: Vec<EntryView>,
}

impl OperationPreview {
    /// Maximum entries in a preview.
    pub const SHOWN: usize = 10;
    /// Maximum pages that a preview reads.
    pub const PAGES: usize = 500;
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationState {
    /// It runs, or was interrupted.
    Running,
    /// It has handled every matching entry.
    Finished,
    /// It reached its limit of entries.
    Capped,
    /// Too many entries failed again.
    Stopped,
}

impl OperationState {
    const ALL: [Self; 4] = [Self::Running, Self::Finished, Self::Capped, Self::Stopped];

    /// Returns the state as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Capped => "capped",
            Self::Stopped => "stopped",
        }
    }
}

/// Progress of an operation, recorded after every step. An interrupted operation may have done one step more; the next
/// run finds that out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationReport {
    /// Id of the operation.
    pub id: OperationId,
    /// State of the operation.
    pub state: OperationState,
    /// Number of changed entries.
    pub done: usize,
    /// Number of entries that had changed before their turn, and were skipped.
    pub refused: usize,
    /// Number of changed entries that were poisoned again.
    pub failed: usize,
}

impl OperationReport {
    /// Reads the progress from the record of an operation. `None` for an operation that has only one step.
    pub fn of(record: &OperationView) -> Result<Option<Self>> {
        Ok(match &*record.verb {
            "bulk" => Some(BulkProgress::of(record)?.1.report(record.id)),
            "backfill" => Some(backfill::BackfillProgress::of(record)?.1.report(record.id)),
            _ => None,
        })
    }
}

/// Progress in the record of a bulk operation.
#[derive(Clone, Debug)]
struct BulkProgress {
    state: OperationState,
    cursor: Option<EntryCursor>,
    done: usize,
    refused: usize,
    failed: usize,
}

impl BulkProgress {
    /// Reads the progress in a record, and the number of its updates.
    fn of(record: &OperationView) -> Result<(u32, Self)> {
        let Some((noted, text)) = &record.progress else {
            let state = OperationState::Running;
            return Ok((0, Self { state, cursor: None, done: 0, refused: 0, failed: 0 }));
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

/// A run of a bulk operation.
struct BulkRun<'a, S: ?Sized> {
    bulk: &'a BulkOperation,
    store: &'a S,
    progress: BulkProgress,
    noted: u32,
    /// Entries that this run or an earlier one changed.
    done: HashSet<(Key, HandlerKey)>,
    /// Changed entries whose outcome is not known yet.
    watched: VecDeque<(Key, HandlerKey)>,
    /// Failures before the operator resumed the operation.
    forgiven: usize,
}

impl<'a, S: Admin + ?Sized> BulkRun<'a, S> {
    async fn load(bulk: &'a BulkOperation, store: &'a S) -> Result<Self> {
        let (noted, progress) = BulkProgress::of(&record_of(store, &bulk.filter.inbox, bulk.id).await?)?;
        let (done, watched) = (HashSet::new(), VecDeque::new());
        Ok(Self { bulk, store, progress, noted, done, watched, forgiven: 0 })
    }

    /// Resumes. After a crash the run checks every changed entry again. After a stop by failures, only failures from now on
    /// count.
    fn resume(&mut self) {
        if self.progress.state == OperationState::Stopped {
            self.forgiven = self.progress.failed;
        } else {
            self.progress.failed = 0;
        }
        self.progress.state = OperationState::Running;
    }

    /// Loads the changed entries: each has an audit record.
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

    /// Changes the next entries. Returns true if there were any.
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
            // A worker or another operator was faster.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotFound) => {
                self.progress.refused += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Checks some of the changed entries, and stops if too many failed again.
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
        let failures = self.progress.failed - self.forgiven;
        if failures > self.bulk.failures && self.progress.state == OperationState::Running {
            self.progress.state = OperationState::Stopped;
        }
        Ok(())
    }

    async fn note(&mut self) -> Result<()> {
        note(self.store, self.bulk.id, &mut self.noted, &self.progress.encode()).await
    }
}

/// Returns the record of an operation that has started.
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

/// Returns the progress of an operation, or `None` if it never started.
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

/// Records the progress of an operation, unless another process runs it.
async fn note<S: Admin + ?Sized>(store: &S, id: OperationId, noted: &mut u32, progress: &str) -> Result<()> {
    if !store.progress(id, *noted, progress).await? {
        let what = format!("another process runs the operation {id}");
        return Err(Error::new(ErrorKind::Refused, what));
    }
    *noted += 1;
    Ok(())
}

fn unreadable(record: &OperationView) -> Error {
    Error::new(ErrorKind::Corrupt, format!("cannot read the progress of the operation {}", record.id))
}
