//! Backfill: entries for a handler that was added after the messages. Recorded, capped, resumed after a crash.

use serde_json::{Value, json};

use super::{OperationReport, OperationState, note, record_of, report_of, unreadable};
use crate::error::Result;
use crate::name::InboxName;
use crate::observe::{emit, names};
use crate::store::{
    Action, ActionKind, Actor, Admin, BackfillParams, OperationId, OperationView, Route, Seq,
};

/// A backfill: entries for one handler, for messages that were stored before it was registered.
///
/// A program with the inbox calls [`Inbox::backfill`](crate::Inbox::backfill) or
/// [`Inbox::plan_backfill`](crate::Inbox::plan_backfill), which also check the handler. Operators without the inbox know only
/// the key and the types.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> oncebox::Result<()> {
/// use oncebox::operate::Backfill;
/// use oncebox::store::Route;
/// use oncebox::{HandlerKey, InboxName, Memory};
///
/// let store = Memory::new();
/// let route = Route::new(HandlerKey::new("send-receipt")?);
/// let backfill = Backfill::new(InboxName::new("orders")?, route, vec!["order.*".into()]).by("ada", "receipts are new");
/// assert_eq!(backfill.run(&store).await?.done, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Backfill {
    /// Id of the operation. A run with the same id resumes it.
    pub id: OperationId,
    /// The inbox.
    pub inbox: InboxName,
    /// Handler that gets the entries. A message with an entry under a legacy key is skipped.
    pub route: Route,
    /// Message types of the handler, or patterns (`order.*`).
    pub types: Vec<Box<str>>,
    /// Maximum entries. Default: no limit.
    pub limit: usize,
    /// Actor for the audit record.
    pub actor: Box<str>,
    /// Name of the API token of the request, if it had one.
    pub token: Option<Box<str>>,
    /// Reason for the audit record.
    pub reason: Box<str>,
}

impl Backfill {
    /// Makes a backfill of all stored messages of these types.
    pub fn new(inbox: InboxName, route: Route, types: Vec<Box<str>>) -> Self {
        let (id, actor) = (OperationId::fresh(), Action::UNKNOWN_ACTOR.into());
        Self { id, inbox, route, types, limit: usize::MAX, actor, token: None, reason: "".into() }
    }

    /// Sets the actor and the reason.
    #[must_use]
    pub fn by<'a>(mut self, actor: impl Into<Actor<'a>>, reason: &str) -> Self {
        let Actor { name, token, .. } = actor.into();
        (self.actor, self.token, self.reason) = (name.into(), token.map(Into::into), reason.into());
        self
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: OperationId) -> Self {
        self.id = id;
        self
    }

    /// Starts or resumes the backfill. After an error the last recorded progress remains; run it again.
    pub async fn run<S: Admin + ?Sized>(&self, store: &S) -> Result<OperationReport> {
        self.run_with_progress(store, |_| {}).await
    }

    /// Like [`run`](Self::run), and calls `progress` after every page.
    pub async fn run_with_progress<S: Admin + ?Sized>(
        &self,
        store: &S,
        mut progress: impl FnMut(&OperationReport) + Send,
    ) -> Result<OperationReport> {
        let what = ActionKind::Backfill { handler: self.route.key.clone(), kinds: self.types.clone() };
        let actor = Actor::from(&self.actor).with_token(self.token.as_deref());
        let action = Action::new(self.inbox.clone(), what).id(self.id).by(actor, &self.reason);
        store.act(&action).await?;
        let record = record_of(store, &self.inbox, self.id).await?;
        let (mut noted, mut at) = BackfillProgress::of(&record)?;
        let mut params = BackfillParams::new(self.inbox.clone(), self.route.clone(), self.types.clone());
        let (page, mut stale) = (params.limit, 0);
        while at.state == OperationState::Running {
            // A page reads no more messages than may still get an entry.
            (params.after, params.limit) = (at.after, page.min(self.limit.saturating_sub(at.done)));
            if params.limit == 0 {
                at.state = OperationState::Capped;
            } else {
                let page = store.backfill(&params).await?;
                (at.done, stale) = (at.done + page.added, stale + page.stale);
                if page.added > 0 {
                    let handler = ("handler", self.route.key.to_string().into());
                    emit::count(names::BACKFILLED, page.added as u64, [emit::inbox(&self.inbox), handler]);
                }
                match page.next {
                    None => at.state = OperationState::Finished,
                    next => at.after = next,
                }
            }
            note(store, self.id, &mut noted, &at.encode()).await?;
            progress(&at.report(self.id));
        }
        if stale > 0 {
            let (inbox, handler) = (&self.inbox, &self.route.key);
            tracing::warn!(%inbox, %handler, stale, "messages older than the watermark skipped");
        }
        Ok(at.report(self.id))
    }

    /// Returns the last recorded progress, or `None` if the backfill never started.
    pub async fn report<S: Admin + ?Sized>(&self, store: &S) -> Result<Option<OperationReport>> {
        report_of(store, &self.inbox, self.id).await
    }
}

/// Progress of a backfill. A resumed backfill finds the entries that it added after the last record, and does not count
/// them again.
pub(super) struct BackfillProgress {
    state: OperationState,
    after: Option<Seq>,
    done: usize,
}

impl BackfillProgress {
    pub(super) fn of(record: &OperationView) -> Result<(u32, Self)> {
        let Some((noted, text)) = &record.progress else {
            return Ok((0, Self { state: OperationState::Running, after: None, done: 0 }));
        };
        Ok((*noted, Self::decode(text).ok_or_else(|| unreadable(record))?))
    }

    fn encode(&self) -> String {
        let Self { state, after, done } = self;
        json!({ "state": state.as_str(), "after": after.map(|seq| seq.0), "done": done }).to_string()
    }

    fn decode(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let word = value.get("state")?.as_str()?;
        let state = OperationState::ALL.into_iter().find(|state| state.as_str() == word)?;
        let done = usize::try_from(value.get("done")?.as_u64()?).ok()?;
        Some(Self { state, after: value.get("after")?.as_i64().map(Seq), done })
    }

    pub(super) fn report(&self, id: OperationId) -> OperationReport {
        OperationReport { id, state: self.state, done: self.done, refused: 0, failed: 0 }
    }
}
