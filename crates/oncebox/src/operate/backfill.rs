//! Entries for a handler that was added after the messages came: recorded, capped, and carried on after a crash.

use serde_json::{Value, json};

use super::{OperationReport, OperationState, note, record_of, report_of, unreadable};
use crate::error::Result;
use crate::name::InboxName;
use crate::store::{
    Action, ActionKind, Actor, Admin, BackfillParams, OperationId, OperationView, Route, Seq,
};

/// Entries for one handler, for messages that were stored before it was there.
///
/// Whoever knows the handlers of an inbox calls [`Inbox::backfill`](crate::Inbox::backfill), which checks that the handler may have
/// them. This is for operators, who know its key and its types.
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
    /// The identity of the operation. Running it again under the same one carries it on.
    pub id: OperationId,
    /// The inbox.
    pub inbox: InboxName,
    /// The handler that gets entries. A message that has one under a legacy key gets none.
    pub route: Route,
    /// The types of messages it handles, or patterns of them (`order.*`).
    pub types: Vec<Box<str>>,
    /// How many entries at most. Default: all there are.
    pub limit: usize,
    /// Who asks for it.
    pub actor: Box<str>,
    /// The name of the token that the request came with, if it came with one.
    pub token: Option<Box<str>>,
    /// Why.
    pub reason: Box<str>,
}

impl Backfill {
    /// Everything that is stored, for a handler of some types.
    pub fn new(inbox: InboxName, route: Route, types: Vec<Box<str>>) -> Self {
        let (id, actor) = (OperationId::fresh(), Action::UNKNOWN_ACTOR.into());
        Self { id, inbox, route, types, limit: usize::MAX, actor, token: None, reason: "".into() }
    }

    /// The same, with who asks for it and why.
    #[must_use]
    pub fn by<'a>(mut self, actor: impl Into<Actor<'a>>, reason: &str) -> Self {
        let Actor { name, token } = actor.into();
        (self.actor, self.token, self.reason) = (name.into(), token.map(Into::into), reason.into());
        self
    }

    /// The same, under an identity that was made before.
    #[must_use]
    pub fn id(mut self, id: OperationId) -> Self {
        self.id = id;
        self
    }

    /// Does it, or carries it on from where it was. An error leaves it where it was noted last; run it again.
    pub async fn run<S: Admin + ?Sized>(&self, store: &S) -> Result<OperationReport> {
        self.run_with_progress(store, |_| {}).await
    }

    /// The same, and tells after every page how far it has come.
    pub async fn run_with_progress<S: Admin + ?Sized>(
        &self,
        store: &S,
        mut told: impl FnMut(&OperationReport) + Send,
    ) -> Result<OperationReport> {
        let what = ActionKind::Backfill { handler: self.route.key.clone(), kinds: self.types.clone() };
        let actor = Actor::from(&self.actor).with_token(self.token.as_deref());
        let action = Action::new(self.inbox.clone(), what).id(self.id).by(actor, &self.reason);
        store.act(&action).await?;
        let record = record_of(store, &self.inbox, self.id).await?;
        let (mut noted, mut at) = Place::of(&record)?;
        let mut params = BackfillParams::new(self.inbox.clone(), self.route.clone(), self.types.clone());
        let page = params.limit;
        while at.state == OperationState::Running {
            // A page looks at no more messages than may still get an entry.
            (params.after, params.limit) = (at.after, page.min(self.limit.saturating_sub(at.done)));
            if params.limit == 0 {
                at.state = OperationState::Capped;
            } else {
                let page = store.backfill(&params).await?;
                at.done += page.added;
                match page.next {
                    None => at.state = OperationState::Finished,
                    next => at.after = next,
                }
            }
            note(store, self.id, &mut noted, &at.encode()).await?;
            told(&at.report(self.id));
        }
        Ok(at.report(self.id))
    }

    /// How far it has come; nothing if it was never begun.
    pub async fn report<S: Admin + ?Sized>(&self, store: &S) -> Result<Option<OperationReport>> {
        report_of(store, &self.inbox, self.id).await
    }
}

/// Where it stands. What is done after this was noted last, and lost with the process, is found done when it is carried on, and
/// not counted again.
pub(super) struct Place {
    state: OperationState,
    after: Option<Seq>,
    done: usize,
}

impl Place {
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
